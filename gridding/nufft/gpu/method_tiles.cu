/* tiles: sums samples into the grid in float32, any width, both kernels, 2-D and 3-D; and the partial tiles of heavy
 * bins. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>

struct tile_args {
    struct range_geometry geometry;
    const struct range_task *tasks;
    uint32_t count, round, *done, *ticket;
    const struct range_point_gpu *points;
    const float2 *data;
    float2 *grid, *partial;
    struct kaiser kernel;
    bool radial;
    int tile[3];
};

/* A staged sample: value, index of its base cell in the tile, weights x, y, z (separable) or positions times scale
 * (radial). */
static __host__ __device__ inline int sample_floats(int width)
{
    return (4 + 3 * width + 1) & ~1; /* even: the value is read as one float2 */
}

/* Shared memory of one warp. */
static size_t tile_bytes(const int tile[3], int width)
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

/* The cells of the grid that a bin's tile covers: the sum for cell `e` of them, and its index. A tile longer than the
 * grid overlaps itself; its copies are added in order. */
struct tile_cells {
    int first[3], valid[3], cells[3];
    int x, y, z;

    __device__ tile_cells(const struct range_geometry &g, uint32_t bin)
    {
        int place[3];
        range_bin_place(&g, bin, place);
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

/* One tile's sum for the present cell. */
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

/* Stage a warp's samples, one per lane. */
static __device__ __forceinline__ void stage_sample(const struct tile_args &a, const struct tile_cells &c, uint32_t i,
                                                    float *to)
{
    const struct range_point_gpu p = a.points[i];
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

/* Add one sample to the tile: lanes iterate over the kernel's (x, y), each over z. */
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

/* A lane's share of a kernel W cells wide: up to CHUNKS of its (x, y), each over all z. */
template <int W> struct lane_share {
    enum { CHUNKS = (W * W + 31) / 32 };
    int x[CHUNKS], y[CHUNKS], offset[CHUNKS];

    __device__ lane_share(const struct tile_args &a)
    {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int e = (threadIdx.x & 31) + 32 * c;
            y[c] = e / W;
            x[c] = e - y[c] * W;
            offset[c] = e < W * W ? y[c] * a.tile[0] + x[c] : -1;
        }
    }
};

/* add_sample for a separable 3-D kernel of known width: with overlapping loads of all z of a lane's (x, y). */
template <int W>
static __device__ __forceinline__ void add_sample_wide(const struct tile_args &a, const struct lane_share<W> &share,
                                                       float2 *tile, const float *s)
{
    const int plane = a.tile[0] * a.tile[1];
    const float2 v = *(const float2 *)s;
    float2 *base = tile + __float_as_int(s[2]);
    const float *wx = s + 4, *wy = wx + W, *wz = wy + W;
#pragma unroll
    for (int c = 0; c < lane_share<W>::CHUNKS; c++)
        if (share.offset[c] >= 0) {
            float w = wx[share.x[c]] * wy[share.y[c]];
            float2 *to = base + share.offset[c], old[W];
#pragma unroll
            for (int z = 0; z < W; z++)
                old[z] = to[z * plane];
#pragma unroll
            for (int z = 0; z < W; z++)
                to[z * plane] = make_float2(fmaf(v.x * w, wz[z], old[z].x), fmaf(v.y * w, wz[z], old[z].y));
        }
}

/* Add the warp's samples [first, last) of a task to the tile, 32 staged at a time. */
template <int W>
static __device__ __forceinline__ void sum_samples(const struct tile_args &a, const struct tile_cells &c,
                                                   const struct lane_share<W ? W : 1> &share, uint32_t first,
                                                   uint32_t last, float2 *tile, float *staged, int each)
{
    const int lane = threadIdx.x & 31;
    for (uint32_t i = first; i < last; i += 32) {
        __syncwarp();
        if (i + lane < last)
            stage_sample(a, c, i + lane, staged + lane * each);
        __syncwarp();
        uint32_t here = min(32u, last - i);
        for (uint32_t s = 0; s < here; s++) {
            if (W)
                add_sample_wide<W ? W : 1>(a, share, tile, staged + s * each);
            else
                add_sample(a, tile, staged + s * each);
            __syncwarp();
        }
    }
    __syncwarp();
}

/* Add the warp's tile to the grid, in order. */
static __device__ __forceinline__ void add_tile(const struct tile_args &a, const struct range_task &task,
                                                struct tile_cells &c, const float2 *tile)
{
    int place[3];
    range_bin_place(&a.geometry, task.bin, place);
    range_wait(a.geometry, task, place, a.done, a.round);
    int cells = c.count();
    for (int e = threadIdx.x & 31; e < cells; e += 32) {
        float2 *to = a.grid + c.cell(e);
        float2 s = tile_sum(c, a.tile, tile), old = __ldcg(to);
        *to = make_float2(old.x + s.x, old.y + s.y);
    }
    range_signal(a.done, task.bin, a.round);
}

/* Blocks of 32 * warps, a task each warp; shared memory: tile_bytes a warp. The warp owns its tile: samples
 * are added one after the other, in their order. */
template <bool PARTIAL, int W> static __global__ void scatter_tiles(const __grid_constant__ struct tile_args a)
{
    extern __shared__ __align__(16) float shared[];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, width = a.geometry.width;
    uint32_t number = PARTIAL ? blockIdx.x * (blockDim.x >> 5) + warp : range_ticket(a.ticket);
    if (number >= a.count)
        return;
    int tile_cells_all = a.tile[0] * a.tile[1] * a.tile[2], each = sample_floats(width);
    size_t warp_floats = (2 * (size_t)tile_cells_all + 32 * (size_t)each + 3) & ~(size_t)3;
    float2 *tile = (float2 *)(shared + warp * warp_floats);
    float *staged = (float *)(tile + tile_cells_all);
    const struct range_task task = a.tasks[number];
    struct tile_cells c(a.geometry, task.bin);
    const struct lane_share<W ? W : 1> share(a);
    float2 *slot = a.partial + (size_t)task.slot * tile_cells_all;
    bool summed = !PARTIAL && task.parts > 0;
    uint32_t last = summed ? task.first : task.last;
    for (int e = lane; e < tile_cells_all; e += 32)
        tile[e] = summed ? slot[e] : make_float2(0.f, 0.f);
    sum_samples<W>(a, c, share, task.first, last, tile, staged, each);
    if (PARTIAL) {
        for (int e = lane; e < tile_cells_all; e += 32)
            slot[e] = tile[e];
        return;
    }
    add_tile(a, task, c, tile);
}

enum { PART_CELLS = 128, PART_LINES = 4 };

/* Blocks of (128, 4), (heavy bins, rows of cells): adds a bin's parts into the first. A thread adds every fourth part
 * of one cell, and the first row of threads adds the four sums, all in order. 4 KB of shared memory. */
static __global__ void add_parts(int cells, const struct range_task *heavy, float2 *partial)
{
    __shared__ float2 sums[PART_LINES][PART_CELLS];
    const uint32_t line = threadIdx.y;
    const int e = blockIdx.y * PART_CELLS + threadIdx.x;
    const struct range_task task = heavy[blockIdx.x];
    float2 *to = partial + (size_t)task.slot * cells + e, s = make_float2(0.f, 0.f);
    if (e < cells)
#pragma unroll 4
        for (uint32_t p = line; p < task.parts; p += PART_LINES) {
            float2 v = to[(size_t)p * cells];
            s = make_float2(s.x + v.x, s.y + v.y);
        }
    sums[line][threadIdx.x] = s;
    __syncthreads();
    if (line == 0 && e < cells) {
        for (int l = 1; l < PART_LINES; l++) {
            float2 v = sums[l][threadIdx.x];
            s = make_float2(s.x + v.x, s.y + v.y);
        }
        *to = s;
    }
}

/* Sum the partial tiles of every heavy bin into its first. */
static int add_partials(struct nufft_gpu *plan)
{
    const struct range_bins_gpu *bins = &plan->bins;
    const int cells = plan->tile[0] * plan->tile[1] * plan->tile[2];
    if (bins->slots == 0)
        return 0;
    add_parts<<<dim3(bins->heavies, gpu_blocks((size_t)cells, PART_CELLS)), dim3(PART_CELLS, PART_LINES), 0,
                plan->gpu->stream>>>(cells, bins->heavy, (float2 *)plan->partial);
    return gpu_launched("Adding partial sums");
}

static struct tile_args tile_args_of(const struct nufft_gpu *plan)
{
    struct tile_args a = {};
    a.geometry = plan->bins.geometry;
    a.round = plan->bins.round;
    a.done = plan->bins.done;
    a.ticket = plan->bins.ticket;
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

template <bool PARTIAL> static void (*kernel_of(const struct tile_args *a))(struct tile_args)
{
    switch (a->radial || a->geometry.dim == 2 ? 0 : a->geometry.width) {
    case 5:
        return scatter_tiles<PARTIAL, 5>;
    case 6:
        return scatter_tiles<PARTIAL, 6>;
    case 7:
        return scatter_tiles<PARTIAL, 7>;
    case 8:
        return scatter_tiles<PARTIAL, 8>;
    default:
        return scatter_tiles<PARTIAL, 0>;
    }
}

template <bool PARTIAL>
static int launch(const struct nufft_gpu *plan, struct tile_args *a, const struct range_task *tasks, uint32_t count)
{
    if (count == 0)
        return 0;
    size_t each = tile_bytes(a->tile, a->geometry.width);
    unsigned warps = (unsigned)std::min<size_t>(4, std::max<size_t>(1, plan->gpu->shared_most / 2 / each));
    void (*kernel)(struct tile_args) = kernel_of<PARTIAL>(a);
    a->tasks = tasks;
    a->count = count;
    int rc = gpu_check(
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(warps * each)),
        "Preparing the gridding");
    if (rc)
        return rc;
    kernel<<<gpu_blocks(count, warps), 32 * warps, warps * each, plan->gpu->stream>>>(*a);
    return gpu_launched("Gridding");
}

int nufft_gpu_tiles_make(struct nufft_gpu *plan)
{
    const int dim = plan->shape.dim, width = plan->shape.width;
    for (int d = 0; d < 3; d++)
        plan->tile[d] = axis_largest(plan->bins.geometry.axis[d]) + (d < dim ? width - 1 : 0);
    if (tile_bytes(plan->tile, width) > plan->gpu->shared_most)
        return err_set(ERR_BAD_PARAMETER,
                       "A kernel %d cells wide needs more shared memory than this GPU has. Ask for a larger tolerance.",
                       width);
    const size_t partial = (size_t)plan->bins.slots * plan->tile[0] * plan->tile[1] * plan->tile[2];
    return nufft_gpu_workspace_make(plan, plan->samples, partial, 0);
}

static int scatter(struct nufft_gpu *plan)
{
    struct range_bins_gpu *bins = &plan->bins;
    bins->round++;
    struct tile_args a = tile_args_of(plan);
    int rc = range_tickets(bins, plan->gpu);
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(plan->grid, 0, plan->cells * sizeof *plan->grid, plan->gpu->stream),
                       "Clearing the grid");
    if (!rc)
        rc = launch<true>(plan, &a, bins->parts, bins->slots);
    if (!rc)
        rc = add_partials(plan);
    return rc ? rc : launch<false>(plan, &a, bins->tasks, bins->occupied);
}

int nufft_gpu_tiles_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights)
{
    int rc = nufft_gpu_sort_data(plan, transforms, data, weights);
    return rc ? rc : scatter(plan);
}
