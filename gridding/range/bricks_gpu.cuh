/* bricks_gpu.cuh: reading grids that are stored as bricks, on a GPU.
 *
 * The cells of a 2-D grid are divided into bins (slots.h), each at least as long as a kernel's reach and beginning at
 * an even cell along x. All cells that a bin's samples reach are stored as a brick of BRICK_EDGE x BRICK_EDGE cells,
 * beginning with the bin's first; a cell of the grid is the sum of the bricks that contain it, in a fixed order. Cells
 * are read in pairs along x.
 */
#ifndef MRIRECON_BRICKS_GPU_CUH
#define MRIRECON_BRICKS_GPU_CUH

#include "gridding/base/dev_gpu.cuh"
#include "gridding/range/slots.h"

enum { BRICK_EDGE = 16, BRICK_PAIRS = BRICK_EDGE * BRICK_EDGE / 2 };

/* The arrays that a reader needs. */
struct bricks {
    int bins;                        /* along x */
    const struct slot_cell *x, *y;   /* device, [cells along x / 2] and [cells along y] */
    const struct brick_list *of_bin; /* device, [bins along y][bins along x] */
    const float4 *pairs;             /* device, [set][bricks][BRICK_EDGE][BRICK_EDGE / 2] */
    size_t step;                     /* pairs from one set's bricks to the next's */
};

/* ---- inside a kernel ---- */

/* The bins whose bricks contain a pair of cells, and its position in each. */
struct brick_shares {
    struct brick_list held[4];
    uint32_t at[4];
};

static __device__ __forceinline__ struct brick_shares brick_shares_of(const struct bricks &b, int y, int pair)
{
    const int4 column = __ldg((const int4 *)b.x + pair), row = __ldg((const int4 *)b.y + y);
    struct brick_shares s;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int bin = (i >> 1 ? row.z : row.x) * b.bins + (i & 1 ? column.z : column.x);
        const int from_x = i & 1 ? column.w : column.y, from_y = i >> 1 ? row.w : row.y;
        uint2 held = make_uint2(0, 0);
        if (from_x >= 0 && from_y >= 0)
            held = __ldg((const uint2 *)b.of_bin + bin);
        s.held[i] = {held.x, held.y};
        s.at[i] = (uint32_t)(from_y * BRICK_EDGE + from_x) / 2;
    }
    return s;
}

static __device__ __forceinline__ void add_pair(float4 &sum, const float4 &v)
{
    sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
}

/* A pair of cells of one set, whose bricks begin at `pairs`. */
static __device__ __forceinline__ float4 bricks_sum(const struct brick_shares &s, const float4 *pairs)
{
    float4 first[4], sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        first[i] = sum;
        if (s.held[i].count > 0)
            first[i] = __ldg(pairs + (size_t)s.held[i].first * BRICK_PAIRS + s.at[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        add_pair(sum, first[i]);
        const float4 *from = pairs + (size_t)s.held[i].first * BRICK_PAIRS + s.at[i];
#pragma unroll 4
        for (uint32_t p = 1; p < s.held[i].count; p++)
            add_pair(sum, __ldg(from + (size_t)p * BRICK_PAIRS));
    }
    return sum;
}

#endif
