/* blob_job.h: one job of kind "blob", as its steps make it. Only recon/blob/ includes this. */
#ifndef MRIRECON_BLOB_JOB_H
#define MRIRECON_BLOB_JOB_H

#include "recon/blob/blob.h"
#include "recon/kind_job.h"
#include "recon/mesh/mesh.h"
#include "recon/particle/particles.h"
#include "recon/volume/volume.h"

/* What read() gives. */
struct blob_input {
    struct particles particles;
    double seconds;
};

struct blob_job {
    struct kind_job job;
    const struct particles *particles;
    struct blob_law law;
    size_t frames;  /* of the file, that are summed, from the first on */
    size_t volumes; /* that these give: 1 for their mean */
    size_t points;  /* of a frame, that have a radius */
    double *at;     /* [frames][points][3], angstroms */
    float *radius;  /* [frames][points] */
    struct volume *volume;
    struct mesh *mesh;
};

/* Choose the points and their radii from the input: job->frames to job->radius. Fails with ERR_BAD_PARAMETER (a
 * mesh of several volumes), ERR_MALFORMED_FILE (no radius and no element that has one), ERR_NO_MEMORY. */
int blob_points_choose(struct blob_job *job);

/* Lay the lattice around the points, and sum the density on it: job->volume. Before anything is summed, the memory that
 * it takes and the bytes of its file are compared with what there is. Fails with ERR_RESULT_TOO_LARGE, ERR_SPOOL_FULL,
 * ERR_NO_MEMORY, ERR_CANCELED. */
int blob_density(struct blob_job *job);

/* Extract and measure the surface: job->mesh. Fails likewise. */
int blob_surface(struct blob_job *job);

/* Whether the job is asked for it. */
static inline bool blob_wants(const struct blob_job *job, enum blob_result result)
{
    return job->job.request->values->value[BLOB_RESULTS_WANTED].integer >> result & 1;
}

#endif
