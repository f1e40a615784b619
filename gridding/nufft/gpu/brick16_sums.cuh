/* brick16_sums.cuh: the sum of samples in a block's registers (method brick16). Only method_brick16.cu includes this.
 *
 * A block of four warps holds a brick of 16 x 16 x 16 grid cells in registers. For 16 samples s at a time and every z
 * plane that they reach, with y and real/imaginary part as rows and x as columns:
 *   brick[z][(y, part)][x] += sum_s (data_s wy_s(y))[(y, part)][s] (wx_s(x) wz_s(z))[s][x]
 * A warp owns all rows and columns of every fourth plane, so that the four share the work evenly for any positions,
 * and no two compute the same (wx wz).
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
    PLANES_APART = BRICK16_THREADS / 32,              /* a warp's planes, */
    WARP_PLANES = BRICK16_EDGE / PLANES_APART,        /* their number, */
    WARP_HALVES = 2 * WARP_PLANES                     /* and that of their halves, of eight columns */
};

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
    uint32_t planes[PLANES_APART]; /* those that they reach, by a warp's first: run_of(), or pairs_of() if SPLIT */
};

/* ---- the planes that a group reaches, packed into a word for each warp when the group is staged ---- */

/* The index among the planes of the warp that begins with plane `own` of the first that is not before `plane`. */
static __device__ __forceinline__ int plane_index(int plane, int own)
{
    return (plane + PLANES_APART - 1 - own) / PLANES_APART;
}

/* With one product, most groups reach this many of a warp's planes, one more or one less. */
template <int W> constexpr int USUAL_PLANES = (W + PLANES_APART - 1) / PLANES_APART;

/* Of planes [from, to) those of a warp. Bits 0 to 2: the index of the first. Bits 3 and 4: their number minus
 * (USUAL_PLANES - 1); 3: any other number. From bit 5 on: the index after the last. */
enum { RUN_CASES = 8, RUN_END = 5 };

template <int W> static __device__ __forceinline__ uint32_t run_of(int from, int to, int own)
{
    const int first = plane_index(from, own), end = plane_index(to, own), more = end - first - (USUAL_PLANES<W> - 1);
    return ((uint32_t)first + min((uint32_t)more, 3u) * RUN_CASES) | (uint32_t)end << RUN_END;
}

/* With three products, a warp adds a group to two of its planes at a time: 0 and 1, 1 and 2, or 2 and 3; if the group
 * reaches more, then to the last two as well (PAIR_AGAIN). Planes beyond those that it reaches have weights of 0. From
 * PAIR_FULL on: to which planes it adds products with a low half. At the first and the last plane that a group reaches
 * along z the kernel is below a hundredth (W = 7) to a tenth (W = 5) of its peak for every sample that reaches it:
 * there, they are left out. */
enum { PAIR_FIRST = 1, PAIR_MIDDLE = 2, PAIR_LAST = 4, PAIR = 7, PAIR_AGAIN = 8, PAIR_FULL = 16 };

static __device__ __forceinline__ uint32_t pairs_of(int from, int to, int own)
{
    const int first = plane_index(from, own), end = plane_index(to, own);
    const uint32_t full = (1u << plane_index(to - 1, own)) - (1u << plane_index(from + 1, own));
    return full * PAIR_FULL | (end - first > 2 ? PAIR_FIRST | PAIR_AGAIN : 1u << min(first, max(end - 2, 0)));
}

/* ---- staging ---- */

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

/* Stage the thread's sample; a warp's 32 are two groups of its own. With one product, if all are in one z cell they
 * fill the same rows, and other rows along z are never read. */
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
    const bool spread = SPLIT || __any_sync(~0u, !there || z != lowest);
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
    if (s < PLANES_APART) {
        const int from = a.sorted ? (int)lowest : 0, to = a.sorted ? (int)highest + W : BRICK16_EDGE;
        own.planes[s] = SPLIT ? pairs_of(from, to, s) : run_of<W>(from, to, s);
    }
}

