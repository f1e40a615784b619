/* leaf.cu: the GPU's sums of limited range, which it shares with the CPU where that was asked for. */
#include "gridding/range/gpu/past.cuh"
#include "gridding/range/gpu/sums_gpu.cuh"

#include <cstring>

static bool is_shared(const struct range_points_params *params)
{
    return params->overflow == RANGE_OVERFLOW_CPU && params->bin_depth > 0;
}

static void destroy(void *state)
{
    struct points_gpu *p = (struct points_gpu *)state;
    if (p)
        points_past_free(p->past);
    points_gpu_destroy(p);
}

/* Without a depth no bin is too full for the GPU, which cuts what is heavy into parts. */
static int create(void **state, struct dev *dev, const struct range_points_params *params,
                  const struct listener *listener)
{
    void *made = NULL;
    int rc = points_gpu_create(&made, dev, params, listener);
    struct points_gpu *p = (struct points_gpu *)made;
    if (!rc && is_shared(params) && p->largest > (size_t)p->depth)
        rc = points_past_create(&p->past, p, (size_t)p->depth, params->reach, NULL);
    if (rc)
        destroy(made);
    else
        *state = made;
    return rc;
}

static void memory_of(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory)
{
    memset(memory, 0, sizeof *memory);
    points_gpu_memory(dev, params, memory);
    memory->scatter = sums_gpu_scatter_bytes(&params->box);
    memory->gather = sums_gpu_gather_bytes();
    if (is_shared(params)) {
        const size_t past = memory->points + points_past_bytes(params); /* what is kept, and what the CPU has */
        memory->points += past;
        memory->create += past;
        memory->scatter += points_past_sum_bytes(dev, params);
        memory->gather += points_past_sum_bytes(dev, params);
    }
    pairs_gpu_memory(dev, params, memory);
}

static int scatter(const void *state, const struct range_law *law, int channels, const float *values, float *grid,
                   const struct listener *listener)
{
    const struct points_gpu *p = (const struct points_gpu *)state;
    return p->past ? points_past_scatter(p, law, channels, values, grid, listener)
                   : sums_gpu_scatter(p, law, channels, values, grid, listener);
}

static int gather(const void *state, const struct range_law *law, int channels, const float *grid, float *values,
                  const struct listener *listener)
{
    const struct points_gpu *p = (const struct points_gpu *)state;
    return p->past ? points_past_gather(p, law, channels, grid, values, listener)
                   : sums_gpu_gather(p, law, channels, grid, values, listener);
}

extern "C" const struct range_leaf range_leaf_gpu = {
    create, destroy, memory_of, points_gpu_info, points_gpu_partition, scatter, gather, pairs_gpu_sum, pairs_gpu_count,
};
