/* The bricks of method_brick2d.cu: the lists of each bin's bricks, and adding them up to grids or, in the FFT's pass
 * along x, to images. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/dense.h"

#include <cstdlib>

enum {
    PARTS_APART = 16, /* the most partial bricks of a bin that readers of the grid add up themselves */
    SLICES = 16,      /* for more partial bricks: threads that share a pair of cells */
    SLICE_PAIRS = 32
};

/* Blocks of 32 x 16, (heavy bins, a brick's pairs of cells in blocks of 32, transforms); 7.5 KB of shared memory. A
 * thread adds up two cells of every 16th partial brick, with four loads in flight; the slices are added in order into
 * the bin's first brick. A few parts are not added up here. */
static __global__ void __launch_bounds__(SLICE_PAIRS *SLICES)
    add_parts(const struct range_task *heavy, float4 *bricks, size_t step)
{
    __shared__ float4 slice[SLICES - 1][SLICE_PAIRS];
    const struct range_task task = heavy[blockIdx.x];
    if (task.parts <= PARTS_APART)
        return;
    float4 *to = bricks + blockIdx.z * step + (size_t)task.slot * BRICK_PAIRS + blockIdx.y * SLICE_PAIRS + threadIdx.x;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    for (uint32_t p = threadIdx.y; p < task.parts; p += 4 * SLICES) {
        float4 v[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            v[i] = p + i * SLICES < task.parts ? to[(size_t)(p + i * SLICES) * BRICK_PAIRS]
                                               : make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int i = 0; i < 4; i++)
            add_pair(sum, v[i]);
    }
    if (threadIdx.y > 0)
        slice[threadIdx.y - 1][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0)
        return;
#pragma unroll
    for (int i = 0; i < SLICES - 1; i++)
        add_pair(sum, slice[i][threadIdx.x]);
    *to = sum;
}

struct plane_grid_args {
    struct range_geometry geometry;
    struct bricks bricks;
    float4 *grid;
    size_t pairs; /* of cells, of a grid */
    int transforms;
};

/* Add element `at` of each of a bin's bricks, for EACH transforms. */
template <int EACH>
static __device__ __forceinline__ void add_held(const struct plane_grid_args &a, int first,
                                                const struct brick_list &held, uint32_t at, float4 (&sum)[EACH])
{
    const float4 *from = a.bricks.pairs + first * a.bricks.step + (size_t)held.first * BRICK_PAIRS + at;
#pragma unroll 4
    for (uint32_t p = 0; p < held.count; p++, from += BRICK_PAIRS)
#pragma unroll
        for (int t = 0; t < EACH; t++)
            if (EACH == 1 || first + t < a.transforms)
                add_pair(sum[t], from[t * a.bricks.step]);
}

/* The same for all bins that reach a pair of cells, any number of them. */
template <int EACH>
static __device__ __forceinline__ void add_all(const struct plane_grid_args &a, int first, int row, int pair,
                                               float4 (&sum)[EACH])
{
    const int reach = a.geometry.width - 1;
    struct dense_reach y = dense_first(a.geometry.axis[1], row);
    do {
        struct dense_reach x = dense_first(a.geometry.axis[0], 2 * pair);
        do {
            const uint32_t bin = (uint32_t)y.bin * (uint32_t)a.geometry.axis[0].bins + (uint32_t)x.bin;
            add_held<EACH>(a, first, a.bricks.of_bin[bin], (uint32_t)(y.offset * PLANE_EDGE + x.offset) / 2, sum);
        } while (dense_next(a.geometry.axis[0], reach, &x));
    } while (dense_next(a.geometry.axis[1], reach, &y));
}

/* Blocks of 128, rows of blocks for groups of EACH transforms; a thread owns two neighbouring cells: bins begin at even
 * ones. FEW: at most two bins reach a cell on an axis; their loads overlap. */
template <int EACH, bool FEW>
static __global__ void __launch_bounds__(128) sum_to_grids(const __grid_constant__ struct plane_grid_args a)
{
    const uint32_t at = blockIdx.x * 128 + threadIdx.x, across = (uint32_t)a.geometry.axis[0].cells / 2;
    const int first = blockIdx.y * EACH, row = (int)(at / across), pair = (int)(at % across);
    if (at >= a.pairs)
        return;
    float4 sum[EACH];
#pragma unroll
    for (int t = 0; t < EACH; t++)
        sum[t] = make_float4(0.f, 0.f, 0.f, 0.f);
    if (FEW) {
        const struct brick_shares shares = brick_shares_of(a.bricks, row, pair);
#pragma unroll
        for (int i = 0; i < 4; i++)
            add_held<EACH>(a, first, shares.held[i], shares.at[i], sum);
    } else {
        add_all<EACH>(a, first, row, pair, sum);
    }
#pragma unroll
    for (int t = 0; t < EACH; t++)
        if (first + t < a.transforms)
            a.grid[(first + t) * a.pairs + at] = sum[t];
}

/* Blocks of 256; a thread owns one occupied bin. */
static __global__ void list_bricks(uint32_t count, uint32_t parts, const struct range_task *tasks,
                                   struct brick_list *of_bin)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const struct range_task task = tasks[i];
    of_bin[task.bin] = task.parts == 0             ? brick_list{parts + i, 1}
                       : task.parts <= PARTS_APART ? brick_list{task.slot, task.parts}
                                                   : brick_list{task.slot, 1};
}