/* ---- one product ---- */

/* What a lane reads of a group. */
struct single_operands {
    four_halves<false> x[2]; /* of both halves of the columns */
    uint4 lines[2];
    const four_halves<false> *z; /* of the warp's planes */
};

static __device__ __forceinline__ void read_single(const struct brick16_group<false> &group, int lane, int warp,
                                                   struct single_operands *of)
{
#pragma unroll
    for (int h = 0; h < 2; h++)
        of->x[h] = (&group.x[8 * h][0])[lane];
    of->z = &group.z[warp][lane & 3];
#pragma unroll
    for (int j = 0; j < 2; j++)
        of->lines[j] = group.lines[0][j][lane];
}

/* Add N planes of a group, the warp's planes p and on. */
template <int N>
static __device__ __forceinline__ void add_planes(const struct single_operands &of, int p,
                                                  float (&sum)[2][WARP_HALVES][4])
{
    __half2 u[2 * N][2];
#pragma unroll
    for (int n = 0; n < 2 * N; n++) {
        const four_halves<false> z = of.z[4 * PLANES_APART * (p + n / 2)];
#pragma unroll
        for (int k = 0; k < 2; k++)
            u[n][k] = high_product<false>(of.x[n % 2], z, k);
    }
#pragma unroll
    for (int i = 0; i < 4 * N; i++)
        mma_half(sum[i & 1][2 * p + i / 2], of.lines[i & 1], u[i / 2]);
}

/* Add staged groups to the warp's part of the brick. Registers cannot be indexed, so there is a case for each possible
 * first plane of a run. To find it takes a tree of branches, as long as a group's products, so groups one after the
 * other that reach the same planes are added in one case. What a group has is read before its case is found. */
template <int W>
static __device__ __forceinline__ void add_single(const struct brick16_group<false> *group, int groups,
                                                  float (&sum)[2][WARP_HALVES][4])
{
    constexpr int usual = USUAL_PLANES<W>;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const struct brick16_group<false> *const end = group + groups;
    struct single_operands of;
    uint32_t run, next = group->planes[warp];
    const auto read = [&] {
        run = next;
        read_single(*group, lane, warp, &of);
        next = group + 1 == end ? ~run : group[1].planes[warp];
    };
#pragma unroll 1
    for (; group != end; group++) {
        read();
        switch (run & (4 * RUN_CASES - 1)) {
#define RUN(MORE, P)                                       \
    case MORE *RUN_CASES + P:                              \
        if constexpr (P + usual - 1 + MORE <= WARP_PLANES) \
            while (true) {                                 \
                add_planes<usual - 1 + MORE>(of, P, sum);  \
                if (next != run)                           \
                    break;                                 \
                group++;                                   \
                read();                                    \
            }                                              \
        break;
#define RUNS(MORE) RUN(MORE, 0) RUN(MORE, 1) RUN(MORE, 2) RUN(MORE, 3)
            RUNS(0)
            RUNS(1)
            RUNS(2)
#undef RUNS
#undef RUN
        default: {
            const int from = (int)run & (RUN_CASES - 1), to = (int)(run >> RUN_END);
#pragma unroll
            for (int p = 0; p < WARP_PLANES; p++)
                if (p >= from && p < to)
                    add_planes<1>(of, p, sum);
        }
        }
    }
}

/* ---- three products ---- */

/* What a lane reads of a group for two planes. */
struct split_operands {
    four_halves<true> x[2], z[2]; /* of both halves of the columns, of both planes */
    uint4 high[2], low[2];
};

static __device__ __forceinline__ void read_split(const struct brick16_group<true> &group, int lane, int plane,
                                                  struct split_operands *of)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        of->x[i] = (&group.x[8 * i][0])[lane];
        of->z[i] = group.z[plane + i * PLANES_APART][lane & 3];
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        of->high[j] = group.lines[0][j][lane];
        of->low[j] = group.lines[1][j][lane];
    }
}

