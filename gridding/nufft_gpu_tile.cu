/* Tiles: samples to the grid in float32, any width, both kernels, 2-D and 3-D; the partial tiles of heavy bins; and the
 * way back, from the grid to the samples, for all plans. */
#include "gridding/nufft_gpu.cuh"

#include <algorithm>

struct tile_args {
    struct range_geometry geometry;
    const struct range_task *tasks;
    uint32_t count;
    const struct range_point *points;
    const float2 *data;
    float2 *grid, *partial;
    struct kaiser kernel;
    bool radial;
    int tile[3];
};

/* A staged sample: value, place of its base cell in the tile, weights x, y, z (separable) or positions times scale
 * (radial). */
static __host__ __device__ inline int sample_floats(int width)
{
    return (4 + 3 * width + 1) & ~1; /* even: the value is read as one float2 */
}

size_t nufft_gpu_tile_bytes(const int tile[3], int width)
{
    return (size_t)tile[0] * tile[1] * tile[2] * sizeof(float2) + (size_t)32 * sample_floats(width) * sizeof(float) +
           16;
}

static __device__ __forceinline__ int wrap(int cell, int cells)
{
    while (cell >= cells)
        cell -= cells;
    return cell;
}

/* The cells of the grid that a bin's tile covers: what cell `e` of them sums up, and where it lies. A tile longer than
 * the grid meets itself; its copies are added in order. */
struct tile_cells {
    int first[3], valid[3], cells[3];
    int x, y, z;

    __device__ tile_cells(const struct range_geometry &g, uint32_t bin)
    {
        int place[3];
        range_bin_place(g, bin, place);
        for (int d = 0; d < 3; d++) {
            int reach = d < g.dim ? g.width - 1 : 0;
            first[d] = axis_first(g.axis[d], place[d]);
            valid[d] = axis_size(g.axis[d], place[d]) + reach;
            cells[d] = g.axis[d].cells;
        }
    }

    __device__ int count() const
    {
        return min(valid[0], cells[0]) * min(valid[1], cells[1]) * min(valid[2], cells[2]);
    }

    __device__ size_t cell(int e)
    {
        int nx = min(valid[0], cells[0]), ny = min(valid[1], cells[1]);
        x = e % nx;
        y = e / nx % ny;
        z = e / nx / ny;
        return ((size_t)wrap(first[2] + z, cells[2]) * cells[1] + wrap(first[1] + y, cells[1])) * cells[0] +
               wrap(first[0] + x, cells[0]);
    }
};

/* What one tile holds for the cell last asked for. */
static __device__ __forceinline__ float2 tile_sum(const struct tile_cells &c, const int tile[3], const float2 *from)
{
    float2 s = make_float2(0.f, 0.f);
    for (int z = c.z; z < c.valid[2]; z += c.cells[2])
        for (int y = c.y; y < c.valid[1]; y += c.cells[1])
            for (int x = c.x; x < c.valid[0]; x += c.cells[0]) {
                float2 v = from[((size_t)z * tile[1] + y) * tile[0] + x];
                s = make_float2(s.x + v.x, s.y + v.y);
            }
    return s;
}

/* Stage a warp's samples: the lane's goes to its own place. */
static __device__ __forceinline__ void stage_sample(const struct tile_args &a, const struct tile_cells &c, uint32_t i,
                                                    float *to)
{
    const struct range_point p = a.points[i];
    float2 v = a.data[i];
    int width = a.geometry.width, x, y, z = 0;
    if (a.geometry.dim == 2) {
        x = (int)(p.base & 0xffff) - c.first[0];
        y = (int)(p.base >> 16) - c.first[1];
    } else {
        x = p.base & 255;
        y = p.base >> 8 & 255;
        z = p.base >> 16;
    }
    to[0] = v.x;
    to[1] = v.y;
    to[2] = __int_as_float((z * a.tile[1] + y) * a.tile[0] + x);
    const float above[3] = {p.x, p.y, p.z};
    for (int d = 0; d < 3; d++)
        for (int k = 0; k < width; k++) {
            float u = (above[d] - (float)k) * a.kernel.scale;
            if (d == 2 && a.geometry.dim == 2)
                to[4 + d * width + k] = a.radial ? 0.f : 1.f;
            else
                to[4 + d * width + k] = a.radial ? u * u : kaiser_of_square(a.kernel, u * u);
        }
}

