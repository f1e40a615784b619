/* recon_iterative_inner.h: shared by the iterative methods of one image (recon_iterative.c), of several at once
 * (recon_together.c) and of a series (recon_series.c), and their solvers (recon_methods.c). Only these include it. */
#ifndef MRIRECON_RECON_ITERATIVE_INNER_H
#define MRIRECON_RECON_ITERATIVE_INNER_H

#include "recon/mri/band.h"
#include "recon/mri/recon_iterative.h"
#include "recon/mri/sense.h"
#include "recon/solve/prox.h"

struct iterative;

/* A value of parameter `method`, and the values of its other parameters' "auto" (docs/numerics.md has the
 * measurements).
 */
struct method {
    /* it->x from it->b, of it->images_solved images; `op` is the normal operator of all of them. */
    int (*solve)(struct iterative *it, const struct op *op, const struct solve_stop *stop,
                 const struct solve_listener *listener, struct solve_result *result);
    int (*vectors)(int dim); /* number of vectors that solve() allocates, each of all solved images */
    bool series;             /* all images of a series are solved together */
    int iterations;
    double lambda, tolerance;
    const char *lambda_of, *lambda_suits;
};

/* The job's method; NULL if it is not iterative. */
const struct method *method_of(const struct recon_job *job);

struct iterative {
    struct gridder *g;
    struct recon_job *job;
    const struct method *method;
    int batch;                                /* coils that the normal operator takes at a time */
    size_t images_solved;                     /* solved together: 1, or the images of a series or of a window of it */
    size_t images_kept;                       /* of them: those that no other window gives */
    struct c32 *images, *maps, *b, *x, *host; /* [coils][pixels] twice, [images_solved][pixels] twice, [pixels] */
    struct c32 *all_maps;   /* [g->longest][coils][pixels], of which `maps` are one image's; else these are the same */
    struct c32 *all_images; /* the same of `images`, where g->keeps */
    const struct frame *planned;   /* the image whose trajectory `normal` and `largest` are of */
    const float *field;            /* with a field map: the map that `largest` is of */
    struct sense sense;            /* of the coils of one image; not where images are solved by recon_together.c */
    struct normal *normal, *limit; /* `limit`: leaves what the trajectory covers; NULL: all of k-space */
    int planes;                    /* of an image, that `normal` is applied to: 1, or those of a stack */
    struct c32 *kernels;           /* with a field map: of `normal`, a kernel for each segment; else NULL */
    double largest;                /* eigenvalue L */
    double base, span;             /* progress of this image, or series */
    double maps_from, maps_until;  /* shares of it */
    double share;                  /* of it, and what else was told last */
    int64_t iteration, most;
    struct prox_ask ask; /* iterative_ask() */
    char accuracy[192];  /* of `normal`, as solve_stop's: iterative_stop() */
};

/* ---- recon_iterative_memory.c ---- */

/* Set g->at_once: whether the device's normal operator takes coils (gridding/nufft/normal.h). */
void iterative_at_once(struct gridder *g);

/* Bytes of g->job->dev that images may take to be computed together: a share of those available. Fails with ERR_DEVICE.
 */
int iterative_room(const struct gridder *g, size_t *bytes);

/* Coils that the normal operator takes at a time. */
int iterative_batch(const struct gridder *g);

/* ---- recon_iterative.c ---- */

/* Report that `share` of this image or series is done. Fails with ERR_CANCELED. */
int iterative_tell(struct iterative *it, double share, int64_t iteration, int64_t iterations);
/* Repeat the last report, to learn of a cancel. `context`: the struct iterative. */
int iterative_ask(void *context);

/* it->images = the coil images of the frame of the present plan; progress runs from share to share. */
int iterative_grid(struct iterative *it, const struct frame *frame, double from, double until);

/* it->maps of images[coils][pixels], which may be it->maps. Fails as maps_estimate(). */
int iterative_maps(struct iterative *it, int coils, const struct c32 *images, double from, double until);

/* it->normal = the normal operator of the plan's trajectory, it->largest = its largest eigenvalue: of one coil, which
 * that of all coils does not exceed, as |S| <= 1. *made: it had to be computed. */
int iterative_normal(struct iterative *it, bool *made);

/* The normal operator with the field map's segments, if there is one: of `inner`, which applies it->normal, and the
 * kernels of field_kernels(), iterative_kernel_elements() numbers; else `inner` itself. */
struct iterative_op {
    struct op op;
    bool field;
    struct field_normal with;
};
int iterative_op_open(struct iterative_op *out, struct iterative *it, struct op inner, const struct c32 *kernels);
void iterative_op_close(struct iterative_op *op);
size_t iterative_kernel_elements(const struct iterative *it);

/* Outside the part of k-space that the trajectory covers nothing was measured, and values there come from the method
 * alone (such as the edges of total variation). The image is therefore limited to the covered part. Creates it->limit.
 */
int iterative_limit(struct iterative *it, const struct band *band);

/* The images' largest number of iterations and its other ends; sets the tally's lambda. */
struct solve_stop iterative_stop(struct iterative *it);
/* Tell of an iteration; of type struct solve_listener.iteration(). */
int iterative_told(void *context, int done, int most);
/* Add the result of `images`. */
void iterative_tally(struct iterative *it, const struct solve_result *result, size_t images);

/* An image's coil images, maps, which are stored, and normal operator, with its limit if it had to be made: *made.
 * `old`: NULL, or receives the limit before. Progress runs up to ITERATIVE_BEGUN. Fails as iterative_frame(). */
int iterative_begin(struct iterative *it, size_t f, bool *made, struct normal **old);
#define ITERATIVE_BEGUN 0.30

/* it->x from it->b by the job's method, limited. Fails as the solvers. */
int iterative_solve(struct iterative *it, const struct op *op);

/* (recon_iterative_store.c) Store the job's field of view of `image`, which may be larger, as image `f`; and its maps,
 * if they are a result. */
int iterative_store(struct iterative *it, size_t f, const struct c32 *image);
int iterative_store_maps(struct iterative *it, size_t f, int coils);

#endif
