/* filter_gpu.cuh: convolutions of a real field (filter.h) on a GPU. */
#ifndef MRIRECON_FFT_FILTER_GPU_CUH
#define MRIRECON_FFT_FILTER_GPU_CUH

#include "gridding/fft/filter.h"
#include "gridding/fft/fft_gpu.cuh"

struct filter_gpu;

/* Whether the GPU transforms lines of n nodes. */
bool filter_gpu_serves(int n);

/* Fails with ERR_BAD_PARAMETER (other lengths), ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE. The factors are copied. */
int filter_gpu_create(struct filter_gpu **out, struct gpu *gpu, const struct filter_shape *shape,
                      const struct filter_factors *factors);
void filter_gpu_free(struct filter_gpu *filter);

/* Of device memory. */
size_t filter_gpu_bytes(const struct filter_shape *shape, size_t factors);

/* As filter_cpu_run(), of device memory, in passes: along x; along y; along z, multiplied, and back; back along y; back
 * along x. */
enum { FILTER_PASSES = 5 };
int filter_gpu_pass(struct filter_gpu *filter, int pass, const float *field, float *result);

#endif
