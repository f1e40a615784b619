/* points_cpu.c: the CPU's points in compact bins, and their partition at a depth. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/range/points_cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bins of half the reach, fewer where that would be more than four for each point. */
static void choose_bins(struct points_cpu *p, double reach)
{
    size_t most = 64 + 4 * p->inputs;
    for (double longer = 0.5;; longer *= 1.25) {
        p->all = 1;
        for (int d = 0; d < 3; d++) {
            double length = d < p->box.dim ? p->box.cells[d] * p->box.spacing[d] : 1, bins = length / (longer * reach);
            p->bins[d] = d >= p->box.dim || bins < 1 ? 1 : bins > 4096 ? 4096 : (int)bins;
            p->edge[d] = length / p->bins[d];
            p->all *= (size_t)p->bins[d];
        }
        if (p->all <= most)
            return;
    }
}

/* A position brought into the box along a periodic axis. */
static float place_of(const struct range_box *box, int d, float at)
{
    double length = box->cells[d] * box->spacing[d], from = at - box->origin[d];
    if (!box->periodic[d] || (from >= 0 && from < length))
        return at;
    from -= floor(from / length) * length;
    float placed = (float)(box->origin[d] + from);
    return placed - box->origin[d] >= 0 && placed - box->origin[d] < length ? placed : (float)box->origin[d];
}

static int bin_of(const struct points_cpu *p, int d, float at)
{
    double bin = floor((at - p->box.origin[d]) / p->edge[d]);
    return bin < 0 ? 0 : bin > p->bins[d] - 1 ? p->bins[d] - 1 : (int)bin;
}

static int make_arrays(struct points_cpu *p, bool scaled)
{
    size_t padded = p->count + POINTS_PADDING, axes = (size_t)p->box.dim + scaled;
    p->first = calloc(p->all + 2, sizeof *p->first);
    p->source = malloc((p->count + 1) * sizeof *p->source);
    p->at[0] = calloc(padded * axes, sizeof **p->at);
    if (!p->first || !p->source || !p->at[0])
        return err_no_memory_bytes(p->count * (axes * sizeof **p->at + sizeof *p->source), "%zu points in bins",
                                   p->count);
    for (int d = 1; d < p->box.dim; d++)
        p->at[d] = p->at[0] + (size_t)d * padded;
    if (scaled)
        p->scale = p->at[0] + (size_t)p->box.dim * padded;
    return 0;
}

/* Counts of bins in first[bin + 2] become starts in first[bin + 1], which placing moves on to where they belong. */
static void scan(struct points_cpu *p)
{
    for (size_t b = 0; b < p->all; b++) {
        uint32_t here = p->first[b + 2];
        p->occupied += here > 0;
        p->largest = here > p->largest ? here : p->largest;
        p->first[b + 2] += p->first[b + 1];
    }
}

static void copy_point(struct points_cpu *to, size_t place, const struct points_cpu *from, size_t i)
{
    for (int d = 0; d < to->box.dim; d++)
        to->at[d][place] = from->at[d][i];
    if (to->scale)
        to->scale[place] = from->scale[i];
    to->source[place] = from->source[i];
}

static int sort(struct points_cpu *p, const float *at, const float *scale)
{
    size_t dim = (size_t)p->box.dim;
    uint32_t *key = malloc((p->count + 1) * sizeof *key);
    if (!key)
        return err_no_memory_bytes(p->count * sizeof *key, "binning %zu points", p->count);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t i = 0; i < p->count; i++) {
        size_t bin = 0;
        for (int d = p->box.dim - 1; d >= 0; d--)
            bin = bin * (size_t)p->bins[d] + (size_t)bin_of(p, d, place_of(&p->box, d, at[i * dim + (size_t)d]));
        key[i] = (uint32_t)bin;
    }
    for (size_t i = 0; i < p->count; i++)
        p->first[key[i] + 2]++;
    scan(p);
    for (size_t i = 0; i < p->count; i++) {
        size_t place = p->first[key[i] + 1]++;
        for (size_t d = 0; d < dim; d++)
            p->at[d][place] = place_of(&p->box, (int)d, at[i * dim + d]);
        if (scale)
            p->scale[place] = scale[i];
        p->source[place] = (uint32_t)i;
    }
    free(key);
    return 0;
}

