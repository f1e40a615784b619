/* frames.h: sorts the readouts of a scan into images. */
#ifndef MRIRECON_FRAMES_H
#define MRIRECON_FRAMES_H

#include "recon/scan/scan.h"

/* Reasons why a readout is no image data, in the order in which the flags are checked. */
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

/* The reason why a readout with `flags` is no image data, or -1 if it is. */
int frames_ignore(uint64_t flags);

/* One image: readouts[first .. first + count). Images may share readouts. */
struct frame {
    size_t first, count;
    uint16_t repetition; /* the image's place in time: the counter, or its number if a series is divided */
    size_t samples;      /* of all its readouts, after discard_pre and discard_post */
    int coils;           /* of each */
    int averages;        /* different average counters among them */
    int partitions;      /* different counters kspace_encode_step_2 among them */
    bool one_place;      /* the readouts agree on position and directions */
};

struct frames {
    int encoding; /* the reconstructed encoding space */
    size_t count;
    struct frame *frame;
    size_t used;        /* readouts in all frames */
    uint32_t *readouts; /* indices into scan->readouts; within a frame in the file's order */
    size_t ignored[FRAMES_REASONS];
    size_t elsewhere; /* readouts with image data of other encoding spaces */
    size_t left_over; /* readouts after the last complete image of a division */
    size_t groups;    /* images of one time in a division: of each (phase, contrast, set, slice); else 0 */
    size_t placed;    /* the first images that have their final place; all, unless frames_complete() found less */
    bool ascends;     /* of frames_follow(): the readouts of all frames are in the file's order .. */
    uint32_t *kept;   /* .. and [used]: their samples without the discarded ones; NULL: not known */
};

/* How readouts are divided into images in the order of acquisition, whatever their counters of repetition and average.
 */
struct frames_division {
    int images;    /* of each (phase, contrast, set, slice); 0: see `readouts` */
    int readouts;  /* from one image to the next; 0: see `images`; both 0: images by the counters */
    bool by_time;  /* `images` intervals of equal duration by the readouts' time stamps, not of equal count */
    double window; /* >= 1: the readouts of each image, as a multiple of those from one image to the next */
    /* Of the beginning of a scan divided by `readouts`, with window 1: */
    bool begun;    /* a (phase, contrast, set, slice) may have more images than another */
    bool arriving; /* and its last one fewer readouts than the others */
};

/* A complete image of which the readouts came one after the other. */
struct frames_run {
    uint32_t first; /* index into scan->readouts */
    size_t count;
};

/* What is known of the images of the beginning of a scan. */
struct frames_begun {
    bool ascending; /* repetitions came in order; `newest` is the last of them */
    int newest;
    const struct frames_run *run; /* [runs], by their first readout */
    size_t runs;
};

static inline bool frames_divided(const struct frames_division *division)
{
    return division->images > 0 || division->readouts > 0;
}

/* Sort the readouts of one encoding space into images: one for each (repetition, phase, contrast, set, slice) that
 * occurs, in this order, slices fastest; with `separate_averages`, also for each average. `encoding` -1: the first with
 * image data and a trajectory, else the first with image data. With `division` (NULL: none), each (phase, contrast,
 * set, slice) is divided in time, into equally many images. Fails with ERR_NO_IMAGE_DATA, ERR_BAD_PARAMETER (no such
 * encoding, more images than readouts, an image without any), ERR_ENCODING_INVALID (nothing left after the discards;
 * time stamps that do not ascend), ERR_COILS_DIFFER, ERR_NO_MEMORY. */
int frames_create(struct frames **out, const struct scan *scan, int encoding, bool separate_averages,
                  const struct frames_division *division);
void frames_free(struct frames *frames);

/* As frames_create() without a division, of the beginning of a scan that arrives; `grown`: what the last call has left
 * there for a shorter beginning, at first NULL. While readouts come in the order of the images, each is looked at once,
 * and frames->readouts begin with those of the last call (frames->ascends). */
struct frames_grown;
int frames_follow(struct frames **out, struct frames_grown **grown, const struct scan *scan, int encoding,
                  bool separate_averages);
void frames_grown_free(struct frames_grown *grown);

/* Of the images of the beginning of a scan: keep the complete ones, maybe none, and set frames->placed. Complete are
 * all of a division; otherwise those of `begun`, and those of repetitions before the newest if each of these has an
 * image of every phase, contrast, set and slice within encodingLimits. (frames_complete.c) */
void frames_complete(struct frames *frames, const struct scan *scan, const struct frames_begun *begun);

/* Replace the images of `frames`, each all of a (phase, contrast, set, slice), by those of `division`; the caller
 * counts their readouts. Fails as frames_create(), which calls it. (frames_divide.c) */
int frames_divide(struct frames *frames, const struct scan *scan, const struct frames_division *division);

/* The number of samples of a readout without the discarded ones. */
static inline size_t frames_kept(const struct scan_readout *readout)
{
    size_t cut = (size_t)readout->discard_pre + readout->discard_post;
    return readout->samples > cut ? readout->samples - cut : 0;
}

#endif
