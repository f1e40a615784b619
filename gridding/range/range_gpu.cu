#include "gridding/range/range_gpu.cuh"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

/* Quotients of numbers below 2^23 by one divisor of at most 2^12: a product and a shift, exact since the factor is
 * above 2^40 / divisor by at most 1. */
struct divider {
    uint64_t factor;

    static struct divider by(int divisor)
    {
        return {((uint64_t)1 << 40) / (uint64_t)divisor + 1};
    }
    __device__ uint32_t quotient(uint32_t number) const
    {
        return (uint32_t)(number * factor >> 40);
    }
};

struct place_args {
    struct range_geometry g;
    struct divider cells[3], bins[3]; /* by the cells (or pairs of them: shift) and the bins of each axis */
    float half_width;
    uint32_t samples;
    const float *k;
    uint32_t *key, *order;         /* [samples], in the caller's order */
    unsigned long long *nonfinite; /* the least index of a value that is not finite */
    const uint32_t *sorted_order;
    struct range_point_gpu *points; /* sorted */
};

/* The base cell of position k on an axis, exactly as real numbers give it, and how far the sample lies above it. k less
 * its nearest integer is exact; the rounded position less half the width lies on the true one's side of every integer,
 * or on the integer itself: then the sign of what is left, rounded once, tells. Closer to 0 than 2^-40 is 0, as on the
 * CPU, where double positions stay exact that way. What is not finite is 0, too. */
static __device__ __forceinline__ int base_cell(const struct place_args &a, int axis, float k, float *above)
{
    int cells = a.g.axis[axis].cells;
    float turns = k - rintf(k);
    turns = fabsf(turns) >= 0x1p-40f ? turns : 0.f;
    float cell = ceilf(fmaf(turns, (float)cells, -a.half_width));
    float left = fmaf(turns, (float)cells, -(a.half_width + cell));
    if (left > 0) {
        cell += 1;
        left -= 1;
    }
    *above = left + a.half_width;
    int base = (int)cell;
    return base < 0 ? base + cells : base;
}

/* axis_bin() and axis_first() without divisions. */
static __device__ __forceinline__ uint32_t bin_of(const struct place_args &a, int axis, int cell)
{
    return a.cells[axis].quotient((((uint32_t)cell >> a.g.axis[axis].shift) + 1) * (uint32_t)a.g.axis[axis].bins - 1);
}

static __device__ __forceinline__ uint32_t first_of(const struct place_args &a, int axis, uint32_t bin)
{
    struct range_axis x = a.g.axis[axis];
    return a.bins[axis].quotient(bin * (uint32_t)(x.cells >> x.shift)) << x.shift;
}

/* Where a cell lies in its bin, by the keys that its samples are sorted by. */
template <int DIM>
static __device__ __forceinline__ uint32_t key_in_bin(const struct place_args &a, const int cell[3], const int place[3])
{
    if (DIM == 3)
        return (uint32_t)cell[2] - first_of(a, 2, (uint32_t)place[2]);
    uint32_t x = ((uint32_t)cell[0] - first_of(a, 0, (uint32_t)place[0])) / RANGE_SQUARE;
    uint32_t y = ((uint32_t)cell[1] - first_of(a, 1, (uint32_t)place[1])) / RANGE_SQUARE;
    return y * range_squares(a.g.axis[0]) + x;
}

/* Blocks of 256 for 512 samples; a thread owns two; 4 or 6 KB of shared memory: their k. */
template <int DIM>
static __global__ void __launch_bounds__(256) key_samples(const __grid_constant__ struct place_args a)
{
    __shared__ float k[512 * DIM];
    size_t first = (size_t)blockIdx.x * 512, value = first * DIM + threadIdx.x, values = (size_t)a.samples * DIM;
#pragma unroll
    for (int j = 0; j < 2 * DIM; j++, value += 256) {
        float v = value < values ? a.k[value] : 0.f;
        if (!isfinite(v))
            atomicMin(a.nonfinite, (unsigned long long)value);
        k[j * 256 + threadIdx.x] = v;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t at = j * 256 + threadIdx.x, i = (uint32_t)first + at;
        if (i >= a.samples)
            return;
        int cell[3] = {0, 0, 0};
        float above;
#pragma unroll
        for (int d = 0; d < DIM; d++)
            cell[d] = base_cell(a, d, k[at * DIM + d], &above);
        int place[3];
#pragma unroll
        for (int d = 0; d < 3; d++)
            place[d] = (int)bin_of(a, d, cell[d]);
        uint32_t bin = range_bin_number(&a.g, place);
        a.key[i] = a.g.by_cell ? bin * range_bin_keys(&a.g) + key_in_bin<DIM>(a, cell, place) : bin;
        a.order[i] = i;
    }
}

