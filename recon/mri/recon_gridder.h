/* recon_gridder.h: the state of step "images" (recon_images.c) across images, with its plan (recon_plan.c).
 */
#ifndef MRIRECON_RECON_GRIDDER_H
#define MRIRECON_RECON_GRIDDER_H

#include "gridding/nufft/nufft.h"
#include "recon/mri/field.h"
#include "recon/mri/recon_parts.h"
#include "recon/mri/stack.h"

/* What iterative methods report of all images. */
struct solve_tally {
    int64_t iterations;
    double residual;                 /* the largest */
    size_t ended[4];                 /* images, by enum solve_end */
    double largest, lambda, support; /* of the last image: eigenvalue, parameter, share of the pixels with maps */
    int parts;                       /* of the device that computed it */
};

struct gridder {
    struct recon_job *job;
    size_t most_samples, most_count;
    int n[3];                /* size of the plan's images: the job's, or the solved ones (recon_iterative.h) */
    size_t pixels;           /* of one of them */
    size_t longest, kernels; /* largest number of images solved together, and of their kernels */
    bool together;           /* solved by recon_together.c */
    bool at_once;            /* the normal operator takes the coils of several images at a time */
    size_t solved_most;      /* coils that it takes at a time, at most, for memory is short; 0: no limit */
    bool divided;            /* the device's parts share the coils of an image */
    bool keeps;              /* of a series: the coil images of all that are solved together */
    int batch, most_coils;
    struct nufft *plan;
    struct plan_parts own_parts; /* of a plan that is not the cache's */
    struct plan_parts *parts;    /* of the plan, for the frame that is gridded; NULL: as a whole */
    struct stack *stack; /* of the plan's image, if it is transformed along kz before the plan's plane; else NULL */
    bool kept;           /* the cache owns the plan */
    const struct frame *planned; /* the image for which the plan was created */
    uint64_t planned_hash;
    float *k, *planned_k, *weights; /* host: [most_samples][dim], same, [most_samples] */
    size_t *offsets;                /* host: [most_count + 1] */
    struct c32 *staging;            /* host: gridder_staging() bytes, at least of one coil [most_samples] */
    struct c32 *data[2];            /* device: [batch][most_samples]; the second if uploads overlap gridding */
    double beside;                  /* seconds of overlapped uploads */
    void *image;                    /* device: squares [pixels], or images [batch][pixels], all coils' for maps */
    struct field *field;            /* NULL: no off-resonance is corrected */
    float *squares;                 /* device: [pixels], summed after the correction of off-resonance; else NULL */
    struct c32 *maps, *combined;    /* device: [most_coils][pixels], [pixels]; NULL: none are asked for */
    struct c32 *coil;               /* host: [pixels]; NULL where squares are summed */
    int plans;
    struct nufft_times times; /* of all adjoints */
    double overflowed;        /* samples, of all images */
    struct solve_tally tally;
    int64_t coils_done, coils; /* progress: of all images */
    double told;               /* by gridder_tell(), for gridder_ask() */
    int64_t told_coils;
};

/* The plan's trajectory: [samples][dim]. */
static inline const float *gridder_k(const struct gridder *g)
{
    return g->job->hash ? g->planned_k : g->k;
}

/* Make g->plan that of frame `f`. If it must be created, progress runs from `base` over `span`. Fails as nufft_create()
 * and recon_frame_density(). */
int gridder_plan(struct gridder *g, size_t f, double base, double span);
/* What the plan for the frame in g->k depends on, by g->n and g->batch. */
struct plan_key;
void gridder_key(const struct gridder *g, const struct frame *frame, struct plan_key *key);
void gridder_plan_drop(struct gridder *g);

/* Limit the density weights in g->weights for an iterative method (recon_limit.c); g->k: those of the frame, in cycles
 * per pixel of the images. */
void gridder_limit(struct gridder *g, const struct frame *frame);

/* Report the progress of gridding: `fraction`, and `coils` of the frame that are done; and ask again, without progress,
 * of the gridder `of`: between parts of a batch, which may take seconds. Fail with ERR_CANCELED. (recon_report.c) */
int gridder_tell(struct gridder *g, double fraction, int coils);
int gridder_ask(void *of);

/* Coils of the batch that begins at coil `first`. */
int gridder_coils(const struct gridder *g, const struct frame *frame, int first);

/* Bytes of the host's memory through which coils are uploaded that are mixed or, of a stack or a stream, moved: all of
 * a small batch of mixed ones, else one. */
size_t gridder_staging(const struct gridder *g);

/* Upload `count` coils from `first`, data[count][samples], while the device computes. Fails as recon_coils_gather() and
 * dev_upload_begin(). */
int gridder_upload(struct gridder *g, const struct frame *frame, int first, int count, struct c32 *data);

/* The images [count][pixels] of the coils in `data`: the plan's adjoint, with conjugate phase if there is a field map.
 * Fails as nufft_adjoint(), and with ERR_CANCELED. */
int gridder_images(struct gridder *g, const struct frame *frame, int count, const struct c32 *data, struct c32 *images);

/* Show the images from the series' beginning on that are complete. */
void gridder_show(struct gridder *g);
/* Whether image `f` is the next one to show; then its first pixels can be shown before the others are there, of real
 * images of one channel. */
bool gridder_shows(const struct gridder *g, size_t f);
void gridder_show_pixels(const struct gridder *g, size_t pixels);

/* Image `f` by method=adjoint, into the series. */
int adjoint_frame(struct gridder *g, size_t f);

/* Image `f` from the coil images in g->image: weighted by maps estimated from them, and summed. Progress runs from
 * `base` over `span`. Fails as maps_estimate(). */
int combine_frame(struct gridder *g, size_t f, double base, double span);

/* Complex pixels [pixels] (host) as one channel of image `f` of the series, in the form of parameter `output`. */
void gridder_store(const struct gridder *g, size_t f, size_t channel, const struct c32 *pixels);

/* Report "overflow": how the samples were divided between GPU and CPU. `depth` is the last plan's; null: no limit. */
void gridder_report_overflow(struct gridder *g);

#endif
