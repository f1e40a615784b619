/* Interpolates a 3-D grid at its samples on tensor cores: the transpose of method_brick16.cu and method_brick_dense.cu.
 *
 * A block loads the 16 x 16 x 16 cells (brick_dense: 8 x 8 x 16) that a bin's samples reach, as halves, into shared
 * memory, and its warps process the samples, 16 at a time. With samples as rows, x as the inner index, and y and
 * real/imaginary part as columns: sum[s][(y, part)] = sum_z sum_x (wx_s(x) wz_s(z)) cell[z][y][x][part]     for the
 * planes z that the 16 reach, sample[s][part]   = sum_y wy_s(y) sum[s][(y, part)].
 */
#include "gridding/nufft/gpu/split_half.cuh"
#include "gridding/range/dense.h"

enum {
    GATHER_THREADS = 128,
    GATHER_WARPS = GATHER_THREADS / 32,
    GATHER_GROUP = 16,        /* samples of one product */
    QUADS = BRICK16_EDGE / 4, /* of cells along x; ROWS: along y, 4, for brick_dense 2 */
};

struct gather16_args : nufft_gather {
    const struct range_task *parts, *tasks; /* parts of heavy bins, then bins */
    uint32_t part_count;
    struct kernel_pairs pairs; /* times 2^WEIGHT_BITS */
    bool aligned;              /* every bin's first x is even */
    size_t stride;             /* between transforms' samples */
};

/* Four numbers of a product's right operand, in the order of lanes, with their low halves. */
template <bool SPLIT, int ROWS> struct gather_cells {
    four_halves<SPLIT> quad[BRICK16_EDGE][ROWS][32]; /* [z][y / 4][lane]: x from 4 (lane % 4) on, column lane / 4 */
};

/* A warp's 16 samples. Samples are 20 banks apart, so that the accesses of a warp do not conflict. */
template <bool SPLIT> struct gather_weights {
    four_halves<SPLIT> x[GATHER_GROUP][QUADS + 1];
    float y[GATHER_GROUP][BRICK16_EDGE + 4]; /* [sample][y % 4][y / 4] */
    __half z[BRICK16_EDGE][GATHER_GROUP][2]; /* high, low */
};

/* ---- the cells ---- */

static __device__ __forceinline__ int wrap(int cell, int cells)
{
    while (cell >= cells)
        cell -= cells;
    return cell;
}

/* Cells x .. x + 3 of a row; those that no sample of the bin reaches are zero. */
static __device__ __forceinline__ void load_quad(const struct gather16_args &a, const int first[3], const int reach[3],
                                                 int x, int y, int z, float2 (&v)[4])
{
    const struct range_axis *axis = a.geometry.axis;
    int row_y = first[1] + y, row_z = first[2] + z;
#pragma unroll
    for (int k = 0; k < 4; k++)
        v[k] = make_float2(0.f, 0.f);
    if (y >= reach[1] || z >= reach[2])
        return;
    row_y = wrap(row_y, axis[1].cells);
    row_z = wrap(row_z, axis[2].cells);
    const float2 *row = a.grid + blockIdx.y * a.cells + ((size_t)row_z * axis[1].cells + row_y) * axis[0].cells;
    if (a.aligned) {
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
            const int at = wrap(first[0] + x + k, axis[0].cells);
            if (x + k < reach[0]) {
                const float4 two = __ldg((const float4 *)(row + at));
                v[k] = make_float2(two.x, two.y);
                v[k + 1] = x + k + 1 < reach[0] ? make_float2(two.z, two.w) : v[k + 1];
            }
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (x + k < reach[0])
            v[k] = __ldg(row + wrap(first[0] + x + k, axis[0].cells));
    }
}

template <bool SPLIT> static __device__ __forceinline__ void put_quad(four_halves<SPLIT> *to, const float (&v)[4])
{
    four_halves<SPLIT> quad;
#pragma unroll
    for (int k = 0; k < 4; k++)
        put<SPLIT>((__half *)&quad + k, v[k]);
    *to = quad;
}

