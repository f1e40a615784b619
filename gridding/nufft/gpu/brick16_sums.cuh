/* brick16_sums.cuh: the sum of samples in a block's registers (method brick16). Only method_brick16.cu includes this.
 *
 * A block of 2 x 2 warps holds a brick of 16 x 16 x 16 grid cells in registers. For 16 samples s at a time and every z
 * plane that they reach, with y and real/imaginary part as rows and x as columns:
 *   brick[z][(y, part)][x] += sum_s (data_s wy_s(y))[(y, part)][s] (wx_s(x) wz_s(z))[s][x]
 * A warp owns eight columns x, all rows, and every other plane, so that the four share the work evenly for any
 * positions, and no two compute the same (wx wz). With one product it owns all columns of every fourth plane instead,
 * so that it reads weights along z once for both halves of them; with three products that is slower.
 * Samples are sorted by z cell; planes that none of the 16 reaches are skipped.
 */
#ifndef MRIRECON_BRICK16_SUMS_CUH
#define MRIRECON_BRICK16_SUMS_CUH

#include "gridding/nufft/gpu/split_half.cuh"

enum {
    BRICK16_THREADS = 128,
    BRICK16_GROUP = 16,                               /* samples of one product */
    BRICK16_GROUPS = BRICK16_THREADS / BRICK16_GROUP, /* staged at a time, a thread's sample each */
    BRICK16_BLOCKS = 4,                               /* per multiprocessor: with five, operands are spilled */
    WARP_HALVES = BRICK16_EDGE / 2                    /* halves of planes, of eight columns, that a warp owns */
};

/* A warp owns so many halves of each of its planes, which are so far apart. */
template <bool SPLIT> constexpr int OWN_HALVES = SPLIT ? 1 : 2;
template <bool SPLIT> constexpr int PLANES_APART = SPLIT ? 2 : 4;

struct brick16_args {
    struct range_geometry geometry;
    const struct range_task *tasks;
    uint32_t transforms, round, *done, *ticket; /* done: [transforms][bins] */
    const struct range_point_gpu *points;
    const float2 *data;      /* [transforms][samples] */
    const uint32_t *largest; /* [transforms] */
    float2 *grid, *partial;  /* [transforms][cells], [transforms][slots][brick] */
    uint32_t *arrived;       /* [transforms][slots]: 0 between launches */
    const uint32_t *first;   /* [bins + 1]: the start of each bin's samples */
    size_t samples, cells;
    size_t cleared; /* cells of the grids that each block of parts clears, an even number */
    uint32_t bins, slots;
    struct kernel_pairs kernel; /* times 2^WEIGHT_BITS */
    bool sorted;                /* by z cell within a bin */
    bool aligned;               /* every bin's first x is even, and no other bin adds to the cell after an odd tile */
};

/* 16 samples in shared memory; a block has BRICK16_GROUPS of them. Sample 4 t + i is number i of the four_halves at t.
 */
template <bool SPLIT> struct brick16_group {
    four_halves<SPLIT> x[BRICK16_EDGE][4], z[BRICK16_EDGE][4]; /* weights [row][t] */
    uint4 lines[SPLIT ? 2 : 1][2][32];                         /* values times wy: [high, low][rows 0.. or 8..][lane] */
    uint32_t run[PLANES_APART<SPLIT>]; /* run_of() the planes that they reach, by a warp's first */
};

/* Most groups reach this many of a warp's planes, one more or one less. */
template <int W, bool SPLIT> constexpr int USUAL_PLANES = (W + PLANES_APART<SPLIT> - 1) / PLANES_APART<SPLIT>;

/* Of planes [from, to) those of warps that begin with plane `own`, packed into one word when a group is staged. Bits 0
 * and 1: with three products, whether planes from and to - 1 are among them. Bits 2 to 4: the index of the first among
 * the warp's planes. Bits 5 and 6: their number minus (USUAL_PLANES - 1); 3: any other number. From bit 7 on: the
 * warp's plane after the last. */
enum { RUN_FIRST = 1, RUN_LAST = 2, RUN_CASE = 2, RUN_CASES = 8, RUN_END = 7 };

