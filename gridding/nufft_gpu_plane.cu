/* Planes: 2-D samples of many transforms that share one trajectory (coils, frames) to their grids on tensor cores.
 *
 * Output driven: a block owns 8 x 8 cells of the grids of up to 16 transforms a warp, walks all samples that reach
 * them, and writes every cell once: cells[(y, x)][transform, part] += sum_s (wy_s(y) wx_s(x))[(y, x)][s]
 * data[s][transform, part] Weights are made once per block for all its transforms. Samples come bin row by bin row,
 * each row one contiguous read.
 */
#include "gridding/nufft_gpu.cuh"

#include <algorithm>

struct plane_args {
    struct range_geometry geometry;
    const uint32_t *first;
    const struct range_point *points;
    const float *data; /* [samples][group] complex */
    float2 *grid;
    struct kaiser kernel;
    int transforms, group;
    size_t cells;
};

enum { PLANE_TILE = 8, PLANE_RUNS = 16, PLANE_STEP = 32 };

/* The base cells that reach a tile's cells on one axis: [low, high] and, around the edge, [wrapped, cells - 1]; as
 * bins. */
struct plane_reach {
    int low_bin, count, wrapped_bin, wrapped_count;

    __device__ plane_reach(struct range_axis axis, int tile, int width)
    {
        int low = tile * PLANE_TILE - (width - 1), high = min(tile * PLANE_TILE + PLANE_TILE, axis.cells) - 1;
        low_bin = axis_bin(axis, max(low, 0));
        count = axis_bin(axis, high) - low_bin + 1;
        wrapped_bin = low < 0 ? axis_bin(axis, axis.cells + low) : axis.bins;
        wrapped_count = axis.bins - wrapped_bin;
    }
};

/* Runs of samples, one per row of bins (two where the tile reaches around the edge), and what to take off their base
 * cells. */
struct plane_runs {
    uint32_t first[PLANE_RUNS], before[PLANE_RUNS + 1];
    int x[PLANE_RUNS], y[PLANE_RUNS], count;
};

static __device__ __forceinline__ void find_runs(const struct plane_args &a, int tile_x, int tile_y,
                                                 struct plane_runs *runs)
{
    if (threadIdx.x < 32) {
        struct plane_reach rx(a.geometry.axis[0], tile_x, a.geometry.width),
            ry(a.geometry.axis[1], tile_y, a.geometry.width);
        int pieces = rx.wrapped_count ? 2 : 1, count = (ry.count + ry.wrapped_count) * pieces, r = threadIdx.x;
        uint32_t held = 0;
        if (r < count) {
            int iy = r / pieces, ix = r - iy * pieces;
            bool wrapped_y = iy >= ry.count;
            int bin_y = wrapped_y ? ry.wrapped_bin + iy - ry.count : ry.low_bin + iy;
            int bin_x = ix ? rx.wrapped_bin : rx.low_bin, bins = ix ? rx.wrapped_count : rx.count;
            uint32_t bin = (uint32_t)bin_y * a.geometry.axis[0].bins + bin_x, from = a.first[bin];
            runs->first[r] = from;
            held = a.first[bin + bins] - from;
            runs->x[r] = tile_x * PLANE_TILE + (ix ? a.geometry.axis[0].cells : 0);
            runs->y[r] = tile_y * PLANE_TILE + (wrapped_y ? a.geometry.axis[1].cells : 0);
        }
        uint32_t sum = held;
        for (int d = 1; d < 32; d <<= 1) {
            uint32_t below = __shfl_up_sync(~0u, sum, d);
            sum += r >= d ? below : 0;
        }
        if (r < count)
            runs->before[r + 1] = sum;
        if (r == 0) {
            runs->before[0] = 0;
            runs->count = count;
        }
    }
    __syncthreads();
}

/* Blocks of 32 * WARPS: one per 8 x 8 cells and 16 * WARPS transforms; 2.3 KB of shared memory. Lane 4 g + t of a warp
 * holds, for rows y = 2m and 2m + 1 and column x = g, the sums of transforms 4 t .. 4 t + 3. */