/* Load a bin's cells, scaled by a power of two, whose exponent's bits are returned. All of the block's threads. */
template <bool SPLIT, int ROWS>
static __device__ __forceinline__ uint32_t load_cells(const struct gather16_args &a, uint32_t bin,
                                                      struct gather_cells<SPLIT, ROWS> &cells)
{
    constexpr int row = 4 * ROWS, plane = QUADS * row, each = BRICK16_EDGE * plane / GATHER_THREADS;
    __shared__ uint32_t largest[GATHER_WARPS];
    int place[3], first[3], reach[3];
    float2 v[each][4];
    uint32_t most = 0;
    range_bin_place(&a.geometry, bin, place);
#pragma unroll
    for (int d = 0; d < 3; d++) {
        first[d] = axis_first(a.geometry.axis[d], place[d]);
        reach[d] = axis_size(a.geometry.axis[d], place[d]) + a.geometry.width - 1;
    }
#pragma unroll
    for (int i = 0; i < each; i++) {
        const int number = i * GATHER_THREADS + threadIdx.x;
        load_quad(a, first, reach, number % QUADS * 4, number / QUADS % row, number / plane, v[i]);
#pragma unroll
        for (int k = 0; k < 4; k++)
            most = max(most, max(__float_as_uint(fabsf(v[i][k].x)), __float_as_uint(fabsf(v[i][k].y))));
    }
    most = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0)
        largest[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < GATHER_WARPS; w++)
        most = max(most, largest[w]);
    const uint32_t exponent = value_exponent(most);
    const float scale = __uint_as_float(exponent << 23);
#pragma unroll
    for (int i = 0; i < each; i++) {
        const int number = i * GATHER_THREADS + threadIdx.x, quad = number % QUADS;
        const int y = number / QUADS % row, z = number / plane;
        const float re[4] = {v[i][0].x * scale, v[i][1].x * scale, v[i][2].x * scale, v[i][3].x * scale};
        const float im[4] = {v[i][0].y * scale, v[i][1].y * scale, v[i][2].y * scale, v[i][3].y * scale};
        four_halves<SPLIT> *to = &cells.quad[z][y / 4][y % 4 * 8 + quad];
        put_quad<SPLIT>(to, re);
        put_quad<SPLIT>(to + 4, im);
    }
    __syncthreads();
    return exponent;
}

/* ---- the weights ---- */

/* The weights of cell j and of cell W - 1 - j. */
template <int W, bool SPLIT>
static __device__ __forceinline__ float2 pair_of(const struct kernel_pairs &k, int j, float s)
{
    constexpr int terms = SPLIT ? 4 : 3;
    const float q = s * s;
    float even = k.even[j][terms - 1], odd = k.odd[j][terms - 1];
#pragma unroll
    for (int i = terms - 2; i >= 0; i--) {
        even = fmaf(even, q, k.even[j][i]);
        odd = fmaf(odd, q, k.odd[j][i]);
    }
    const float near = fmaf(s, odd, even);
    return make_float2(j > 0 || s < 1.f ? near : 0.f, fmaf(-s, odd, even)); /* the kernel's edge itself is outside */
}

template <int W> static __device__ __forceinline__ float above_middle(float above)
{
    return 2.f * above - (float)(W - 1);
}

template <bool SPLIT> static __device__ __forceinline__ void put_cell(__half *to, int low, float v)
{
    const __half high = __float2half_rn(v);
    to[0] = high;
    if (SPLIT)
        to[low] = __float2half_rn(v - __half2float(high));
}

/* A warp's 16 samples, by two lanes each: one does x, the other y, and half of z each. Missing samples have weights 0.
 */
template <int W, bool SPLIT>
static __device__ __forceinline__ void put_sample(const struct kernel_pairs &k, const struct range_point_gpu &point,
                                                  bool there, struct gather_weights<SPLIT> &to)
{
    constexpr int pairs = (W + 1) / 2, half_pairs = (pairs + 1) / 2;
    const int lane = threadIdx.x & 31, s = lane % GATHER_GROUP, second = lane / GATHER_GROUP;
    uint4 *clear = (uint4 *)&to;
#pragma unroll
    for (int i = 0; i < (int)(sizeof to / sizeof(uint4) + 31) / 32; i++)
        if (32 * i + lane < (int)(sizeof to / sizeof(uint4)))
            clear[32 * i + lane] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    if (there) {
        const int x = point.base & 255, y = point.base >> 8 & 255, z = point.base >> 16;
        const float across = above_middle<W>(second ? point.y : point.x), along = above_middle<W>(point.z);
#pragma unroll
        for (int j = 0; j < pairs; j++) {
            const float2 w = pair_of<W, SPLIT>(k, j, across);
#pragma unroll
            for (int n = 0; n < (j == W - 1 - j ? 1 : 2); n++) {
                const int cell = (second ? y : x) + (n ? W - 1 - j : j);
                const float v = n ? w.y : w.x;
                if (second)
                    to.y[s][cell % 4 * 4 + cell / 4] = v;
                else
                    put_cell<SPLIT>((__half *)&to.x[s][cell / 4] + cell % 4, 4, v);
            }
        }
#pragma unroll
        for (int i = 0; i < half_pairs; i++) {
            const int j = second ? i + half_pairs : i;
            if (j < pairs) {
                const float2 w = pair_of<W, SPLIT>(k, j, along);
                put_cell<SPLIT>(to.z[z + j][s], 1, w.x);
                if (j != W - 1 - j)
                    put_cell<SPLIT>(to.z[z + W - 1 - j][s], 1, w.y);
            }
        }
    }
    __syncwarp();
}

