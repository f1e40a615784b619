/* pencils.h: the innermost loops of sums.h for one instruction set: a point against the nodes around it, pencil by
 * pencil (the run of nodes of one row, along x, within reach), and a point against runs of points. Only gridding/range
 * includes this. */
#ifndef MRIRECON_PENCILS_H
#define MRIRECON_PENCILS_H

#include "gridding/range/intervals.h"
#include "gridding/range/law.h"

#include <stddef.h>
#include <stdint.h>

/* PENCIL_LANES: the longest vector. */
enum { PENCIL_LANES = 16, PENCIL_CHANNELS = 4, PENCIL_NODES = 128 };

/* Nodes [low, high) of each axis, at most PENCIL_NODES along each. Those of row (y, z) of channel c begin at cells + c
 * channel + (z - low[2]) plane + (y - low[1]) row; strides are 0 from dim on. */
struct pencil_block {
    float *cells;
    const float *end; /* end of the readable floats; scatter writes up to PENCIL_LANES floats after a row's nodes */
    size_t row, plane, channel;
    int low[3], high[3];
};

struct pencil_point {
    double at[3]; /* in nodes; 0 from dim on */
    float value[PENCIL_CHANNELS];
    double scale;
};

/* The parameters of a sum that are the same for all points. */
struct pencil_law {
    const struct range_law *law;
    int dim, channels;
    double spacing[3];
};

/* The most points of a block, and of a run, over whose pairs loops go. */
enum { PAIR_BLOCK = 128, PAIR_RUN = 1 << 14 };

/* Points 0 to count of a run, padded. A position is at + rest, rest being the rounding error of float32; rest[0] NULL:
 * 0. */
struct pair_run {
    const float *at[3], *rest[3], *scale, *value; /* scale may be NULL; value is not used by counts */
    size_t count;
};

/* The points paired with a run, in the same coordinates, both with or both without rest. Points farther than `reach2`
 * (a square) from the run's bins along y and z, `low` to `high`, are skipped. Sums: point i is not paired with point
 * self + i of the run. Counts: if the run contains some of the points, point i is paired with points after self + i. */
struct pair_block {
    const float *at[3], *rest[3];
    size_t count, self;
    double low[3], high[3], reach2;
};

/* Points of runs within a distance of a box around a block's points, `reach2` being its square, one list for all runs;
 * room for PAIR_RUN + PENCIL_LANES floats in each array. */
struct pair_near {
    float low[3], high[3], reach2;
    float *at[3], *rest[3], *scale, *value; /* as pair_run */
    size_t count;
};

/* The sums over pairs; NULL: not wanted. If both are, their reach, least, soft and spline are the same. */
struct pair_laws {
    const struct range_law *vectors, *scalars;
};
enum { PAIR_SCALAR = 3, PAIR_PARTS = 4 }; /* a point's sums: its vector's up to three, and its scalar's */

/* Distances to intervals (intervals.h). */
enum { PAIR_COPIES = 8 };

struct pair_counts {
    struct interval_octaves octaves;
    const uint16_t *table; /* [octaves.places] */
    uint64_t *counts;      /* [intervals][PAIR_COPIES] */
    /* Called for an undecided pair: point i of the block, j of the run. */
    void (*doubt)(void *of, size_t i, size_t j);
    void *of;
};

struct pencils_leaf {
    /* block += law(node - point) value */
    void (*scatter)(const struct pencil_law *law, const struct pencil_point *point, const struct pencil_block *block);
    /* point->value += the sum over nodes of law(node - point) block */
    void (*gather)(const struct pencil_law *law, struct pencil_point *point, const struct pencil_block *block);
    /* sums[i][d] += sum_j law value_j (at_j - at_i); sums[i][PAIR_SCALAR] += sum_j law value_j */
    void (*pairs)(const struct pair_laws *laws, int dim, const struct pair_block *of, const struct pair_run *run,
                  double (*sums)[PAIR_PARTS]);
    /* Add points of a run to a list. */
    void (*near)(int dim, const struct pair_run *run, struct pair_near *near);
    void (*count)(int dim, const struct pair_block *of, const struct pair_run *run, const struct pair_counts *to);
};

extern const struct pencils_leaf pencils_leaf_sse2, pencils_leaf_avx2, pencils_leaf_avx512;

/* The loops for this processor. */
const struct pencils_leaf *pencils_best(void);

#endif
