/* filter_gpu.cuh: convolutions of a real field (filter.h) on a GPU. */
#ifndef MRIRECON_FFT_FILTER_GPU_CUH
#define MRIRECON_FFT_FILTER_GPU_CUH

#include "gridding/fft/filter.h"
#include "gridding/fft/fft_gpu.cuh"

struct filter_gpu;

/* Whether the GPU transforms lines of n nodes. */
bool filter_gpu_serves(int n);

/* Fails with ERR_BAD_PARAMETER (other lengths), ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE. The factors are copied; NULL:
 * only filter_gpu_forth() and filter_gpu_back() are used. */
int filter_gpu_create(struct filter_gpu **out, struct gpu *gpu, const struct filter_shape *shape,
                      const struct filter_factors *factors);
void filter_gpu_free(struct filter_gpu *filter);

/* Of device memory. */
size_t filter_gpu_bytes(const struct filter_shape *shape, size_t factors);

/* As filter_cpu_run(), of device memory, in passes: along x; along y; along z, multiplied, and back; back along y; back
 * along x. */
enum { FILTER_PASSES = 5 };
int filter_gpu_pass(struct filter_gpu *filter, int pass, const float *field, float *result);

/* Waves along x that a filter has: without that of half the nodes. */
static inline int filter_gpu_waves_x(const struct filter_shape *shape)
{
    return (shape->from[0] + 1) / 2;
}

/* The halves of a convolution, for callers that multiply waves themselves: waves[z][y][x] of the field, as many as the
 * field has nodes along z and y, and filter_gpu_waves_x() along x, from 0 on; waves that begin at half the nodes of an
 * axis hold negative ones. They stay in the filter's memory, which *waves is set to. */
int filter_gpu_forth(struct filter_gpu *filter, const float *field, const float2 **waves);

/* The result of such waves, which are overwritten. */
int filter_gpu_back(struct filter_gpu *filter, float2 *waves, float *result);

#endif
