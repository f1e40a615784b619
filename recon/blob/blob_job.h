/* blob_job.h: the state of one job of kind "blob". Only recon/blob/ includes this. */
#ifndef MRIRECON_BLOB_JOB_H
#define MRIRECON_BLOB_JOB_H

#include "recon/blob/blob.h"
#include "recon/kind_job.h"
#include "recon/mesh/mesh.h"
#include "recon/particle/particles.h"
#include "recon/volume/volume.h"

/* The output of read(). */
struct blob_input {
    struct particles particles;
    double seconds;
};

struct blob_job {
    struct kind_job job;
    const struct particles *particles;
    struct blob_law law;
    size_t frames;  /* number of the file's frames that are summed, starting with the first */
    size_t volumes; /* number of volumes; 1 for the mean */
    size_t points;  /* per frame, those with a radius */
    double *at;     /* [frames][points][3], angstroms */
    float *radius;  /* [frames][points] */
    struct volume *volume;
    struct mesh *mesh;
    double shares[BLOB_STEPS]; /* of the steps of the job */
};

/* Select the points and their radii: sets job->frames to job->radius. Fails with ERR_BAD_PARAMETER (a mesh of several
 * volumes), ERR_MALFORMED_FILE (neither a radius nor an element with a known one), ERR_NO_MEMORY. */
int blob_points_choose(struct blob_job *job);

/* Place the lattice around the points and sum the density on it, into job->volume. The memory and the file size needed
 * are compared with what is available before the summation. Fails with ERR_RESULT_TOO_LARGE, ERR_SPOOL_FULL,
 * ERR_NO_MEMORY, ERR_CANCELED. */
int blob_density(struct blob_job *job);

/* Extract and measure the surface, into job->mesh. Fails like blob_density(). */
int blob_surface(struct blob_job *job);

/* Whether the job requests this result. */
static inline bool blob_wants(const struct blob_job *job, enum blob_result result)
{
    return job->job.request->values->value[BLOB_RESULTS_WANTED].integer >> result & 1;
}

#endif