/* ---- sums ---- */

/* A weight along z, repeated for the factors of a product. */
template <bool SPLIT> static __device__ __forceinline__ four_halves<SPLIT> repeated(const __half (&z)[2])
{
    four_halves<SPLIT> r;
    const __half2 high = __half2half2(z[0]);
    r.bits.x = r.bits.y = *(const uint32_t *)&high;
    if constexpr (SPLIT) {
        const __half2 low = __half2half2(z[1]);
        r.bits.z = r.bits.w = *(const uint32_t *)&low;
    }
    return r;
}

/* Add plane z. LOW: with the products of which one factor is a low half. */
template <bool SPLIT, int ROWS, bool LOW>
static __device__ __forceinline__ void add_plane(const struct gather_cells<SPLIT, ROWS> &cells,
                                                 const struct gather_weights<SPLIT> &weights,
                                                 const four_halves<SPLIT> (&x)[2], int z, float (&sum)[ROWS][4])
{
    const int lane = threadIdx.x & 31, g = lane >> 2;
    union {
        __half2 half[4];
        uint4 bits;
    } high, low = {};
#pragma unroll
    for (int row = 0; row < 2; row++) {
        const four_halves<SPLIT> wz = repeated<SPLIT>(weights.z[z][g + 8 * row]);
        multiply<SPLIT>(x[row], wz, 0, &high.half[row], &low.half[row]);
        multiply<SPLIT>(x[row], wz, 1, &high.half[row + 2], &low.half[row + 2]);
    }
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        const four_halves<SPLIT> cell = cells.quad[z][j][lane];
        const __half2 h[2] = {cell.high(0), cell.high(1)};
        if constexpr (LOW) {
            const __half2 l[2] = {cell.low(0), cell.low(1)};
            mma_half(sum[j], low.bits, h);
            mma_half(sum[j], high.bits, l);
        }
        mma_half(sum[j], high.bits, h);
    }
}

/* Sums of samples g and g + 8 over x and the planes [from, to): a lane's y are 4 j + t. The first and the last plane
 * are each the first or last of every sample that reaches them, where the kernel is below a hundredth (W = 7) to a
 * tenth (W = 5) of its peak: there, as in the adjoint (brick16_sums.cuh), products with a low half are left out. */
template <bool SPLIT, int ROWS>
static __device__ __forceinline__ void sum_planes(const struct gather_cells<SPLIT, ROWS> &cells,
                                                  const struct gather_weights<SPLIT> &weights, int from, int to,
                                                  float (&sum)[ROWS][4])
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const four_halves<SPLIT> x[2] = {weights.x[g][t], weights.x[g + 8][t]};
#pragma unroll
    for (int j = 0; j < ROWS; j++)
        sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0.f;
    if constexpr (SPLIT) {
        add_plane<SPLIT, ROWS, false>(cells, weights, x, from++, sum);
        add_plane<SPLIT, ROWS, false>(cells, weights, x, --to, sum);
    }
#pragma unroll 2
    for (int z = from; z < to; z++)
        add_plane<SPLIT, ROWS, SPLIT>(cells, weights, x, z, sum);
}

/* The remaining sum over y. Lane t = 0 of four gets sample g, lane 1 sample g + 8. */
template <bool SPLIT, int ROWS>
static __device__ __forceinline__ float2 sum_rows(const struct gather_weights<SPLIT> &weights,
                                                  const float (&sum)[ROWS][4])
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float2 of[2];
#pragma unroll
    for (int row = 0; row < 2; row++) {
        const float4 y = *(const float4 *)&weights.y[g + 8 * row][4 * t];
        const float w[4] = {y.x, y.y, y.z, y.w};
        of[row] = make_float2(0.f, 0.f);
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            of[row] = make_float2(fmaf(sum[j][2 * row], w[j], of[row].x), fmaf(sum[j][2 * row + 1], w[j], of[row].y));
#pragma unroll
        for (int i = 1; i < 4; i *= 2)
            of[row] = make_float2(of[row].x + __shfl_xor_sync(~0u, of[row].x, i),
                                  of[row].y + __shfl_xor_sync(~0u, of[row].y, i));
    }
    return t == 1 ? of[1] : of[0];
}

