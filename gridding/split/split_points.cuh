/* split_points.cuh: points are put into compact bins of about one point each, as split_scan.cuh has them. Only
 * split_gpu.cu includes this. */
#ifndef MRIRECON_SPLIT_POINTS_CUH
#define MRIRECON_SPLIT_POINTS_CUH

#include "gridding/base/dev_gpu.cuh"
#include "gridding/split/split_scan.cuh"

#include <cub/device/device_radix_sort.cuh>

namespace
{

/* Passed by value. Device memory. */
struct binning {
    uint32_t count, all; /* points, bins */
    int bins[3];
    double per_length[3]; /* 1 / the box's length */
    double *at;           /* [count][3] */
    uint32_t *key[2], *source[2];
    uint4 *point;
    uint32_t *first;
    void *sort;
    size_t sort_bytes;
};

inline int bins_bits(uint32_t all)
{
    int bits = 1;
    while (bits < 32 && (all - 1) >> bits)
        bits++;
    return bits;
}

inline cudaError_t bins_sort(const binning &b, void *room, size_t *bytes, cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairs(room, *bytes, b.key[0], b.key[1], b.source[0], b.source[1], (int)b.count, 0,
                                           bins_bits(b.all), stream);
}

/* The shape of the bins, and what sorting takes. */
inline int binning_lay(binning *b, size_t count, const double length[3])
{
    double volume = 1, edge;
    memset(b, 0, sizeof *b);
    for (int d = 0; d < 3; d++)
        volume *= length[d];
    edge = cbrt(volume / (double)(count ? count : 1));
    b->count = (uint32_t)count;
    b->all = 1;
    for (int d = 0; d < 3; d++) {
        b->bins[d] = length[d] / edge < 1 ? 1 : length[d] / edge > 512 ? 512 : (int)(length[d] / edge);
        b->all *= (uint32_t)b->bins[d];
        b->per_length[d] = 1 / length[d];
    }
    return gpu_check(bins_sort(*b, NULL, &b->sort_bytes, 0), "Sorting points");
}

inline size_t binning_bytes(const binning &b)
{
    return (size_t)b.count * (3 * sizeof(double) + 4 * sizeof(uint32_t) + sizeof(uint4)) +
           ((size_t)b.all + 1) * sizeof(uint32_t) + b.sort_bytes;
}

inline int binning_create(binning *b, struct gpu *gpu, const char *what)
{
    int rc = gpu_array(gpu, 3 * (size_t)b->count, &b->at, what);
    for (int i = 0; i < 2 && !rc; i++) {
        rc = gpu_array(gpu, b->count, &b->key[i], what);
        if (!rc)
            rc = gpu_array(gpu, b->count, &b->source[i], what);
    }
    if (!rc)
        rc = gpu_array(gpu, b->count, &b->point, what);
    if (!rc)
        rc = gpu_array(gpu, (size_t)b->all + 1, &b->first, what);
    return rc ? rc : gpu_alloc(gpu, b->sort_bytes, &b->sort, what);
}

inline void binning_free(binning *b, struct gpu *gpu)
{
    gpu_release(gpu, b->at);
    for (int i = 0; i < 2; i++) {
        gpu_release(gpu, b->key[i]);
        gpu_release(gpu, b->source[i]);
    }
    gpu_release(gpu, b->point);
    gpu_release(gpu, b->first);
    gpu_release(gpu, b->sort);
}

__global__ void find_bins(const __grid_constant__ binning b)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= b.count)
        return;
    uint32_t bin = 0;
    for (int d = 2; d >= 0; d--)
        bin = bin * (uint32_t)b.bins[d] + __umulhi(fraction_of(b.at[3 * (size_t)i + d] * b.per_length[d]), b.bins[d]);
    b.key[0][i] = bin;
    b.source[0][i] = i;
}

/* The first point of every bin, by bisection of the sorted keys. */
__global__ void find_starts(const __grid_constant__ binning b)
{
    const uint32_t bin = blockIdx.x * blockDim.x + threadIdx.x;
    if (bin > b.all)
        return;
    uint32_t low = 0, high = b.count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (b.key[1][middle] < bin)
            low = middle + 1;
        else
            high = middle;
    }
    b.first[bin] = low;
}

__global__ void pack_points(const __grid_constant__ binning b, const float *values)
{
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= b.count)
        return;
    const uint32_t i = b.source[1][place];
    uint32_t at[3];
    for (int d = 0; d < 3; d++)
        at[d] = fraction_of(b.at[3 * (size_t)i + d] * b.per_length[d]);
    b.point[place] = make_uint4(at[0], at[1], at[2], __float_as_uint(values[i]));
}

/* Of the points at b.at. The order within a bin is that of the input. */
inline int binning_run(const binning &b, struct gpu *gpu, const float *values, const char *what)
{
    enum { THREADS = 256 };
    size_t bytes = b.sort_bytes;
    if (b.count == 0)
        return gpu_check(cudaMemsetAsync(b.first, 0, ((size_t)b.all + 1) * sizeof *b.first, gpu->stream), what);
    find_bins<<<gpu_blocks(b.count, THREADS), THREADS, 0, gpu->stream>>>(b);
    int rc = gpu_launched(what);
    if (!rc)
        rc = gpu_check(bins_sort(b, b.sort, &bytes, gpu->stream), what);
    if (rc)
        return rc;
    find_starts<<<gpu_blocks((size_t)b.all + 1, THREADS), THREADS, 0, gpu->stream>>>(b);
    rc = gpu_launched(what);
    if (rc)
        return rc;
    pack_points<<<gpu_blocks(b.count, THREADS), THREADS, 0, gpu->stream>>>(b, values);
    return gpu_launched(what);
}

} // namespace

#endif
