/* overflow.h: the samples beyond the depth of a GPU's bins, which the CPU sums while the GPU sums the others; and the
 * choice of the depth.
 *
 * A GPU's leaf calls the functions through a table that the host program passes to it.
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
    double error;       /* error bound of the kernel's polynomials (range_kernel_create) */
    int lanes, threads; /* largest number of transforms at a time; CPU threads */
};

struct overflow_ops {
    /* k[count][dim]: turns, finite; read during the call only. Fails with ERR_NO_MEMORY. */
    int (*create)(struct range_overflow **out, const struct overflow_shape *shape, size_t count, const float *k);
    void (*destroy)(struct range_overflow *overflow);

    /* [count]: the order of values: the index in k of each. */
    const uint32_t *(*order)(const struct range_overflow *overflow);
    const struct range_rows *(*rows)(const struct range_overflow *overflow);

    /* packed[transforms][rows->cells], as passes of overflow_lanes() transforms, each [rows->cells][lanes]: overwritten
     * with the sums of values[transforms][count]. */
    void (*scatter)(struct range_overflow *overflow, int transforms, const struct c32 *values, struct c32 *packed);
};

extern const struct overflow_ops range_overflow_ops;

/* Transforms of a pass if `left` are left and `lanes` are allowed. */
static inline int overflow_lanes(int left, int lanes)
{
    int n = left < lanes ? left : lanes;
    return n >= 16 ? 16 : n >= 8 ? 8 : n >= 4 ? 4 : 1;
}

/* Measured times of a transform, in seconds, with all samples kept or with bins of some depth. */
struct overflow_probe {
    double kept, overflowed; /* samples */
    double gpu, cpu;         /* gridding */
    double merge;            /* the sums' upload and addition */
    double total;            /* of all three, which overlap */
};

/* all: no sample overflows. some: a part does. few: almost none do, which measures the overhead. */
struct overflow_costs {
    struct overflow_probe all, some, few;
};

/* Expected seconds if so many samples overflow. */
double overflow_expected(const struct overflow_costs *costs, double overflowed);

/* The number of samples beyond a depth in bins of first[b + 1] - first[b] samples. */
size_t overflow_count(const uint32_t *first, size_t bins, uint32_t depth);

/* The smallest depth with at most `most` samples beyond it. */
uint32_t overflow_depth_of(const uint32_t *first, size_t bins, size_t most);

/* The depth with the least expected time; the largest bin's count: no overflow. */
uint32_t overflow_choose(const struct overflow_costs *costs, const uint32_t *first, size_t bins);

#ifdef __cplusplus
}
#endif
#endif
