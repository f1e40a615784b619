/* nufft_cpu.c: the NUFFT on the CPU: compact bins (range.h) to and from an oversampled grid (grid_cpu.h), in groups of
 * transforms. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/nufft/grid_cpu.h"
#include "gridding/range/kernel.h"
#include "gridding/range/range.h"

#include <math.h>
#include <stdlib.h>

/* A group's grid should stay near the caches; beyond this only one transform is held at a time. */
static const size_t group_bytes_most = (size_t)384 << 20;

struct cpu_plan {
    const struct nufft_shape *shape;
    int threads, lanes_most;
    struct range_kernel *law;
    struct range_bins *bins;
    struct range_cpu *sums;
    float *weight; /* in the order of the bins, or NULL */
    struct grid_cpu *grid;
};

/* The number of samples summed in float32 before their sum is added to the others. */
static size_t together_of(const struct nufft_shape *s)
{
    return s->tolerance < 5e-4 ? 256 : RANGE_TOGETHER;
}

/* kernel_rounding() with sums of one sign in one place, which round alike: 6e-9 for each sample of them, as the search
 * over plans at random finds (tests/unit/test_plans). */
static double cpu_rounding(const struct nufft_shape *s, size_t samples)
{
    const size_t together = together_of(s), summed = samples < together ? samples : together;
    return kernel_rounding(s->dim, s->width, nufft_oversampling(s)) * fmax(1, 6e-9 * (double)summed / 1.3e-6);
}

static double cpu_cost(const struct dev *dev, const struct nufft_shape *s, size_t samples, double *error)
{
    (void)dev;
    *error = s->corner_aliasing + cpu_rounding(s, samples);
    double cells = (double)s->grid[0] * s->grid[1] * s->grid[2],
           rows = s->dim == 3 ? (double)s->width * s->width : s->width;
    double floats = s->width * 2.0 * (s->batch >= 4 ? 4 : 1), vectors = ceil(floats / 16) / (s->batch >= 4 ? 4 : 1);
    /* ns, one core, AVX-512: fitted to tests/bench/bench_nufft over widths 3 to 8; forward: two thirds of what an
     * adjoint's samples take, as in its cases s, d and a; they add to no grid. */
    const double fft = cells * (2.2 + 0.18 * log2(cells)), scatter = (double)samples * (12 + 0.9 * rows * vectors),
                 gather = (double)samples * (8 + 0.6 * rows * vectors);
    return 1e-9 * ((s->purpose != NUFFT_FOR_FORWARD ? fft + scatter : 0) +
                   (s->purpose != NUFFT_FOR_ADJOINT ? fft + gather : 0));
}

static void cpu_destroy(void *state)
{
    struct cpu_plan *p = state;
    if (!p)
        return;
    range_cpu_free(p->sums);
    range_bins_free(p->bins);
    range_kernel_free(p->law);
    free(p->weight);
    grid_cpu_free(p->grid);
    free(p);
}

static int check_finite(size_t values, int dim, const float *k, int threads)
{
    size_t first = SIZE_MAX;
#pragma omp parallel for num_threads(threads) reduction(min : first)
    for (size_t i = 0; i < values; i++)
        if (!isfinite(k[i]) && i < first)
            first = i;
    return first == SIZE_MAX ? 0 : nufft_nonfinite(first, dim);
}

static int cpu_create(void **state, struct dev *dev, const struct nufft_shape *s, size_t samples, const float *k)
{
    int rc = check_finite(samples * (size_t)s->dim, s->dim, k, dev->threads);
    if (rc)
        return rc;
    struct cpu_plan *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory("a plan");
    p->shape = s;
    p->threads = dev->threads;
    size_t cells = (size_t)s->grid[0] * (size_t)s->grid[1] * (size_t)s->grid[2];
    p->lanes_most = range_cpu_lanes(s->batch);
    while (p->lanes_most > 1 && cells * (size_t)p->lanes_most * sizeof(struct c32) > group_bytes_most)
        p->lanes_most = range_cpu_lanes(p->lanes_most / 2);
    const int flat = p->lanes_most > 1 ? 24 : 16, deep[] = {16, 12, 12};
    const int tile2[3] = {flat, flat, 1};
    /* The polynomials' error must be negligible compared with the kernel's. */
    double reached = kernel_aliasing(s->dim, s->width, (double)s->grid[0] / s->n[0], s->kernel == NUFFT_RADIAL);
    rc = range_kernel_create(&p->law, s->width, s->beta, s->kernel == NUFFT_RADIAL, 0.01 * fmin(s->tolerance, reached));
    if (!rc)
        rc = range_bins_create(&p->bins, s->dim, s->grid, s->width, s->dim == 3 ? deep : tile2, samples, k, p->threads);
    if (!rc)
        rc = range_cpu_create(&p->sums, p->bins, p->law, p->lanes_most, together_of(s), p->threads);
    if (!rc)
        rc = grid_cpu_create(&p->grid, s, p->lanes_most, p->threads);
    if (!rc)
        *state = p;
    else
        cpu_destroy(p);
    return rc;
}

