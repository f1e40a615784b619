/* The solvers behind parameter `method`, with the problem of one image or of a series. */
#include "recon/mri/recon_iterative_inner.h"

#include "gridding/base/vec.h"

#include <math.h>

enum { TIME_AXIS = 1u << 3, FALLING_FROM = 10, FALLING_ITERATIONS = 20 };

/* Of 1 / L: the power method approaches L from below, and reaches 0.95 of it (tests/unit/test_iterative.c). */
static const double STEP = 0.9;

/* A signal level of b that does not depend on the object's share of the field of view: sum |b|^2 / sum |b|. */
static int signal_level(struct iterative *it, double *level)
{
    double all = 0, squares = 0;
    const size_t n = it->images_solved * it->g->pixels;
    int rc = vec_size_sum(it->job->dev, n, it->b, &all);
    if (rc == 0)
        rc = vec_dot(it->job->dev, n, it->b, it->b, &squares);
    *level = all > 0 ? squares / all : 0;
    return rc;
}

static int cg_sense(struct iterative *it, const struct op *op, const struct solve_stop *stop,
                    const struct solve_listener *listener, struct solve_result *result)
{
    return cg_solve(it->job->dev, op, it->g->tally.lambda * it->largest, it->b, it->x, stop, listener, result);
}

static int descend(struct iterative *it, const struct op *op, const struct prox *prox, const struct solve_stop *stop,
                   const struct solve_listener *listener, struct solve_result *result)
{
    return fista_solve(it->job->dev, op, STEP / it->largest, prox, it->b, it->x, stop, listener, result);
}

static int l1_wavelet(struct iterative *it, const struct op *op, const struct solve_stop *stop,
                      const struct solve_listener *listener, struct solve_result *result)
{
    struct prox_wavelet p;
    const int n[SPARSE_AXES] = {it->g->n[0], it->g->n[1], it->g->n[2], 1};
    double level = 0;
    int rc = signal_level(it, &level);
    if (rc != 0)
        return rc;
    rc = prox_wavelet_open(&p, it->job->dev, n, it->g->tally.lambda * level, 1);
    const struct prox prox = prox_wavelet(&p);
    if (rc == 0)
        rc = descend(it, op, &prox, stop, listener, result);
    prox_wavelet_close(&p);
    return rc;
}

/* The weight decreases geometrically to its value during the first iterations: starting from 0, an undersampled series
 * would need many more iterations until its images' common part is in all of them. The minimum is that of the final
 * weight. */
struct falling {
    struct prox prox;
};

static int falling_apply(void *of, double t, int iteration, struct c32 *x)
{
    const struct falling *f = of;
    const double left = 1 - (double)iteration / FALLING_ITERATIONS;
    return f->prox.apply(f->prox.of, left > 0 ? t * pow(FALLING_FROM, left) : t, iteration, x);
}

static unsigned space_axes(int dim)
{
    return (1u << dim) - 1;
}

static int total_variation(struct iterative *it, unsigned axes, const struct op *op, const struct solve_stop *stop,
                           const struct solve_listener *listener, struct solve_result *result)
{
    struct prox_tv p;
    const int n[SPARSE_AXES] = {it->g->n[0], it->g->n[1], it->g->n[2], (int)it->images_solved};
    double level = 0;
    int rc = signal_level(it, &level);
    if (rc != 0)
        return rc;
    rc = prox_tv_open(&p, it->job->dev, n, axes, it->g->tally.lambda * level);
    p.ask = it->ask;
    struct falling falling = {prox_tv(&p)};
    const struct prox prox = {&falling, falling_apply}, *used = axes == TIME_AXIS ? &prox : &falling.prox;
    if (rc == 0)
        rc = descend(it, op, used, stop, listener, result);
    prox_tv_close(&p);
    return rc;
}

static int tv(struct iterative *it, const struct op *op, const struct solve_stop *stop,
              const struct solve_listener *listener, struct solve_result *result)
{
    return total_variation(it, space_axes(it->job->dim), op, stop, listener, result);
}

static int temporal_tv(struct iterative *it, const struct op *op, const struct solve_stop *stop,
                       const struct solve_listener *listener, struct solve_result *result)
{
    return total_variation(it, TIME_AXIS, op, stop, listener, result);
}

static int low_rank(struct iterative *it, const struct op *op, const struct solve_stop *stop,
                    const struct solve_listener *listener, struct solve_result *result)
{
    struct prox_low_rank p;
    const int n[SPARSE_AXES] = {it->g->n[0], it->g->n[1], it->g->n[2], (int)it->images_solved};
    double level = 0;
    int rc = signal_level(it, &level);
    if (rc != 0)
        return rc;
    rc = prox_low_rank_open(&p, it->job->dev, n, it->g->tally.lambda * level, 1);
    p.ask = it->ask;
    struct falling falling = {prox_low_rank(&p)};
    const struct prox prox = {&falling, falling_apply};
    if (rc == 0)
        rc = descend(it, op, &prox, stop, listener, result);
    prox_low_rank_close(&p);
    return rc;
}

static int cg_vectors(int dim)
{
    (void)dim;
    return CG_VECTORS;
}

static int wavelet_vectors(int dim)
{
    (void)dim;
    return FISTA_VECTORS + WAVELET_VECTORS;
}

static int tv_all_vectors(int dim)
{
    return FISTA_VECTORS + tv_vectors(space_axes(dim));
}

static int temporal_tv_vectors(int dim)
{
    (void)dim;
    return FISTA_VECTORS + tv_vectors(TIME_AXIS);
}

static int low_rank_vectors(int dim)
{
    (void)dim;
    return FISTA_VECTORS + LOW_RANK_VECTORS;
}

static const char
    of_level[] = "the image's signal level",
    few_spokes[] =
        "the method's default, which suits phantoms and scans of 4 to 16 times fewer spokes than full sampling",
    few_a_frame[] = "the method's default, which suits phantoms and series of 10 to 40 times fewer spokes an image "
                    "than full sampling";

/* In the order of the parameter's choices. */
static const struct method methods[] = {
    [RECON_METHOD_CG_SENSE] = {cg_sense, cg_vectors, false, 20, 3e-3, 5e-3, "the normal operator's largest eigenvalue",
                               few_spokes},
    [RECON_METHOD_L1_WAVELET] = {l1_wavelet, wavelet_vectors, false, 40, 1.4e-2, 3e-3, of_level, few_spokes},
    [RECON_METHOD_TV] = {tv, tv_all_vectors, false, 30, 8e-3, 3e-3, of_level, few_spokes},
    [RECON_METHOD_TEMPORAL_TV] = {temporal_tv, temporal_tv_vectors, true, 40, 2e-2, 3e-3, of_level, few_a_frame},
    [RECON_METHOD_LLR] = {low_rank, low_rank_vectors, true, 40, 1e-2, 3e-3, of_level, few_a_frame},
};

const struct method *method_of(const struct recon_job *job)
{
    return &methods[recon_choice(job, RECON_METHOD)];
}