/* The products with a low half, of the warp's plane P; `high`: those of two high halves of its weights. */
template <int P>
static __device__ __forceinline__ void add_low(const struct split_operands &of, const four_halves<true> &z,
                                               const __half2 (*high)[2], float (&sum)[2][WARP_HALVES][4])
{
    __half2 low[2][2];
#pragma unroll
    for (int i = 0; i < 4; i++)
        mma_half(sum[i & 1][2 * P + i / 2], of.low[i & 1], high[i / 2]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        low[i / 2][i % 2] = low_product<true>(of.x[i / 2], z, i % 2, high[i / 2][i % 2]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        mma_half(sum[i & 1][2 * P + i / 2], of.high[i & 1], low[i / 2]);
}

/* Add a group to the warp's planes P and P + 1, with products with a low half to the one, P + FULL. high: see
 * add_low(), of both. */
template <int P, int FULL>
static __device__ __forceinline__ void add_two(const struct split_operands &of, __half2 (&high)[4][2],
                                               float (&sum)[2][WARP_HALVES][4])
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        high[i / 2][i % 2] = high_product<true>(of.x[i / 2 % 2], of.z[i / 4], i % 2);
#pragma unroll
    for (int i = 0; i < 8; i++)
        mma_half(sum[i & 1][2 * P + i / 2], of.high[i & 1], high[i / 2]);
    add_low<P + FULL>(of, of.z[FULL], high + 2 * FULL, sum);
}

/* The same, with them to both if both are full. Where neither is, they do no harm. Each case is one piece of code as
 * long as can be: at its end, tensor cores run empty. */
template <int P>
static __device__ __forceinline__ void add_pair(const struct split_operands &of, uint32_t pairs,
                                                float (&sum)[2][WARP_HALVES][4])
{
    __half2 high[4][2];
    if (pairs & PAIR_FULL << P) {
        add_two<P, 0>(of, high, sum);
        if (pairs & PAIR_FULL << (P + 1))
            add_low<P + 1>(of, of.z[1], high + 2, sum);
    } else {
        add_two<P, 1>(of, high, sum);
    }
}

/* Add staged groups to the warp's part of the brick. Registers cannot be indexed, so there is code for each pair of
 * planes. What a group has is read before its pair is found. The shuffle tells the compiler that a warp's lanes branch
 * together. */
static __device__ __forceinline__ void add_split(const struct brick16_group<true> *group, int groups,
                                                 float (&sum)[2][WARP_HALVES][4])
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const struct brick16_group<true> *const end = group + groups;
    uint32_t next = group->planes[warp];
#pragma unroll 1
    while (group != end) {
        const uint32_t pairs = __shfl_sync(~0u, next, 0);
        struct split_operands of;
        read_split(*group, lane, warp + (int)((pairs & PAIR) >> 1) * PLANES_APART, &of);
        next = (pairs & ~(PAIR | PAIR_AGAIN)) | PAIR_LAST;
        if (!(pairs & PAIR_AGAIN) && ++group != end)
            next = group->planes[warp];
        if (pairs & PAIR_MIDDLE)
            add_pair<1>(of, pairs, sum);
        if (pairs & PAIR_FIRST)
            add_pair<0>(of, pairs, sum);
        if (pairs & PAIR_LAST)
            add_pair<2>(of, pairs, sum);
    }
}

template <int W>
static __device__ __forceinline__ void add_groups(const struct brick16_group<false> *group, int groups,
                                                  float (&sum)[2][WARP_HALVES][4])
{
    add_single<W>(group, groups, sum);
}

template <int W>
static __device__ __forceinline__ void add_groups(const struct brick16_group<true> *group, int groups,
                                                  float (&sum)[2][WARP_HALVES][4])
{
    add_split(group, groups, sum);
}

/* ---- a block's sum ---- */

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
        add_groups<W>(stage, groups, sum);
    }
    scale_sum(sum, unscaled(exponent));
}

#endif
