/* The lists of work for sums over bins: tasks, parts of heavy bins and runs, in the order of the bins. */
#include "gridding/range/range_gpu.cuh"

#include <cub/device/device_scan.cuh>

#include <cstdlib>

/* The order of the bins. */
struct bin_order {
    struct range_geometry g;
    uint32_t slab; /* rows of bins along y */

    /* Bins of one colour (even or odd) among `bins`. */
    static __device__ uint32_t coloured(uint32_t bins, uint32_t colour)
    {
        return colour ? bins / 2 : (bins + 1) / 2;
    }

    __device__ uint32_t place(const int at[3]) const
    {
        if (g.run_samples > 0)
            return range_bin_number(&g, at);
        uint32_t nx = g.axis[0].bins, ny = g.axis[1].bins, nz = g.axis[2].bins;
        uint32_t y0 = at[1] / slab * slab, rows = min(slab, ny - y0), y = at[1] - y0, x = at[0], z = at[2];
        uint32_t rows_here = coloured(rows, y & 1), columns_here = coloured(nx, x & 1), deep_here = coloured(nz, z & 1);
        uint32_t before = y0 * nx * nz;
        before += y & 1 ? coloured(rows, 0) * nx * nz : 0;
        before += x & 1 ? rows_here * coloured(nx, 0) * nz : 0;
        before += z & 1 ? rows_here * columns_here * coloured(nz, 0) : 0;
        return before + ((y / 2) * columns_here + x / 2) * deep_here + z / 2;
    }

    __device__ uint32_t bin(uint32_t place) const
    {
        if (g.run_samples > 0)
            return place;
        uint32_t nx = g.axis[0].bins, ny = g.axis[1].bins, nz = g.axis[2].bins;
        uint32_t y0 = place / (slab * nx * nz) * slab, rows = min(slab, ny - y0), i = place - y0 * nx * nz;
        uint32_t even = coloured(rows, 0) * nx * nz, cy = i >= even;
        i -= cy ? even : 0;
        uint32_t rows_here = coloured(rows, cy);
        even = rows_here * coloured(nx, 0) * nz;
        uint32_t cx = i >= even;
        i -= cx ? even : 0;
        uint32_t columns_here = coloured(nx, cx);
        even = rows_here * columns_here * coloured(nz, 0);
        uint32_t cz = i >= even;
        i -= cz ? even : 0;
        uint32_t deep_here = coloured(nz, cz), z = 2 * (i % deep_here) + cz;
        i /= deep_here;
        const int at[3] = {(int)(2 * (i % columns_here) + cx), (int)(y0 + 2 * (i / columns_here) + cy), (int)z};
        return range_bin_number(&g, at);
    }
};

struct prefix_sum {
    __host__ __device__ range_prefix operator()(const range_prefix &a, const range_prefix &b) const
    {
        return range_prefix_add(a, b);
    }
};

/* Blocks of 256; a thread owns one bin. */
static __global__ void prefix_bins(bin_order order, uint32_t count, const uint32_t *first, range_prefix *prefixes)
{
    uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place > count)
        return;
    range_prefix t = {};
    if (place < count)
        t = range_prefix_of(&order.g, order.bin(place), first);
    prefixes[place] = t;
}

/* Blocks of 256; a thread owns one bin, or the end of the table. */
static __global__ void list_runs(struct range_geometry g, uint32_t count, const uint32_t *first,
                                 const range_prefix *before, struct range_bin_run *runs, uint32_t *slot)
{
    uint32_t bin = blockIdx.x * blockDim.x + threadIdx.x;
    if (bin > count)
        return;
    slot[bin] = before[bin].slots;
    if (bin == count || before[bin + 1].runs == before[bin].runs)
        return;
    runs[before[bin].runs] = range_bin_run_from(&g, bin, count, first);
}

/* The neighbours of a bin that have samples and precede it. */
static __device__ uint32_t neighbours_before(const bin_order &order, uint32_t bin, uint32_t own, const uint32_t *first)
{
    int place[3];
    uint32_t mask = 0;
    range_bin_place(&order.g, bin, place);
    for (int i = 0; i < 27; i++) {
        int step[3] = {i % 3 - 1, i / 3 % 3 - 1, i / 9 - 1}, at[3];
        for (int d = 0; d < 3; d++) {
            at[d] = place[d] + step[d];
            at[d] += at[d] < 0 ? order.g.axis[d].bins : 0;
            at[d] -= at[d] >= order.g.axis[d].bins ? order.g.axis[d].bins : 0;
        }
        uint32_t other = range_bin_number(&order.g, at);
        if (order.place(at) < own && first[other + 1] > first[other])
            mask |= 1u << i;
    }
    return mask;
}

/* Blocks of 256; a thread owns one bin and writes its tasks. before[] has the cumulative counts before each bin. */
static __global__ void list_tasks(bin_order order, uint32_t count, const uint32_t *first, const range_prefix *before,
                                  struct range_task *tasks, struct range_task *parts, struct range_task *heavy)
{
    uint32_t place = blockIdx.x * blockDim.x + threadIdx.x, depth = order.g.depth;
    if (place >= count)
        return;
    uint32_t bin = order.bin(place);
    struct range_task task = {bin, first[bin], first[bin + 1], 0, 0, 0, 0, 0};
    uint32_t held = task.last - task.first;
    if (held == 0)
        return;
    if (order.g.run_samples == 0)
        task.neighbours = neighbours_before(order, bin, place, first);
    if (held > order.g.light) {
        task.slot = before[place].parts;
        task.parts = (held + depth - 1) / depth;
        heavy[before[place].heavies] = task;
        for (uint32_t p = 0; p < task.parts; p++) {
            struct range_task part = task;
            part.first = task.first + p * depth;
            part.last = min(task.last, part.first + depth);
            part.parts = 0;
            part.slot = task.slot + p;
            part.part = p;
            parts[part.slot] = part;
        }
    }
    tasks[before[place].occupied] = task;
}