template <bool SPLIT, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, 16 / WARPS)
    scatter_planes(const __grid_constant__ struct plane_args a)
{
    __shared__ struct plane_runs runs;
    __shared__ int place[PLANE_STEP];
    __shared__ float along[2][PLANE_STEP], weight[2][PLANE_STEP][PLANE_TILE + 1];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int nx = a.geometry.axis[0].cells, ny = a.geometry.axis[1].cells, tiles_x = (nx + PLANE_TILE - 1) / PLANE_TILE;
    int tile_x = blockIdx.x % tiles_x, tile_y = blockIdx.x / tiles_x;
    int transform = (blockIdx.y * WARPS + warp) * PLANE_TRANSFORMS;
    bool works = transform < a.transforms;
    find_runs(a, tile_x, tile_y, &runs);
    uint32_t all = runs.before[runs.count];
    float sum[4][4][4];
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[m][j][k] = 0.f;
    bool stored = false;
    uint32_t since = 0; /* samples */
    /* Column n of product j is float 4 n + j of the warp's 32: transform 2 n + j / 2, part j % 2. */
    auto store = [&]() {
        const float gain = SPLIT ? given_back(PLANE_LOSS, since) : TF32_GAIN;
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int c = 0; c < 4; c++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int which = transform + 2 * (2 * t + (c & 1)) + h, y = tile_y * PLANE_TILE + 2 * m + (c >> 1);
                    int x = tile_x * PLANE_TILE + g;
                    float2 v = make_float2(sum[m][2 * h][c] * gain, sum[m][2 * h + 1][c] * gain);
                    sum[m][2 * h][c] = sum[m][2 * h + 1][c] = 0.f;
                    if (works && which < a.transforms && x < nx && y < ny) {
                        float2 *to = a.grid + which * a.cells + (size_t)y * nx + x;
                        if (stored) {
                            float2 old = *to;
                            v = make_float2(old.x + v.x, old.y + v.y);
                        }
                        *to = v;
                    }
                }
        stored = true;
    };
    for (uint32_t v0 = 0; v0 < all; v0 += PLANE_STEP) {
        __syncthreads();
        if (threadIdx.x < PLANE_STEP) {
            uint32_t v = v0 + threadIdx.x;
            int at = -1;
            float x = 0.f, y = 0.f;
            if (v < all) {
                int r = 0;
                while (runs.before[r + 1] <= v)
                    r++;
                at = (int)(runs.first[r] + v - runs.before[r]);
                const struct range_point p = a.points[at];
                x = (float)((int)(p.base & 0xffff) - runs.x[r]) + p.x;
                y = (float)((int)(p.base >> 16) - runs.y[r]) + p.y;
            }
            place[threadIdx.x] = at;
            along[0][threadIdx.x] = x;
            along[1][threadIdx.x] = y;
        }
        __syncthreads();
        float4 data0[4], data1[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int p0 = place[8 * e + t], p1 = place[8 * e + t + 4];
            data0[e] = data1[e] = make_float4(0.f, 0.f, 0.f, 0.f);
            if (works && p0 >= 0)
                data0[e] = __ldcs((const float4 *)(a.data + 2 * ((size_t)p0 * a.group + transform) + 4 * g));
            if (works && p1 >= 0)
                data1[e] = __ldcs((const float4 *)(a.data + 2 * ((size_t)p1 * a.group + transform) + 4 * g));
        }
        for (int f = threadIdx.x; f < 2 * PLANE_STEP * PLANE_TILE; f += 32 * WARPS) {
            int cell = f % PLANE_TILE, s = f / PLANE_TILE % PLANE_STEP, axis = f / PLANE_TILE / PLANE_STEP;
            float u = ((float)cell - along[axis][s]) * a.kernel.scale;
            weight[axis][s][cell] = place[s] < 0 ? 0.f : kaiser_of_square(a.kernel, u * u);
        }
        __syncthreads();
        if (works) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int s0 = 8 * e + t, s1 = s0 + 4;
                float wx0 = weight[0][s0][g], wx1 = weight[0][s1][g];
                const float b0[4] = {data0[e].x, data0[e].y, data0[e].z, data0[e].w};
                const float b1[4] = {data1[e].x, data1[e].y, data1[e].z, data1[e].w};
                uint32_t h0[4], h1[4], l0[4], l1[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    h0[j] = SPLIT ? tf32_high(b0[j]) : __float_as_uint(b0[j]);
                    h1[j] = SPLIT ? tf32_high(b1[j]) : __float_as_uint(b1[j]);
                    l0[j] = SPLIT ? tf32_low(b0[j], h0[j]) : 0;
                    l1[j] = SPLIT ? tf32_low(b1[j], h1[j]) : 0;
                }
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    const float w[4] = {wx0 * weight[1][s0][2 * m], wx0 * weight[1][s0][2 * m + 1],
                                        wx1 * weight[1][s1][2 * m], wx1 * weight[1][s1][2 * m + 1]};
                    uint32_t high[4], low[4];
#pragma unroll
                    for (int k = 0; k < 4; k++) {
                        high[k] = SPLIT ? tf32_high(w[k]) : __float_as_uint(w[k]);
                        low[k] = SPLIT ? tf32_low(w[k], high[k]) : 0;
                    }
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        if (SPLIT) {
                            mma_tf32(sum[m][j], low, h0[j], h1[j]);
                            mma_tf32(sum[m][j], high, l0[j], l1[j]);
                        }
                        mma_tf32(sum[m][j], high, h0[j], h1[j]);
                    }
                }
            }
        }
        since += PLANE_STEP;
        if (SPLIT && since >= SPLIT_SAMPLES_MOST / 2) {
            store();
            since = 0;
        }
    }
    if (!stored || since > 0)
        store();
}

template <bool SPLIT, int WARPS> static void launch(const struct plane_args *a, unsigned tiles, cudaStream_t stream)
{
    dim3 blocks(tiles, gpu_blocks((size_t)a->transforms, PLANE_TRANSFORMS * WARPS));
    scatter_planes<SPLIT, WARPS><<<blocks, 32 * WARPS, 0, stream>>>(*a);
}

int nufft_gpu_scatter_planes(struct nufft_gpu *plan, int transforms)
{
    const struct range_bins *bins = &plan->bins;
    struct plane_args a = {};
    a.geometry = bins->geometry;
    a.first = bins->first;
    a.points = bins->points;
    a.data = (const float *)plan->sorted;
    a.grid = (float2 *)plan->grid;
    a.kernel = plan->kernel;
    a.transforms = transforms;
    a.group = plan->group;
    a.cells = plan->cells;
    unsigned tiles = gpu_blocks((size_t)a.geometry.axis[0].cells, PLANE_TILE) *
                     gpu_blocks((size_t)a.geometry.axis[1].cells, PLANE_TILE);
    bool many = transforms > 4 * PLANE_TRANSFORMS;
    if (plan->split)
        many ? launch<true, 8>(&a, tiles, plan->gpu->stream) : launch<true, 1>(&a, tiles, plan->gpu->stream);
    else
        many ? launch<false, 8>(&a, tiles, plan->gpu->stream) : launch<false, 1>(&a, tiles, plan->gpu->stream);
    return gpu_launched("Gridding");
}
