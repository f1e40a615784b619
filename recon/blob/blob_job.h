/* blob_job.h: one job of kind "blob", as its steps make it. Only recon/blob/ includes this. */
#ifndef MRIRECON_BLOB_JOB_H
#define MRIRECON_BLOB_JOB_H

#include "recon/blob/blob.h"
#include "recon/kind_run.h"
#include "recon/mesh/mesh.h"
#include "recon/particle/particles.h"
#include "recon/volume/volume.h"

#include <jansson.h>

struct dev;

/* What read() gives. */
struct blob_input {
    struct particles particles;
    double seconds;
};

struct blob_job {
    struct dev *dev; /* that sums: the job's, or a CPU beside it */
    const struct job_request *request;
    const struct job_listener *listener;
    const struct particles *particles;
    struct blob_law law;
    size_t frames;       /* of the file, that are summed, from the first on */
    size_t volumes;      /* that these give: 1 for their mean */
    size_t points;       /* of a frame, that have a radius */
    double *at;          /* [frames][points][3], angstroms */
    float *radius;       /* [frames][points] */
    uint64_t most_bytes; /* that the files may take */
    struct volume *volume;
    struct mesh *mesh;
    json_t *report;
};

/* Choose the points and their radii from the input: job->frames to job->radius. Fails with ERR_BAD_PARAMETER (a
 * mesh of several volumes), ERR_MALFORMED_FILE (no radius and no element that has one), ERR_NO_MEMORY. */
int blob_points_choose(struct blob_job *job);

/* Lay the lattice around the points, and sum the density on it: job->volume. Before anything is summed, the memory that
 * it takes and the bytes of its file are compared with what there is. Fails with ERR_RESULT_TOO_LARGE, ERR_SPOOL_FULL,
 * ERR_NO_MEMORY, ERR_CANCELED. */
int blob_density(struct blob_job *job);

/* Extract and measure the surface, if it is wanted: job->mesh. Fails likewise. */
int blob_surface(struct blob_job *job);

/* ---- blob_report.c ---- */

bool blob_wants(const struct blob_job *job, enum blob_result result);
/* Tell how far a step is, 0..1. Fails with ERR_CANCELED. */
int blob_tell(const struct blob_job *job, enum blob_step step, double done, int64_t frame, int64_t frames);
void blob_decide(struct blob_job *job, const char *what, const char *value, const char *reason, ...)
    __attribute__((format(printf, 4, 5)));
void blob_warn(struct blob_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Add `bytes` to what the files may take, where there is room. `what` describes them for the sentence. Fails with
 * ERR_RESULT_TOO_LARGE, ERR_SPOOL_FULL. */
int blob_promise(struct blob_job *job, uint64_t bytes, const char *what);

#endif
