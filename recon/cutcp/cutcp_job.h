/* cutcp_job.h: indices into the tables of kind "cutcp", and the state of one job. Only recon/cutcp/ includes this. */
#ifndef MRIRECON_CUTCP_JOB_H
#define MRIRECON_CUTCP_JOB_H

#include "gridding/range/box.h"
#include "recon/cutcp/cutcp_kind.h"
#include "recon/kind_job.h"
#include "recon/particle/particles.h"
#include "recon/volume/volume.h"

enum cutcp_param {
    CUTCP_SPACING,
    CUTCP_CUTOFF,
    CUTCP_PADDING,
    CUTCP_EXCLUSION,
    CUTCP_FORM,
    CUTCP_UNITS,
    CUTCP_PERIODIC,
    CUTCP_BOX,
    CUTCP_FRAMES,
    CUTCP_CHARGES,
    CUTCP_TOLERANCE,
    CUTCP_BIN_DEPTH,
    CUTCP_OVERFLOW
};
enum { CUTCP_UNITS_E_PER_A, CUTCP_UNITS_KT_PER_E };
enum { CUTCP_FRAMES_EACH, CUTCP_FRAMES_MEAN, CUTCP_FRAMES_FIRST };
enum cutcp_step { CUTCP_STEP_READ, CUTCP_STEP_POTENTIAL, CUTCP_STEP_WRITE };

struct cutcp_job {
    struct kind_job job;
    const struct particles *particles;
    struct range_box box; /* the lattice; box.origin is 0: positions are taken relative to `origin` */
    double origin[3];     /* of node (0, 0, 0), angstroms */
    size_t frames;        /* number of the file's frames that are summed */
    struct volume *volume;
};

/* Parse the parameter box: three lengths separated by commas; "": none (*given is false). Fails with ERR_BAD_PARAMETER.
 */
int cutcp_box_parse(const struct param_values *values, double length[3], bool *given);

/* Set job->box, job->origin and job->frames from the particles of the requested frames. Fails with ERR_BAD_PARAMETER
 * (periodic without a box; too many nodes along an axis). */
int cutcp_lattice(struct cutcp_job *job);

/* Sum the potential into job->volume. The memory and the file size needed are compared with what is available first.
 * Fails with ERR_RESULT_TOO_LARGE, ERR_SPOOL_FULL, ERR_NO_MEMORY, ERR_GPU_OOM, ERR_CANCELED. */
int cutcp_potential(struct cutcp_job *job);

#endif
