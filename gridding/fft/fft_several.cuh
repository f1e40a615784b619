/* fft_several.cuh: the same pass of several transforms in one launch: those of small grids do not fill a device alone.
 */
#ifndef MRIRECON_FFT_SEVERAL_CUH
#define MRIRECON_FFT_SEVERAL_CUH

#include "gridding/fft/fft_gpu.cuh"

/* As `count` calls of fft_run(), each with pass->in `in_step` elements and pass->out `out_step` elements after the last
 * one's. Not with pass->squares, which are added up in order. */
int fft_run_several(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass, int count,
                    size_t in_step, size_t out_step);

#endif