template <int W, bool SPLIT> static __device__ __forceinline__ uint32_t run_of(int from, int to, int own)
{
    constexpr int apart = PLANES_APART<SPLIT>, by = SPLIT ? 1 : 2;
    const int first = (from + apart - 1 - own) >> by, end = (to + apart - 1 - own) >> by,
              more = end - first - (USUAL_PLANES<W, SPLIT> - 1);
    const uint32_t count = min((uint32_t)more, 3u),
                   ends = ((from ^ own) & 1 ? 0 : RUN_FIRST) | ((to ^ own) & 1 ? RUN_LAST : 0);
    return (SPLIT ? ends : 0) | ((uint32_t)first + count * RUN_CASES) << RUN_CASE | (uint32_t)end << RUN_END;
}

/* Clear N bytes that a warp owns. */
template <int N> static __device__ __forceinline__ void clear_shared(void *memory)
{
    uint4 *clear = (uint4 *)memory + (threadIdx.x & 31);
#pragma unroll
    for (int k = 0; k < N / (int)sizeof(uint4) / 32; k++)
        clear[32 * k] = make_uint4(0, 0, 0, 0);
}

/* Store a sample's value times the weight of its row along y: the real part, and the imaginary part a word further on.
 * The two halves of a warp store to groups whose lines lie in the same banks: the upper one stores the imaginary part
 * first. */
template <bool SPLIT> static __device__ __forceinline__ void put_line(__half *line, float2 value, float weight)
{
    constexpr int low = sizeof brick16_group<SPLIT>::lines[0] / sizeof(__half); /* from the high half to the low one */
    const bool upper = threadIdx.x & 16;
    const uint32_t order = upper ? 0x1032 : 0x3210;
    const float2 v = make_float2(value.x * weight, value.y * weight);
    const __half2 high = __floats2half2_rn(v.x, v.y);
    const auto store = [=](int from, __half2 part) {
        const uint32_t bits = __byte_perm(*(const uint32_t *)&part, 0, order);
        uint16_t *to = (uint16_t *)line + from;
        to[upper ? 2 : 0] = (uint16_t)bits;
        to[upper ? 0 : 2] = (uint16_t)(bits >> 16);
    };
    store(0, high);
    if (SPLIT) {
        const float2 kept = __half22float2(high);
        store(low, __floats2half2_rn(v.x - kept.x, v.y - kept.y));
    }
}

template <int W, bool SPLIT>
static __device__ __forceinline__ void put_lines(const struct kernel_pairs &kernel, float above, float2 value,
                                                 __half *first)
{
    constexpr int row = 4 * sizeof(uint4) / sizeof(__half);
    each_weight<W, SPLIT>(
        kernel, above,
        [=](int i, float near, int j, float far) {
            put_line<SPLIT>(first + i * row, value, near);
            put_line<SPLIT>(first + j * row, value, far);
        },
        [=](int i, float weight) { put_line<SPLIT>(first + i * row, value, weight); });
}

