/* fft_two.cuh: passes of the most frequent sizes (fft_gpu_two.cu). Only the files of the FFT include this. */
#ifndef MRIRECON_FFT_TWO_CUH
#define MRIRECON_FFT_TWO_CUH

#include "gridding/fft/fft_gpu.cuh"

struct lines_args;

/* n, first radix, last: two stages. */
#define TWO_STAGES(X) \
    X(192, 16, 12)    \
    X(224, 16, 14)    \
    X(384, 16, 24)    \
    X(400, 20, 20)    \
    X(500, 25, 20)

/* Whether fft_two_kernel() serves this size and kind: these sizes, and 512 cells back. Not slots and bricks. */
static constexpr bool fft_two_serves(int n, fft_kind kind)
{
    const bool back = kind == FFT_BACK || kind == FFT_BACK_IMAGE, forth = kind == FFT_FORTH || kind == FFT_FORTH_IMAGE;
#define SIZE(N, A, B) || n == N
    return ((back || forth) && (false TWO_STAGES(SIZE))) || (back && n == 512);
#undef SIZE
}

struct fft_kernel {
    void (*kernel)(struct lines_args);
    int threads, lines; /* of a line; of a block (for rows: at most) */
};

/* Of a size and kind that it serves. */
struct fft_kernel fft_two_kernel(int n, bool rows, fft_kind kind);

#endif
