/* leaf.cu: the GPU's sums of limited range. */
#include "gridding/range/gpu/past.cuh"
#include "gridding/range/gpu/sums_gpu.cuh"

#include <cstring>

void sums_gpu_memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory)
{
    memset(memory, 0, sizeof *memory);
    points_gpu_memory(dev, params, memory);
    memory->scatter = sums_gpu_scatter_bytes(&params->box);
    memory->gather = sums_gpu_gather_bytes();
    if (params->overflow == RANGE_OVERFLOW_CPU && params->bin_depth > 0) {
        memory->scatter += points_past_sum_bytes(dev, params);
        memory->gather += points_past_sum_bytes(dev, params);
    }
    pairs_gpu_memory(dev, params, memory);
}

extern "C" const struct range_leaf range_leaf_gpu = {
    points_gpu_create, points_gpu_destroy, sums_gpu_memory, points_gpu_info, points_gpu_partition,
    sums_gpu_scatter,  sums_gpu_gather,    pairs_gpu_sum,   pairs_gpu_count,
};