/* One sample onto the tile: lanes go over the kernel's (x, y), each over z. */
static __device__ __forceinline__ void add_sample(const struct tile_args &a, float2 *tile, const float *s)
{
    int width = a.geometry.width, deep = a.geometry.dim == 2 ? 1 : width, lane = threadIdx.x & 31;
    int plane = a.tile[0] * a.tile[1];
    float2 v = *(const float2 *)s;
    float2 *base = tile + __float_as_int(s[2]);
    const float *wx = s + 4, *wy = wx + width, *wz = wy + width;
    for (int e = lane; e < width * width; e += 32) {
        int y = e / width, x = e - y * width;
        float2 *to = base + y * a.tile[0] + x;
        if (a.radial) {
            float u2 = wx[x] + wy[y];
            for (int z = 0; z < deep; z++, to += plane) {
                float w = kaiser_of_square(a.kernel, u2 + wz[z]);
                float2 old = *to;
                *to = make_float2(fmaf(v.x, w, old.x), fmaf(v.y, w, old.y));
            }
        } else {
            float w = wx[x] * wy[y];
            float2 c = make_float2(v.x * w, v.y * w);
            for (int z = 0; z < deep; z++, to += plane) {
                float2 old = *to;
                *to = make_float2(fmaf(c.x, wz[z], old.x), fmaf(c.y, wz[z], old.y));
            }
        }
    }
}

/* Blocks of 32 * warps, a task each warp; shared memory: nufft_gpu_tile_bytes a warp. The warp owns its tile: samples
 * are added one after the other, in their order. */
template <bool PARTIAL> static __global__ void scatter_tiles(const __grid_constant__ struct tile_args a)
{
    extern __shared__ __align__(16) float shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, width = a.geometry.width;
    uint32_t number = blockIdx.x * (blockDim.x >> 5) + warp;
    if (number >= a.count)
        return;
    int tile_cells_all = a.tile[0] * a.tile[1] * a.tile[2], each = sample_floats(width);
    size_t warp_floats = (2 * (size_t)tile_cells_all + 32 * (size_t)each + 3) & ~(size_t)3;
    float2 *tile = (float2 *)(shared + warp * warp_floats);
    float *staged = (float *)(tile + tile_cells_all);
    const struct range_task task = a.tasks[number];
    struct tile_cells c(a.geometry, task.bin);
    for (int e = lane; e < tile_cells_all; e += 32)
        tile[e] = make_float2(0.f, 0.f);
    for (uint32_t i = task.first; i < task.last; i += 32) {
        __syncwarp();
        if (i + lane < task.last)
            stage_sample(a, c, i + lane, staged + lane * each);
        __syncwarp();
        uint32_t here = min(32u, task.last - i);
        for (uint32_t s = 0; s < here; s++) {
            add_sample(a, tile, staged + s * each);
            __syncwarp();
        }
    }
    __syncwarp();
    if (PARTIAL) {
        float2 *to = a.partial + (size_t)task.slot * tile_cells_all;
        for (int e = lane; e < tile_cells_all; e += 32)
            to[e] = tile[e];
        return;
    }
    int cells = c.count();
    for (int e = lane; e < cells; e += 32) {
        float2 *to = a.grid + c.cell(e);
        float2 s = tile_sum(c, a.tile, tile), old = *to;
        *to = make_float2(old.x + s.x, old.y + s.y);
    }
}

/* Blocks of 128, one row of blocks per heavy bin; a thread owns one cell and adds the bin's parts in their order. */
static __global__ void add_partials(const __grid_constant__ struct tile_args a)
{
    const struct range_task task = a.tasks[blockIdx.x];
    struct tile_cells c(a.geometry, task.bin);
    int e = blockIdx.y * blockDim.x + threadIdx.x, all = a.tile[0] * a.tile[1] * a.tile[2];
    if (e >= c.count())
        return;
    float2 *to = a.grid + c.cell(e), s = *to;
    const float2 *from = a.partial + (size_t)task.slot * all;
#pragma unroll 8
    for (uint32_t p = 0; p < task.parts; p++) {
        float2 v = tile_sum(c, a.tile, from + (size_t)p * all);
        s = make_float2(s.x + v.x, s.y + v.y);
    }
    *to = s;
}

