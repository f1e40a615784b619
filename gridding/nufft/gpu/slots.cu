/* Sums in slots, chunk by chunk: heavy bins; from slots to the image, or to a grid. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>
#include <cstdlib>

/* ---- heavy bins ---- */

struct heavy_args {
    struct slot_rows rows;
    const struct range_task *heavy;
    const uint32_t *slot;
    struct range_geometry geometry;
    int vectors; /* float4 of a slot */
    float4 *slots, *partial;
    size_t slots_step, partial_step;
};

enum { SLICES = 4, SLICE_VECTORS = 128 };

/* Blocks of 128 x 4 threads, (heavy bins, 2 slots in blocks of 128 vectors, transforms); 6 KB of shared memory. A
 * thread owns two cells of every fourth part, with eight loads in flight; the slices are added in order into the bin's
 * own slot or the right one's. */
static __global__ void __launch_bounds__(SLICES *SLICE_VECTORS) add_parts(const __grid_constant__ struct heavy_args a)
{
    __shared__ float4 slice[SLICES - 1][SLICE_VECTORS];
    const bool second = blockIdx.x >= a.rows.heavies[0];
    const struct range_task task = a.heavy[blockIdx.x + a.rows.heavy[second] - (second ? a.rows.heavies[0] : 0)];
    const uint32_t place = task.slot - a.rows.part[second] + (second ? a.rows.parts[0] : 0);
    const int e = blockIdx.y * SLICE_VECTORS + threadIdx.x;
    const float4 *from = a.partial + blockIdx.z * a.partial_step + (size_t)place * 2 * a.vectors + e;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    for (uint32_t p = threadIdx.y; e < 2 * a.vectors && p < task.parts; p += 8 * SLICES) {
        float4 v[8];
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            v[i] = p + i * SLICES < task.parts ? from[(size_t)(p + i * SLICES) * 2 * a.vectors]
                                               : make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum = make_float4(sum.x + v[i].x, sum.y + v[i].y, sum.z + v[i].z, sum.w + v[i].w);
    }
    if (threadIdx.y > 0)
        slice[threadIdx.y - 1][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || e >= 2 * a.vectors)
        return;
#pragma unroll
    for (int i = 0; i < SLICES - 1; i++) {
        const float4 v = slice[i][threadIdx.x];
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    bool own = e < a.vectors;
    uint32_t slot = own ? a.slot[task.bin + 1] - 1 : a.slot[range_bin_right(&a.geometry, task.bin)];
    a.slots[blockIdx.z * a.slots_step + (size_t)(slot - a.rows.base[second]) * a.vectors + (own ? e : e - a.vectors)] =
        sum;
}

static int add_heavies(struct nufft_gpu *plan, const struct slot_rows *rows, int transforms)
{
    const struct nufft_slots *p = &plan->slots;
    struct heavy_args a = {};
    unsigned heavies = rows->heavies[0] + rows->heavies[1];
    if (heavies == 0)
        return 0;
    a.rows = *rows;
    a.heavy = plan->bins.heavy;
    a.slot = plan->bins.slot;
    a.geometry = plan->bins.geometry;
    a.vectors = (int)(nufft_gpu_slot_cells(p) / 2);
    a.slots = (float4 *)p->slot;
    a.partial = (float4 *)p->partial;
    a.slots_step = (size_t)p->slots * a.vectors;
    a.partial_step = (size_t)p->parts * 2 * a.vectors;
    add_parts<<<dim3(heavies, gpu_blocks((size_t)2 * a.vectors, SLICE_VECTORS), (unsigned)transforms),
                dim3(SLICE_VECTORS, SLICES), 0, plan->gpu->stream>>>(a);
    return gpu_launched("Adding partial sums");
}

/* ---- chunks ---- */

/* Sum chunk [from, to) of the rows; sets `slots` for its reader. */
static int sum_chunk(struct nufft_gpu *plan, int from, int to, int transforms, const struct c32 *data,
                     const float *weights, struct slots *slots)
{
    const struct range_bins_gpu *bins = &plan->bins;
    const struct slot_rows rows = slot_rows_of(bins->rows, bins->geometry.axis[1].bins, from, to);
    int rc = nufft_gpu_scatter_brick8(plan, &rows, transforms, data, weights);
    if (!rc)
        rc = add_heavies(plan, &rows, transforms);
    slots->x = bins->geometry.axis[0];
    slots->bins_z = bins->geometry.axis[2].bins;
    slots->y = plan->slots.cells;
    slots->z = plan->slots.cells + plan->shape.grid[1];
    slots->columns = plan->slots.columns;
    slots->rows = plan->slots.rows;
    slots->planes = plan->slots.planes;
    slots->slot = bins->slot;
    slots->slots = (const float2 *)plan->slots.slot;
    slots->first_row = from;
    slots->base_below = rows.base[0];
    slots->base = rows.base[rows.stretches - 1];
    return rc;
}

int nufft_gpu_slots_to_image(struct nufft_gpu *plan, int transforms, const struct c32 *data, struct c32 *image,
                             float *squares)
{
    const struct nufft_slots *p = &plan->slots;
    const struct range_axis y = plan->bins.geometry.axis[1];
    size_t row = (size_t)plan->shape.n[0], step = nufft_gpu_slot_cells(p) * p->slots;
    int rc = 0;
    for (int from = 0; !rc && from < y.bins; from += p->chunk) {
        int to = std::min(y.bins, from + p->chunk), first = axis_first(y, from);
        struct fft_pass pass = {};
        rc = sum_chunk(plan, from, to, transforms, data, plan->weights, &pass.slots);
        pass.kind = FFT_BACK_SLOTS;
        pass.out_view = fft_view{1, row, row * y.cells};
        pass.kept = plan->shape.n[0];
        pass.first_line = first;
        pass.lines = axis_first(y, to) - first;
        pass.sets = plan->shape.grid[2];
        for (int t = 0; !rc && t < transforms; t++) {
            pass.out = (float2 *)(p->pruned + t * nufft_gpu_pruned_cells(plan)) + (size_t)first * row;
            rc = fft_run(plan->gpu, &plan->fft[0], &pass);
            pass.slots.slots += step;
        }
    }
    if (!rc) /* including the passes over x, which are done chunk by chunk */
        rc = nufft_gpu_clock(plan, MOMENT_GRIDDED, plan->gpu->stream);
    for (int t = 0; !rc && t < transforms; t++)
        rc = nufft_gpu_last_passes(plan, p->pruned + t * nufft_gpu_pruned_cells(plan),
                                   image ? image + t * plan->pixels : NULL, squares);
    return rc;
}

struct grid_args {
    struct slots slots;
    int first, height; /* the chunk's first line along y, the grid's cells along y */
    float2 *grid;
};

/* Blocks of 128, one per line of cells along x (y, z); a thread owns four cells of a bin. */
static __global__ void __launch_bounds__(128) sum_to_grid(const __grid_constant__ struct grid_args a)
{
    const struct range_axis axis = a.slots.x;
    int y = a.first + blockIdx.x, quads = a.slots.columns / 4;
    const struct slots_line line = slots_line_of(a.slots, y, blockIdx.y);
    float2 *to = a.grid + ((size_t)blockIdx.y * a.height + y) * axis.cells;
    for (int i = threadIdx.x; i < axis.bins * quads; i += blockDim.x) {
        int x = i / quads, quad = i - x * quads, k = axis_first(axis, x) + 4 * quad, end = axis_first(axis, x + 1);
        float4 sum[1][2];
        slots_sum(a.slots, line, x, 0, quad, sum);
        const float2 v[4] = {{sum[0][0].x, sum[0][0].y},
                             {sum[0][0].z, sum[0][0].w},
                             {sum[0][1].x, sum[0][1].y},
                             {sum[0][1].z, sum[0][1].w}};
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (k + c < end)
                to[k + c] = v[c];
    }
}

int nufft_gpu_slots_to_grid(struct nufft_gpu *plan, const struct c32 *data, const float *weights, struct c32 *grid)
{
    const struct range_axis y = plan->bins.geometry.axis[1];
    int rc = 0;
    for (int from = 0; !rc && from < y.bins; from += plan->slots.chunk) {
        int to = std::min(y.bins, from + plan->slots.chunk);
        struct grid_args a = {};
        rc = sum_chunk(plan, from, to, 1, data, weights, &a.slots);
        a.first = axis_first(y, from);
        a.height = y.cells;
        a.grid = (float2 *)grid;
        if (!rc) {
            sum_to_grid<<<dim3((unsigned)(axis_first(y, to) - a.first), (unsigned)plan->shape.grid[2]), 128, 0,
                          plan->gpu->stream>>>(a);
            rc = gpu_launched("Adding up the grid");
        }
    }
    return rc;
}

int nufft_gpu_slots_to_plan_grid(struct nufft_gpu *plan, int, const struct c32 *data, const float *weights)
{
    return nufft_gpu_slots_to_grid(plan, data, weights, plan->grid);
}
