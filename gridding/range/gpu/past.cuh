/* past.cuh: points that bins on a GPU do not keep (RANGE_OVERFLOW_CPU): the CPU sums them while the GPU sums the
 * others, each in its own order, so that the bits stay the same. */
#ifndef MRIRECON_PAST_CUH
#define MRIRECON_PAST_CUH

#include "gridding/range/gpu/points_gpu.cuh"

struct points_past {
    struct points_gpu *kept; /* the first `depth` points of each bin */
    struct dev cpu;
    void *rest;       /* the CPU's points (range_leaf_cpu) */
    size_t count;     /* of these */
    uint32_t *source; /* the device's, [count]: their index in the input */
};

/* Fails with ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE, and as the listener. */
int points_past_create(struct points_past **out, const struct points_gpu *all, size_t depth, double reach,
                       const struct listener *listener);
void points_past_free(struct points_past *past);

/* Bytes beside those of the points, at most. */
size_t points_past_bytes(const struct range_points_params *params);

/* As sums_gpu_scatter() and sums_gpu_gather(), of points with a p->past. */
int points_past_scatter(const struct points_gpu *p, const struct range_law *law, int channels, const float *values,
                        float *grid, const struct listener *listener);
int points_past_gather(const struct points_gpu *p, const struct range_law *law, int channels, const float *grid,
                       float *values, const struct listener *listener);

/* Bytes that either takes beside the GPU's own sum. */
size_t points_past_sum_bytes(const struct dev *dev, const struct range_points_params *params);

#endif