static struct tile_args tile_args_of(const struct nufft_gpu *plan)
{
    struct tile_args a = {};
    a.geometry = plan->bins.geometry;
    a.points = plan->bins.points;
    a.data = (const float2 *)plan->sorted;
    a.grid = (float2 *)plan->grid;
    a.partial = (float2 *)plan->partial;
    a.kernel = plan->kernel;
    a.radial = plan->shape.kernel == NUFFT_RADIAL;
    for (int d = 0; d < 3; d++)
        a.tile[d] = plan->tile[d];
    return a;
}

int nufft_gpu_add_partials(struct nufft_gpu *plan, int colour)
{
    const struct range_bins *bins = &plan->bins;
    uint32_t first = bins->heavy_colour[colour], count = bins->heavy_colour[colour + 1] - first;
    if (count == 0)
        return 0;
    struct tile_args a = tile_args_of(plan);
    a.tasks = bins->heavy + first;
    a.count = count;
    dim3 blocks(count, gpu_blocks((size_t)a.tile[0] * a.tile[1] * a.tile[2], 128));
    add_partials<<<blocks, 128, 0, plan->gpu->stream>>>(a);
    return gpu_launched("Adding partial sums");
}

template <bool PARTIAL>
static int launch(const struct nufft_gpu *plan, struct tile_args *a, const struct range_task *tasks, uint32_t count)
{
    if (count == 0)
        return 0;
    size_t each = nufft_gpu_tile_bytes(a->tile, a->geometry.width);
    unsigned warps = (unsigned)std::min<size_t>(4, std::max<size_t>(1, plan->gpu->shared_most / 2 / each));
    a->tasks = tasks;
    a->count = count;
    int rc = gpu_check(cudaFuncSetAttribute((const void *)scatter_tiles<PARTIAL>,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(warps * each)),
                       "Preparing the gridding");
    if (rc)
        return rc;
    scatter_tiles<PARTIAL><<<gpu_blocks(count, warps), 32 * warps, warps * each, plan->gpu->stream>>>(*a);
    return gpu_launched("Gridding");
}

int nufft_gpu_scatter_tiles(struct nufft_gpu *plan)
{
    const struct range_bins *bins = &plan->bins;
    struct tile_args a = tile_args_of(plan);
    int rc = gpu_check(cudaMemsetAsync(plan->grid, 0, plan->cells * sizeof *plan->grid, plan->gpu->stream),
                       "Clearing the grid");
    if (!rc)
        rc = launch<true>(plan, &a, bins->parts, bins->slots);
    for (int c = 0; !rc && c < bins->colours; c++) {
        uint32_t first = bins->light_colour[c];
        rc = launch<false>(plan, &a, bins->light + first, bins->light_colour[c + 1] - first);
        if (!rc)
            rc = nufft_gpu_add_partials(plan, c);
    }
    return rc;
}

/* ---- the grid to the samples ---- */

struct gather_args {
    struct range_geometry geometry;
    const struct range_task *tasks; /* 3-D: a warp takes one; 2-D: NULL, a thread takes one sample */
    uint32_t count, samples;
    const struct range_point *points;
    const uint32_t *order;
    const float *weights;
    const float2 *grid;
    float2 *data;
    struct kaiser kernel;
    bool radial;
    int transforms, transforms_per_thread;
    size_t cells;
};

