/* fft_two.cuh: passes of the most frequent sizes (fft_gpu_two.cu). Only the files of the FFT include this. */
#ifndef MRIRECON_FFT_TWO_CUH
#define MRIRECON_FFT_TWO_CUH

#include "gridding/fft/fft_gpu.cuh"

struct lines_args;

/* n, first radix, last: two stages. Then, whether planes take them as well: blocks of 16 lines leave multiprocessors
 * idle, so passes over a few small images are faster by fft_sizes.cuh's. (Not by the number of lines: an image has the
 * same bits alone and among others.) */
#define TWO_STAGES(X)     \
    X(192, 16, 12, true)  \
    X(216, 18, 12, false) \
    X(224, 16, 14, true)  \
    X(360, 18, 20, false) \
    X(384, 16, 24, true)  \
    X(400, 20, 20, true)  \
    X(432, 18, 24, false) \
    X(480, 20, 24, false) \
    X(486, 27, 18, false) \
    X(500, 25, 20, true)

/* Whether fft_two_kernel() serves this size and kind: these sizes, and 512 cells back. Not slots and bricks. */
static constexpr bool fft_two_serves(int n, fft_kind kind)
{
    const bool back = kind == FFT_BACK || kind == FFT_BACK_IMAGE, forth = kind == FFT_FORTH || kind == FFT_FORTH_IMAGE;
#define SIZE(N, A, B, PLANES) || n == N
    return ((back || forth) && (false TWO_STAGES(SIZE))) || (back && n == 512);
#undef SIZE
}

/* Of these, whether of planes. */
static constexpr bool fft_two_serves_planes(int n, fft_kind kind)
{
#define SIZE(N, A, B, PLANES) || (!PLANES && n == N)
    return fft_two_serves(n, kind) && !(false TWO_STAGES(SIZE));
#undef SIZE
}

struct fft_kernel {
    void (*kernel)(struct lines_args);
    int threads, lines; /* of a line; of a block (for rows: at most) */
};

/* Of a size and kind that it serves. */
struct fft_kernel fft_two_kernel(int n, bool rows, fft_kind kind);

#endif