/* Blocks of 256; a thread owns one bin: its first sample is where its first key would be put. */
static __global__ void find_bins(struct range_geometry g, uint32_t samples, const uint32_t *key, uint32_t count,
                                 uint32_t *first)
{
    uint32_t bin = blockIdx.x * blockDim.x + threadIdx.x;
    if (bin > count)
        return;
    uint32_t wanted = bin * range_bin_keys(&g), low = 0, high = samples;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (key[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    first[bin] = bin == count ? samples : low;
}

enum { PLACED = 4 };

/* Blocks of 256; a thread owns PLACED samples in sorted order, all of whose k are under way at once. */
template <int DIM>
static __global__ void __launch_bounds__(256) place_samples(const __grid_constant__ struct place_args a)
{
    size_t first = (size_t)blockIdx.x * (256 * PLACED) + threadIdx.x;
    float k[PLACED][DIM];
    uint32_t from[PLACED];
#pragma unroll
    for (int j = 0; j < PLACED; j++)
        from[j] = first + j * 256 < a.samples ? a.sorted_order[first + j * 256] : 0;
#pragma unroll
    for (int j = 0; j < PLACED; j++)
#pragma unroll
        for (int d = 0; d < DIM; d++)
            k[j][d] = a.k[(size_t)from[j] * DIM + d];
#pragma unroll
    for (int j = 0; j < PLACED; j++) {
        struct range_point_gpu p = {0, 0, 0, 0};
        float above[3] = {0, 0, 0};
#pragma unroll
        for (int d = 0; d < DIM; d++) {
            int cell = base_cell(a, d, k[j][d], &above[d]);
            p.base |= DIM == 2 ? (uint32_t)cell << (16 * d)
                               : ((uint32_t)cell - first_of(a, d, bin_of(a, d, cell))) << (8 * d);
        }
        p.x = above[0];
        p.y = above[1];
        p.z = above[2];
        if (first + j * 256 < a.samples)
            *(float4 *)(a.points + first + j * 256) = make_float4(p.x, p.y, p.z, __uint_as_float(p.base));
    }
}

/* ---- tasks ---- */

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
                                 const range_prefix *before, struct range_run *runs, uint32_t *slot)
{
    uint32_t bin = blockIdx.x * blockDim.x + threadIdx.x;
    if (bin > count)
        return;
    slot[bin] = before[bin].slots;
    if (bin == count || before[bin + 1].runs == before[bin].runs)
        return;
    runs[before[bin].runs] = range_run_from(&g, bin, count, first);
}

/* Which of a bin's neighbours hold samples and come before it. */
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

/* Blocks of 256; a thread owns one bin and writes its tasks. before[place] sums up the bins before it. */
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

static int make_tasks(struct range_bins_gpu *bins, struct gpu *gpu)
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

/* ---- sorting ---- */

static struct place_args place_args_of(const struct range_bins_gpu *bins, const float *k)
{
    struct place_args a = {};
    a.g = bins->geometry;
    for (int d = 0; d < 3; d++) {
        a.cells[d] = divider::by(a.g.axis[d].cells >> a.g.axis[d].shift);
        a.bins[d] = divider::by(a.g.axis[d].bins);
    }
    a.half_width = 0.5f * (float)a.g.width;
    a.samples = bins->samples;
    a.k = k;
    a.sorted_order = bins->order;
    a.points = bins->points;
    return a;
}

/* Keys, their sort, and what follows from it. sort_space: CUB's. */
static int launch_sort(struct range_bins_gpu *bins, struct gpu *gpu, const struct place_args *a, uint32_t *sorted_key,
                       int bits, void *sort_space, size_t sort_bytes)
{
    uint32_t n = bins->samples;
    bool deep = a->g.dim == 3;
    (deep ? key_samples<3> : key_samples<2>)<<<gpu_blocks(n, 512), 256, 0, gpu->stream>>>(*a);
    int rc = gpu_launched("Finding the samples' bins");
    if (!rc)
        rc = gpu_check(cub::DeviceRadixSort::SortPairs(sort_space, sort_bytes, a->key, sorted_key, a->order,
                                                       bins->order, n, 0, bits, gpu->stream),
                       "Sorting the samples");
    if (rc)
        return rc;
    find_bins<<<gpu_blocks((size_t)bins->count + 1, 256), 256, 0, gpu->stream>>>(a->g, n, sorted_key, bins->count,
                                                                                 bins->first);
    rc = gpu_launched("Finding the bins");
    if (rc)
        return rc;
    (deep ? place_samples<3> : place_samples<2>)<<<gpu_blocks(n, 256 * PLACED), 256, 0, gpu->stream>>>(*a);
    return gpu_launched("Placing the samples");
}

static int sort_samples(struct range_bins_gpu *bins, struct gpu *gpu, const float *k, uint32_t keys)
{
    const char *what = "Sorting the samples";
    struct place_args a = place_args_of(bins, k);
    size_t column = ((size_t)a.samples * sizeof *a.key + 255) / 256 * 256, sort_bytes = 0;
    char *workspace = NULL; /* in one piece: seven allocations of the pool cost as much as the sort */
    unsigned long long nonfinite;
    int bits = 1;
    while (bits < 32 && (keys - 1) >> bits)
        bits++;
    int rc = gpu_check(cub::DeviceRadixSort::SortPairs(NULL, sort_bytes, a.key, a.key, a.order, a.order, a.samples, 0,
                                                       bits, gpu->stream),
                       what);
    if (!rc)
        rc = gpu_array(gpu, 256 + 3 * column + sort_bytes, &workspace, what);
    if (rc)
        return rc;
    a.nonfinite = (unsigned long long *)workspace;
    a.key = (uint32_t *)(workspace + 256);
    a.order = (uint32_t *)(workspace + 256 + column);
    rc = gpu_check(cudaMemsetAsync(a.nonfinite, 0xff, sizeof *a.nonfinite, gpu->stream), what);
    if (!rc)
        rc = launch_sort(bins, gpu, &a, (uint32_t *)(workspace + 256 + 2 * column), bits, workspace + 256 + 3 * column,
                         sort_bytes);
    if (!rc)
        rc = gpu_download(gpu, &nonfinite, a.nonfinite, sizeof nonfinite);
    if (!rc)
        bins->nonfinite = nonfinite == ULLONG_MAX ? SIZE_MAX : (size_t)nonfinite;
    gpu_release(gpu, workspace);
    return rc;
}

static int make_bins(struct range_bins_gpu *bins, struct gpu *gpu, const struct range_geometry *geometry,
                     size_t samples, const float *k)
{
    const struct range_axis *a = geometry->axis;
    uint64_t count = (uint64_t)a[0].bins * a[1].bins * a[2].bins, keys;
    bins->geometry = *geometry;
    keys = count * range_bin_keys(geometry);
    if (keys > UINT32_MAX) {
        bins->geometry.by_cell = false;
        keys = count;
    }
    if (samples > INT_MAX || keys > UINT32_MAX)
        return err_set(ERR_BAD_PARAMETER, "%zu samples on a grid of %d x %d x %d are more than one GPU plan can bin.",
                       samples, a[0].cells, a[1].cells, a[2].cells);
    bins->samples = (uint32_t)samples;
    bins->count = (uint32_t)count;
    bins->nonfinite = SIZE_MAX;
    int rc = gpu_array(gpu, count + 1, &bins->first, "The bins");
    if (!rc)
        rc = gpu_array(gpu, samples, &bins->points, "The sorted samples");
    if (!rc)
        rc = gpu_array(gpu, samples, &bins->order, "The order of the samples");
    if (rc)
        return rc;
    bins->bytes += (count + 1) * sizeof *bins->first + samples * (sizeof *bins->points + sizeof *bins->order);
    if (samples == 0) {
        rc = gpu_check(cudaMemsetAsync(bins->first, 0, (count + 1) * sizeof *bins->first, gpu->stream),
                       "Clearing the bins");
    } else {
        rc = sort_samples(bins, gpu, k, (uint32_t)keys);
    }
    return rc ? rc : make_tasks(bins, gpu);
}

int range_bins_make(struct range_bins_gpu *bins, struct gpu *gpu, const struct range_geometry *geometry, size_t samples,
                    const float *k)
{
    cudaEvent_t start = NULL, end = NULL;
    float milliseconds = 0;
    int rc = gpu_check(cudaEventCreate(&start), "Timing the bins");
    if (!rc)
        rc = gpu_check(cudaEventCreate(&end), "Timing the bins");
    if (!rc)
        rc = gpu_check(cudaEventRecord(start, gpu->stream), "Timing the bins");
    if (!rc)
        rc = make_bins(bins, gpu, geometry, samples, k);
    if (!rc)
        rc = gpu_check(cudaEventRecord(end, gpu->stream), "Timing the bins");
    if (!rc)
        rc = gpu_check(cudaEventSynchronize(end), "Binning the samples");
    if (!rc)
        rc = gpu_check(cudaEventElapsedTime(&milliseconds, start, end), "Timing the bins");
    bins->seconds = milliseconds * 1e-3;
    if (start)
        (void)cudaEventDestroy(start);
    if (end)
        (void)cudaEventDestroy(end);
    return rc;
}

void range_bins_free(struct range_bins_gpu *bins, struct gpu *gpu)
{
    void *held[] = {bins->order, bins->points, bins->first,  bins->tasks, bins->parts,
                    bins->heavy, bins->done,   bins->ticket, bins->runs,  bins->slot};
    for (void *memory : held)
        gpu_release(gpu, memory);
    free(bins->rows);
    memset(bins, 0, sizeof *bins);
}
