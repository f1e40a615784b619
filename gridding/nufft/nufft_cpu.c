/* nufft_cpu.c: the NUFFT on the CPU: compact bins (range.h) to and from an oversampled grid (grid_cpu.h), in groups of
 * transforms. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/ask.h"
#include "gridding/base/err.h"
#include "gridding/nufft/grid_cpu.h"
#include "gridding/range/kernel.h"
#include "gridding/range/range.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A group's grid should fit approximately into the caches; above this size transforms are computed one at a time. */
static const size_t group_bytes_most = (size_t)384 << 20;

struct cpu_plan {
    const struct nufft_shape *shape;
    int threads, lanes_most;
    struct range_kernel *law;
    struct range_bins *bins;
    struct range_cpu *sums;
    float *weight; /* in the order of the bins, or NULL */
    struct grid_cpu *grid;
    struct asker *asker; /* the device's */
};

/* The number of samples summed in float32 before their sum is added to the others. */
static size_t together_of(const struct nufft_shape *s)
{
    return s->tolerance < 5e-4 ? 256 : RANGE_TOGETHER;
}

/* The root mean square of the factor by which deapodisation multiplies errors of cells, over the pixels -n / 2 .. (n -
 * 1) / 2 of an axis. Of an even number, the outermost is half a pixel farther out than in the mean over the axis, which
 * of few pixels and a wide kernel on a tight grid is all that counts: 1.6 times as much for 14 pixels of 16 cells and a
 * width of 10. Up to STEPS pixels are summed. The mean over more is the trapezoidal rule, whose error falls with the
 * square of their number: that of STEPS, beside the mean over the axis by Simpson's rule. */
static double amplification(int width, double beta, int n, int grid)
{
    enum { STEPS = 32 };
    const bool few = n <= STEPS;
    double sum = 0, middles = 0; /* middles: at odd steps, for Simpson's rule */
    for (int i = 0; i < (few ? n : STEPS + 1); i++) {
        const double pixel = few ? i - n / 2 : 0.5 * n * i / STEPS;
        const double ratio = kernel_transform(width, beta, 0) / kernel_transform(width, beta, pixel / grid);
        *(!few && i % 2 ? &middles : &sum) += (!few && i % STEPS == 0 ? 0.5 : 1) * ratio * ratio;
    }
    const double trapezoids = sum / (STEPS / 2), mean = (2 * middles / (STEPS / 2) + trapezoids) / 3;
    return sqrt(few ? sum / n : mean + (trapezoids - mean) * STEPS * STEPS / ((double)n * n));
}

/* kernel_rounding() of the pixels that there are, with sums of equal sign in one place, whose roundings are correlated:
 * 7e-9 for each sample, from a search over random plans (tests/unit/test_plans). */
static double cpu_rounding(const struct nufft_shape *s, size_t samples)
{
    const size_t together = together_of(s), summed = samples < together ? samples : together;
    double gain[3], all = 1;
    for (int d = 0; d < s->dim; d++) {
        const bool again = d > 0 && s->n[d] == s->n[d - 1] && s->grid[d] == s->grid[d - 1];
        gain[d] = again ? gain[d - 1] : amplification(s->width, s->beta, s->n[d], s->grid[d]);
        all *= gain[d];
    }
    return all * fmax(1.3e-6, 7e-9 * (double)summed);
}

