/* Interpolates the grid at the samples. 3-D: a block copies a bin's tile into shared memory, and its threads
 * interpolate the bin's samples from there. 2-D: a thread interpolates one sample of many transforms directly from the
 * grids, which are in the caches; many transforms are done by gather_brick2d.cu. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <cuda_pipeline_primitives.h>

struct gather_args : nufft_gather {
    const struct range_task *parts, *tasks; /* 3-D */
    uint32_t part_count;
    bool radial;
    int transforms_per_thread; /* 2-D */
    int tile[3], row, plane;   /* 3-D: the tile's cells, and its strides in shared memory, even */
};

enum { WIDTH_MOST = 10, GATHER_THREADS = 128 };

static __device__ __forceinline__ int wrap(int cell, int cells)
{
    while (cell >= cells)
        cell -= cells;
    return cell;
}

/* A sample's weights on its axes, with interleaved polynomials; for the radial kernel the squared distances per axis.
 * W: the width, 0: any. */
template <int W, int DIM>
static __device__ __forceinline__ void axis_weights(const struct gather_args &a, const float (&above)[DIM],
                                                    float (&weight)[DIM][W ? W : WIDTH_MOST])
{
    constexpr int most = W ? W : WIDTH_MOST;
    float t[DIM][most];
#pragma unroll
    for (int d = 0; d < DIM; d++)
#pragma unroll
        for (int k = 0; k < most; k++) {
            float u = (above[d] - (float)k) * a.kernel.scale;
            t[d][k] = W == 0 && a.radial ? u * u : fmaf(-u, u, 1.f);
            weight[d][k] = W == 0 && a.radial ? u * u : a.kernel.c[a.kernel.degree];
        }
    if (W == 0 && a.radial)
        return;
#pragma unroll 1
    for (int i = a.kernel.degree - 1; i >= 0; i--) {
        float c = a.kernel.c[i];
#pragma unroll
        for (int d = 0; d < DIM; d++)
#pragma unroll
            for (int k = 0; k < most; k++)
                weight[d][k] = fmaf(weight[d][k], t[d][k], c);
    }
#pragma unroll
    for (int d = 0; d < DIM; d++)
#pragma unroll
        for (int k = 0; k < most; k++)
            weight[d][k] = t[d][k] > 0.f && k < (W ? W : a.geometry.width) ? weight[d][k] : 0.f;
}

static __device__ __forceinline__ void put_sample(const struct gather_args &a, uint32_t i, size_t transform, float2 s)
{
    float scale = a.weights ? a.weights[i] : 1.f;
    a.data[transform * a.samples + a.order[i]] = make_float2(s.x * scale, s.y * scale);
}

static __device__ __forceinline__ float2 add_weighed(float2 s, float w, float2 v)
{
    return make_float2(fmaf(v.x, w, s.x), fmaf(v.y, w, s.y));
}

/* The weight of a cell for a width known at run time only, from that on x and that on the other axes. */
static __device__ __forceinline__ float weight_of(const struct gather_args &a, float wx, float wyz)
{
    return a.radial ? kaiser_of_square(a.kernel, wx + wyz) : wx * wyz;
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
    const struct range_point_gpu p = a.points[i];
    const float above[2] = {p.x, p.y};
    float w[2][most];
    int x[most], y[most];
    axis_weights<W, 2>(a, above, w);
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
        for (int iy = 0; iy < width; iy++) {
            float2 of_row = make_float2(0.f, 0.f);
#pragma unroll
            for (int ix = 0; ix < width; ix++)
                of_row =
                    add_weighed(of_row, W ? w[0][ix] : weight_of(a, w[0][ix], w[1][iy]), __ldg(grid + y[iy] + x[ix]));
            s = add_weighed(s, W ? w[1][iy] : 1.f, of_row);
        }
        put_sample(a, i, (size_t)t, s);
    }
}

/* Copy the tile into shared memory asynchronously: two cells a copy, from an even cell on (a grid's rows are even). A
 * thread copies columns along z. Returns the index of the bin's first cell. */
