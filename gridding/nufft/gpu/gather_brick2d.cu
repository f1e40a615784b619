/* Interpolates the grids of many transforms at their 2-D samples on tensor cores: the transpose of method_brick2d.cu.
 *
 * All samples of a bin's square of 4 x 4 base cells read the same (4 + width - 1)^2 cells:
 *   samples[s][transform, part] = sum_c weight[s][c] cells[c][transform, part].
 * A warp keeps the cells of 16 transforms (in plans of up to 8: of 8) in registers for all samples of a square, and
 * computes the weights of 16 samples at a time. It processes CHUNK samples in sorted order, in any number of squares,
 * so many warps share a dense centre. All samples of these transforms precede those of the next ones, so that their
 * grids and data stay in the cache: samples are written in the caller's order, a few bytes at a time. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/kernel.h"

enum { CHUNK = 64, GATHER_WARPS = 4, LANE_GROUPS = 8 }; /* EACH: transforms of a group of four lanes, 1 or 2 */

/* A warp's samples. */
struct plane_chunk {
    struct range_point_gpu point[CHUNK];
    uint32_t order[CHUNK];
    float scale[CHUNK];
};

/* The layout of a square's cells along the products' inner index: a product has two runs of four cells, run 0 and 1. A
 * row of up to 8 cells is one product; wider ones have 12, and two rows are three products, an odd last row two. */
template <int W> struct plane_layout {
    static constexpr int edge = RANGE_SQUARE + W - 1, runs_across = edge <= 8 ? 2 : 3, quarters = (edge + 3) / 4;
    static constexpr int steps = edge <= 8 ? edge : edge / 2 * 3 + edge % 2 * 2;

    static __device__ constexpr int row(int step, int run)
    {
        return (2 * step + run) / runs_across;
    }
    /* The index of the run in its row; after the last row there is an extra one. */
    static __device__ constexpr int across(int step, int run)
    {
        return (2 * step + run) % runs_across;
    }
};

/* A lane's cells of transforms EACH g and on: value[step][run][n] is cell t of that run. */
template <int W, int EACH>
static __device__ __forceinline__ void load_cells(const struct nufft_gather &a, const int first[2], int transform,
                                                  float2 (&value)[plane_layout<W>::steps][2][EACH])
{
    using layout = plane_layout<W>;
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int nx = a.geometry.axis[0].cells, ny = a.geometry.axis[1].cells;
    const float2 *grid = a.grid + (size_t)min(transform + EACH * g, a.transforms - 1) * a.cells;
    const size_t next = transform + EACH * g + 1 < a.transforms ? a.cells : 0;
    int x[layout::runs_across];
#pragma unroll
    for (int i = 0; i < layout::runs_across; i++) {
        x[i] = first[0] + 4 * i + t;
        x[i] -= x[i] >= nx ? nx : 0;
    }
#pragma unroll
    for (int k = 0; k < layout::steps; k++)
#pragma unroll
        for (int run = 0; run < 2; run++) {
            int y = first[1] + layout::row(k, run);
            y -= y >= ny ? ny : 0;
            const float2 *from = grid + y * nx + x[layout::across(k, run)];
            bool exists = layout::row(k, run) < layout::edge;
#pragma unroll
            for (int n = 0; n < EACH; n++)
                value[k][run][n] = exists ? __ldg(from + n * next) : make_float2(0.f, 0.f);
        }
}

/* The weights of samples g and g + 8: on x at the cells t of each run, on y at rows t, t + 4, ... */
template <int W> struct plane_weights {
    static constexpr int quarters = plane_layout<W>::quarters;
    float x[2][plane_layout<W>::runs_across], y[2][quarters];

    __device__ __forceinline__ void make(const struct nufft_gather &a, const struct plane_chunk &chunk,
                                         const int first[2], int s, int last)
    {
        constexpr int across = plane_layout<W>::runs_across, each = across + quarters;
        const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
        float left[2][each], value[2][each];
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const struct range_point_gpu p = chunk.point[min(s + g + 8 * row, last - 1)];
            int base[2] = {(int)(p.base & 0xffff) - first[0], (int)(p.base >> 16) - first[1]};
#pragma unroll
            for (int i = 0; i < each; i++) {
                int axis = i >= across, cell = 4 * (axis ? i - across : i) + t;
                float u = ((axis ? p.y : p.x) - (float)(cell - base[axis])) * a.kernel.scale;
                left[row][i] = fmaf(-u, u, 1.f);
                value[row][i] = a.kernel.c[a.kernel.degree];
            }
        }
#pragma unroll 1
        for (int d = a.kernel.degree - 1; d >= 0; d--) {
            float c = a.kernel.c[d];
#pragma unroll
            for (int row = 0; row < 2; row++)
#pragma unroll
                for (int i = 0; i < each; i++)
                    value[row][i] = fmaf(value[row][i], left[row][i], c);
        }
#pragma unroll
        for (int row = 0; row < 2; row++)
#pragma unroll
            for (int i = 0; i < each; i++)
                (i < across ? x[row][i] : y[row][i - across]) = left[row][i] > 0.f ? value[row][i] : 0.f;
    }
};