static struct nufft_cost cpu_cost(const struct dev *dev, const struct nufft_shape *s, size_t samples)
{
    (void)dev;
    double cells = (double)s->grid[0] * s->grid[1] * s->grid[2],
           rows = s->dim == 3 ? (double)s->width * s->width : s->width;
    double floats = s->width * 2.0 * (s->batch >= 4 ? 4 : 1), vectors = ceil(floats / 16) / (s->batch >= 4 ? 4 : 1);
    /* ns, one core, AVX-512: fitted to tests/bench/bench_nufft over widths 3 to 8; forward: two thirds of the adjoint's
     * time per sample, as in its cases s, d and a, because interpolation does not add to a grid. */
    const double fft = cells * (2.2 + 0.18 * log2(cells)), scatter = (double)samples * (12 + 0.9 * rows * vectors),
                 gather = (double)samples * (8 + 0.6 * rows * vectors);
    return (struct nufft_cost){.seconds = 1e-9 * ((s->purpose != NUFFT_FOR_FORWARD ? fft + scatter : 0) +
                                                  (s->purpose != NUFFT_FOR_ADJOINT ? fft + gather : 0)),
                               .error = s->corner_aliasing + cpu_rounding(s, samples),
                               .as_asked = true};
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

/* Bins of points, and what sums them. */
static int sums_create(const struct cpu_plan *p, size_t samples, const float *k, int threads, struct range_bins **bins,
                       struct range_cpu **sums)
{
    const struct nufft_shape *s = p->shape;
    const int flat = p->lanes_most > 1 ? 24 : 16, deep[] = {16, 12, 12}, tile2[3] = {flat, flat, 1};
    int rc = check_finite(samples * (size_t)s->dim, s->dim, k, p->threads);
    if (!rc)
        rc = range_bins_create(bins, s->dim, s->grid, s->width, s->dim == 3 ? deep : tile2, samples, k, p->threads,
                               p->asker);
    return rc ? rc : range_cpu_create(sums, *bins, p->law, p->lanes_most, together_of(s), threads, p->asker);
}

static int cpu_create(void **state, struct dev *dev, const struct nufft_shape *s, size_t samples, const float *k)
{
    struct cpu_plan *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory("a plan");
    p->shape = s;
    p->threads = dev->threads;
    p->asker = dev_asker(dev);
    size_t cells = (size_t)s->grid[0] * (size_t)s->grid[1] * (size_t)s->grid[2];
    p->lanes_most = range_cpu_lanes(s->batch);
    while (p->lanes_most > 1 && cells * (size_t)p->lanes_most * sizeof(struct c32) > group_bytes_most)
        p->lanes_most = range_cpu_lanes(p->lanes_most / 2);
    /* The polynomials' error must be negligible compared with the kernel's. */
    double reached = kernel_aliasing(s->dim, s->width, (double)s->grid[0] / s->n[0], s->kernel == NUFFT_RADIAL);
    int rc =
        range_kernel_create(&p->law, s->width, s->beta, s->kernel == NUFFT_RADIAL, 0.01 * fmin(s->tolerance, reached));
    if (!rc)
        rc = sums_create(p, samples, k, p->threads, &p->bins, &p->sums);
    if (!rc)
        rc = grid_cpu_create(&p->grid, s, p->lanes_most, p->threads, false, p->asker);
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

/* Weights in the order of the bins: *out, the caller's; NULL of NULL. */
static int weights_sort(const struct cpu_plan *p, const struct range_bins *bins, const float *weights, float **out)
{
    enum { PIECE = 1 << 16, COST = 10 };
    float *sorted = weights ? malloc((bins->count + 1) * sizeof *sorted) : NULL;
    if (weights && !sorted)
        return err_no_memory("%zu weights", bins->count);
    for (size_t from = 0; from < bins->count && weights && !asker_stopped(p->asker, PIECE * COST); from += PIECE)
        for (size_t i = from; i < bins->count && i < from + PIECE; i++)
            sorted[i] = weights[bins->point[i].source];
    if (asker_rc(p->asker) != 0) {
        free(sorted);
        return asker_rc(p->asker);
    }
    *out = sorted;
    return 0;
}

static int cpu_set_weights(void *state, const float *weights)
{
    struct cpu_plan *p = state;
    float *sorted = NULL;
    int rc = weights_sort(p, p->bins, weights, &sorted);
    if (rc)
        return rc;
    free(p->weight);
    p->weight = sorted;
    return 0;
}

static int next_lanes(const struct cpu_plan *p, int left)
{
    return range_cpu_lanes(left < p->lanes_most ? left : p->lanes_most);
}

static int adjoint(struct cpu_plan *p, int batch, const struct c32 *data, struct c32 *image, float *squares)
{
    const struct nufft_shape *s = p->shape;
    size_t pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    int rc = 0;
    for (int done = 0, lanes; done < batch && rc == 0; done += lanes) {
        lanes = next_lanes(p, batch - done);
        rc = (grid_cpu_take_zeros(p->grid, lanes) ? range_cpu_scatter_add : range_cpu_scatter)(
            p->sums, lanes, data + (size_t)done * p->bins->count, p->bins->count, p->weight, grid_cpu_values(p->grid));
        if (rc == 0)
            rc = grid_cpu_to_image(p->grid, lanes, image ? image + (size_t)done * pixels : NULL, squares);
    }
    return rc;
}

static int cpu_adjoint(void *state, int batch, const struct c32 *data, struct c32 *image)
{
    return adjoint(state, batch, data, image, NULL);
}

static int cpu_adjoint_squares(void *state, int batch, const struct c32 *data, float *squares)
{
    return adjoint(state, batch, data, NULL, squares);
}

static int cpu_forward(void *state, int batch, const struct c32 *image, struct c32 *data)
{
    struct cpu_plan *p = state;
    const struct nufft_shape *s = p->shape;
    size_t pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    int rc = 0;
    for (int done = 0, lanes; done < batch && rc == 0; done += lanes) {
        lanes = next_lanes(p, batch - done);
        rc = grid_cpu_from_image(p->grid, lanes, image + (size_t)done * pixels);
        if (rc == 0)
            rc = range_cpu_gather(p->sums, lanes, grid_cpu_values(p->grid), p->weight,
                                  data + (size_t)done * p->bins->count, p->bins->count);
    }
    return rc;
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
    grid_cpu_lose(p->grid);
    int rc = range_cpu_scatter(p->sums, 1, values, count, NULL, grid_cpu_values(p->grid));
    if (rc == 0)
        rc = range_cpu_gather(p->sums, 1, grid_cpu_values(p->grid), NULL, values, count);
    for (size_t m = 0; m < count && rc == 0; m++)
        convolved[m] = values[m].re;
    free(values);
    return rc;
}

/* ---- in parts ---- */

enum { ALONE_SAMPLES = 1 << 15 /* of all lanes: fewer are summed by one thread */ };

struct cpu_part {
    struct range_bins *bins;
    struct range_cpu *sums;
    float *weight; /* in the order of the bins, or NULL */
};

struct cpu_parts {
    struct cpu_plan *plan;
    int batch, count;
    struct cpu_part *part; /* [count] */
    bool rows;             /* 2-D: the first pass goes along x, not along y */
    int *mark;             /* of each line of the first pass: the last part that reaches it; or -1 */
    struct c32 *grid;      /* of group after group of transforms, each at a multiple of 64 bytes */
    size_t values;         /* in all */
    struct c32 *panels;    /* `rows`: of group after group, between the passes; else NULL */
    size_t panels_values;  /* in all */
};

/* The few samples of one of the last parts are summed before another thread, which slept, has come: above all where
 * other work runs beside. */
static int part_threads(const struct cpu_plan *p, size_t samples)
{
    return samples * (size_t)p->lanes_most < ALONE_SAMPLES ? 1 : p->threads;
}

/* Where the grid of the group after `at` begins. */
static size_t grid_after(const struct cpu_plan *p, size_t at, int lanes)
{
    const struct nufft_shape *s = p->shape;
    const size_t line = 64 / sizeof(struct c32);
    const size_t values = (size_t)s->grid[0] * (size_t)s->grid[1] * (size_t)s->grid[2] * (size_t)lanes;
    return at + (values + line - 1) / line * line;
}

static void parts_destroy(void *of)
{
    struct cpu_parts *parts = of;
    if (!parts)
        return;
    for (int i = 0; i < parts->count && parts->part; i++) {
        range_cpu_free(parts->part[i].sums);
        range_bins_free(parts->part[i].bins);
        free(parts->part[i].weight);
    }
    free(parts->part);
    free(parts->mark);
    free(parts->grid);
    free(parts->panels);
    free(parts);
}

static int parts_fill(struct cpu_parts *parts, const size_t *first, const float *k, const float *weights)
{
    const struct cpu_plan *p = parts->plan;
    int rc = 0;
    for (int done = 0, lanes; done < parts->batch; done += lanes) {
        lanes = next_lanes(p, parts->batch - done);
        parts->values = grid_after(p, parts->values, lanes);
    }
    parts->part = calloc((size_t)parts->count, sizeof *parts->part);
    parts->grid = aligned_alloc(64, parts->values * sizeof *parts->grid);
    if (!parts->part || !parts->grid)
        return err_no_memory_bytes(parts->values * sizeof *parts->grid, "the grids of %d transforms", parts->batch);
    for (int i = 0; i < parts->count && !rc; i++) {
        struct cpu_part *part = &parts->part[i];
        const size_t from = first[i];
        rc = sums_create(p, first[i + 1] - from, k + from * (size_t)p->shape->dim, part_threads(p, first[i + 1] - from),
                         &part->bins, &part->sums);
        if (!rc)
            rc = weights_sort(p, part->bins, weights ? weights + from : NULL, &part->weight);
    }
    return rc;
}

static size_t lines_count(const struct nufft_shape *s, bool rows)
{
    return rows ? (size_t)s->grid[1] : (size_t)s->grid[0] * (s->dim == 3 ? (size_t)s->grid[1] : 1);
}

/* Mark the lines of a first pass along x (`rows`) or the last axis. *last: how many the last part reaches. */
static int lines_mark(const struct cpu_parts *parts, bool rows, int **out, size_t *last)
{
    const size_t count = lines_count(parts->plan->shape, rows);
    int *mark = malloc(count * sizeof *mark), rc = 0;
    if (!mark)
        return err_no_memory("%zu lines of a grid", count);
    for (size_t i = 0; i < count; i++)
        mark[i] = -1;
    for (int i = parts->count - 1; i >= 0 && rc == 0; i--)
        rc = (rows ? range_rows_mark : range_columns_mark)(parts->part[i].bins, i, mark);
    *last = 0;
    for (size_t i = 0; i < count; i++)
        *last += mark[i] == parts->count - 1;
    if (rc == 0)
        *out = mark;
    else
        free(mark);
    return rc;
}

/* In 2-D the first pass goes along the axis of which less is left for the last part: the last spokes of a scan in the
 * order of their angles, or the last Cartesian lines, reach few rows, and nearly all columns. */
static int passes_choose(struct cpu_parts *parts)
{
    const struct nufft_shape *s = parts->plan->shape;
    size_t columns_last, rows_last;
    int *rows = NULL, rc = lines_mark(parts, false, &parts->mark, &columns_last);
    if (rc || s->dim == 3)
        return rc;
    rc = lines_mark(parts, true, &rows, &rows_last);
    if (rc)
        return rc;
    parts->rows = parts->count > 1 && rows_last * (size_t)s->grid[0] < columns_last * (size_t)s->grid[1];
    free(parts->rows ? parts->mark : rows);
    parts->mark = parts->rows ? rows : parts->mark;
    return 0;
}

/* Rows that no part reaches are never written, and stay 0. */
static int panels_create(struct cpu_parts *parts)
{
    const struct cpu_plan *p = parts->plan;
    if (!parts->rows)
        return 0;
    for (int done = 0, lanes; done < parts->batch; done += lanes) {
        lanes = next_lanes(p, parts->batch - done);
        parts->panels_values += grid_cpu_panels(p->grid, lanes);
    }
    const size_t bytes = parts->panels_values * sizeof *parts->panels;
    parts->panels = aligned_alloc(64, bytes);
    if (!parts->panels)
        return err_no_memory_bytes(bytes, "the columns of %d transforms", parts->batch);
    memset(parts->panels, 0, bytes);
    return 0;
}

static int parts_create(void **out, void *state, int batch, int count, const size_t *first, const float *k,
                        const float *weights)
{
    struct cpu_parts *parts = calloc(1, sizeof *parts);
    if (!parts)
        return err_no_memory("an adjoint of %d parts", count);
    parts->plan = state;
    parts->batch = batch;
    parts->count = count;
    int rc = parts_fill(parts, first, k, weights);
    if (!rc)
        rc = passes_choose(parts);
    if (!rc)
        rc = panels_create(parts);
    if (!rc)
        *out = parts;
    else
        parts_destroy(parts);
    return rc;
}

static size_t parts_bytes(const void *of)
{
    const struct cpu_parts *parts = of;
    const struct nufft_shape *s = parts->plan->shape;
    size_t bytes = (parts->values + parts->panels_values) * sizeof *parts->grid +
                   lines_count(s, parts->rows) * sizeof *parts->mark;
    for (int i = 0; i < parts->count; i++) {
        const struct range_bins *bins = parts->part[i].bins;
        bytes += range_cpu_bytes(parts->part[i].sums) + bins->count * (sizeof *bins->point + sizeof(float)) +
                 (bins->bins + 1) * sizeof *bins->offset;
    }
    return bytes;
}

static int parts_begin(void *of)
{
    struct cpu_parts *parts = of;
    const size_t piece = 1 << 14;
#pragma omp parallel for schedule(static) num_threads(parts->plan->threads)
    for (size_t at = 0; at < parts->values; at += piece)
        memset(parts->grid + at, 0, (parts->values - at < piece ? parts->values - at : piece) * sizeof *parts->grid);
    return 0;
}

/* The lines that no later part reaches are transformed at once, so that less is left at the end. */
static int parts_add(void *of, int number, const struct c32 *data)
{
    struct cpu_parts *parts = of;
    struct cpu_plan *p = parts->plan;
    const struct cpu_part *part = &parts->part[number];
    const size_t count = part->bins->count;
    struct c32 *panels = parts->panels;
    size_t at = 0;
    int rc = 0;
    for (int done = 0, lanes; done < parts->batch && rc == 0; done += lanes) {
        lanes = next_lanes(p, parts->batch - done);
        rc = range_cpu_scatter_add(part->sums, lanes, data + (size_t)done * count, count, part->weight,
                                   parts->grid + at);
        struct c32 *own = grid_cpu_exchange(p->grid, parts->grid + at);
        if (rc == 0)
            rc = parts->rows ? grid_cpu_rows(p->grid, lanes, parts->mark, number, panels)
                             : grid_cpu_columns(p->grid, lanes, parts->mark, number);
        grid_cpu_exchange(p->grid, own);
        panels += parts->rows ? grid_cpu_panels(p->grid, lanes) : 0;
        at = grid_after(p, at, lanes);
    }
    return rc;
}

static int parts_finish(void *of, struct c32 *image, float *squares)
{
    struct cpu_parts *parts = of;
    struct cpu_plan *p = parts->plan;
    const struct nufft_shape *s = p->shape;
    const size_t pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    const struct c32 *panels = parts->panels;
    size_t at = 0;
    int rc = 0;
    for (int done = 0, lanes; done < parts->batch && rc == 0; done += lanes) {
        lanes = next_lanes(p, parts->batch - done);
        struct c32 *own = grid_cpu_exchange(p->grid, parts->grid + at);
        struct c32 *own_image = image ? image + (size_t)done * pixels : NULL;
        rc = parts->rows ? grid_cpu_rest_columns(p->grid, lanes, panels, own_image, squares)
                         : grid_cpu_rest(p->grid, lanes, own_image, squares);
        grid_cpu_exchange(p->grid, own);
        panels += parts->rows ? grid_cpu_panels(p->grid, lanes) : 0;
        at = grid_after(p, at, lanes);
    }
    return rc;
}

static const struct parts_leaf parts_leaf_cpu = {
    parts_create, parts_destroy, parts_bytes, parts_begin, parts_add, parts_finish,
};

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
    .parts = &parts_leaf_cpu,
};
