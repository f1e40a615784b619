/* costs.cuh: seconds of a transform by each method: an adjoint, a forward transform. split: three products. memory: the
 * time that the device's memory takes for as many bytes as an H100's does in one second. */
#ifndef MRIRECON_NUFFT_COSTS_CUH
#define MRIRECON_NUFFT_COSTS_CUH

#include "gridding/nufft/nufft_leaf.h"

static inline double nufft_gpu_cells(const struct nufft_shape *shape)
{
    return (double)shape->grid[0] * shape->grid[1] * shape->grid[2];
}

static const int nufft_gpu_brick8_size[3] = {4, 5, 13}; /* of a bin, in cells */

double nufft_gpu_tiles_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);
double nufft_gpu_tiles_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);
double nufft_gpu_brick8_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);
double nufft_gpu_brick8_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);
double nufft_gpu_brick16_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);
double nufft_gpu_brick16_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);
double nufft_gpu_brick_dense_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);
double nufft_gpu_brick_dense_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split,
                                             double memory);
double nufft_gpu_brick2d_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);
double nufft_gpu_brick2d_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory);

#endif