/* tf32_low() of a value that is live across a loop: volatile, because otherwise the compiler keeps two copies of every
 * value. */
static __device__ __forceinline__ uint32_t tf32_rest(float v)
{
    uint32_t rest;
    asm volatile("{.reg .b32 high; and.b32 high, %1, 0xffffe000; sub.rn.f32 %0, %1, high;}"
                 : "=r"(rest)
                 : "r"(__float_as_uint(v)));
    return rest;
}

/* Sums of samples g and g + 8: column n of product j is transform EACH n + j / 2, part j % 2. */
template <int W, bool SPLIT, int EACH>
static __device__ __forceinline__ void sum_cells(const struct plane_weights<W> &weights,
                                                 const float2 (&value)[plane_layout<W>::steps][2][EACH],
                                                 float (&sum)[2 * EACH][4])
{
    using layout = plane_layout<W>;
    const int group = threadIdx.x & 28;
    float of_row[2][layout::edge];
#pragma unroll
    for (int y = 0; y < layout::edge; y++)
#pragma unroll
        for (int row = 0; row < 2; row++)
            of_row[row][y] = __shfl_sync(~0u, weights.y[row][y / 4], group + y % 4);
#pragma unroll
    for (int j = 0; j < 2 * EACH; j++)
        sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0.f;
#pragma unroll
    for (int k = 0; k < layout::steps; k++) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = i % 2, run = i / 2, y = layout::row(k, run);
            float w =
                y < layout::edge ? weights.x[row][layout::across(k, run)] * of_row[row][min(y, layout::edge - 1)] : 0.f;
            high[i] = SPLIT ? tf32_high(w) : __float_as_uint(w);
            low[i] = SPLIT ? tf32_low(w, high[i]) : 0;
        }
#pragma unroll
        for (int j = 0; j < 2 * EACH; j++) {
            float b0 = j % 2 ? value[k][0][j / 2].y : value[k][0][j / 2].x;
            float b1 = j % 2 ? value[k][1][j / 2].y : value[k][1][j / 2].x;
            uint32_t h0 = __float_as_uint(b0), h1 = __float_as_uint(b1); /* the hardware ignores the low bits */
            if (SPLIT) {
                mma_tf32(sum[j], low, h0, h1);
                mma_tf32(sum[j], high, tf32_rest(b0), tf32_rest(b1));
            }
            mma_tf32(sum[j], high, h0, h1);
        }
    }
}

/* A lane holds columns 2 t and 2 t + 1 of its two samples: the transforms from 2 EACH t on. */
template <int EACH>
static __device__ __forceinline__ void put_sums(const struct nufft_gather &a, const struct plane_chunk &chunk, int s,
                                                int last, int transform, const float (&sum)[2 * EACH][4])
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        int i = s + g + 8 * row;
        if (i >= last)
            continue;
        float scale = chunk.scale[i];
        const int first = transform + 2 * EACH * t;
        float2 *to = a.data + (size_t)first * a.samples + chunk.order[i];
#pragma unroll
        for (int n = 0; n < 2 * EACH; n++)
            if (first + n < a.transforms) {
                int c = 2 * row + n / EACH, j = 2 * (n % EACH);
                to[(size_t)n * a.samples] = make_float2(sum[j][c] * scale, sum[j + 1][c] * scale);
            }
    }
}

/* The first cell of a base cell's square. */
static __device__ __forceinline__ int square_first(struct range_axis axis, int cell)
{
    const int first = axis_first(axis, axis_bin(axis, cell));
    return first + (cell - first) / RANGE_SQUARE * RANGE_SQUARE;
}

