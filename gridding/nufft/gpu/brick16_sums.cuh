/* brick16_sums.cuh: the sum of samples in a block's registers, for wide bricks. Only method_brick16.cu includes this.
 *
 * A block of 2 x 2 warps holds a brick of 16 x 16 x 16 grid cells in registers. For 16 samples s at a time and every z
 * plane that they reach, with y and real/imaginary part as rows and x as columns:
 *   brick[z][(y, part)][x] += sum_s (data_s wy_s(y))[(y, part)][s] (wx_s(x) wz_s(z))[s][x]
 * A warp owns eight columns x, all rows, and every other plane, so that the four share the work evenly wherever the
 * samples lie, and no two make the same (wx wz). Samples come sorted by z cell; planes that none of the 16 reaches
 * are skipped.
 */
#ifndef MRIRECON_BRICK16_SUMS_CUH
#define MRIRECON_BRICK16_SUMS_CUH

#include "gridding/nufft/gpu/split_half.cuh"

enum {
    WIDE_THREADS = 128,
    WIDE_GROUP = 16, /* samples of one product */
    WIDE_GROUPS = WIDE_THREADS / WIDE_GROUP,
    WIDE_CHUNK = WIDE_THREADS,
    WIDE_OWN_PLANES = WIDE_EDGE / 2
};

struct brick16_args {
    struct range_geometry geometry;
    const struct range_task *tasks;
    uint32_t transforms, round, *done, *ticket; /* done: [transforms][bins] */
    const struct range_point_gpu *points;
    const float2 *data;      /* [transforms][samples] */
    const uint32_t *largest; /* [transforms] */
    float2 *grid, *partial;  /* [transforms][cells], [transforms][slots][brick] */
    size_t samples, cells;
    size_t cleared; /* cells of the grids that each block of parts clears, an even number */
    uint32_t bins, slots;
    struct kernel_pairs kernel; /* times 2^WEIGHT_BITS */
    bool sorted;                /* by z cell within a bin */
    bool aligned;               /* every bin's first x is even, and no other bin adds to the cell after an odd tile */
};

/* What a block has staged: sample 4 t + i of a group is number i of four. */
template <bool SPLIT> struct brick16_stage {
    four_halves<SPLIT> weights[WIDE_GROUPS][3][WIDE_EDGE][4]; /* [group][axis][row][t] */
    four_halves<SPLIT> values[WIDE_GROUPS][4][2];             /* [group][t][real, imaginary] */
    uint4 lines[WIDE_GROUPS][2][SPLIT ? 2 : 1][32];           /* [group][rows 0.. or 8..][high, low][lane]: values wy */
    int2 planes[WIDE_GROUPS];                                 /* [x, y) is what the group's samples reach along z */
};

/* The left operands of a group, values times weights along y, as the lanes want them. */
template <bool SPLIT> static __device__ __forceinline__ void stage_lines(struct brick16_stage<SPLIT> &stage, int group)
{
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const four_halves<SPLIT> value[2] = {stage.values[group][t][0], stage.values[group][t][1]};
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const four_halves<SPLIT> y = stage.weights[group][1][8 * j + g][t];
        union {
            __half2 half[4];
            uint4 bits;
        } high, low;
#pragma unroll
        for (int k = 0; k < 4; k++)
            multiply<SPLIT>(value[k & 1], y, k >> 1, &high.half[k], &low.half[k]);
        stage.lines[group][j][0][lane] = high.bits;
        if (SPLIT)
            stage.lines[group][j][SPLIT][lane] = low.bits;
    }
}

