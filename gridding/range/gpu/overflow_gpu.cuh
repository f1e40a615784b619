/* overflow_gpu.cuh: points beyond the depth of bins on a GPU (RANGE_OVERFLOW_CPU): the CPU sums them while the GPU sums
 * the others, both in a fixed order, so that the bits stay the same. */
#ifndef MRIRECON_OVERFLOW_GPU_CUH
#define MRIRECON_OVERFLOW_GPU_CUH

#include "gridding/range/gpu/points_gpu.cuh"

struct points_overflow {
    struct points_gpu *kept; /* the first `depth` points of each bin */
    struct dev cpu;
    void *rest;       /* the CPU's points (range_leaf_cpu) */
    size_t count;     /* of these */
    uint32_t *source; /* device: [count]: index in the input */
};

/* Fails with ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE, and as the listener. */
int points_overflow_create(struct points_overflow **out, const struct points_gpu *all, size_t depth, double reach,
                           const struct listener *listener);
void points_overflow_free(struct points_overflow *overflow);

/* Upper bound of the additional bytes. */
size_t points_overflow_bytes(const struct range_points_params *params);

/* As sums_gpu_scatter() and sums_gpu_gather(), for points with a p->overflow. */
int points_overflow_scatter(const struct points_gpu *p, const struct range_law *law, int channels, const float *values,
                            float *grid, const struct listener *listener);
int points_overflow_gather(const struct points_gpu *p, const struct range_law *law, int channels, const float *grid,
                           float *values, const struct listener *listener);

/* Bytes of either in addition to those of the GPU's own sum. */
size_t points_overflow_sum_bytes(const struct dev *dev, const struct range_points_params *params);

#endif
