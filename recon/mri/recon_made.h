/* recon_made.h: images that a job on the beginning of a scan made, for the job on more of it. Only recon/mri/ includes
 * this.
 *
 * A job takes every image that it would compute alike: from the same readouts, with the same decisions (unit of the
 * trajectory, whitening, sizes). What differs it computes itself. So an image has the same bits however the scan
 * arrived.
 */
#ifndef MRIRECON_RECON_MADE_H
#define MRIRECON_RECON_MADE_H

#include "recon/mri/recon_gridder.h"

struct recon_made;

/* Take from job->before the images that this job would compute alike, and what its report says of them; they are marked
 * in job->made. */
void recon_made_take(struct gridder *g);
/* Move the job's images to *job->keep. Fails with ERR_NO_MEMORY. */
int recon_made_keep(struct gridder *g);
void recon_made_free(struct recon_made *made);

/* What the newest job on a beginning has made; `ahead`: of recon_ahead_create(), or NULL. NULL: nothing. */
const struct recon_made *recon_made_of(const void *ahead);

#endif
