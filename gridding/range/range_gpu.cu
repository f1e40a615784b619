#include "gridding/range/range_gpu.cuh"

#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

/* Quotients of numbers below 2^23 by a divisor of at most 2^12, by a product and a shift: exact, because the factor
 * exceeds 2^40 / divisor by at most 1. */
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
    unsigned long long *nonfinite; /* the smallest index of a value that is not finite */
    const uint32_t *sorted_order;
    struct range_point_gpu *points; /* sorted */
};

/* The base cell of position k on an axis, as in exact arithmetic, and the sample's distance above it. k minus its
 * nearest integer is exact. The rounded position minus half the width is on the true value's side of every integer, or
 * equals an integer; in that case the sign of the remainder, rounded once, decides. Values closer to 0 than 2^-40 are
 * 0, as on the CPU, where double positions stay exact in this way. Values that are not finite are 0, too. */
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

/* The sort key of a cell within its bin. */
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

/* Blocks of 256; a thread owns one bin: its first sample is at the insertion point of its first key. */
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

/* Blocks of 256; a thread owns PLACED samples in sorted order, whose loads of k overlap. */
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

/* Keys, their sort, and the arrays in sorted order. sort_space: CUB's. */
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
    char *workspace = NULL; /* one allocation: seven allocations from the pool take as long as the sort */
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
    return rc ? rc : range_tasks_make(bins, gpu);
}

int range_bins_gpu_make(struct range_bins_gpu *bins, struct gpu *gpu, const struct range_geometry *geometry,
                        size_t samples, const float *k)
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

void range_bins_gpu_free(struct range_bins_gpu *bins, struct gpu *gpu)
{
    void *held[] = {bins->order, bins->points, bins->first,  bins->tasks, bins->parts,
                    bins->heavy, bins->done,   bins->ticket, bins->runs,  bins->slot};
    for (void *memory : held)
        gpu_release(gpu, memory);
    free(bins->rows);
    memset(bins, 0, sizeof *bins);
}
