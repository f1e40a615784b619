/* fft_image.cuh: passes to images of the most frequent sizes (fft_gpu_two.cu). Only the files of the FFT include this.
 */
#ifndef MRIRECON_FFT_IMAGE_CUH
#define MRIRECON_FFT_IMAGE_CUH

#include "gridding/fft/fft_gpu.cuh"

struct lines_args;

struct fft_kernel {
    void (*kernel)(struct lines_args); /* NULL: fft_sizes.cuh's serves this size */
    int threads, lines;                /* of a line; of a block (for rows: at most) */
};

/* kind: FFT_BACK or FFT_BACK_IMAGE. */
struct fft_kernel fft_image_kernel(int n, bool rows, fft_kind kind);

#endif