/* Reads `count` samples from `begin` on; bit i of the result: sample i begins a square, or is beyond the end. */
static __device__ __forceinline__ uint64_t load_chunk(const struct nufft_gather &a, uint64_t begin, int count,
                                                      float gain, struct plane_chunk *chunk)
{
    const int lane = threadIdx.x & 31;
    uint64_t begins = 0;
    uint32_t before = ~0u;
#pragma unroll
    for (int h = 0; h < CHUNK; h += 32) {
        uint32_t square = ~0u;
        if (h + lane < count) {
            const struct range_point_gpu p = a.points[begin + h + lane];
            chunk->point[h + lane] = p;
            chunk->order[h + lane] = a.order[begin + h + lane];
            chunk->scale[h + lane] = a.weights ? a.weights[begin + h + lane] * gain : gain;
            square = (uint32_t)square_first(a.geometry.axis[0], (int)(p.base & 0xffff)) |
                     (uint32_t)square_first(a.geometry.axis[1], (int)(p.base >> 16)) << 16;
        }
        uint32_t left = __shfl_up_sync(~0u, square, 1);
        left = lane == 0 ? before : left;
        begins |= (uint64_t)__ballot_sync(~0u, square != left || square == ~0u) << h;
        before = __shfl_sync(~0u, square, 31);
    }
    __syncwarp();
    return begins;
}

/* Warps per multiprocessor, limited by registers. */
static constexpr int warps_that_fit(int width, int each)
{
    return each == 1 || width <= 5 ? 16 : width == 6 ? 12 : 8;
}

/* Blocks of 32 * GATHER_WARPS; a warp owns CHUNK sorted samples of 8 EACH transforms; 6 KB of shared memory. */
template <int W, bool SPLIT, int EACH>
static __global__ void __launch_bounds__(32 * GATHER_WARPS, warps_that_fit(W, EACH) / GATHER_WARPS)
    gather_plane(const __grid_constant__ struct nufft_gather a)
{
    __shared__ struct plane_chunk chunks[GATHER_WARPS];
    struct plane_chunk &chunk = chunks[threadIdx.x / 32];
    const struct range_axis *axis = a.geometry.axis;
    const int transform = blockIdx.y * (LANE_GROUPS * EACH);
    const uint64_t begin = (uint64_t)(blockIdx.x * GATHER_WARPS + threadIdx.x / 32) * CHUNK;
    if (begin >= a.samples)
        return;
    const int count = (int)min((uint64_t)CHUNK, a.samples - begin);
    const uint64_t begins = load_chunk(a, begin, count, SPLIT ? 1.f : TF32_GAIN, &chunk);
    for (int s = 0, last; s < count; s = last) {
        const uint64_t further = s < CHUNK - 1 ? begins >> (s + 1) : 0;
        last = further ? s + __ffsll((long long)further) : CHUNK;
        const uint32_t base = chunk.point[s].base;
        const int first[2] = {square_first(axis[0], (int)(base & 0xffff)), square_first(axis[1], (int)(base >> 16))};
        float2 value[plane_layout<W>::steps][2][EACH];
        load_cells<W, EACH>(a, first, transform, value);
        for (int at = s; at < last; at += 16) {
            struct plane_weights<W> weights;
            float sum[2 * EACH][4];
            weights.make(a, chunk, first, at, last);
            sum_cells<W, SPLIT, EACH>(weights, value, sum);
            put_sums<EACH>(a, chunk, at, last, transform, sum);
        }
    }
}

template <int W, int EACH> static void launch_each(const struct nufft_gather *a, bool split, cudaStream_t stream)
{
    dim3 blocks(gpu_blocks(a->samples, CHUNK * GATHER_WARPS), gpu_blocks((size_t)a->transforms, LANE_GROUPS * EACH));
    (split ? gather_plane<W, true, EACH> : gather_plane<W, false, EACH>)<<<blocks, 32 * GATHER_WARPS, 0, stream>>>(*a);
}

template <int W> static void launch(const struct nufft_gather *a, bool few, bool split, cudaStream_t stream)
{
    (few ? launch_each<W, 1> : launch_each<W, 2>)(a, split, stream);
}

int nufft_gpu_gather_brick2d(struct nufft_gpu *plan, const struct nufft_gather *gather)
{
    static void (*const by_width[])(const struct nufft_gather *, bool, bool, cudaStream_t) = {
        launch<2>, launch<3>, launch<4>, launch<5>, launch<6>, launch<7>, launch<8>};
    by_width[plan->shape.width - KERNEL_MIN_WIDTH](gather, plan->shape.batch <= LANE_GROUPS, plan->split,
                                                   plan->gpu->stream);
    return gpu_launched("Reading the grids");
}