/* Stage the thread's sample; a warp's 32 are two groups of its own. If all are in one z cell they fill the same rows,
 * and other rows along z are never read. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void stage_sample(const struct brick16_args &a, const struct range_point_gpu &point,
                                                    float2 value, uint32_t i, uint32_t last, float scale,
                                                    struct brick16_group<SPLIT> *stage)
{
    const int lane = threadIdx.x & 31, s = threadIdx.x % BRICK16_GROUP;
    if (i - lane >= last)
        return;
    struct brick16_group<SPLIT> *const groups = &stage[threadIdx.x / 32 * 2], &own = groups[lane >> 4];
    const bool there = i < last;
    const uint32_t z = point.base >> 16, lowest = __shfl_sync(~0u, z, lane & 16), left = last - (i - s);
    const uint32_t highest = __shfl_sync(~0u, z, (lane & 16) + min(BRICK16_GROUP - 1u, left - 1));
    const bool spread = __any_sync(~0u, !there || z != lowest);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        clear_shared<sizeof own.x>(groups[k].x);
        clear_shared<sizeof own.lines>(groups[k].lines);
        if (spread)
            clear_shared<sizeof own.z>(groups[k].z);
    }
    __syncwarp();
    if (there) {
        put_weights<W, SPLIT>(a.kernel, point.x, (__half *)&own.x[point.base & 255][s >> 2] + (s & 3));
        put_weights<W, SPLIT>(a.kernel, point.z, (__half *)&own.z[z][s >> 2] + (s & 3));
        put_lines<W, SPLIT>(a.kernel, point.y, make_float2(value.x * scale, value.y * scale),
                            (__half *)&own.lines[0][0][4 * (point.base >> 8 & 255) + (s >> 2)] + 2 * (s & 2) + (s & 1));
    }
    if (s < PLANES_APART<SPLIT>)
        own.run[s] =
            a.sorted ? run_of<W, SPLIT>((int)lowest, (int)highest + W, s) : run_of<W, SPLIT>(0, BRICK16_EDGE, s);
}

/* The products with a low half, of the warp's plane p, of which it owns a half. */
template <bool SPLIT>
static __device__ __forceinline__ void add_low(const four_halves<SPLIT> *z_weights, int p, const four_halves<SPLIT> &x,
                                               const uint4 (&high)[2], const uint4 (&low)[2],
                                               float (&sum)[2][WARP_HALVES][4])
{
    const four_halves<SPLIT> z = z_weights[8 * p];
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

/* What a lane reads of a group. */
template <bool SPLIT> struct group_operands {
    four_halves<SPLIT> x[OWN_HALVES<SPLIT>];
    uint4 high[2], low[2];
    const four_halves<SPLIT> *z; /* of the warp's planes */
};

template <bool SPLIT>
static __device__ __forceinline__ void read_group(const struct brick16_group<SPLIT> &group, int lane, int half, int own,
                                                  struct group_operands<SPLIT> *of)
{
#pragma unroll
    for (int h = 0; h < OWN_HALVES<SPLIT>; h++)
        of->x[h] = (&group.x[8 * (half + h)][0])[lane];
    of->z = &group.z[own][lane & 3];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        of->high[j] = group.lines[0][j][lane];
        of->low[j] = group.lines[SPLIT][j][lane];
    }
}

/* Add N planes of a group, the warp's planes p and on, and products with a low half to its planes [A, B) of them. The
 * high products come first: their operands are ready first. */
template <bool SPLIT, int N, int A, int B>
static __device__ __forceinline__ void add_planes(const struct group_operands<SPLIT> &of, int p,
                                                  float (&sum)[2][WARP_HALVES][4])
{
    constexpr int own = OWN_HALVES<SPLIT>;
    __half2 h[own * N][2], l[own * N][2];
#pragma unroll
    for (int n = 0; n < own * N; n++) {
        const four_halves<SPLIT> z = of.z[4 * PLANES_APART<SPLIT> * (p + n / own)];
        multiply<SPLIT>(of.x[n % own], z, 0, &h[n][0], &l[n][0]);
        multiply<SPLIT>(of.x[n % own], z, 1, &h[n][1], &l[n][1]);
    }
#pragma unroll
    for (int i = 0; i < 2 * own * N; i++)
        mma_half(sum[i & 1][own * p + i / 2], of.high[i & 1], h[i / 2]);
    if constexpr (SPLIT) {
#pragma unroll
        for (int i = 2 * A; i < 2 * B; i++)
            mma_half(sum[i & 1][p + i / 2], of.low[i & 1], h[i / 2]);
#pragma unroll
        for (int i = 2 * A; i < 2 * B; i++)
            mma_half(sum[i & 1][p + i / 2], of.high[i & 1], l[i / 2]);
    }
}

/* Add a group's N planes. At the first and the last plane that a group reaches along z the kernel is below a hundredth
 * (W = 7) to a tenth (W = 5) of its peak for every sample that reaches it: there, products with a low half are left
 * out (`first`, `last`). Of an odd number of planes, the warp with the fewer has neither. (N = 1: any one
 * plane, of groups that reach an unusual number.) */
template <int W, bool SPLIT, int N>
static __device__ __forceinline__ void add_run(const struct group_operands<SPLIT> &of, int p, bool first, bool last,
                                               float (&sum)[2][WARP_HALVES][4])
{
    if constexpr (!SPLIT || (W % 2 == 1 && N < USUAL_PLANES<W, SPLIT> && N > 1)) {
        add_planes<SPLIT, N, 0, N>(of, p, sum);
        return;
    }
    add_planes<SPLIT, N, 1, N - 1>(of, p, sum);
    if (!first)
        add_low<SPLIT>(of.z, p, of.x[0], of.high, of.low, sum);
    if (N > 1 && !last)
        add_low<SPLIT>(of.z, p + N - 1, of.x[0], of.high, of.low, sum);
}