static int scan_prefixes(struct gpu *gpu, range_prefix *prefixes, uint32_t count)
{
    void *workspace = NULL;
    size_t bytes = 0;
    const range_prefix none = {};
    int rc = gpu_check(
        cub::DeviceScan::ExclusiveScan(NULL, bytes, prefixes, prefixes, prefix_sum(), none, count, gpu->stream),
        "Summing up bins");
    if (!rc)
        rc = gpu_alloc(gpu, bytes, &workspace, "Summing up bins");
    if (!rc)
        rc = gpu_check(cub::DeviceScan::ExclusiveScan(workspace, bytes, prefixes, prefixes, prefix_sum(), none, count,
                                                      gpu->stream),
                       "Summing up bins");
    gpu_release(gpu, workspace);
    return rc;
}

/* The lists for sums that go to slots; `prefixes` are in the order of the bins. */
static int make_runs(struct range_bins_gpu *bins, struct gpu *gpu, const range_prefix *prefixes)
{
    const struct range_geometry *g = &bins->geometry;
    size_t rows = (size_t)g->axis[1].bins + 1, row = (size_t)g->axis[0].bins * g->axis[2].bins;
    bins->rows = (struct range_prefix *)malloc(rows * sizeof *bins->rows);
    if (!bins->rows)
        return err_no_memory("the list of runs");
    int rc = gpu_check(cudaMemcpy2DAsync(bins->rows, sizeof *prefixes, prefixes, row * sizeof *prefixes,
                                         sizeof *prefixes, rows, cudaMemcpyDeviceToHost, gpu->stream),
                       "Counting runs");
    if (!rc)
        rc = gpu_finish(gpu, "Counting runs");
    if (!rc)
        rc = gpu_array(gpu, bins->rows[rows - 1].runs, &bins->runs, "The list of runs");
    if (!rc)
        rc = gpu_array(gpu, (size_t)bins->count + 1, &bins->slot, "The list of slots");
    if (rc)
        return rc;
    bins->bytes += bins->rows[rows - 1].runs * sizeof *bins->runs + ((size_t)bins->count + 1) * sizeof *bins->slot;
    list_runs<<<gpu_blocks((size_t)bins->count + 1, 256), 256, 0, gpu->stream>>>(*g, bins->count, bins->first, prefixes,
                                                                                 bins->runs, bins->slot);
    return gpu_launched("Listing runs");
}

static int alloc_tasks(struct range_bins_gpu *bins, struct gpu *gpu)
{
    const char *what = "The list of tasks";
    int rc = gpu_array(gpu, bins->occupied, &bins->tasks, what);
    if (!rc)
        rc = gpu_array(gpu, bins->slots, &bins->parts, what);
    if (!rc)
        rc = gpu_array(gpu, bins->heavies, &bins->heavy, what);
    if (!rc)
        rc = gpu_array(gpu, bins->count, &bins->done, what);
    if (!rc)
        rc = gpu_array(gpu, 1, &bins->ticket, what);
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(bins->done, 0, bins->count * sizeof *bins->done, gpu->stream), what);
    bins->bytes += ((size_t)bins->occupied + bins->slots + bins->heavies) * sizeof(struct range_task) +
                   ((size_t)bins->count + 1) * sizeof(uint32_t);
    return rc;
}

int range_tasks_make(struct range_bins_gpu *bins, struct gpu *gpu)
{
    const struct range_axis *axis = bins->geometry.axis;
    uint32_t row = (uint32_t)axis[0].bins * axis[2].bins;
    const struct bin_order order = {bins->geometry, (bins->geometry.slab + row - 1) / row};
    uint32_t count = bins->count;
    range_prefix *prefixes = NULL, all = {};
    int rc = gpu_array(gpu, (size_t)count + 1, &prefixes, "Counting bins");
    if (rc)
        return rc;
    prefix_bins<<<gpu_blocks((size_t)count + 1, 256), 256, 0, gpu->stream>>>(order, count, bins->first, prefixes);
    rc = gpu_launched("Counting bins");
    if (!rc)
        rc = scan_prefixes(gpu, prefixes, count + 1);
    if (!rc)
        rc = gpu_download(gpu, &all, prefixes + count, sizeof all);
    bins->occupied = all.occupied;
    bins->heavies = all.heavies;
    bins->slots = all.parts;
    bins->largest = all.largest;
    if (!rc && order.g.light > 0) {
        rc = alloc_tasks(bins, gpu);
        if (!rc) {
            list_tasks<<<gpu_blocks(count, 256), 256, 0, gpu->stream>>>(order, count, bins->first, prefixes,
                                                                        bins->tasks, bins->parts, bins->heavy);
            rc = gpu_launched("Listing tasks");
        }
    }
    if (!rc && order.g.light > 0 && order.g.run_samples > 0)
        rc = make_runs(bins, gpu, prefixes);
    gpu_release(gpu, prefixes);
    return rc;
}

int range_tickets(struct range_bins_gpu *bins, struct gpu *gpu)
{
    return gpu_check(cudaMemsetAsync(bins->ticket, 0, sizeof *bins->ticket, gpu->stream), "Taking tasks");
}
