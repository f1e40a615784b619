/* points.h: one run of points of a bin against the bin's private tile: the innermost loops. Only gridding/range
 * includes this. */
#ifndef MRIRECON_POINTS_H
#define MRIRECON_POINTS_H

#include "gridding/range/range.h"

enum { LAW_LANES = 16, KERNEL_DEGREE_MOST = 17 };

/* Separable: the weight of cell j (0 .. width-1) at fraction f is sum_i c[i][j] s^i, s = 2 f - 1; c[i][j] = 0 for j >=
 * width. Radial: sum_i c[i][0] t^i for t = 1 - (2 r / width)^2 > 0. */
struct range_kernel {
    int width, degree;
    bool radial;
    float c[KERNEL_DEGREE_MOST + 1][LAW_LANES];
};

/* tile: [planes][rows][row] floats; a row holds cells, each [lanes] complex values, and LAW_LANES floats of padding
 * that whole-vector reads and writes may touch. */
struct points_tile {
    float *cells;
    int row, rows; /* floats in a row, rows in a plane */
};

struct points_run {
    const struct range_kernel *law;
    int dim, lanes;
    const struct range_point *point;
    size_t count;
    const float *weight; /* [count] or NULL */
    struct points_tile tile;
};

struct points_leaf {
    /* tile += kernel * weight * values[lane * stride + source] */
    void (*scatter)(const struct points_run *run, const struct c32 *values, size_t stride);
    /* values[lane * stride + source] = weight * sum of kernel * tile */
    void (*gather)(const struct points_run *run, struct c32 *values, size_t stride);
};

extern const struct points_leaf points_leaf_sse2, points_leaf_avx2, points_leaf_avx512;

#endif
