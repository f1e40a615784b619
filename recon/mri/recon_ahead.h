/* recon_ahead.h: images that are computed while their scan arrives. Only recon/mri/ includes this.
 *
 * Of a scan that arrives, the readouts up to the end of a repetition are a scan of their own: a job on it makes its
 * images, and the next one, on a longer beginning or on the whole scan, takes them (recon_made.h).
 *
 * A repetition is taken to be complete when the next one begins, and has an image of every slice, phase, contrast and
 * set that the header's encodingLimits count; the last one is with the end of the stream.
 */
#ifndef MRIRECON_RECON_AHEAD_H
#define MRIRECON_RECON_AHEAD_H

#include "recon/kind_run.h"

/* See kind_run.h. */
int recon_ahead_create(void **ahead, int memory);
int recon_ahead_go(void *ahead, struct dev *dev, const struct job_request *request, const struct job_listener *listener,
                   bool *over);
void recon_ahead_free(void *ahead);

#endif
