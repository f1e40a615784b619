/* fft_sizes.cuh: FFT passes over grids of frequent sizes, with the size as a template parameter.
 *
 * There are some 400 kernels of them, which take minutes to compile: fft_gpu_back.cu, fft_gpu_forth.cu and
 * fft_gpu_sums.cu have a third each, so that they are compiled in parallel. Only the files of the FFT include this. */
#ifndef MRIRECON_FFT_SIZES_CUH
#define MRIRECON_FFT_SIZES_CUH

#include "gridding/fft/fft_gpu.cuh"
#include "gridding/fft/fft_lines.cuh"
#include "gridding/fft/fft_two.cuh"

/* ---- blocks ---- */

/* 8 columns: 64 adjacent bytes, two sectors; of long ones 4, if a block can have as many threads. A line of up to 4,096
 * cells has up to 810 threads. */
enum { BLOCK_THREADS_MOST = 640, LINE_THREADS_MOST = 1024, COLUMNS_MOST = 8, COLUMNS_LEAST = 4, ROWS_MOST = 8 };

static __host__ __device__ constexpr int lines_that_fit(int threads, bool rows)
{
    int lines = rows ? ROWS_MOST : COLUMNS_MOST;
    while (lines > (rows ? 1 : COLUMNS_LEAST) && lines * threads > BLOCK_THREADS_MOST)
        lines /= 2;
    while (lines > 1 && lines * threads > LINE_THREADS_MOST)
        lines /= 2;
    return lines;
}

static constexpr int block_threads(int threads, bool rows)
{
    return threads * lines_that_fit(threads, rows);
}

/* Per multiprocessor: large radices need more registers than two large blocks leave. */
static constexpr int blocks_at_least(int largest_radix, int threads, bool rows)
{
    return largest_radix > 10 || block_threads(threads, rows) > BLOCK_THREADS_MOST ? 1 : 2;
}

/* ---- frequent sizes ---- */

/* n and its radices, the largest first (a fourth of 1: none). */
#define FFT_SIZES(X)       \
    X(96, 6, 4, 4, 1)      \
    X(108, 6, 6, 3, 1)     \
    X(112, 7, 4, 4, 1)     \
    X(120, 6, 5, 4, 1)     \
    X(128, 8, 4, 4, 1)     \
    X(144, 9, 4, 4, 1)     \
    X(160, 8, 5, 4, 1)     \
    X(180, 6, 6, 5, 1)     \
    X(192, 8, 6, 4, 1)     \
    X(200, 8, 5, 5, 1)     \
    X(216, 6, 6, 6, 1)     \
    X(224, 8, 7, 4, 1)     \
    X(240, 8, 6, 5, 1)     \
    X(256, 8, 8, 4, 1)     \
    X(288, 9, 8, 4, 1)     \
    X(320, 8, 8, 5, 1)     \
    X(336, 8, 7, 6, 1)     \
    X(360, 9, 8, 5, 1)     \
    X(384, 8, 8, 6, 1)     \
    X(400, 10, 8, 5, 1)    \
    X(432, 9, 8, 6, 1)     \
    X(448, 8, 8, 7, 1)     \
    X(480, 10, 8, 6, 1)    \
    X(486, 9, 9, 6, 1)     \
    X(500, 10, 10, 5, 1)   \
    X(512, 8, 8, 8, 1)     \
    X(540, 10, 9, 6, 1)    \
    X(576, 9, 8, 8, 1)     \
    X(600, 10, 10, 6, 1)   \
    X(640, 10, 8, 8, 1)    \
    X(672, 16, 7, 6, 1)    \
    X(720, 10, 9, 8, 1)    \
    X(768, 16, 8, 6, 1)    \
    X(800, 10, 10, 8, 1)   \
    X(864, 16, 9, 6, 1)    \
    X(896, 16, 8, 7, 1)    \
    X(900, 10, 10, 9, 1)   \
    X(960, 16, 10, 6, 1)   \
    X(1008, 16, 9, 7, 1)   \
    X(1024, 16, 8, 8, 1)   \
    X(1152, 16, 9, 8, 1)   \
    X(1200, 12, 10, 10, 1) \
    X(1280, 8, 8, 5, 4)    \
    X(1296, 12, 12, 9, 1)  \
    X(1440, 16, 10, 9, 1)  \
    X(1536, 16, 12, 8, 1)  \
    X(1600, 16, 10, 10, 1) \
    X(1792, 16, 16, 7, 1)  \
    X(1920, 16, 12, 10, 1) \
    X(2048, 16, 16, 8, 1)  \
    X(2304, 16, 16, 9, 1)  \
    X(2560, 16, 16, 10, 1) \
    X(3072, 16, 16, 12, 1) \
    X(4096, 16, 16, 16, 1)

