/* frames.h: which readouts of a scan make which image. */
#ifndef MRIRECON_FRAMES_H
#define MRIRECON_FRAMES_H

#include "recon/scan/scan.h"

/* Why a readout is no image data, in the order in which the flags are looked at. */
enum frames_ignored {
    FRAMES_NOISE,
    FRAMES_CALIBRATION,
    FRAMES_NAVIGATION,
    FRAMES_PHASECORR,
    FRAMES_HPFEEDBACK,
    FRAMES_DUMMY,
    FRAMES_RTFEEDBACK,
    FRAMES_PHASE_STAB_REFERENCE,
    FRAMES_PHASE_STAB,
    FRAMES_REASONS
};
const char *frames_ignored_name(enum frames_ignored reason);

/* The reason why `flags` are no image data, or -1 where they are. */
int frames_ignore(uint64_t flags);

/* One image: readouts[first .. first + count). */
struct frame {
    size_t first, count;
    size_t samples; /* of all its readouts, after discard_pre and discard_post */
    int coils;      /* of each */
    int averages;   /* different average counters among them */
    int partitions; /* different counters kspace_encode_step_2 among them */
    bool one_place; /* the readouts agree on position and directions */
};

struct frames {
    int encoding; /* the encoding space that is reconstructed */
    size_t count;
    struct frame *frame;
    size_t used;        /* readouts in all frames */
    uint32_t *readouts; /* indices into scan->readouts; within a frame in the file's order */
    size_t ignored[FRAMES_REASONS];
    size_t elsewhere; /* image data of other encoding spaces */
};

/* Sort the readouts of one encoding space into images: one for each (repetition, phase, contrast, set, slice) there is,
 * in this order, slices fastest; where `separate_averages`, also for each average. `encoding` -1: the first with image
 * data and a trajectory, else the first with image data. Fails with ERR_NO_IMAGE_DATA, ERR_BAD_PARAMETER (no such
 * encoding), ERR_ENCODING_INVALID (nothing left after the discards), ERR_COILS_DIFFER, ERR_NO_MEMORY. */
int frames_create(struct frames **out, const struct scan *scan, int encoding, bool separate_averages);
void frames_free(struct frames *frames);

/* Samples that a readout keeps. */
static inline size_t frames_kept(const struct scan_readout *readout)
{
    size_t cut = (size_t)readout->discard_pre + readout->discard_post;
    return readout->samples > cut ? readout->samples - cut : 0;
}

#endif