/* Stage the thread's sample; a warp's 32 go to two groups of its own. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void stage_sample(const struct brick16_args &a, const struct range_point_gpu &point,
                                                    float2 value, uint32_t i, uint32_t last, float scale,
                                                    struct brick16_stage<SPLIT> &stage)
{
    int lane = threadIdx.x & 31, group = threadIdx.x / WIDE_GROUP, s = threadIdx.x % WIDE_GROUP;
    if (i - lane >= last)
        return;
    uint4 *clear = (uint4 *)stage.weights[threadIdx.x / 32 * 2];
#pragma unroll
    for (int k = 0; k < (int)(2 * sizeof stage.weights[0] / sizeof(uint4) / 32); k++)
        clear[32 * k + lane] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    bool there = i < last;
    const float above[3] = {point.x, point.y, point.z};
    const int row = 4 * sizeof(four_halves<SPLIT>) / sizeof(__half);
    if (there)
#pragma unroll
        for (int d = 0; d < 3; d++)
            put_weights<W, SPLIT>(a.kernel, above[d],
                                  (__half *)&stage.weights[group][d][0][s >> 2] + (s & 3) +
                                      (point.base >> (8 * d) & 255) * row);
    put<SPLIT>((__half *)&stage.values[group][s >> 2][0] + (s & 3), there ? value.x * scale : 0.f);
    put<SPLIT>((__half *)&stage.values[group][s >> 2][1] + (s & 3), there ? value.y * scale : 0.f);
    uint32_t z = point.base >> 16, left = last - i; /* of the group's first: how many there are */
    uint32_t highest = __shfl_sync(~0u, z, lane + min(WIDE_GROUP - 1u, left - 1));
    if (s == 0)
        stage.planes[group] = a.sorted ? make_int2((int)z, (int)highest + W) : make_int2(0, WIDE_EDGE);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 2; k++)
        stage_lines<SPLIT>(stage, threadIdx.x / 32 * 2 + k);
}

/* The products with a low half, of the warp's plane p. */
template <bool SPLIT>
static __device__ __forceinline__ void add_low(const four_halves<SPLIT> (*weights)[4], int p,
                                               const four_halves<SPLIT> &x, const uint4 (&high)[2],
                                               const uint4 (&low)[2], float (&sum)[2][WIDE_OWN_PLANES][4])
{
    const four_halves<SPLIT> z = weights[2 * p + (threadIdx.x >> 6)][threadIdx.x & 3];
    __half2 h[2], l[2];
    multiply<SPLIT>(x, z, 0, &h[0], &l[0]);
    multiply<SPLIT>(x, z, 1, &h[1], &l[1]);
#pragma unroll
    for (int j = 0; j < 2; j++)
        mma_half(sum[j][p], low[j], h);
#pragma unroll
    for (int j = 0; j < 2; j++)
        mma_half(sum[j][p], high[j], l);
}

/* Add N planes of a group, the warp's planes p and on. At the first and the last plane that a group reaches along z the
 * kernel is below a hundredth (W = 7) to a tenth (W = 5) of its peak for every sample that reaches it: there, products
 * with a low half are left out (`first`, `last`). The high products come first: their operands are ready first. */
template <bool SPLIT, int N>
static __device__ __forceinline__ void add_planes(const four_halves<SPLIT> (*weights)[4], int p, bool first, bool last,
                                                  const four_halves<SPLIT> &x, const uint4 (&high)[2],
                                                  const uint4 (&low)[2], float (&sum)[2][WIDE_OWN_PLANES][4])
{
    int t = threadIdx.x & 3, odd = threadIdx.x >> 6;
    __half2 h[N][2], l[N][2];
#pragma unroll
    for (int n = 0; n < N; n++) {
        const four_halves<SPLIT> z = weights[2 * (p + n) + odd][t];
        multiply<SPLIT>(x, z, 0, &h[n][0], &l[n][0]);
        multiply<SPLIT>(x, z, 1, &h[n][1], &l[n][1]);
    }
#pragma unroll
    for (int i = 0; i < 2 * N; i++)
        mma_half(sum[i & 1][p + i / 2], high[i & 1], h[i / 2]);
    if constexpr (SPLIT && N > 2) {
#pragma unroll
        for (int i = 2; i < 2 * N - 2; i++)
            mma_half(sum[i & 1][p + i / 2], low[i & 1], h[i / 2]);
#pragma unroll
        for (int i = 2; i < 2 * N - 2; i++)
            mma_half(sum[i & 1][p + i / 2], high[i & 1], l[i / 2]);
    }
    if (SPLIT && !first)
        add_low<SPLIT>(weights, p, x, high, low, sum);
    if (SPLIT && N > 1 && !last)
        add_low<SPLIT>(weights, p + N - 1, x, high, low, sum);
}

/* Where N of a warp's planes can begin. */
template <int N> static __device__ constexpr int at_most(int p)
{
    return p < WIDE_OWN_PLANES - N ? p : WIDE_OWN_PLANES - N;
}