static void cpu_describe(const void *state, struct nufft_info *info)
{
    const struct cpu_plan *p = state;
    info->method = NUFFT_METHOD_CPU;
    info->batch = p->lanes_most;
    info->bins = p->bins->bins;
    info->occupied_bins = p->bins->occupied;
    info->largest_bin = p->bins->largest;
    info->bytes = grid_cpu_bytes(p->grid) + range_cpu_bytes(p->sums) + p->bins->count * sizeof *p->bins->point +
                  (p->bins->bins + 1) * sizeof *p->bins->offset + (p->weight ? p->bins->count * sizeof *p->weight : 0);
}

static int cpu_set_weights(void *state, const float *weights)
{
    struct cpu_plan *p = state;
    float *permuted = NULL;
    if (weights) {
        permuted = malloc((p->bins->count + 1) * sizeof *permuted);
        if (!permuted)
            return err_no_memory("%zu weights", p->bins->count);
        for (size_t i = 0; i < p->bins->count; i++)
            permuted[i] = weights[p->bins->point[i].source];
    }
    free(p->weight);
    p->weight = permuted;
    return 0;
}

static int next_lanes(const struct cpu_plan *p, int left)
{
    return range_cpu_lanes(left < p->lanes_most ? left : p->lanes_most);
}

static void adjoint(struct cpu_plan *p, int batch, const struct c32 *data, struct c32 *image, float *squares)
{
    const struct nufft_shape *s = p->shape;
    size_t pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    for (int done = 0, lanes; done < batch; done += lanes) {
        lanes = next_lanes(p, batch - done);
        range_cpu_scatter(p->sums, lanes, data + (size_t)done * p->bins->count, p->bins->count, p->weight,
                          grid_cpu_values(p->grid));
        grid_cpu_to_image(p->grid, lanes, image ? image + (size_t)done * pixels : NULL, squares);
    }
}

static int cpu_adjoint(void *state, int batch, const struct c32 *data, struct c32 *image)
{
    adjoint(state, batch, data, image, NULL);
    return 0;
}

static int cpu_adjoint_squares(void *state, int batch, const struct c32 *data, float *squares)
{
    adjoint(state, batch, data, NULL, squares);
    return 0;
}

static int cpu_forward(void *state, int batch, const struct c32 *image, struct c32 *data)
{
    struct cpu_plan *p = state;
    const struct nufft_shape *s = p->shape;
    size_t pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    for (int done = 0, lanes; done < batch; done += lanes) {
        lanes = next_lanes(p, batch - done);
        grid_cpu_from_image(p->grid, lanes, image + (size_t)done * pixels);
        range_cpu_gather(p->sums, lanes, grid_cpu_values(p->grid), p->weight, data + (size_t)done * p->bins->count,
                         p->bins->count);
    }
    return 0;
}

static int cpu_convolve(void *state, const float *weights, float *convolved)
{
    struct cpu_plan *p = state;
    size_t count = p->bins->count;
    struct c32 *values = calloc(count + 1, sizeof *values);
    if (!values)
        return err_no_memory("convolving %zu weights", count);
    for (size_t m = 0; m < count; m++)
        values[m] = (struct c32){weights[m], 0};
    range_cpu_scatter(p->sums, 1, values, count, NULL, grid_cpu_values(p->grid));
    range_cpu_gather(p->sums, 1, grid_cpu_values(p->grid), NULL, values, count);
    for (size_t m = 0; m < count; m++)
        convolved[m] = values[m].re;
    free(values);
    return 0;
}

const struct nufft_leaf nufft_leaf_cpu = {
    .cost = cpu_cost,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .describe = cpu_describe,
    .set_weights = cpu_set_weights,
    .adjoint = cpu_adjoint,
    .adjoint_squares = cpu_adjoint_squares,
    .forward = cpu_forward,
    .convolve = cpu_convolve,
};
