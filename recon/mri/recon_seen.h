/* recon_seen.h: what the trajectories of a scan that arrives were found to be, readout by readout, so that a look at
 * more of the scan reads the samples of new readouts only. Only recon/mri/ includes this.
 *
 * Only of the worker's own copy of the scan (recon/scan/scan_live.h), which does not change: the decoder may have
 * changed its own since, and the job checks that anew.
 */
#ifndef MRIRECON_RECON_SEEN_H
#define MRIRECON_RECON_SEEN_H

#include "recon/mri/recon_weights.h"

/* Of one readout's trajectory, without the discarded samples. */
struct seen_readout {
    struct extremes extremes; /* its members *_at are not set */
    uint64_t hash;
    int columns; /* of the trajectory; 0: it was not looked at */
};

/* All zero: nothing was looked at. */
struct recon_seen {
    struct seen_readout *readout; /* [count], by their index in the scan */
    size_t count;
    struct frames_grown *grown; /* its images; NULL: none yet */
    struct extremes all;        /* of the first `all_of` readouts of the images, if these ascend (frames.h) */
    size_t all_of;
    /* Readouts, in all: those whose trajectory was read, and compared with a plan's; and that were joined to others'.
     */
    uint64_t looked, compared, joined;
};

/* Make place for `count` readouts. Fails with ERR_NO_MEMORY. */
int recon_seen_grow(struct recon_seen *seen, size_t count);
/* Look at readout `i` of the scan, which has just come, and has a place. (recon_traj.c) */
void recon_seen_look(struct recon_seen *seen, const struct scan *scan, size_t i);
void recon_seen_free(struct recon_seen *seen);

#endif