/* One sample of transforms [from, to). W is the width, 0: any. */
template <int DIM, int W>
static __device__ __forceinline__ void gather_sample(const struct gather_args &a, uint32_t i, const int first[3],
                                                     int from, int to)
{
    constexpr int MOST = W ? W : 16;
    const int width = W ? W : a.geometry.width;
    const struct range_point p = a.points[i];
    const float above[3] = {p.x, p.y, p.z};
    int base[3];
    if (DIM == 2) {
        base[0] = p.base & 0xffff;
        base[1] = p.base >> 16;
        base[2] = 0;
    } else {
        for (int d = 0; d < 3; d++)
            base[d] = first[d] + (int)(p.base >> (8 * d) & 255);
    }
    float weight[2][MOST];
    int cell[2][MOST];
#pragma unroll
    for (int d = 0; d < 2; d++) {
        int at = base[d], cells = a.geometry.axis[d].cells;
#pragma unroll
        for (int k = 0; k < (W ? W : width); k++) {
            float u = (above[d] - (float)k) * a.kernel.scale;
            weight[d][k] = a.radial ? u * u : kaiser_of_square(a.kernel, u * u);
            cell[d][k] = (W ? at : wrap(at, cells)) * (d ? a.geometry.axis[0].cells : 1);
            at++;
            at = at >= cells ? at - cells : at;
        }
    }
    const size_t plane = (size_t)a.geometry.axis[0].cells * a.geometry.axis[1].cells;
    const float scale = a.weights ? a.weights[i] : 1.f;
    float2 *out = a.data + a.order[i];
    for (int t = from; t < to; t++) {
        const float2 *grid = a.grid + t * a.cells;
        float2 s = make_float2(0.f, 0.f);
#pragma unroll(W &&W <= 4 ? W : 1)
        for (int z = 0; z < (DIM == 3 ? width : 1); z++) {
            float wz = a.radial ? 0.f : 1.f;
            if (DIM == 3) {
                float u = (above[2] - (float)z) * a.kernel.scale;
                wz = a.radial ? u * u : kaiser_of_square(a.kernel, u * u);
            }
            const float2 *slab = grid + (DIM == 3 ? wrap(base[2] + z, a.geometry.axis[2].cells) * plane : 0);
#pragma unroll
            for (int y = 0; y < width; y++) {
                const float2 *row = slab + cell[1][y];
                float wyz = a.radial ? wz + weight[1][y] : wz * weight[1][y];
#pragma unroll
                for (int x = 0; x < width; x++) {
                    float w = a.radial ? kaiser_of_square(a.kernel, wyz + weight[0][x]) : wyz * weight[0][x];
                    float2 v = __ldg(row + cell[0][x]);
                    s = make_float2(fmaf(v.x, w, s.x), fmaf(v.y, w, s.y));
                }
            }
        }
        out[(size_t)t * a.samples] = make_float2(s.x * scale, s.y * scale);
    }
}

/* Blocks of 128; 3-D: a warp owns a task; 2-D: a thread owns a sample. blockIdx.y: a run of transforms. */
template <int DIM, int W>
static __global__ void __launch_bounds__(128) gather(const __grid_constant__ struct gather_args a)
{
    int from = blockIdx.y * a.transforms_per_thread, to = min(a.transforms, from + a.transforms_per_thread),
        first[3] = {0, 0, 0};
    uint32_t number = blockIdx.x * 128 + threadIdx.x;
    if (DIM == 2) {
        if (number < a.samples)
            gather_sample<DIM, W>(a, number, first, from, to);
        return;
    }
    number >>= 5;
    if (number >= a.count)
        return;
    const struct range_task task = a.tasks[number];
    int place[3];
    range_bin_place(a.geometry, task.bin, place);
    for (int d = 0; d < 3; d++)
        first[d] = axis_first(a.geometry.axis[d], place[d]);
    for (uint32_t i = task.first + (threadIdx.x & 31); i < task.last; i += 32)
        gather_sample<DIM, W>(a, i, first, from, to);
}

template <int DIM> static void (*gather_kernel(const struct gather_args *a))(struct gather_args)
{
    bool roomy = true; /* the specialised kernels wrap a cell at most once */
    for (int d = 0; d < DIM; d++)
        roomy = roomy && a->geometry.axis[d].cells >= a->geometry.width;
    if (a->radial || !roomy)
        return gather<DIM, 0>;
    switch (a->geometry.width) {
    case 3:
        return gather<DIM, 3>;
    case 4:
        return gather<DIM, 4>;
    case 5:
        return gather<DIM, 5>;
    case 6:
        return gather<DIM, 6>;
    default:
        return gather<DIM, 0>;
    }
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
    unsigned runs = gpu_blocks((size_t)transforms, 16);
    if (a.samples == 0)
        return 0;
    if (a.geometry.dim == 2) {
        gather_kernel<2>(&a)<<<dim3(gpu_blocks(a.samples, 128), runs), 128, 0, plan->gpu->stream>>>(a);
        return gpu_launched("Reading the grid");
    }
    const struct range_task *lists[2] = {bins->light, bins->parts};
    const uint32_t counts[2] = {bins->lights, bins->slots};
    int rc = 0;
    for (int i = 0; !rc && i < 2; i++) {
        a.tasks = lists[i];
        a.count = counts[i];
        if (a.count == 0)
            continue;
        gather_kernel<3>(&a)<<<dim3(gpu_blocks(a.count, 4), runs), 128, 0, plan->gpu->stream>>>(a);
        rc = gpu_launched("Reading the grid");
    }
    return rc;
}