/* Blocks of 128, (one per part of a heavy bin, then one per bin; transforms); 20 to 46 KB of shared memory. */
template <int W, bool SPLIT, int ROWS>
static __global__ void __launch_bounds__(GATHER_THREADS, SPLIT ? 4 : 5)
    gather_bricks(const __grid_constant__ struct gather16_args a)
{
    __shared__ __align__(16) struct gather_cells<SPLIT, ROWS> cells;
    __shared__ __align__(16) struct gather_weights<SPLIT> weights[GATHER_WARPS];
    const struct range_task task = blockIdx.x < a.part_count ? a.parts[blockIdx.x] : a.tasks[blockIdx.x - a.part_count];
    if (task.parts > 0)
        return; /* heavy: its parts are tasks of their own */
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    uint32_t first = task.first + warp * GATHER_GROUP;
    struct range_point_gpu point = {0, 0, 0, 0};
    if (first + lane % GATHER_GROUP < task.last)
        point = a.points[first + lane % GATHER_GROUP];
    const float gain = unscaled(load_cells(a, task.bin, cells));
    for (; first < task.last; first += GATHER_THREADS / 32 * GATHER_GROUP) {
        const uint32_t i = first + lane % GATHER_GROUP, mine = first + (lane >> 2) + 8 * (lane & 1);
        const bool there = i < task.last, puts = (lane & 3) < 2 && mine < task.last;
        const uint32_t z = point.base >> 16;
        const int from = (int)__reduce_min_sync(~0u, there ? z : (uint32_t)BRICK16_EDGE),
                  to = (int)__reduce_max_sync(~0u, there ? z : 0u) + W;
        put_sample<W, SPLIT>(a.pairs, point, there, weights[warp]);
        if (i + GATHER_WARPS * GATHER_GROUP < task.last)
            point = a.points[i + GATHER_WARPS * GATHER_GROUP];
        const uint32_t order = puts ? a.order[mine] : 0;
        const float weight = puts && a.weights ? a.weights[mine] * gain : gain;
        float sum[ROWS][4];
        sum_planes(cells, weights[warp], from, to, sum);
        const float2 value = sum_rows(weights[warp], sum);
        if (puts)
            a.data[blockIdx.y * a.stride + order] = make_float2(value.x * weight, value.y * weight);
        __syncwarp();
    }
}

template <int W> static void (*kernel_of(bool split, bool dense))(struct gather16_args)
{
    if (dense)
        return split ? gather_bricks<W, true, DENSE_SIDE / 4> : gather_bricks<W, false, DENSE_SIDE / 4>;
    return split ? gather_bricks<W, true, QUADS> : gather_bricks<W, false, QUADS>;
}

bool nufft_gpu_gathers_brick16(const struct nufft_shape *)
{
    return true;
}

int nufft_gpu_gather_brick16(struct nufft_gpu *plan, const struct nufft_gather *gather)
{
    const struct range_bins_gpu *bins = &plan->bins;
    void (*(*const of_width[])(bool, bool))(struct gather16_args) = {kernel_of<5>, kernel_of<6>, kernel_of<7>,
                                                                     kernel_of<8>};
    const bool dense = axis_largest(bins->geometry.axis[1]) + plan->shape.width - 1 <= DENSE_SIDE;
    void (*const kernel)(struct gather16_args) = of_width[plan->shape.width - 5](plan->split, dense);
    struct gather16_args a = {};
    *(struct nufft_gather *)&a = *gather;
    a.parts = bins->parts;
    a.tasks = bins->tasks;
    a.part_count = bins->slots;
    a.pairs = scaled_pairs(plan->pairs);
    a.aligned = bins->geometry.axis[0].shift == 1;
    if (bins->occupied == 0)
        return 0;
    a.stride = plan->samples;
    const dim3 blocks(bins->slots + bins->occupied, (unsigned)gather->transforms);
    kernel<<<blocks, GATHER_THREADS, 0, plan->gpu->stream>>>(a);
    return gpu_launched("Reading the grid");
}
