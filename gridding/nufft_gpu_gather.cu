/* The grid to the samples. 3-D: a block copies a bin's tile into shared memory and its threads take the bin's samples
 * from there. 2-D: a thread takes one sample of many transforms from the grids themselves, which the caches hold. */
#include "gridding/nufft_gpu.cuh"

#include <cuda_pipeline_primitives.h>

struct gather_args {
    struct range_geometry geometry;
    const struct range_task *tasks; /* 3-D */
    uint32_t samples;
    const struct range_point *points;
    const uint32_t *order;
    const float *weights;
    const float2 *grid;
    float2 *data;
    struct kaiser kernel;
    bool radial;
    int transforms, transforms_per_thread; /* 2-D */
    size_t cells;
    int tile[3], row, plane,
        lanes; /* 3-D: the tile's cells, its strides in shared memory, threads per row (a power of 2) */
};

enum { WIDTH_MOST = 10, GATHER_THREADS = 128 };

static __device__ __forceinline__ int wrap(int cell, int cells)
{
    while (cell >= cells)
        cell -= cells;
    return cell;
}

/* A sample's weights on one axis: of the separable kernel, or for the radial one (2 d / width)^2. W: the width, 0: any.
 */
template <int W>
static __device__ __forceinline__ void axis_weights(const struct gather_args &a, float above, float *weight)
{
#pragma unroll
    for (int k = 0; k < (W ? W : a.geometry.width); k++) {
        float u = (above - (float)k) * a.kernel.scale;
        weight[k] = a.radial ? u * u : kaiser_of_square(a.kernel, u * u);
    }
}

static __device__ __forceinline__ void put_sample(const struct gather_args &a, uint32_t i, size_t transform, float2 s)
{
    float scale = a.weights ? a.weights[i] : 1.f;
    a.data[transform * a.samples + a.order[i]] = make_float2(s.x * scale, s.y * scale);
}

/* Blocks of 128 (a thread owns a sample), rows of blocks for runs of transforms. */
template <int W>
static __global__ void __launch_bounds__(GATHER_THREADS) gather_planes(const __grid_constant__ struct gather_args a)
{
    constexpr int most = W ? W : WIDTH_MOST;
    const int width = W ? W : a.geometry.width, nx = a.geometry.axis[0].cells, ny = a.geometry.axis[1].cells;
    uint32_t i = blockIdx.x * GATHER_THREADS + threadIdx.x;
    if (i >= a.samples)
        return;
    const struct range_point p = a.points[i];
    float wx[most], wy[most];
    int x[most], y[most];
    axis_weights<W>(a, p.x, wx);
    axis_weights<W>(a, p.y, wy);
#pragma unroll
    for (int k = 0; k < width; k++) {
        x[k] = wrap((int)(p.base & 0xffff) + k, nx);
        y[k] = wrap((int)(p.base >> 16) + k, ny) * nx;
    }
    int from = blockIdx.y * a.transforms_per_thread, to = min(a.transforms, from + a.transforms_per_thread);
    for (int t = from; t < to; t++) {
        const float2 *grid = a.grid + t * a.cells;
        float2 s = make_float2(0.f, 0.f);
#pragma unroll
        for (int iy = 0; iy < width; iy++)
#pragma unroll
            for (int ix = 0; ix < width; ix++) {
                float w = a.radial ? kaiser_of_square(a.kernel, wx[ix] + wy[iy]) : wx[ix] * wy[iy];
                float2 v = __ldg(grid + y[iy] + x[ix]);
                s = make_float2(fmaf(v.x, w, s.x), fmaf(v.y, w, s.y));
            }
        put_sample(a, i, (size_t)t, s);
    }
}

/* Copy the tile whose first cell is `first` into shared memory; all its rows are under way at once. A row takes `lanes`
 * threads. */
