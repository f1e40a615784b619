/* layout.h: a GPU's bins, the runs of bins that a warp sums, and the layout of their sums; the part of range_gpu.cuh
 * for both compilers. */
#ifndef MRIRECON_LAYOUT_H
#define MRIRECON_LAYOUT_H

#include "gridding/range/slots.h"

#include <stdbool.h>

enum { RUN_BINS_MOST = 31 };          /* a warp's lanes hold the starts of the bins, and the end of the last */
enum { RANGE_UNLIMITED = INT32_MAX }; /* depth of bins that are never cut */
enum { RANGE_SQUARE = 4 };            /* base cells of a bin's squares, counted from its first */

struct range_geometry {
    int dim, width;
    struct range_axis axis[3]; /* x, y, z; in 2-D z is {1, 1} */
    bool by_cell; /* within a bin, sort as well by base z cell; in 2-D by square of RANGE_SQUARE x RANGE_SQUARE cells */
    uint32_t
        light; /* the most samples of a bin that is not cut; 0: no tasks are made (the caller iterates over the bins) */
    uint32_t depth;                 /* samples of a part */
    uint32_t slab;                  /* bins of a slab: an eighth should not be much less than the number in progress */
    uint32_t run_samples, run_bins; /* of a run: target and maximum; 0: sums go to the grid in order, not to slots */
};

/* The number of bins of at most `size` on an axis of `cells`. The colouring is valid if size >= 4/3 (width - 1). */
static inline struct range_axis range_axis_make(int cells, int size)
{
    struct range_axis axis = {cells, (cells + size - 1) / size, 0};
    return axis;
}

/* Squares along an axis of the longest bin. */
static HOST_DEVICE inline uint32_t range_squares(struct range_axis axis)
{
    return ((uint32_t)axis_largest(axis) + RANGE_SQUARE - 1) / RANGE_SQUARE;
}

/* The number of sort keys within one bin. */
static HOST_DEVICE inline uint32_t range_bin_keys(const struct range_geometry *g)
{
    if (!g->by_cell)
        return 1;
    return g->dim == 3 ? (uint32_t)axis_largest(g->axis[2]) : range_squares(g->axis[0]) * range_squares(g->axis[1]);
}

/* A bin's number is (y * bins z + z) * bins x + x. */
static HOST_DEVICE inline uint32_t range_bin_number(const struct range_geometry *g, const int place[3])
{
    return ((uint32_t)place[1] * (uint32_t)g->axis[2].bins + (uint32_t)place[2]) * (uint32_t)g->axis[0].bins +
           (uint32_t)place[0];
}

static HOST_DEVICE inline void range_bin_place(const struct range_geometry *g, uint32_t bin, int place[3])
{
    place[0] = (int)(bin % (uint32_t)g->axis[0].bins);
    bin /= (uint32_t)g->axis[0].bins;
    place[2] = (int)(bin % (uint32_t)g->axis[2].bins);
    place[1] = (int)(bin / (uint32_t)g->axis[2].bins);
}

/* The next bin along x, of the same y and z; after the last the first. And the previous one. */
static HOST_DEVICE inline uint32_t range_bin_right(const struct range_geometry *g, uint32_t bin)
{
    uint32_t row = (uint32_t)g->axis[0].bins;
    return (bin + 1) % row ? bin + 1 : bin + 1 - row;
}

static HOST_DEVICE inline uint32_t range_bin_left(const struct range_geometry *g, uint32_t bin)
{
    uint32_t row = (uint32_t)g->axis[0].bins;
    return bin % row ? bin - 1 : bin + row - 1;
}

/* Consecutive light bins along x without a gap, summed by one warp. */
struct range_bin_run {
    uint32_t bin, bins;
};

/* Whether an occupied bin continues the run of the bin to its left. Runs are cut at about run_samples; this depends on
 * the bin only. first: [bins + 1], the start of each bin's samples. */
static HOST_DEVICE inline bool range_run_continues(const struct range_geometry *g, uint32_t bin, const uint32_t *first)
{
    if (bin % (uint32_t)g->axis[0].bins % g->run_bins == 0)
        return false;
    uint32_t from = first[bin], held = first[bin + 1] - from, left = from - first[bin - 1];
    return held > 0 && left > 0 && held <= g->light && left <= g->light &&
           from / g->run_samples == (from - left) / g->run_samples;
}

static HOST_DEVICE inline struct range_bin_run range_bin_run_from(const struct range_geometry *g, uint32_t bin,
                                                                  uint32_t count, const uint32_t *first)
{
    struct range_bin_run run = {bin, 1};
    while (bin + run.bins < count && range_run_continues(g, bin + run.bins, first))
        run.bins++;
    return run;
}

/* Cumulative counts over bins: occupied ones, heavy ones and their parts, the most samples in one, runs, slots. */
struct range_prefix {
    uint32_t occupied, heavies, parts, largest, runs, slots;
};

static HOST_DEVICE inline struct range_prefix range_prefix_of(const struct range_geometry *g, uint32_t bin,
                                                              const uint32_t *first)
{
    struct range_prefix t = {0, 0, 0, 0, 0, 0};
    uint32_t held = first[bin + 1] - first[bin], left = range_bin_left(g, bin);
    t.largest = held;
    t.occupied = held > 0;
    t.heavies = g->light > 0 && held > g->light;
    t.parts = t.heavies ? (held + g->depth - 1) / g->depth : 0;
    if (g->run_samples > 0) {
        bool on = range_run_continues(g, bin, first);
        t.runs = held > 0 && !t.heavies && !on;
        t.slots = t.occupied + (first[left + 1] > first[left] && !on);
    }
    return t;
}

static HOST_DEVICE inline struct range_prefix range_prefix_add(struct range_prefix a, struct range_prefix b)
{
    struct range_prefix s = {a.occupied + b.occupied, a.heavies + b.heavies,
                             a.parts + b.parts,       a.largest > b.largest ? a.largest : b.largest,
                             a.runs + b.runs,         a.slots + b.slots};
    return s;
}

/* The sums of a chunk [from, to) of the rows of bins along y: one or two stretches of rows, because samples of the row
 * below the first (at the edge: the last row) reach into it. For each stretch: the first part, run and heavy bin, their
 * numbers, and the number of the slot at the workspace's beginning. */
struct slot_rows {
    uint32_t part[2], parts[2], run[2], runs[2], heavy[2], heavies[2], base[2];
    uint32_t slots; /* of all */
    int stretches;  /* the row below is in the first, the chunk's own rows in the last */
};

/* before[rows + 1]: the prefixes of the bins before each row. */
static inline struct slot_rows slot_rows_of(const struct range_prefix *before, int rows, int from, int to)
{
    bool whole = from == 0 && to == rows;
    int first[2] = {whole ? 0 : from > 0 ? from - 1 : rows - 1, 0}, end[2] = {from > 0 ? to : rows, to};
    struct slot_rows r = {{0}, {0}, {0}, {0}, {0}, {0}, {0}, 0, whole || from > 0 ? 1 : 2};
    for (int i = 0; i < r.stretches; i++) {
        const struct range_prefix *a = before + first[i], *b = before + end[i];
        r.part[i] = a->parts;
        r.parts[i] = b->parts - a->parts;
        r.run[i] = a->runs;
        r.runs[i] = b->runs - a->runs;
        r.heavy[i] = a->heavies;
        r.heavies[i] = b->heavies - a->heavies;
        r.base[i] = a->slots - r.slots; /* slot s is at index s - base */
        r.slots += b->slots - a->slots;
    }
    return r;
}

#endif
