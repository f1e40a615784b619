/* cutcp_job.h: the places in the table of kind "cutcp", and what its files share. Only recon/cutcp/ includes this. */
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
    CUTCP_CHARGES
};
enum { CUTCP_UNITS_E_PER_A, CUTCP_UNITS_KT_PER_E };
enum { CUTCP_FRAMES_EACH, CUTCP_FRAMES_MEAN, CUTCP_FRAMES_FIRST };
enum cutcp_step { CUTCP_STEP_READ, CUTCP_STEP_POTENTIAL, CUTCP_STEP_WRITE };

struct cutcp_job {
    struct kind_job job;
    const struct particles *particles;
    struct range_box box; /* the lattice; positions are summed relative to `origin`, so that its own is 0 */
    double origin[3];     /* of node (0, 0, 0), angstroms */
    size_t frames;        /* of the file that are summed */
    struct volume *volume;
};

/* Parameter box: three lengths with commas; "": none (*given is false). Fails with ERR_BAD_PARAMETER. */
int cutcp_box_parse(const struct param_values *values, double length[3], bool *given);

/* Lay the lattice: job->box, ->origin and ->frames, from the particles of the frames that are wanted. Fails with
 * ERR_BAD_PARAMETER (periodic, and no box is told; more nodes than an axis has). */
int cutcp_lattice(struct cutcp_job *job);

/* Sum the potential into job->volume. The bytes of its files and the memory that it takes are promised before. Fails
 * with ERR_RESULT_TOO_LARGE, ERR_SPOOL_FULL, ERR_NO_MEMORY, ERR_GPU_OOM, ERR_CANCELED. */
int cutcp_potential(struct cutcp_job *job);

#endif
