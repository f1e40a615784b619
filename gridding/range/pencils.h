/* pencils.h: the innermost loops of sums.h for one instruction set: a point against the nodes around it, pencil by
 * pencil (the run of nodes of one row, along x, that lie within reach), and a point against runs of points. Only
 * gridding/range includes this. */
#ifndef MRIRECON_PENCILS_H
#define MRIRECON_PENCILS_H

#include "gridding/range/law.h"

#include <stddef.h>
#include <stdint.h>

enum { PENCIL_LANES = 16, PENCIL_CHANNELS = 4, PENCIL_NODES = 128 };

/* Nodes low to high (without) of each axis, at most PENCIL_NODES along each. Those of row (y, z) of channel c begin at
 * cells + c channel + (z - low[2]) plane + (y - low[1]) row; 0 strides beyond dim. */
struct pencil_block {
    float *cells;
    const float *end; /* past the last float that may be read; scatter writes up to PENCIL_LANES past a row's nodes */
    size_t row, plane, channel;
    int low[3], high[3];
};

struct pencil_point {
    double at[3]; /* in nodes; 0 beyond dim */
    float value[PENCIL_CHANNELS];
    double scale;
};

/* What of a sum does not depend on the point. */
struct pencil_law {
    const struct range_law *law;
    int dim, channels;
    double spacing[3];
};

/* Points 0 to count of a run, padded; scale may be NULL. Positions less `shift`, images' periods among them. */
struct pair_run {
    const float *at[3], *scale, *value; /* value: not of counts */
    size_t count, self;                 /* self: the point that is not paired, or SIZE_MAX */
};

/* Distances to intervals: a squared distance r2 (float32) belongs to interval table[r2 step] if that is below
 * PAIR_DOUBT, is longer than all where it is PAIR_FAR, and else is looked at in double precision. */
enum { PAIR_TABLE = 16384, PAIR_COPIES = 4, PAIR_FAR = 0xffff, PAIR_DOUBT = 0xfffe };

struct pair_counts {
    float step; /* places of the table for a unit of r2 */
    const uint16_t *table;
    uint64_t *counts; /* [intervals][PAIR_COPIES] */
    /* Called for a pair in doubt: point j of the run. */
    void (*doubt)(void *of, size_t j);
    void *of;
};

struct pencils_leaf {
    /* block += law(node - point) value */
    void (*scatter)(const struct pencil_law *law, const struct pencil_point *point, const struct pencil_block *block);
    /* point->value += the sum over nodes of law(node - point) block */
    void (*gather)(const struct pencil_law *law, struct pencil_point *point, const struct pencil_block *block);
    /* sums[0] += sum_j law value_j; with vectors sums[d] += sum_j law value_j (at_j - at) */
    void (*pairs)(const struct range_law *law, int dim, bool vectors, const float at[3], const struct pair_run *run,
                  double sums[3]);
    void (*count)(int dim, const float at[3], const struct pair_run *run, const struct pair_counts *to);
};

extern const struct pencils_leaf pencils_leaf_sse2, pencils_leaf_avx2, pencils_leaf_avx512;

/* That for this processor. */
const struct pencils_leaf *pencils_best(void);

#endif
