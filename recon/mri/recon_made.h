/* recon_made.h: images computed from the beginning of a scan, for a job on more of it. Only recon/mri/ includes this.
 *
 * A job reuses every image that it would compute identically: from the same readouts, with the same decisions (unit of
 * the trajectory, whitening, sizes). It computes all others, so an image has the same bits however the scan arrived.
 */
#ifndef MRIRECON_RECON_MADE_H
#define MRIRECON_RECON_MADE_H

#include "recon/mri/recon_gridder.h"
#include "recon/mri/recon_parts.h"
#include "recon/mri/recon_seen.h"

struct recon_made;

/* Take from job->before the images that this job would compute identically, with their entries of the report, and mark
 * them in job->made. A job on a beginning (job->keep) may take their memory: job->lent. */
void recon_made_take(struct gridder *g);
/* Give that memory back, if the job has not moved its images: before job->images is freed. */
void recon_made_return(struct recon_job *job);
/* Whether image `f` was computed before, from the same readouts. */
bool recon_made_before(const struct recon_job *job, size_t f);
/* Move the job's images to *job->keep. Fails with ERR_NO_MEMORY. */
int recon_made_keep(struct gridder *g);
void recon_made_free(struct recon_made *made);

/* What was computed of a beginning: the images of the newest job on it, and samples of the image after them; and what
 * its readouts were found to be. */
struct recon_begun {
    struct recon_made *made; /* NULL: none */
    struct recon_feed feed;
    struct recon_seen seen;
    size_t host_memory; /* bytes that were available at the last look or shortly before; 0: unknown */
};
/* Of recon_ahead_create(), whose first member it is. */
const struct recon_begun *recon_begun_of(const void *ahead);

#endif
