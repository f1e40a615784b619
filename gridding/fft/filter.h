/* filter.h: convolutions of a real field: a periodic field on a mesh is transformed, multiplied by a real, even
 * function of its waves, and transformed back on another mesh of the same box, coarser or finer. What filter_cpu.h and
 * filter_gpu.cuh share. */
#ifndef MRIRECON_FFT_FILTER_H
#define MRIRECON_FFT_FILTER_H

#include "gridding/base/host_device.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

struct filter_shape {
    int from[3]; /* nodes of the field along x, y, z: products of 2, 3, 5 and 7, at least 4 */
    int to[3];   /* of the result, likewise */
    int kept[3]; /* of the result, the first of them that are computed */
};

/* The function: of the wave (i, j, l), in periods of the box, and of its length k, in the unit of wave[]:
 * axis[0][|i|] axis[1][|j|] axis[2][|l|] radial(k). */
struct filter_factors {
    const float *axis[3]; /* [from[d] / 2 + 1] */
    double wave[3];       /* one period along each axis */
    const float *radial;  /* [count], at steps of `step` from 0 on; between them, linear */
    size_t count;         /* at least 2 */
    double step;
    double most; /* > 0: waves of which the product of axis[] exceeds it are left out */
};

/* radial() `rest` steps after a value, which differs by `difference` from the next. */
static inline HOST_DEVICE float filter_between(float value, float difference, float rest)
{
    return value + rest * difference;
}

/* radial() at `place` steps; last: count - 2. */
static inline HOST_DEVICE float filter_radial(const float *radial, int last, float place)
{
    const int below = (int)place < last ? (int)place : last;
    return filter_between(radial[below], radial[below + 1] - radial[below], place - (float)below);
}

/* The smallest wave not below -(from - 1) / 2 that nodes of a mesh of `to` do not tell apart from i, 0 <= i < to. */
static inline HOST_DEVICE int filter_lowest(int i, int from, int to)
{
    const int most = (from - 1) / 2;
    return i - (i + most) / to * to;
}

/* Lengths that a GPU has kernels of its own for, and their radices: two stages (the others 0), or more, the largest
 * first (a fourth of 1: none). */
#define FILTER_SIZES(X)  \
    X(128, 8, 4, 4, 1)   \
    X(160, 8, 5, 4, 1)   \
    X(192, 8, 6, 4, 1)   \
    X(240, 16, 15, 0, 0) \
    X(256, 16, 16, 0, 0) \
    X(320, 20, 16, 0, 0) \
    X(360, 20, 18, 0, 0) \
    X(400, 20, 20, 0, 0) \
    X(432, 24, 18, 0, 0) \
    X(480, 24, 20, 0, 0) \
    X(512, 32, 16, 0, 0) \
    X(576, 24, 24, 0, 0) \
    X(640, 32, 20, 0, 0) \
    X(720, 30, 24, 0, 0) \
    X(800, 10, 10, 8, 1) \
    X(900, 10, 10, 9, 1)

static inline bool filter_quick(int n)
{
    switch (n) {
#define SIZE(N, R0, R1, R2, R3) case N:
        FILTER_SIZES(SIZE)
#undef SIZE
        return true;
    default:
        return false;
    }
}

#endif