/* Add staged groups to the warp's part of the brick. Registers cannot be indexed, so there is a case for each possible
 * first plane of a run. To find it takes a tree of branches, as long as a group's products if each is one, so then
 * groups one after the other that reach the same planes are added in one case; with three products, that is slower.
 * What a group has is read before its case is found. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void add_groups(const struct brick16_group<SPLIT> *group, int groups,
                                                  float (&sum)[2][WARP_HALVES][4])
{
    constexpr int planes = WARP_HALVES / OWN_HALVES<SPLIT>, usual = USUAL_PLANES<W, SPLIT>;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, half = SPLIT ? warp & 1 : 0,
              own = SPLIT ? warp >> 1 : warp;
    const struct brick16_group<SPLIT> *const end = group + groups;
    struct group_operands<SPLIT> of;
    uint32_t run, next = group->run[own];
    const auto read = [&] {
        run = SPLIT ? group->run[own] : next;
        read_group(*group, lane, half, own, &of);
        next = SPLIT || group + 1 == end ? ~run : group[1].run[own];
    };
#pragma unroll 1
    for (; group != end; group++) {
        read();
        const bool first = run & RUN_FIRST, last = run & RUN_LAST;
        switch (run >> RUN_CASE & (4 * RUN_CASES - 1)) {
#define RUN(MORE, P)                                                          \
    case MORE *RUN_CASES + P:                                                 \
        if constexpr (P + usual - 1 + MORE <= planes)                         \
            while (true) {                                                    \
                add_run<W, SPLIT, usual - 1 + MORE>(of, P, first, last, sum); \
                if (SPLIT || next != run)                                     \
                    break;                                                    \
                group++;                                                      \
                read();                                                       \
            }                                                                 \
        break;
#define RUNS(MORE) RUN(MORE, 0) RUN(MORE, 1) RUN(MORE, 2) RUN(MORE, 3) RUN(MORE, 4) RUN(MORE, 5) RUN(MORE, 6)
            RUNS(0)
            RUNS(1)
            RUNS(2)
#undef RUNS
#undef RUN
        default: {
            const int from = (int)(run >> RUN_CASE) & (RUN_CASES - 1), to = (int)(run >> RUN_END);
#pragma unroll
            for (int p = 0; p < planes; p++)
                if (p >= from && p < to)
                    add_run<W, SPLIT, 1>(of, p, (first && p == from) || (last && p + 1 == to), false, sum);
        }
        }
    }
}

static __device__ __forceinline__ void clear_sum(float (&sum)[2][WARP_HALVES][4])
{
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int p = 0; p < WARP_HALVES; p++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[j][p][k] = 0.f;
}

static __device__ __forceinline__ void scale_sum(float (&sum)[2][WARP_HALVES][4], float by)
{
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int p = 0; p < WARP_HALVES; p++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[j][p][k] *= by;
}

/* The sum of a transform's samples [first, last) into the block's brick. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void sum_samples(const struct brick16_args &a, uint32_t transform, uint32_t first,
                                                   uint32_t last, struct brick16_group<SPLIT> *stage,
                                                   float (&sum)[2][WARP_HALVES][4])
{
    const float2 *data = a.data + transform * a.samples;
    const uint32_t exponent = value_exponent(a.largest[transform]);
    const float scale = __uint_as_float(exponent << 23) * (SPLIT ? bias_correction(BRICK16_LOSS, last - first) : 1.f);
    uint32_t i = first + threadIdx.x;
    struct range_point_gpu point = {0, 0, 0, 0};
    float2 value = make_float2(0.f, 0.f);
    if (i < last) {
        point = a.points[i];
        value = data[i];
    }
    clear_sum(sum);
    for (uint32_t at = first; at < last; at += BRICK16_THREADS) {
        __syncthreads(); /* the previously staged samples are summed */
        stage_sample<W, SPLIT>(a, point, value, i, last, scale, stage);
        i += BRICK16_THREADS;
        if (i < last) {
            point = a.points[i];
            value = data[i];
        }
        __syncthreads();
        const int groups = (int)(min((uint32_t)BRICK16_THREADS, last - at) + BRICK16_GROUP - 1) / BRICK16_GROUP;
        add_groups<W, SPLIT>(stage, groups, sum);
    }
    scale_sum(sum, unscaled(exponent));
}

#endif
