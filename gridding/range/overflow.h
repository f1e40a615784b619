/* overflow.h: the samples that bins on a GPU do not keep: summed on the CPU while the GPU sums the others; and how many
 * a bin should keep.
 *
 * A GPU's leaf calls the functions by a table, which the host program gives it.
 */
#ifndef MRIRECON_OVERFLOW_H
#define MRIRECON_OVERFLOW_H

#include "gridding/range/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CPU's sums over one set of samples. Belongs to one thread at a time. */
struct range_overflow;

struct overflow_shape {
    int dim, grid[3], width;
    double beta;
    bool radial;
    double error;       /* that the kernel's polynomials may have (range_kernel_create) */
    int lanes, threads; /* transforms at a time, at most; CPU threads */
};

struct overflow_ops {
    /* k[count][dim]: turns, finite; read during the call only. Fails with ERR_NO_MEMORY. */
    int (*create)(struct range_overflow **out, const struct overflow_shape *shape, size_t count, const float *k);
    void (*destroy)(struct range_overflow *overflow);

    /* [count]: the sample (its index in k) that stands at each place of the order in which values are to come. */
    const uint32_t *(*order)(const struct range_overflow *overflow);
    const struct range_rows *(*rows)(const struct range_overflow *overflow);

    /* packed[transforms][rows->cells], as passes of overflow_lanes() transforms, each [rows->cells][lanes]: overwritten
     * with the sums of values[transforms][count]. */
    void (*scatter)(struct range_overflow *overflow, int transforms, const struct c32 *values, struct c32 *packed);
};

extern const struct overflow_ops range_overflow_ops;

/* Transforms of a pass where `left` are left and `lanes` are allowed. */
static inline int overflow_lanes(int left, int lanes)
{
    int n = left < lanes ? left : lanes;
    return n >= 16 ? 16 : n >= 8 ? 8 : n >= 4 ? 4 : 1;
}

/* What one transform takes, measured, in seconds: with every sample kept, and with bins of some depth. */
struct overflow_probe {
    double kept, overflowed; /* samples */
    double gpu, cpu;         /* gridding */
    double merge;            /* the sums' upload and addition */
    double total;            /* of all three, as far as they do not hide each other */
};

/* all: nothing overflows. some: a part of the samples does. few: next to none do: what overflowing costs as such. */
struct overflow_costs {
    struct overflow_probe all, some, few;
};

/* Expected seconds when so many samples overflow. */
double overflow_expected(const struct overflow_costs *costs, double overflowed);

/* How many samples bins that hold first[b + 1] - first[b] have past a depth. */
size_t overflow_count(const uint32_t *first, size_t bins, uint32_t depth);

/* The least depth past which at most `most` samples lie. */
uint32_t overflow_depth_of(const uint32_t *first, size_t bins, size_t most);

/* The depth of least expected time; the largest bin's count: none overflows. */
uint32_t overflow_choose(const struct overflow_costs *costs, const uint32_t *first, size_t bins);

#ifdef __cplusplus
}
#endif
#endif
