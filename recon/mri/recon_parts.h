/* recon_parts.h: images whose samples are gridded in parts, as a stream arrives. Only recon/mri/ includes this.
 *
 * The adjoint is linear in its samples (gridding/nufft/nufft_parts.h), so the samples that have arrived can be gridded
 * before the rest, if plan and density weights are known: those of the last job, if the trajectory is the same so far.
 * Each readout that arrives is compared with the plan's, sample by sample, and the rest at the end; if they differ, the
 * parts are discarded.
 *
 * On the CPU, every image of an MRD stream of PARTS_FROM samples or more is gridded in parts, whether they arrived
 * ahead or not: each part is half of the remaining readouts. So a stream has the same bits whatever its timing. On a
 * GPU parts do not change the bits.
 */
#ifndef MRIRECON_RECON_PARTS_H
#define MRIRECON_RECON_PARTS_H

#include "recon/mri/plan_cache.h"

struct gridder;

enum {
    PARTS_FROM = 1 << 14,
    PARTS_LEAST = 1 << 8, /* samples that are left are divided as long as there are so many */
    PARTS_MOST = 12
};

/* Readouts ends[p] to ends[p + 1] - 1 of a frame are part p; offsets[count + 1]: samples before each readout. Returns
 * the number of parts. */
int recon_parts_divide(const size_t *offsets, size_t count, size_t ends[PARTS_MOST + 1]);

/* What the positions of a readout's samples in k-space follow from, besides the readout. Compared as bytes. */
struct feed_terms {
    double scale[3];
    int64_t dim, columns, coordinates, has_weights, encoding;
};

/* The parts of an arriving scan's next image that were added while it arrived. All zero: none yet. */
struct recon_feed {
    bool off;                /* no part can be added */
    uint64_t turn;           /* of the sums */
    uint32_t *readouts;      /* [max(count, compared)]: the image's first readouts, in order */
    size_t count;            /* of them, as many were added */
    size_t compared;         /* and these were compared with the plan .. */
    uint64_t plan;           /* .. of this number in the cache, and are the same .. */
    struct feed_terms terms; /* .. on these terms */
    struct c32 *mix;         /* mixing of their coils: [coils][mixed_coils]; NULL: none */
    int mixed_coils, coils;
    bool *coil_lives; /* [coils] */
};
void recon_feed_free(struct recon_feed *feed); /* no part can be added any more */
/* The image is made; parts of the next one may be added. */
void recon_feed_restart(struct recon_feed *feed);

/* The number of readouts of image data after which the next part of an image with the last job's trajectory is
 * complete; SIZE_MAX: no further part. */
size_t recon_feed_due(const struct dev *dev, struct recon_cache *cache, const struct recon_feed *feed);

/* For a scan that is the beginning of a stream, instead of step "images": add the complete parts of its last image to
 * job->feed. Fails as recon_coil_gather(), with ERR_NO_MEMORY and ERR_DEVICE. */
int recon_feed_add(struct recon_job *job);

/* The number of the frame's first readouts that `feed` has compared, on the terms of this job. (recon_compared.c) */
size_t recon_compared(const struct recon_feed *feed, const struct recon_job *job, const struct frame *frame);
/* All of the frame's readouts have been compared, and are the plan's. Fails with ERR_NO_MEMORY. */
int recon_compared_note(struct recon_feed *feed, const struct recon_job *job, const struct frame *frame);

/* The number of the frame's first readouts of which it is known, since they were compared as they arrived, that their
 * trajectory is that of the plan that is kept; 0 for a whole job, whose scan is not the copy that was compared. */
size_t recon_feed_compared(const struct recon_job *job, const struct frame *frame);

/* Set g->parts for a frame that is gridded in parts by g->plan; NULL if it is not. Fails with ERR_NO_MEMORY,
 * ERR_GPU_OOM, ERR_DEVICE. */
int parts_get(struct gridder *g, const struct frame *frame);
/* Grid those parts of frame `f` that were not added ahead, and compute g->image: squares. Progress runs from `base`
 * over `span`. Fails as recon_coil_gather(). */
int parts_grid(struct gridder *g, size_t f, double base, double span);

#endif
