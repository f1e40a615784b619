/* recon_ahead.h: computes images while their scan arrives. Only recon/mri/ includes this.
 *
 * The readouts of an arriving scan up to the end of a repetition are treated as a scan of their own: a job on that scan
 * makes the repetition's images, and the next job, on more repetitions or on the whole scan, reuses them
 * (recon_made.h).
 *
 * A repetition is complete when the next one has begun and it has an image of every slice, phase, contrast and set
 * within the header's encodingLimits; the last repetition is complete at the end of the stream.
 */
#ifndef MRIRECON_RECON_AHEAD_H
#define MRIRECON_RECON_AHEAD_H

#include "recon/kind_run.h"

/* See kind_run.h. */
int recon_ahead_create(void **ahead, int memory);
int recon_ahead_go(void *ahead, struct dev *dev, const struct job_request *request, const struct job_listener *listener,
                   bool *more, bool *over);
void recon_ahead_free(void *ahead);

#endif
