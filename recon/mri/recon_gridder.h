/* recon_gridder.h: what step "images" (recon_images.c) keeps from one image to the next, and its plan (recon_plan.c).
 */
#ifndef MRIRECON_RECON_GRIDDER_H
#define MRIRECON_RECON_GRIDDER_H

#include "gridding/nufft/nufft.h"
#include "recon/mri/field.h"
#include "recon/mri/stack.h"

struct gridder {
    struct recon_job *job;
    size_t most_samples, most_count;
    int n[3];      /* size of the plan's images: the job's, or those that are solved for (recon_iterative.h) */
    size_t pixels; /* of one of them */
    size_t longest, kernels; /* images that are solved for together, and the trajectories among them, at most */
    int batch, most_coils;
    struct nufft *plan;
    struct stack *stack; /* of the plan's image, transformed along kz before the plan's plane; NULL: it is not */
    bool kept;           /* the plan is the cache's */
    const struct frame *planned; /* the image the plan was made for */
    uint64_t planned_hash;
    float *k, *planned_k, *weights; /* host: [most_samples][dim], same, [most_samples] */
    size_t *offsets;                /* host: [most_count + 1] */
    struct c32 *staging;            /* host: one coil [most_samples] */
    struct c32 *data[2];            /* device: [batch][most_samples]; the second where uploads run beside gridding */
    double beside;                  /* seconds of such uploads */
    void *image;                    /* device: squares [pixels], or images [batch][pixels], all coils' for maps */
    struct field *field;            /* NULL: no off-resonance is corrected */
    struct c32 *maps;               /* device: [most_coils][pixels]; NULL: none are asked for */
    struct c32 *coil;               /* host: [pixels], with maps [3][pixels]; NULL where squares are summed */
    int plans;
    struct nufft_times times;  /* of all adjoints */
    double overflowed;         /* samples, of all images */
    int64_t coils_done, coils; /* progress: of all images */
};

/* See to it that g->plan is the one of frame `f`; progress runs from `base` over `span` where it must be made. Fails as
 * nufft_create() and recon_frame_density(). */
int gridder_plan(struct gridder *g, size_t f, double base, double span);
const float *gridder_k(const struct gridder *g); /* the plan's trajectory: [samples][dim] */
void gridder_plan_drop(struct gridder *g);

/* Limit the density weights in g->weights for an iterative method (recon_limit.c); g->k: those of the frame, in cycles
 * per pixel of the images. */
void gridder_limit(struct gridder *g, const struct frame *frame);

/* Coils of the batch that begins at coil `first`. */
int gridder_coils(const struct gridder *g, const struct frame *frame, int first);

/* Hand `count` coils from `first` to the device, beside what it has to do: data[count][samples]. Fails as
 * recon_coil_gather() and dev_upload_begin(). */
int gridder_upload(struct gridder *g, const struct frame *frame, int first, int count, struct c32 *data);

/* The images [count][pixels] of coils that lie in `data`: the plan's adjoint, with conjugate phase where there is a
 * field map. Fails as nufft_adjoint(). */
int gridder_images(struct gridder *g, const struct frame *frame, int count, const struct c32 *data, struct c32 *images);

/* Image `f` by method=adjoint, into the series. */
int adjoint_frame(struct gridder *g, size_t f);

/* Image `f` from g->image, which holds those of all its coils: weighted by maps estimated from them, and summed.
 * Progress runs from `base` over `span`. Fails as maps_estimate(). */
int combine_frame(struct gridder *g, size_t f, double base, double span);

/* Complex pixels [pixels] (host) as one channel of image `f` of the series, as parameter `output` asks. */
void gridder_store(const struct gridder *g, size_t f, size_t channel, const struct c32 *pixels);

/* Report "overflow": how GPU and CPU shared the samples. `depth` is the last plan's; null: without a limit. */
void gridder_report_overflow(struct gridder *g);

#endif