/* ---- the method ---- */

static bool few_reach(const struct range_geometry *g)
{
    return nufft_gpu_brick2d_few_reach(&g->axis[0], g->width) && nufft_gpu_brick2d_few_reach(&g->axis[1], g->width);
}

/* The tables of pairs along x and of cells along y, consecutive. */
static int upload_cells(struct nufft_gpu *plan)
{
    const struct range_axis *axis = plan->bins.geometry.axis;
    const int reach = plan->shape.width - 1, pairs = axis[0].cells / 2;
    const size_t count = (size_t)pairs + axis[1].cells;
    struct slot_cell *host = (struct slot_cell *)malloc(count * sizeof *host);
    if (!host)
        return err_no_memory("the tables of cells");
    for (int i = 0; i < pairs; i++)
        host[i] = slot_cell_of(axis[0], reach, 2 * i);
    for (int i = 0; i < axis[1].cells; i++)
        host[pairs + i] = slot_cell_of(axis[1], reach, i);
    int rc = gpu_array(plan->gpu, count, &plan->slots.cells, "The tables of cells");
    if (!rc)
        rc = gpu_upload(plan->gpu, plan->slots.cells, host, count * sizeof *host);
    plan->bytes += rc ? 0 : count * sizeof *host;
    free(host);
    return rc;
}

int nufft_gpu_brick2d_make(struct nufft_gpu *plan)
{
    const struct range_bins_gpu *bins = &plan->bins;
    struct gpu *gpu = plan->gpu;
    const char *what = "The list of bricks";
    int rc = nufft_gpu_workspace_make(plan, 0, nufft_gpu_brick2d_cells(plan), 0);
    plan->gridless = few_reach(&bins->geometry);
    if (!rc && plan->gridless)
        rc = upload_cells(plan);
    if (!rc)
        rc = gpu_array(gpu, bins->count, &plan->bricks, what);
    plan->bytes += bins->count * sizeof *plan->bricks;
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(plan->bricks, 0, bins->count * sizeof *plan->bricks, gpu->stream), what);
    if (rc || bins->occupied == 0)
        return rc;
    list_bricks<<<gpu_blocks(bins->occupied, 256), 256, 0, gpu->stream>>>(bins->occupied, bins->slots, bins->tasks,
                                                                          plan->bricks);
    return gpu_launched(what);
}

/* Needed if a bin has more parts than readers add up: check the longest list. */
static int add_long_lists(struct nufft_gpu *plan, int transforms)
{
    const struct range_bins_gpu *bins = &plan->bins;
    if (bins->largest <= PARTS_APART * bins->geometry.depth)
        return 0;
    add_parts<<<dim3(bins->heavies, BRICK_PAIRS / SLICE_PAIRS, (unsigned)transforms), dim3(SLICE_PAIRS, SLICES), 0,
                plan->gpu->stream>>>(bins->heavy, (float4 *)plan->partial, nufft_gpu_brick2d_cells(plan) / 2);
    return gpu_launched("Adding partial sums");
}

static int sum_to_bricks(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights)
{
    int rc = nufft_gpu_sum_brick2d(plan, transforms, data, weights);
    return rc ? rc : add_long_lists(plan, transforms);
}

static struct bricks bricks_of(const struct nufft_gpu *plan)
{
    struct bricks b = {};
    b.bins = plan->bins.geometry.axis[0].bins;
    b.x = plan->slots.cells;
    b.y = b.x + plan->shape.grid[0] / 2;
    b.of_bin = plan->bricks;
    b.pairs = (const float4 *)plan->partial;
    b.step = nufft_gpu_brick2d_cells(plan) / 2;
    return b;
}

template <int EACH> static void launch_grids(const struct plane_grid_args *a, cudaStream_t stream)
{
    const dim3 blocks(gpu_blocks(a->pairs, 128), gpu_blocks((size_t)a->transforms, EACH));
    (few_reach(&a->geometry) ? sum_to_grids<EACH, true> : sum_to_grids<EACH, false>)<<<blocks, 128, 0, stream>>>(*a);
}

int nufft_gpu_brick2d_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights)
{
    struct plane_grid_args a = {};
    int rc = sum_to_bricks(plan, transforms, data, weights);
    if (rc)
        return rc;
    a.geometry = plan->bins.geometry;
    a.bricks = bricks_of(plan);
    a.grid = (float4 *)plan->grid;
    a.pairs = plan->cells / 2;
    a.transforms = transforms;
    /* A thread computes indices once for several transforms, if there are still more threads than the device runs at a
     * time. */
    const size_t running = (size_t)plan->gpu->multiprocessors * 2048;
    (transforms == 1                      ? launch_grids<1>
     : a.pairs * transforms / 8 < running ? launch_grids<2>
                                          : launch_grids<8>)(&a, plan->gpu->stream);
    return gpu_launched("Adding up the grids");
}

int nufft_gpu_brick2d_to_image(struct nufft_gpu *plan, int transforms, const struct c32 *data, struct c32 *image,
                               float *squares)
{
    const struct bricks bricks = bricks_of(plan);
    int rc = sum_to_bricks(plan, transforms, data, plan->weights);
    if (!rc)
        rc = nufft_gpu_bricks_to_image(plan, transforms, &bricks, image, squares);
    return rc ? rc : nufft_gpu_clock(plan, MOMENT_GRIDDED, plan->gpu->stream);
}
