/* Passes of the most frequent sizes, faster than fft_sizes.cuh's general ones: 16 lines a block, so that columns are
 * read in pieces of 128 bytes, and two stages instead of three, so that a thread has 12 to 25 loads in flight; passes
 * back of 512 cells have three, of which a thread does two butterflies each. */
#include "gridding/fft/fft_sizes.cuh"
#include "gridding/fft/fft_two.cuh"

enum { LINES = 16, EIGHT_THREADS = 32 };

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

template <> __device__ __forceinline__ void dft<18>(float2 *v)
{
    dft_coprime<2, 9>(v);
}

template <> __device__ __forceinline__ void dft<20>(float2 *v)
{
    dft_coprime<4, 5>(v);
}

template <> __device__ __forceinline__ void dft<24>(float2 *v)
{
    dft_coprime<3, 8>(v);
}

/* exp(2 pi i j / R). */
template <int R> struct turns {
    float re[R], im[R];
};

template <int R> static __host__ __device__ constexpr turns<R> turns_make()
{
    turns<R> w = {};
    for (int j = 0; j < R; j++) {
        w.re[j] = (float)power_series(6.28318530717958647692 / R * j, 0);
        w.im[j] = (float)power_series(6.28318530717958647692 / R * j, 1);
    }
    return w;
}

/* R = A B points, also if A and B have a common factor. Inputs B a + b, outputs k + A l: DFTs over a, factors
 * exp(2 pi i b k / R), DFTs over b. */
template <int A, int B> static __device__ __forceinline__ void dft_product(float2 *v)
{
    constexpr int R = A * B;
    constexpr turns<R> w = turns_make<R>();
    float2 at[A][B], line[A];
#pragma unroll
    for (int b = 0; b < B; b++) {
#pragma unroll
        for (int a = 0; a < A; a++)
            line[a] = v[B * a + b];
        dft<A>(line);
#pragma unroll
        for (int k = 0; k < A; k++)
            at[k][b] = k > 0 && b > 0 ? mul(line[k], make_float2(w.re[b * k], w.im[b * k])) : line[k];
    }
#pragma unroll
    for (int k = 0; k < A; k++) {
        dft<B>(at[k]);
#pragma unroll
        for (int l = 0; l < B; l++)
            v[k + A * l] = at[k][l];
    }
}

template <> __device__ __forceinline__ void dft<25>(float2 *v)
{
    dft_product<5, 5>(v);
}

template <> __device__ __forceinline__ void dft<27>(float2 *v)
{
    dft_product<3, 9>(v);
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

/* stage() of 8 for a line of 512 cells, of which the thread does butterflies t and t + EIGHT_THREADS. */
template <bool ROWS, fft_kind KIND, stage_step STEP>
static __device__ __forceinline__ void stage_512(const struct lines_args &a, const struct place &at, float2 *shared,
                                                 int lines, int done)
{
    constexpr int n = 512, apart = n / 8;
    float2 v[2][8];
    if (at.there)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int t = at.thread + EIGHT_THREADS * i;
#pragma unroll
            for (int r = 0; r < 8; r++)
                v[i][r] = STEP == STAGE_FIRST ? load<KIND>(a.pass, at, n, t + r * apart)
                                              : shared[slot_of(ROWS, n, lines, at, t + r * apart)];
            if (STEP == STAGE_FIRST)
                continue;
            const float2 w = __ldg(a.twiddles + t % done * (apart / done));
            float2 power = w;
#pragma unroll
            for (int r = 1; r < 8; r++) {
                v[i][r] = mul(v[i][r], power);
                power = mul(power, w);
            }
        }
    if (STEP == STAGE_INNER)
        __syncthreads();
    if (at.there)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int t = at.thread + EIGHT_THREADS * i, first = t / done * done * 8 + t % done;
            if (STEP != STAGE_LAST) {
                dft<8>(v[i]);
#pragma unroll
                for (int r = 0; r < 8; r++)
                    shared[slot_of(ROWS, n, lines, at, first + r * done)] = v[i][r];
            } else if (2 * a.pass.kept <= n) {
                finish<8, true, KIND>(a, at, n, first, done, v[i]);
            } else {
                finish<8, false, KIND>(a, at, n, first, done, v[i]);
            }
        }
    if (STEP != STAGE_LAST)
        __syncthreads();
}

/* Blocks of LINES lines, fewer for rows. */
template <bool ROWS, fft_kind KIND>
static __global__ void __launch_bounds__(LINES *EIGHT_THREADS, 2)
    transform_512(const __grid_constant__ struct lines_args a)
{
    extern __shared__ float2 shared[];
    const int lines = ROWS ? (int)blockDim.x / EIGHT_THREADS : LINES;
    const struct place at = place_of(a, ROWS, lines, EIGHT_THREADS);
    gpu_begin_behind();
    stage_512<ROWS, KIND, STAGE_FIRST>(a, at, shared, lines, 1);
    stage_512<ROWS, KIND, STAGE_INNER>(a, at, shared, lines, 8);
    stage_512<ROWS, KIND, STAGE_LAST>(a, at, shared, lines, 64);
}

template <bool ROWS, fft_kind KIND> static struct fft_kernel kernel_of(int n)
{
    switch (n) {
#define SIZE(N, A, B, PLANES) \
    case N:                   \
        return fft_kernel{transform_two<A, B, ROWS, KIND>, two_threads(A, B), LINES};
        TWO_STAGES(SIZE)
#undef SIZE
    default:
        if constexpr (fft_two_serves(512, KIND))
            return fft_kernel{transform_512<ROWS, KIND>, EIGHT_THREADS, LINES};
        else
            return fft_kernel{NULL, 0, 0};
    }
}

struct fft_kernel fft_two_kernel(int n, bool rows, fft_kind kind)
{
    switch (kind) {
    case FFT_BACK_IMAGE:
        return kernel_of<false, FFT_BACK_IMAGE>(n);
    case FFT_FORTH_IMAGE:
        return kernel_of<false, FFT_FORTH_IMAGE>(n);
    case FFT_FORTH:
        return rows ? kernel_of<true, FFT_FORTH>(n) : kernel_of<false, FFT_FORTH>(n);
    default:
        return rows ? kernel_of<true, FFT_BACK>(n) : kernel_of<false, FFT_BACK>(n);
    }
}
