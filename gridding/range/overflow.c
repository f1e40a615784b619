#include "gridding/range/overflow.h"
#include "gridding/base/err.h"
#include "gridding/range/range.h"

#include <math.h>
#include <stdlib.h>

struct range_overflow {
    struct range_kernel *law;
    struct range_bins *bins;
    struct range_rows *rows;
    struct range_cpu *sums;
    uint32_t *order;
    int lanes;
};

static void overflow_destroy(struct range_overflow *o)
{
    if (!o)
        return;
    range_cpu_free(o->sums);
    range_rows_free(o->rows);
    range_bins_free(o->bins);
    range_kernel_free(o->law);
    free(o->order);
    free(o);
}

/* Values must be in the order of the bins, so that each bin reads them sequentially. */
static int take_order(struct range_overflow *o)
{
    o->order = malloc((o->bins->count + 1) * sizeof *o->order);
    if (!o->order)
        return err_no_memory("the order of %zu samples", o->bins->count);
    for (size_t i = 0; i < o->bins->count; i++) {
        o->order[i] = o->bins->point[i].source;
        o->bins->point[i].source = (uint32_t)i;
    }
    return 0;
}

static int overflow_create(struct range_overflow **out, const struct overflow_shape *s, size_t count, const float *k)
{
    /* As in nufft_cpu.c: 12 cells per axis, more in 2-D. */
    const int flat[3] = {24, 24, 1}, deep[3] = {16, 12, 12};
    struct range_overflow *o = calloc(1, sizeof *o);
    if (!o)
        return err_no_memory("the CPU's share of the samples");
    o->lanes = range_cpu_lanes(s->lanes);
    int rc = range_kernel_create(&o->law, s->width, s->beta, s->radial, s->error);
    if (!rc)
        rc = range_bins_create(&o->bins, s->dim, s->grid, s->width, s->dim == 3 ? deep : flat, count, k, s->threads,
                               NULL);
    if (!rc)
        rc = range_rows_create(&o->rows, o->bins);
    if (!rc)
        rc = range_cpu_create(&o->sums, o->bins, o->law, o->lanes, RANGE_TOGETHER, s->threads, NULL);
    if (!rc)
        rc = take_order(o);
    if (!rc)
        *out = o;
    else
        overflow_destroy(o);
    return rc;
}

static const uint32_t *overflow_order(const struct range_overflow *o)
{
    return o->order;
}

static const struct range_rows *overflow_rows(const struct range_overflow *o)
{
    return o->rows;
}

static void overflow_scatter(struct range_overflow *o, int transforms, const struct c32 *values, struct c32 *packed)
{
    size_t count = o->bins->count;
    for (int t = 0, lanes; t < transforms; t += lanes) {
        lanes = overflow_lanes(transforms - t, o->lanes);
        range_cpu_scatter_rows(o->sums, o->rows, lanes, values + (size_t)t * count, count, NULL,
                               packed + (size_t)t * o->rows->cells);
    }
}

const struct overflow_ops range_overflow_ops = {
    .create = overflow_create,
    .destroy = overflow_destroy,
    .order = overflow_order,
    .rows = overflow_rows,
    .scatter = overflow_scatter,
};

/* ---- choice of the depth ---- */

/* A linear model: the GPU's time falls from `all` through `some`; the times of the CPU and the merge rise from `few`.
 * GPU and CPU work at the same time; the part of a probe's total that the model does not explain is the overhead of
 * launches and waits. */
double overflow_expected(const struct overflow_costs *c, double overflowed)
{
    if (overflowed <= 0)
        return c->all.total;
    double part = (overflowed - c->few.overflowed) / (c->some.overflowed - c->few.overflowed);
    double cpu = fmax(c->few.cpu, c->few.cpu + part * (c->some.cpu - c->few.cpu));
    double merge = fmax(c->few.merge, c->few.merge + part * (c->some.merge - c->few.merge));
    double gpu = c->all.gpu + overflowed / c->some.overflowed * (c->some.gpu - c->all.gpu);
    double rest = c->few.total - fmax(c->few.gpu, c->few.cpu) - c->few.merge;
    return fmax(fmax(gpu, 0), cpu) + merge + fmax(rest, 0);
}

size_t overflow_count(const uint32_t *first, size_t bins, uint32_t depth)
{
    size_t count = 0;
    for (size_t b = 0; b < bins; b++) {
        uint32_t held = first[b + 1] - first[b];
        count += held > depth ? held - depth : 0;
    }
    return count;
}

static uint32_t largest_bin(const uint32_t *first, size_t bins)
{
    uint32_t largest = 0;
    for (size_t b = 0; b < bins; b++)
        largest = first[b + 1] - first[b] > largest ? first[b + 1] - first[b] : largest;
    return largest;
}

uint32_t overflow_depth_of(const uint32_t *first, size_t bins, size_t most)
{
    uint32_t low = 0, high = largest_bin(first, bins);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (overflow_count(first, bins, middle) <= most)
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

uint32_t overflow_choose(const struct overflow_costs *costs, const uint32_t *first, size_t bins)
{
    uint32_t best = largest_bin(first, bins);
    double least = overflow_expected(costs, 0);
    /* Depths in steps of an eighth: the model is smooth and no more accurate than that. */
    for (uint32_t depth = 1, largest = best; depth<largest; depth += depth / 8> 0 ? depth / 8 : 1) {
        double seconds = overflow_expected(costs, (double)overflow_count(first, bins, depth));
        if (seconds < least) {
            least = seconds;
            best = depth;
        }
    }
    return best;
}