static __device__ __forceinline__ const float2 *copy_tile(const struct gather_args &a, const int first[3], float2 *tile)
{
    const struct range_axis *axis = a.geometry.axis;
    const int pairs = a.tile[0] / 2, columns = pairs * a.tile[1], split = max(1, (int)blockDim.x / columns);
    const size_t plane = (size_t)axis[0].cells * axis[1].cells;
    for (int i = threadIdx.x; i < columns * split; i += blockDim.x) {
        int z = i / columns, column = i - z * columns, y = column / pairs, x = 2 * (column - y * pairs);
        const float2 *from = a.grid + (size_t)wrap(first[1] + y, axis[1].cells) * axis[0].cells +
                             wrap((first[0] & ~1) + x, axis[0].cells);
        float2 *to = tile + z * a.plane + y * a.row + x;
        for (int at = first[2] + z; z < a.tile[2]; z += split, at += split, to += split * a.plane) {
            at = wrap(at, axis[2].cells);
            __pipeline_memcpy_async(to, from + at * plane, 2 * sizeof(float2));
        }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    return tile + (first[0] & 1);
}

/* Blocks of 64 or 128 (wide), one per part of a heavy bin, then one per bin; shared memory: the tile. */
template <int W>
static __global__ void __launch_bounds__(GATHER_THREADS) gather_tiles(const __grid_constant__ struct gather_args a)
{
    extern __shared__ __align__(16) float2 tile[];
    const int width = W ? W : a.geometry.width;
    const struct range_task task = blockIdx.x < a.part_count ? a.parts[blockIdx.x] : a.tasks[blockIdx.x - a.part_count];
    if (task.parts > 0)
        return; /* heavy: its parts are tasks of their own */
    int place[3], first[3];
    range_bin_place(&a.geometry, task.bin, place);
    for (int d = 0; d < 3; d++)
        first[d] = axis_first(a.geometry.axis[d], place[d]);
    const float2 *cells = copy_tile(a, first, tile);
    for (uint32_t i = task.first + threadIdx.x; i < task.last; i += blockDim.x) {
        const struct range_point_gpu p = a.points[i];
        const float above[3] = {p.x, p.y, p.z};
        float w[3][W ? W : WIDTH_MOST];
        axis_weights<W, 3>(a, above, w);
        const float2 *from = cells + (p.base >> 16) * a.plane + (p.base >> 8 & 255) * a.row + (p.base & 255);
        float2 s = make_float2(0.f, 0.f);
#pragma unroll(W &&W <= 4 ? W : 1)
        for (int z = 0; z < width; z++, from += a.plane) {
            float2 of_plane = make_float2(0.f, 0.f);
#pragma unroll
            for (int y = 0; y < width; y++) {
                float2 of_row = make_float2(0.f, 0.f);
                float wyz = a.radial ? w[1][y] + w[2][z] : w[1][y] * w[2][z];
#pragma unroll
                for (int x = 0; x < width; x++)
                    of_row = add_weighed(of_row, W ? w[0][x] : weight_of(a, w[0][x], wyz), from[y * a.row + x]);
                of_plane = add_weighed(of_plane, W ? w[1][y] : 1.f, of_row);
            }
            s = add_weighed(s, W ? w[2][z] : 1.f, of_plane);
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
    const struct range_bins_gpu *bins = &plan->bins;
    void (*kernel)(struct gather_args) = tiles_kernel(a);
    int reach = plan->shape.width - 1;
    for (int d = 0; d < 3; d++)
        a->tile[d] = axis_largest(bins->geometry.axis[d]) + reach;
    a->tile[0] = (a->tile[0] + 2) / 2 * 2;          /* even, and one more if the bin begins at an odd cell */
    a->row = a->tile[0] + (a->tile[0] % 4 ? 0 : 2); /* an odd number of pairs: rows spread over the banks */
    a->plane = a->row * a->tile[1];
    size_t shared = (size_t)a->plane * a->tile[2] * sizeof(float2);
    if (shared > plan->gpu->shared_most)
        return err_set(ERR_BAD_PARAMETER, "A kernel %d cells wide needs more shared memory than this GPU has.",
                       plan->shape.width);
    int rc =
        gpu_check(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                  "Preparing to read the grid");
    a->parts = bins->parts;
    a->tasks = bins->tasks;
    a->part_count = bins->slots;
    if (rc || bins->occupied == 0)
        return rc;
    const unsigned threads = (unsigned)plan->method->gather_threads;
    for (int t = 0; !rc && t < a->transforms; t++) {
        kernel<<<bins->slots + bins->occupied, threads, shared, plan->gpu->stream>>>(*a);
        rc = gpu_launched("Reading the grid");
        a->grid += a->cells;
        a->data += plan->samples;
    }
    return rc;
}

bool nufft_gpu_gathers_brick2d(const struct nufft_shape *shape)
{
    return shape->width <= 8 && shape->batch >= (shape->width <= 5 ? 8 : 4);
}

int nufft_gpu_gather(struct nufft_gpu *plan, int transforms, bool weigh, struct c32 *data)
{
    const struct range_bins_gpu *bins = &plan->bins;
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
    if (plan->method->gather && plan->method->gathers(&plan->shape))
        return plan->method->gather(plan, &a);
    if (a.geometry.dim == 3)
        return gather_3d(plan, &a);
    dim3 blocks(gpu_blocks(a.samples, GATHER_THREADS), gpu_blocks((size_t)transforms, 16));
    planes_kernel(&a)<<<blocks, GATHER_THREADS, 0, plan->gpu->stream>>>(a);
    return gpu_launched("Reading the grid");
}
