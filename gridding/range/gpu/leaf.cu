/* leaf.cu: the GPU's sums of limited range, shared with the CPU if requested. */
#include "gridding/range/gpu/overflow_gpu.cuh"
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
        points_overflow_free(p->overflow);
    points_gpu_destroy(p);
}

/* Without a depth no bin overflows: the GPU cuts heavy ones into parts. */
static int create(void **state, struct dev *dev, const struct range_points_params *params,
                  const struct listener *listener)
{
    void *made = NULL;
    int rc = points_gpu_create(&made, dev, params, listener);
    struct points_gpu *p = (struct points_gpu *)made;
    if (!rc && is_shared(params) && p->largest > (size_t)p->depth)
        rc = points_overflow_create(&p->overflow, p, (size_t)p->depth, params->reach, NULL);
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
    memory->scatter = sums_gpu_scatter_bytes(&params->box, params->inputs);
    memory->gather = sums_gpu_gather_bytes();
    if (is_shared(params)) {
        const size_t overflow =
            memory->points + points_overflow_bytes(params); /* of the kept points, and of the CPU's */
        memory->points += overflow;
        memory->create += overflow;
        memory->scatter += points_overflow_sum_bytes(dev, params);
        memory->gather += points_overflow_sum_bytes(dev, params);
    }
    pairs_gpu_memory(dev, params, memory);
}

static int scatter(const void *state, const struct range_law *law, int channels, const float *values, float *grid,
                   const struct listener *listener)
{
    const struct points_gpu *p = (const struct points_gpu *)state;
    return p->overflow ? points_overflow_scatter(p, law, channels, values, grid, listener)
                       : sums_gpu_scatter(p, law, channels, values, false, grid, listener);
}

static int scatter_set(const void *state, const struct range_law *law, int channels, const float *values, float *grid,
                       const struct listener *listener)
{
    const struct points_gpu *p = (const struct points_gpu *)state;
    if (!p->overflow)
        return sums_gpu_scatter(p, law, channels, values, true, grid, listener);
    const int rc = sums_gpu_clear(p, channels, grid);
    return rc ? rc : points_overflow_scatter(p, law, channels, values, grid, listener);
}

static int gather(const void *state, const struct range_law *law, int channels, const float *grid, float *values,
                  const struct listener *listener)
{
    const struct points_gpu *p = (const struct points_gpu *)state;
    return p->overflow ? points_overflow_gather(p, law, channels, grid, values, listener)
                       : sums_gpu_gather(p, law, channels, grid, values, listener);
}

extern "C" const struct range_leaf range_leaf_gpu = {
    create,  destroy,     memory_of, points_gpu_info, points_gpu_partition,
    scatter, scatter_set, gather,    pairs_gpu_sum,   pairs_gpu_count,
};
