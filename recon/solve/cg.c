/* cg.c: conjugate gradients: how they begin and end. The formulas are in gridding/base/vec_cg.h. */
#include "recon/solve/solve_inside.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/vec_cg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A GPU is asked how far it is after this many iterations, or after computing this many numbers (about a millisecond).
 */
enum { AHEAD_MOST = 5, AHEAD_WORK = 1 << 25 };

/* Relative to its first, the residual at which any iteration ends: far below what float32's rounding lets the solution
 * follow. The residual that is carried on falls further, until its vectors underflow and <p, q> is 0. */
static const double least_residual = 1e-15;

struct cg {
    struct dev *dev;
    const struct op_frames *op;
    struct vec_cg vec;
    struct vec_cg_frame *frame; /* host: [frames], as they were when asked for last */
    const size_t *image;        /* NULL, or [frames]: their names */
    const char *accuracy;       /* as solve_stop's, or "" */
};

/* "", or " of image 7" */
static const char *name_of(const struct cg *c, int f, char text[40])
{
    text[0] = 0;
    if (c->image)
        snprintf(text, 40, " of image %zu", c->image[f]);
    return text;
}

static int not_positive(const struct cg *c, const char *image, int done)
{
    return err_set(
        ERR_DIVERGED,
        "The normal operator of iteration %d%s is not positive: it is too inaccurate, or the density weights or the "
        "coil maps are not what the method can use.%s method=adjoint shows an image of the same samples.",
        done + 1, image, c->accuracy);
}

/* Memory of the device: vectors, and numbers. */
static int cg_open(struct cg *c, struct dev *dev, const struct op_frames *op, const double *lambda)
{
    const size_t frames = (size_t)op->frames;
    struct c32 *vector[CG_VECTORS] = {NULL};
    size_t n;
    if (op->frames > CG_FRAMES_MOST || !size_mul(op->domain, frames, &n))
        return err_set(ERR_NO_MEMORY, "%d images of %zu pixels cannot be solved together.", op->frames, op->domain);
    int rc = solve_vectors(dev, n, CG_VECTORS, vector);
    c->vec.r = vector[0], c->vec.p = vector[1], c->vec.q = vector[2];
    if (rc == 0)
        rc = dev_alloc(dev, frames * sizeof *c->vec.frame, (void **)&c->vec.frame);
    if (rc == 0)
        rc = dev_alloc(dev, frames * sizeof *c->vec.running, (void **)&c->vec.running);
    if (rc == 0)
        rc = dev_alloc(dev, 2 * frames * VEC_CG_PARTS * sizeof *c->vec.part, (void **)&c->vec.part);
    c->frame = calloc(frames, sizeof *c->frame);
    if (rc == 0 && !c->frame)
        rc = err_no_memory("conjugate gradients of %zu images", frames);
    for (size_t f = 0; f < frames && rc == 0; f++)
        c->frame[f].lambda = lambda[f];
    return rc == 0 ? dev_upload(dev, c->vec.frame, c->frame, frames * sizeof *c->frame) : rc;
}

static void cg_close(struct cg *c)
{
    free(c->frame);
    dev_release(c->dev, c->vec.part);
    dev_release(c->dev, c->vec.running);
    dev_release(c->dev, c->vec.frame);
    dev_release(c->dev, c->vec.r);
}

/* Learn how far the frames are; *running: how many still run. Fails for the first frame that failed. */
static int cg_ask(struct cg *c, int *running)
{
    int rc = dev_download(c->dev, c->frame, c->vec.frame, (size_t)c->op->frames * sizeof *c->frame);
    *running = 0;
    for (int f = 0; f < c->op->frames && rc == 0; f++) {
        char text[40];
        const struct vec_cg_frame *frame = &c->frame[f];
        *running += frame->state == VEC_CG_RUNNING;
        if (frame->state == VEC_CG_NONFINITE)
            rc = solve_nonfinite("The conjugate gradient method", frame->iterations, name_of(c, f, text));
        else if (frame->state == VEC_CG_NOT_POSITIVE)
            rc = not_positive(c, name_of(c, f, text), frame->iterations);
    }
    return rc;
}

