/* Partitioning: which samples bins of a depth keep on the GPU. */
#include "gridding/range/range_gpu.cuh"

#include <cub/device/device_select.cuh>

#include <cstring>

/* Blocks of 256; a thread owns one index of the sorted order. keeps[sample] = 1 if its rank in its bin is below the
 * depth. */
static __global__ void rank_samples(uint32_t samples, uint32_t count, uint32_t depth, const uint32_t *first,
                                    const uint32_t *order, uint8_t *keeps)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= samples)
        return;
    uint32_t low = 0, high = count; /* the last bin that begins at i or before, after empty ones */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (first[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    keeps[order[i]] = i - first[low] < depth;
}

/* Blocks of 256; a thread owns one sample. */
static __global__ void count_up(uint32_t samples, uint32_t *index)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples)
        index[i] = i;
}

static __global__ void invert(uint32_t samples, uint8_t *flags)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples)
        flags[i] = !flags[i];
}

/* Blocks of 256; a thread owns one of the selected samples. */
static __global__ void take_k(uint32_t taken, int dim, const uint32_t *index, const float *k, float *to)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int d = 0; i < taken && d < dim; d++)
        to[(size_t)i * dim + d] = k[(size_t)index[i] * dim + d];
}

static __global__ void map_order(uint32_t samples, const uint32_t *index, uint32_t *order)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples)
        order[i] = index[order[i]];
}

/* The flagged indices in their order, and k of these. */
static int select_samples(struct gpu *gpu, uint32_t samples, int dim, const float *k, const uint32_t *all,
                          const uint8_t *flags, struct range_part *part)
{
    const char *what = "Partitioning the samples";
    void *workspace = NULL;
    uint32_t *selected = NULL, *index = NULL;
    size_t bytes = 0;
    int rc = gpu_array(gpu, 1, &selected, what);
    if (!rc)
        rc = gpu_array(gpu, samples, &index, what);
    if (!rc)
        rc = gpu_check(cub::DeviceSelect::Flagged(NULL, bytes, all, flags, index, selected, (int)samples, gpu->stream),
                       what);
    if (!rc)
        rc = gpu_alloc(gpu, bytes, &workspace, what);
    if (!rc)
        rc = gpu_check(
            cub::DeviceSelect::Flagged(workspace, bytes, all, flags, index, selected, (int)samples, gpu->stream), what);
    if (!rc)
        rc = gpu_download(gpu, &part->samples, selected, sizeof part->samples);
    if (!rc)
        rc = gpu_array(gpu, (size_t)part->samples * dim, &part->k, what);
    if (!rc && part->samples > 0) {
        take_k<<<gpu_blocks(part->samples, 256), 256, 0, gpu->stream>>>(part->samples, dim, index, k, part->k);
        rc = gpu_launched(what);
    }
    gpu_release(gpu, workspace);
    gpu_release(gpu, selected);
    part->index = index;
    return rc;
}

int range_gpu_partition(struct gpu *gpu, const struct range_bins_gpu *bins, uint32_t depth, const float *k,
                        struct range_part *kept, struct range_part *past)
{
    const char *what = "Partitioning the samples";
    uint32_t n = bins->samples, *all = NULL;
    uint8_t *flags = NULL;
    int rc = gpu_array(gpu, n, &flags, what), dim = bins->geometry.dim;
    if (!rc)
        rc = gpu_array(gpu, n, &all, what);
    if (!rc) {
        rank_samples<<<gpu_blocks(n, 256), 256, 0, gpu->stream>>>(n, bins->count, depth, bins->first, bins->order,
                                                                  flags);
        count_up<<<gpu_blocks(n, 256), 256, 0, gpu->stream>>>(n, all);
        rc = gpu_launched(what);
    }
    if (!rc)
        rc = select_samples(gpu, n, dim, k, all, flags, kept);
    if (!rc) {
        invert<<<gpu_blocks(n, 256), 256, 0, gpu->stream>>>(n, flags);
        rc = gpu_launched(what);
    }
    if (!rc)
        rc = select_samples(gpu, n, dim, k, all, flags, past);
    gpu_release(gpu, all);
    gpu_release(gpu, flags);
    return rc;
}

void range_gpu_part_free(struct range_part *part, struct gpu *gpu)
{
    gpu_release(gpu, part->index);
    gpu_release(gpu, part->k);
    memset(part, 0, sizeof *part);
}

int range_bins_gpu_make_part(struct range_bins_gpu *bins, struct gpu *gpu, const struct range_geometry *geometry,
                             const struct range_part *part)
{
    int rc = range_bins_gpu_make(bins, gpu, geometry, part->samples, part->k);
    if (!rc && part->samples > 0) {
        map_order<<<gpu_blocks(part->samples, 256), 256, 0, gpu->stream>>>(part->samples, part->index, bins->order);
        rc = gpu_launched("Partitioning the samples");
    }
    return rc;
}