/* Blocks of lines_that_fit(n / smallest radix) lines of n / smallest radix threads, fewer for rows; shared memory: the
 * lines. A block owns neighbouring lines of one set; rows are read along the line, columns across the lines. */
template <int R0, int R1, int R2, int R3, bool ROWS, fft_kind KIND>
static __global__ void __launch_bounds__(block_threads(R0 *R1 *R2 *R3 / (R3 > 1 ? R3 : R2), ROWS),
                                         blocks_at_least(R0, R0 *R1 *R2 *R3 / (R3 > 1 ? R3 : R2), ROWS))
    transform_size(const __grid_constant__ struct lines_args a)
{
    extern __shared__ float2 shared[];
    constexpr int n = R0 * R1 * R2 * R3, threads = n / (R3 > 1 ? R3 : R2);
    const int lines = ROWS ? (int)blockDim.x / threads : lines_that_fit(threads, false);
    const struct place at = place_of(a, ROWS, lines, threads);
    gpu_begin_behind();
    if (KIND == FFT_BACK_SLOTS && !sum_lines<(n / threads + 3) / 4>(a, at, shared, n, threads)) {
        clear_lines(a.pass, at, threads);
        return;
    }
    if (KIND == FFT_BACK_BRICKS)
        sum_bricks(a, shared, n, lines);
    stage<R0, ROWS, KIND, STAGE_FIRST>(a, at, shared, n, lines, 1);
    stage<R1, ROWS, KIND, STAGE_INNER>(a, at, shared, n, lines, R0);
    if (R3 > 1) {
        stage<R2, ROWS, KIND, STAGE_INNER>(a, at, shared, n, lines, R0 * R1);
        stage<R3, ROWS, KIND, STAGE_LAST>(a, at, shared, n, lines, R0 * R1 * R2);
    } else {
        stage<R2, ROWS, KIND, STAGE_LAST>(a, at, shared, n, lines, R0 * R1);
    }
}

/* The kernel of kind KIND for lines of n cells; NULL: not in the table, or fft_two_kernel() serves planes, too. */
template <bool ROWS, fft_kind KIND> static inline void (*kernel_of_size(int n))(struct lines_args)
{
    switch (n) {
#define SIZE(N, R0, R1, R2, R3)                       \
    case N:                                           \
        if constexpr (fft_two_serves_planes(N, KIND)) \
            return NULL;                              \
        else                                          \
            return transform_size<R0, R1, R2, R3, ROWS, KIND>;
        FFT_SIZES(SIZE)
#undef SIZE
    default:
        return NULL;
    }
}

/* Rows are never the pass to the image: a NUFFT has two dimensions or more. */
void (*fft_back_kernel(int n, bool rows, fft_kind kind))(struct lines_args);  /* FFT_BACK, FFT_BACK_IMAGE */
void (*fft_forth_kernel(int n, bool rows, fft_kind kind))(struct lines_args); /* FFT_FORTH, FFT_FORTH_IMAGE */
void (*fft_sums_kernel(int n, fft_kind kind))(struct lines_args); /* FFT_BACK_SLOTS, FFT_BACK_BRICKS; rows */

#endif