static __device__ __forceinline__ void copy_tile(const struct gather_args &a, const int first[3], float2 *tile)
{
    const struct range_axis *axis = a.geometry.axis;
    int x = threadIdx.x & (a.lanes - 1), row = threadIdx.x / a.lanes, step = blockDim.x / a.lanes, z = row / a.tile[1];
    int y = row - z * a.tile[1];
    const float2 *column = a.grid + wrap(first[0] + x, axis[0].cells);
    while (z < a.tile[2]) {
        size_t from = (size_t)wrap(first[2] + z, axis[2].cells) * axis[1].cells + wrap(first[1] + y, axis[1].cells);
        if (x < a.tile[0])
            __pipeline_memcpy_async(tile + z * a.plane + y * a.row + x, column + from * axis[0].cells, sizeof(float2));
        for (y += step; y >= a.tile[1]; y -= a.tile[1])
            z++;
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
}

/* Blocks of 32 (few samples a bin) or 128, one per task; shared memory: the tile. */
template <int W>
static __global__ void __launch_bounds__(GATHER_THREADS) gather_tiles(const __grid_constant__ struct gather_args a)
{
    extern __shared__ float2 tile[];
    constexpr int most = W ? W : WIDTH_MOST;
    const int width = W ? W : a.geometry.width;
    const struct range_axis *axis = a.geometry.axis;
    const struct range_task task = a.tasks[blockIdx.x];
    if (task.parts > 0)
        return; /* heavy: its parts are tasks of their own */
    int place[3], first[3];
    range_bin_place(a.geometry, task.bin, place);
    for (int d = 0; d < 3; d++)
        first[d] = axis_first(axis[d], place[d]);
    copy_tile(a, first, tile);
    for (uint32_t i = task.first + threadIdx.x; i < task.last; i += blockDim.x) {
        const struct range_point p = a.points[i];
        float wx[most], wy[most], wz[most];
        axis_weights<W>(a, p.x, wx);
        axis_weights<W>(a, p.y, wy);
        axis_weights<W>(a, p.z, wz);
        const float2 *from = tile + (p.base >> 16) * a.plane + (p.base >> 8 & 255) * a.row + (p.base & 255);
        float2 s = make_float2(0.f, 0.f);
#pragma unroll(W &&W <= 4 ? W : 1)
        for (int z = 0; z < width; z++)
#pragma unroll
            for (int y = 0; y < width; y++) {
                float wyz = a.radial ? wy[y] + wz[z] : wy[y] * wz[z];
#pragma unroll
                for (int x = 0; x < width; x++) {
                    float w = a.radial ? kaiser_of_square(a.kernel, wx[x] + wyz) : wx[x] * wyz;
                    float2 v = from[z * a.plane + y * a.row + x];
                    s = make_float2(fmaf(v.x, w, s.x), fmaf(v.y, w, s.y));
                }
            }
        put_sample(a, i, 0, s);
    }
}

static void (*planes_kernel(const struct gather_args *a))(struct gather_args)
{
    switch (a->radial ? 0 : a->geometry.width) {
    case 3:
        return gather_planes<3>;
    case 4:
        return gather_planes<4>;
    case 5:
        return gather_planes<5>;
    case 6:
        return gather_planes<6>;
    case 7:
        return gather_planes<7>;
    case 8:
        return gather_planes<8>;
    default:
        return gather_planes<0>;
    }
}

static void (*tiles_kernel(const struct gather_args *a))(struct gather_args)
{
    switch (a->radial ? 0 : a->geometry.width) {
    case 3:
        return gather_tiles<3>;
    case 4:
        return gather_tiles<4>;
    case 5:
        return gather_tiles<5>;
    case 6:
        return gather_tiles<6>;
    case 7:
        return gather_tiles<7>;
    case 8:
        return gather_tiles<8>;
    default:
        return gather_tiles<0>;
    }
}

static int gather_3d(const struct nufft_gpu *plan, struct gather_args *a)
{
    const struct range_bins *bins = &plan->bins;
    void (*kernel)(struct gather_args) = tiles_kernel(a);
    int reach = plan->shape.width - 1;
    for (int d = 0; d < 3; d++)
        a->tile[d] = axis_largest(bins->geometry.axis[d]) + reach;
    a->row = a->tile[0] | 1; /* odd strides spread over the banks */
    a->plane = (a->row * a->tile[1]) | 1;
    size_t shared = (size_t)a->plane * a->tile[2] * sizeof(float2);
    for (a->lanes = 8; a->lanes < a->tile[0]; a->lanes *= 2)
        ;
    if (shared > plan->gpu->shared_most)
        return err_set(ERR_BAD_PARAMETER, "A kernel %d cells wide needs more shared memory than this GPU has.",
                       plan->shape.width);
    int rc =
        gpu_check(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                  "Preparing to read the grid");
    const struct range_task *lists[2] = {bins->tasks, bins->parts};
    const uint32_t counts[2] = {bins->occupied, bins->slots};
    for (int i = 0; !rc && i < 2; i++) {
        a->tasks = lists[i];
        if (counts[i] > 0) {
            unsigned threads =
                i == 0 && plan->way == WAY_BRICKS ? 32 : GATHER_THREADS; /* a light brick has some 80 samples */
            kernel<<<counts[i], threads, shared, plan->gpu->stream>>>(*a);
            rc = gpu_launched("Reading the grid");
        }
    }
    return rc;
}

int nufft_gpu_gather(struct nufft_gpu *plan, int transforms, bool weigh, struct c32 *data)
{
    const struct range_bins *bins = &plan->bins;
    struct gather_args a = {};
    a.geometry = bins->geometry;
    a.samples = bins->samples;
    a.points = bins->points;
    a.order = bins->order;
    a.weights = weigh ? plan->weights : NULL;
    a.grid = (const float2 *)plan->grid;
    a.data = (float2 *)data;
    a.kernel = plan->kernel;
    a.radial = plan->shape.kernel == NUFFT_RADIAL;
    a.transforms = transforms;
    a.transforms_per_thread = 16;
    a.cells = plan->cells;
    if (a.samples == 0)
        return 0;
    if (a.geometry.dim == 3)
        return gather_3d(plan, &a);
    dim3 blocks(gpu_blocks(a.samples, GATHER_THREADS), gpu_blocks((size_t)transforms, 16));
    planes_kernel(&a)<<<blocks, GATHER_THREADS, 0, plan->gpu->stream>>>(a);
    return gpu_launched("Reading the grid");
}
