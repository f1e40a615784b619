/* fft_image.cuh: passes to images of the most frequent sizes (fft_gpu_two.cu). Only the files of the FFT include this.
 */
#ifndef MRIRECON_FFT_IMAGE_CUH
#define MRIRECON_FFT_IMAGE_CUH

#include "gridding/fft/fft_gpu.cuh"

struct lines_args;

/* n, first radix, last: two stages. 512 cells have three. */
#define TWO_STAGES(X) \
    X(192, 16, 12)    \
    X(224, 16, 14)    \
    X(384, 16, 24)    \
    X(400, 20, 20)

/* Whether fft_image_kernel() serves this size. */
static constexpr bool fft_image_serves(int n)
{
#define SIZE(N, A, B) n == N ||
    return TWO_STAGES(SIZE) n == 512;
#undef SIZE
}

struct fft_kernel {
    void (*kernel)(struct lines_args); /* NULL: fft_sizes.cuh's serves this size */
    int threads, lines;                /* of a line; of a block (for rows: at most) */
};

/* kind: FFT_BACK or FFT_BACK_IMAGE. */
struct fft_kernel fft_image_kernel(int n, bool rows, fft_kind kind);

#endif