/* Add N planes, 2 to 5, from one on that is known at run time only: registers have no index. */
template <bool SPLIT, int N>
static __device__ __forceinline__ void add_run(const four_halves<SPLIT> (*weights)[4], int p, bool first, bool last,
                                               const four_halves<SPLIT> &x, const uint4 (&high)[2],
                                               const uint4 (&low)[2], float (&sum)[2][WIDE_OWN_PLANES][4])
{
    switch (p) {
    case 0:
        return add_planes<SPLIT, N>(weights, 0, first, last, x, high, low, sum);
    case 1:
        return add_planes<SPLIT, N>(weights, 1, first, last, x, high, low, sum);
    case 2:
        return add_planes<SPLIT, N>(weights, 2, first, last, x, high, low, sum);
    case 3:
        return add_planes<SPLIT, N>(weights, 3, first, last, x, high, low, sum);
    case 4:
        return add_planes<SPLIT, N>(weights, at_most<N>(4), first, last, x, high, low, sum);
    case 5:
        return add_planes<SPLIT, N>(weights, at_most<N>(5), first, last, x, high, low, sum);
    default:
        return add_planes<SPLIT, N>(weights, at_most<N>(6), first, last, x, high, low, sum);
    }
}

/* Add one staged group to the warp's part of the brick. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void add_group(const struct brick16_stage<SPLIT> &stage, int group, int2 planes,
                                                 float (&sum)[2][WIDE_OWN_PLANES][4])
{
    const int few = (W + 1) / 2; /* of the warp's planes, at most, when all samples lie in one z cell */
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, half = threadIdx.x >> 5 & 1, odd = threadIdx.x >> 6;
    int from = (planes.x + 1 - odd) >> 1, to = (planes.y + 1 - odd) >> 1;
    bool first = 2 * from + odd == planes.x, last = 2 * to + odd == planes.y + 1;
    const four_halves<SPLIT> x = stage.weights[group][0][8 * half + g][t];
    uint4 high[2], low[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        high[j] = stage.lines[group][j][0][lane];
        low[j] = stage.lines[group][j][SPLIT][lane];
    }
    const four_halves<SPLIT>(*z)[4] = stage.weights[group][2];
    if (to - from < few) {
        add_run<SPLIT, few - 1>(z, from, first, last, x, high, low, sum);
    } else if (to - from == few) {
        add_run<SPLIT, few>(z, from, first, last, x, high, low, sum);
    } else {
        add_run<SPLIT, few + 1>(z, from, first, last && to - from == few + 1, x, high, low, sum);
        from += few + 1;
        if (from < to)
#pragma unroll
            for (int p = few + 1; p < WIDE_OWN_PLANES; p++)
                if (p >= from && p < to)
                    add_planes<SPLIT, 1>(z, p, last && p + 1 == to, false, x, high, low, sum);
    }
}

static __device__ __forceinline__ void clear_sum(float (&sum)[2][WIDE_OWN_PLANES][4])
{
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int p = 0; p < WIDE_OWN_PLANES; p++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[j][p][k] = 0.f;
}

/* The sum of a transform's samples [first, last) into the block's brick; returns the planes that they reach. */
template <int W, bool SPLIT>
static __device__ __forceinline__ uint32_t sum_samples(const struct brick16_args &a, const float2 *data, uint32_t first,
                                                       uint32_t last, float scale, struct brick16_stage<SPLIT> &stage,
                                                       float (&sum)[2][WIDE_OWN_PLANES][4])
{
    uint32_t touched = 0;
    if (SPLIT)
        scale *= given_back(WIDE_LOSS, last - first);
    struct range_point_gpu point = {0, 0, 0, 0};
    float2 value = make_float2(0.f, 0.f);
    clear_sum(sum);
    if (first + threadIdx.x < last) {
        point = a.points[first + threadIdx.x];
        value = data[first + threadIdx.x];
    }
    for (uint32_t i = first; i < last; i += WIDE_CHUNK) {
        stage_sample<W, SPLIT>(a, point, value, i + threadIdx.x, last, scale, stage);
        if (i + WIDE_CHUNK + threadIdx.x < last) {
            point = a.points[i + WIDE_CHUNK + threadIdx.x];
            value = data[i + WIDE_CHUNK + threadIdx.x];
        }
        __syncthreads();
        int groups = (int)(min((uint32_t)WIDE_CHUNK, last - i) + WIDE_GROUP - 1) / WIDE_GROUP;
#pragma unroll 1
        for (int group = 0; group < groups; group++) {
            int2 planes = stage.planes[group];
            add_group<W, SPLIT>(stage, group, planes, sum);
            touched |= ((1u << (planes.y - planes.x)) - 1) << planes.x;
        }
        __syncthreads();
    }
    return touched;
}

#endif