int points_cpu_create(void **state, struct dev *dev, const struct range_box *box, double reach, size_t inputs,
                      const float *at, const float *scale)
{
    struct points_cpu *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory("points in bins");
    p->box = *box;
    p->threads = dev->threads;
    p->inputs = p->count = inputs;
    p->widest = 1;
    for (size_t i = 0; scale && i < inputs; i++)
        p->widest = i == 0 || scale[i] > p->widest ? scale[i] : p->widest;
    choose_bins(p, reach);
    int rc = make_arrays(p, scale);
    if (!rc)
        rc = sort(p, at, scale);
    if (rc)
        points_cpu_destroy(p);
    else
        *state = p;
    return rc;
}

void points_cpu_destroy(void *state)
{
    struct points_cpu *p = state;
    if (!p)
        return;
    free(p->first);
    free(p->source);
    free(p->at[0]);
    free(p);
}

void points_cpu_info(const void *state, struct range_points_info *info)
{
    const struct points_cpu *p = state;
    size_t floats = (p->count + POINTS_PADDING) * ((size_t)p->box.dim + (p->scale ? 1 : 0));
    *info = (struct range_points_info){.inputs = p->inputs,
                                       .count = p->count,
                                       .bins = p->all,
                                       .occupied_bins = p->occupied,
                                       .largest_bin = p->largest,
                                       .bytes = floats * sizeof(float) + p->count * sizeof *p->source +
                                                (p->all + 2) * sizeof *p->first};
}

/* Points `skipped` to `most` of each bin of `all`. */
static int part_create(struct points_cpu **out, const struct points_cpu *all, size_t skipped, size_t most)
{
    struct points_cpu *p = malloc(sizeof *p);
    if (!p)
        return err_no_memory("points in bins");
    *p = *all;
    p->first = p->source = NULL;
    p->scale = p->at[0] = p->at[1] = p->at[2] = NULL;
    p->count = p->occupied = p->largest = 0;
    for (size_t b = 0; b < all->all; b++) {
        size_t held = all->first[b + 1] - all->first[b];
        p->count += (held < most ? held : most) - (held < skipped ? held : skipped);
    }
    int rc = make_arrays(p, all->scale);
    if (rc) {
        points_cpu_destroy(p);
        return rc;
    }
    size_t place = 0;
    for (size_t b = 0; b < all->all; b++) {
        size_t held = all->first[b + 1] - all->first[b], end = held < most ? held : most;
        for (size_t i = skipped; i < end; i++)
            copy_point(p, place++, all, all->first[b] + i);
        size_t here = end > skipped ? end - skipped : 0;
        p->occupied += here > 0;
        p->largest = here > p->largest ? here : p->largest;
        p->first[b + 1] = (uint32_t)place;
    }
    *out = p;
    return 0;
}

int points_cpu_partition(const void *state, size_t depth, void **kept, void **rest)
{
    struct points_cpu *first = NULL, *second = NULL;
    int rc = part_create(&first, state, 0, depth);
    if (!rc)
        rc = part_create(&second, state, depth, SIZE_MAX);
    if (rc) {
        points_cpu_destroy(first);
        return rc;
    }
    *kept = first;
    *rest = second;
    return 0;
}

struct bin_span points_cpu_span(const struct points_cpu *p, int d, double low, double high)
{
    if (d >= p->box.dim)
        return (struct bin_span){0, 0};
    const double slack = 1e-6; /* of a bin: more than rounding can move a point */
    double from = floor((low - p->box.origin[d]) / p->edge[d] - slack);
    double to = floor((high - p->box.origin[d]) / p->edge[d] + slack), last = p->bins[d] - 1;
    if (!p->box.periodic[d]) {
        from = from < 0 ? 0 : from > last ? last : from;
        to = to < 0 ? 0 : to > last ? last : to;
    }
    return (struct bin_span){(long)from, (long)to};
}