/* The number of iterations after which the device is asked. */
static int iterations_ahead(const struct cg *c, const struct solve_stop *stop)
{
    const size_t most = AHEAD_WORK / (c->op->work + 1);
    if (!dev_is_gpu(c->dev) || stop->seconds > 0 || most < 1)
        return 1;
    return most < AHEAD_MOST ? (int)most : AHEAD_MOST;
}

/* *late: stop->seconds ended the iteration. */
static int iterate(struct cg *c, const struct solve_stop *stop, const struct solve_listener *listener, bool *late)
{
    const double start = clock_seconds();
    const int ahead = iterations_ahead(c, stop);
    int rc = 0, running = c->op->frames;
    *late = false;
    for (int done = 0; rc == 0; done++) {
        if ((done % ahead == 0 && (done > 0 || ahead == 1)) || done == stop->iterations)
            rc = cg_ask(c, &running);
        if (rc != 0 || running == 0 || done == stop->iterations)
            return rc;
        *late = stop->seconds > 0 && done > 0 && clock_seconds() - start > stop->seconds;
        if (*late)
            return 0;
        rc = listener ? listener->iteration(listener->context, done, stop->iterations) : 0;
        if (rc == 0)
            rc = c->op->normal(c->op->of, c->vec.running, c->vec.p, c->vec.q); /* q = N p */
        if (rc == 0)
            rc = vec_cg_step(c->dev, &c->vec);
    }
    return rc;
}

static struct solve_result result_of(const struct vec_cg_frame *frame, bool late)
{
    if (frame->state == VEC_CG_ZERO)
        return (struct solve_result){.end = SOLVE_ZERO};
    return (struct solve_result){
        .iterations = frame->iterations,
        .end = frame->state == VEC_CG_TOLERANCE ? SOLVE_TOLERANCE
               : late                           ? SOLVE_SECONDS
                                                : SOLVE_ITERATIONS,
        .residual = sqrt(frame->rr / frame->first),
    };
}

int cg_solve_frames(struct dev *dev, const struct op_frames *op, const double *lambda, const size_t *image,
                    const struct c32 *b, struct c32 *x, const struct solve_stop *stop,
                    const struct solve_listener *listener, struct solve_result *result)
{
    struct cg c = {.dev = dev, .op = op, .image = image, .accuracy = stop->accuracy ? stop->accuracy : ""};
    bool late = false;
    c.vec = (struct vec_cg){
        .n = op->domain, .frames = op->frames, .tolerance = fmax(stop->tolerance, least_residual), .x = x};
    int rc = cg_open(&c, dev, op, lambda);
    if (rc == 0)
        rc = vec_cg_begin(dev, &c.vec, b);
    if (rc == 0)
        rc = iterate(&c, stop, listener, &late);
    for (int f = 0; f < op->frames && rc == 0; f++)
        result[f] = result_of(&c.frame[f], late);
    cg_close(&c);
    return rc;
}

/* One operator as those of one frame. */
static int normal_of_one(void *of, const int *running, const struct c32 *x, struct c32 *r)
{
    const struct op *op = of;
    (void)running;
    return op->normal(op->of, x, r);
}

int cg_solve(struct dev *dev, const struct op *op, double lambda, const struct c32 *b, struct c32 *x,
             const struct solve_stop *stop, const struct solve_listener *listener, struct solve_result *result)
{
    struct op own = *op;
    const struct op_frames one = {
        .of = &own, .domain = op->domain, .frames = 1, .work = SIZE_MAX / 2, .normal = normal_of_one};
    return cg_solve_frames(dev, &one, &lambda, NULL, b, x, stop, listener, result);
}
