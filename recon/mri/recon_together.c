/* Images by conjugate gradients, several at once where the device's normal operator takes the coils of several images
 * (gridding/nufft/normal.h). Of images f:
 *
 *   S_f, b_f, N_f                        as in recon_iterative.c, one image after the other
 *   (N_f + lambda L_f) x_f = b_f         for all f at once, each with its own steps and end (recon/solve/solve.h)
 *
 * An image has the same bits whatever the number of images. */
#include "recon/mri/recon_iterative_inner.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/vec.h"

#include <stdlib.h>

enum { TOGETHER_PIXELS = 1 << 25 }; /* of all coils: 16 images of 16 coils and 256^2 are 3 % slower than 100 */

struct together {
    struct iterative *it;
    const size_t *image; /* [count]: places in job->frames */
    int count, coils;
    bool own;               /* the images have several trajectories */
    struct c32 *kernels;    /* device: [count], if count > 1 */
    struct normal **limit;  /* [count] */
    struct normal **before; /* [count]: limits that are not it->limit any more, else NULL */
    double *lambda;         /* [count] */
    struct solve_result *result;
};

/* Whether images are solved by this file. A limit of time is one of each image. */
static bool takes(const struct gridder *g)
{
    const struct recon_job *job = g->job;
    return g->at_once && recon_choice(job, RECON_METHOD) == RECON_METHOD_CG_SENSE &&
           job->request->values->value[RECON_STOP_SECONDS].real <= 0 &&
           g->pixels * (size_t)g->most_coils <= TOGETHER_PIXELS;
}

int together_sizes(struct gridder *g)
{
    struct recon_job *job = g->job;
    const size_t most = TOGETHER_PIXELS / (g->pixels * (size_t)g->most_coils);
    size_t room, bytes, other;
    iterative_at_once(g);
    g->together = takes(g);
    g->at_once = g->together;
    if (!g->together)
        return 0;
    int rc = iterative_room(g, &room);
    if (rc != 0)
        return rc;
    g->longest = most < job->frames->count ? most : job->frames->count;
    for (;; g->longest /= 2) {
        g->kernels = g->longest;
        if (g->longest == 1 || (iterative_bytes(g, &bytes, &other) && bytes <= room))
            break;
    }
    return 0;
}

static int together_open(struct together *t, struct iterative *it, const size_t *order, size_t most)
{
    const struct recon_job *job = it->job;
    *t = (struct together){.it = it, .image = order, .coils = job->frames->frame[order[0]].coils};
    size_t count = 0;
    while (count < most && count < it->g->longest && !job->made[order[count]] &&
           job->frames->frame[order[count]].coils == t->coils)
        count++;
    t->count = (int)count;
    t->limit = calloc(count, sizeof(struct normal *));
    t->before = calloc(count, sizeof(struct normal *));
    t->lambda = calloc(count, sizeof *t->lambda);
    t->result = calloc(count, sizeof *t->result);
    return t->limit && t->before && t->lambda && t->result ? 0 : err_no_memory("%zu images", count);
}

static void together_close(struct together *t)
{
    for (int i = 0; i < t->count && t->before; i++)
        normal_free(t->before[i]);
    dev_release(t->it->job->dev, t->kernels);
    t->it->maps = t->it->all_maps;
    free(t->result);
    free(t->lambda);
    free(t->before);
    free(t->limit);
}

static int kernel_keep(struct together *t, int i)
{
    struct iterative *it = t->it;
    const size_t elements = normal_kernel_elements(it->normal);
    int rc = t->kernels
                 ? 0
                 : dev_alloc(it->job->dev, (size_t)t->count * elements * sizeof *t->kernels, (void **)&t->kernels);
    return rc == 0 ? normal_kernel_keep(it->normal, t->kernels + (size_t)i * elements) : rc;
}

/* Image i's maps, kernel, lambda, limit and right side. */
static int begin(struct together *t, int i)
{
    struct iterative *it = t->it;
    struct dev *dev = it->job->dev;
    const size_t pixels = it->g->pixels;
    struct c32 *b = it->b + (size_t)i * pixels;
    bool made = false;
    it->maps = it->all_maps + (size_t)i * (size_t)t->coils * pixels;
    int rc = iterative_begin(it, t->image[i], &made, &t->before[i]);
    t->own = t->own || (made && i > 0);
    t->limit[i] = it->limit;
    t->lambda[i] = it->largest;
    if (rc == 0 && t->count > 1)
        rc = kernel_keep(t, i);
    if (rc == 0)
        rc = dev_zero(dev, b, pixels * sizeof *b);
    return rc == 0 ? vec_multiply_conj_add(dev, pixels, t->coils, it->maps, it->images, b) : rc;
}

static int solve(struct together *t)
{
    struct iterative *it = t->it;
    const size_t pixels = it->g->pixels;
    const struct solve_stop stop = iterative_stop(it);
    const struct solve_listener listener = {it, iterative_told};
    const double start = clock_seconds();
    struct sense_frames frames = {it->normal,
                                  {.frames = t->count,
                                   .coils = t->coils,
                                   .maps = it->all_maps,
                                   .maps_step = (size_t)t->coils * pixels,
                                   .kernels = t->own ? t->kernels : NULL}};
    const struct op_frames op = sense_frames_op(&frames, pixels);
    it->g->tally.parts = 1;
    it->g->tally.largest = it->largest;
    for (int i = 0; i < t->count; i++)
        t->lambda[i] *= it->g->tally.lambda;
    int rc = cg_solve_frames(it->job->dev, &op, t->lambda, it->job->frames->count > 1 ? t->image : NULL, it->b, it->x,
                             &stop, &listener, t->result);
    for (int i = 0; i < t->count && rc == 0; i++) {
        struct c32 *x = it->x + (size_t)i * pixels;
        rc = t->limit[i] ? normal_apply(t->limit[i], 1, x, x) : 0;
        iterative_tally(it, &t->result[i], 1);
    }
    recon_report_stage(it->job, recon_steps[RECON_STEP_SOLVE].name, clock_seconds() - start);
    return rc;
}

int together_frames(struct iterative *it, const size_t *order, size_t count, size_t *done)
{
    struct gridder *g = it->g;
    struct together t;
    const double base = (double)g->coils_done / (double)g->coils;
    int rc = together_open(&t, it, order, count);
    const double each = t.coils / (double)g->coils;
    for (int i = 0; i < t.count && rc == 0; i++) {
        it->base = base + ITERATIVE_BEGUN * each * i;
        it->span = each;
        rc = begin(&t, i);
        g->coils_done += t.coils;
    }
    it->base = base;
    it->span = each * t.count;
    it->maps_until = ITERATIVE_BEGUN;
    if (rc == 0)
        rc = solve(&t);
    for (int i = 0; i < t.count && rc == 0; i++) {
        rc = iterative_store(it, order[i], it->x + (size_t)i * g->pixels);
        it->job->made[order[i]] = rc == 0;
    }
    *done = (size_t)t.count;
    together_close(&t);
    return rc;
}
