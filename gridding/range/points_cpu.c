/* points_cpu.c: the CPU's points in compact bins, and their partition at a depth. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/range/points_cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BETWEEN_LOOKS = 1 << 18 }; /* points binned between two polls of the listener */

static void choose_bins(struct points_cpu *p, double reach)
{
    const struct point_bins chosen = point_bins_choose(&p->box, reach, p->inputs);
    p->all = chosen.all;
    memcpy(p->bins, chosen.bins, sizeof p->bins);
    memcpy(p->edge, chosen.edge, sizeof p->edge);
}

/* Bytes of one point's positions and scale. */
static size_t point_bytes(const struct range_box *box, bool scaled, bool fine)
{
    return (size_t)box->dim * (fine ? sizeof(double) : sizeof(float)) + (scaled ? sizeof(float) : 0);
}

static int make_arrays(struct points_cpu *p, bool scaled, bool fine)
{
    const size_t padded = p->count + POINTS_PADDING, bytes = padded * point_bytes(&p->box, scaled, fine);
    p->first = calloc(p->all + 2, sizeof *p->first);
    p->source = malloc((p->count + 1) * sizeof *p->source);
    p->room = calloc(bytes, 1);
    if (!p->first || !p->source || !p->room)
        return err_no_memory_bytes(bytes + p->count * sizeof *p->source, "%zu points in bins", p->count);
    for (int d = 0; d < p->box.dim; d++)
        if (fine)
            p->fine[d] = (double *)p->room + (size_t)d * padded;
        else
            p->at[d] = (float *)p->room + (size_t)d * padded;
    if (scaled)
        p->scale = (float *)p->room + (size_t)p->box.dim * (fine ? 2 : 1) * padded;
    return 0;
}

void points_cpu_memory(const struct range_points_params *params, struct range_memory *memory)
{
    struct points_cpu p = {.box = params->box, .inputs = params->inputs};
    choose_bins(&p, params->reach);
    memory->points = sizeof p + (p.all + 2) * sizeof *p.first + (p.inputs + 1) * sizeof *p.source +
                     (p.inputs + POINTS_PADDING) * point_bytes(&p.box, params->scale, params->at_double) +
                     4 * (size_t)POINTS_ROUNDING;
    memory->create = memory->points + (p.inputs + 1) * sizeof(uint32_t) + POINTS_ROUNDING;
}

/* Convert the bins' counts in first[bin + 2] to starts in first[bin + 1]; placement then advances each to its final
 * value. */
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
        if (to->fine[d])
            to->fine[d][place] = from->fine[d][i];
        else
            to->at[d][place] = from->at[d][i];
    if (to->scale)
        to->scale[place] = from->scale[i];
    to->source[place] = from->source[i];
}

static double input_at(const struct range_points_params *params, size_t i, int d)
{
    const size_t place = i * (size_t)params->box.dim + (size_t)d;
    const bool fine = params->at_double;
    return point_place(&params->box, d, fine ? params->at_double[place] : (double)params->at[place], fine);
}

static void find_keys(const struct points_cpu *p, const struct range_points_params *params, size_t from, size_t to,
                      uint32_t *key)
{
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t i = from; i < to; i++) {
        size_t bin = 0;
        for (int d = p->box.dim - 1; d >= 0; d--)
            bin = bin * (size_t)p->bins[d] +
                  (size_t)point_bin(p->box.origin[d], p->edge[d], p->bins[d], input_at(params, i, d));
        key[i] = (uint32_t)bin;
    }
}

static void count_keys(struct points_cpu *p, size_t from, size_t to, const uint32_t *key)
{
    for (size_t i = from; i < to; i++)
        p->first[key[i] + 2]++;
}

static void place_points(struct points_cpu *p, const struct range_points_params *params, size_t from, size_t to,
                         const uint32_t *key)
{
    for (size_t i = from; i < to; i++) {
        const size_t place = p->first[key[i] + 1]++;
        for (int d = 0; d < p->box.dim; d++)
            if (p->fine[d])
                p->fine[d][place] = input_at(params, i, d);
            else
                p->at[d][place] = (float)input_at(params, i, d);
        if (p->scale)
            p->scale[place] = params->scale[i];
        p->source[place] = (uint32_t)i;
    }
}

static int sort(struct points_cpu *p, const struct range_points_params *params, struct watch *watch)
{
    uint32_t *key = malloc((p->count + 1) * sizeof *key);
    if (!key)
        return err_no_memory_bytes(p->count * sizeof *key, "binning %zu points", p->count);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t from = 0, to; from < p->count && !watch_look(watch); from = to) {
            to = p->count - from < BETWEEN_LOOKS ? p->count : from + BETWEEN_LOOKS;
            if (pass == 0) {
                find_keys(p, params, from, to, key);
                count_keys(p, from, to, key);
            } else {
                place_points(p, params, from, to, key);
            }
            watch_done(watch, to - from);
        }
        if (pass == 0)
            scan(p);
    }
    const int rc = watch_end(watch);
    free(key);
    return rc;
}

int points_cpu_create(void **state, struct dev *dev, const struct range_points_params *params,
                      const struct listener *listener)
{
    struct points_cpu *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory("points in bins");
    p->box = params->box;
    p->threads = dev->threads;
    p->inputs = p->count = params->inputs;
    p->widest = 1;
    for (size_t i = 0; params->scale && i < p->inputs; i++)
        p->widest = i == 0 || params->scale[i] > p->widest ? params->scale[i] : p->widest;
    choose_bins(p, params->reach);
    struct watch watch;
    watch_begin(&watch, listener, 2 * p->count);
    int rc = make_arrays(p, params->scale, params->at_double);
    if (!rc)
        rc = sort(p, params, &watch);
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
    free(p->room);
    free(p);
}

void points_cpu_info(const void *state, struct range_points_info *info)
{
    const struct points_cpu *p = state;
    *info =
        (struct range_points_info){.inputs = p->inputs,
                                   .count = p->count,
                                   .bins = p->all,
                                   .occupied_bins = p->occupied,
                                   .largest_bin = p->largest,
                                   .bytes = (p->count + POINTS_PADDING) * point_bytes(&p->box, p->scale, p->fine[0]) +
                                            p->count * sizeof *p->source + (p->all + 2) * sizeof *p->first};
}

/* Points `skipped` to `most` of each bin of `all`. */
static int part_create(struct points_cpu **out, const struct points_cpu *all, size_t skipped, size_t most)
{
    struct points_cpu *p = malloc(sizeof *p);
    if (!p)
        return err_no_memory("points in bins");
    *p = *all;
    p->first = p->source = NULL;
    p->room = NULL;
    p->scale = NULL;
    memset(p->at, 0, sizeof p->at);
    memset(p->fine, 0, sizeof p->fine);
    p->count = p->occupied = p->largest = 0;
    for (size_t b = 0; b < all->all; b++) {
        size_t held = all->first[b + 1] - all->first[b];
        p->count += (held < most ? held : most) - (held < skipped ? held : skipped);
    }
    int rc = make_arrays(p, all->scale, all->fine[0]);
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
    return point_span(p->box.origin[d], p->edge[d], p->bins[d], p->box.periodic[d], low, high);
}
