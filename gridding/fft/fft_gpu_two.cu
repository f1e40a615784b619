/* Passes to images of the most frequent sizes, faster than fft_sizes.cuh's general ones: two stages instead of three,
 * 16 lines a block, so that columns are read in pieces of 128 bytes and a thread has 12 to 24 loads in flight; and 512
 * cells in three stages, with one more block per multiprocessor. */
#include "gridding/base/host_device.h"
#include "gridding/fft/fft_image.cuh"
#include "gridding/fft/fft_sizes.cuh"

enum { LINES = 16, EIGHT_THREADS = 64 };

/* R = A B points, A and B coprime (Good-Thomas): input (B a + A b) mod R is put at (a, b) of a matrix, which is
 * transformed along both axes; output k is then at (k mod A, k mod B). No twiddles. */
template <int A, int B> static __device__ __forceinline__ void dft_coprime(float2 *v)
{
    constexpr int R = A * B;
    float2 at[A][B], line[A];
#pragma unroll
    for (int a = 0; a < A; a++)
#pragma unroll
        for (int b = 0; b < B; b++)
            at[a][b] = v[(B * a + A * b) % R];
#pragma unroll
    for (int a = 0; a < A; a++)
        dft<B>(at[a]);
#pragma unroll
    for (int b = 0; b < B; b++) {
#pragma unroll
        for (int a = 0; a < A; a++)
            line[a] = at[a][b];
        dft<A>(line);
#pragma unroll
        for (int a = 0; a < A; a++)
            at[a][b] = line[a];
    }
#pragma unroll
    for (int k = 0; k < R; k++)
        v[k] = at[k % A][k % B];
}

template <> __device__ __forceinline__ void dft<14>(float2 *v)
{
    dft_coprime<2, 7>(v);
}

template <> __device__ __forceinline__ void dft<20>(float2 *v)
{
    dft_coprime<4, 5>(v);
}

template <> __device__ __forceinline__ void dft<24>(float2 *v)
{
    dft_coprime<3, 8>(v);
}

static __host__ __device__ constexpr int two_threads(int first, int last)
{
    return first > last ? first : last;
}

/* Blocks of LINES times the larger radix threads, fewer for rows; shared memory: the lines. */
template <int A, int B, bool ROWS, fft_kind KIND>
static __global__ void __launch_bounds__(LINES *two_threads(A, B), 2)
    transform_two(const __grid_constant__ struct lines_args a)
{
    extern __shared__ float2 shared[];
    constexpr int threads = two_threads(A, B);
    const int lines = ROWS ? (int)blockDim.x / threads : LINES;
    const struct place at = place_of(a, ROWS, lines, threads);
    gpu_begin_behind();
    stage<A, ROWS, KIND, STAGE_FIRST>(a, at, shared, A * B, lines, 1);
    stage<B, ROWS, KIND, STAGE_LAST>(a, at, shared, A * B, lines, A);
}

enum { EIGHT_BLOCKS = DEVICE_ARCH >= 1200 ? 2 : 3 }; /* a multiprocessor has 1,536 or 2,048 threads */

/* Blocks of COLUMNS_MOST lines, fewer for rows. */
template <bool ROWS, fft_kind KIND>
static __global__ void __launch_bounds__(COLUMNS_MOST *EIGHT_THREADS, EIGHT_BLOCKS)
    transform_512(const __grid_constant__ struct lines_args a)
{
    extern __shared__ float2 shared[];
    const int lines = ROWS ? (int)blockDim.x / EIGHT_THREADS : COLUMNS_MOST;
    const struct place at = place_of(a, ROWS, lines, EIGHT_THREADS);
    gpu_begin_behind();
    stage<8, ROWS, KIND, STAGE_FIRST>(a, at, shared, 512, lines, 1);
    stage<8, ROWS, KIND, STAGE_INNER>(a, at, shared, 512, lines, 8);
    stage<8, ROWS, KIND, STAGE_LAST>(a, at, shared, 512, lines, 64);
}

template <bool ROWS, fft_kind KIND> static struct fft_kernel kernel_of(int n)
{
    switch (n) {
#define SIZE(N, A, B) \
    case N:           \
        return fft_kernel{transform_two<A, B, ROWS, KIND>, two_threads(A, B), LINES};
        TWO_STAGES(SIZE)
#undef SIZE
    case 512:
        return fft_kernel{transform_512<ROWS, KIND>, EIGHT_THREADS, COLUMNS_MOST};
    default:
        return fft_kernel{NULL, 0, 0};
    }
}

struct fft_kernel fft_image_kernel(int n, bool rows, fft_kind kind)
{
    if (kind == FFT_BACK_IMAGE)
        return kernel_of<false, FFT_BACK_IMAGE>(n);
    return rows ? kernel_of<true, FFT_BACK>(n) : kernel_of<false, FFT_BACK>(n);
}
