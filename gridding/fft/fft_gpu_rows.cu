/* The passes of a convolution. Along x both FFTs and the multiplication by the kernel's transform are one pass, of the
 * sizes of ROW_SIZES. Along y and z they are fft_run()'s, but for two sizes that two stages do: a thread of these holds
 * 15 or 16 values, and a block's 16 columns are read in pieces of 128 bytes, which hides the memory's latency better.
 */
#include "gridding/fft/fft_sizes.cuh"

#include <algorithm>

/* n, first radix, last. */
#define TWO_STAGES(X) \
    X(240, 16, 15)    \
    X(256, 16, 16)

enum { WIDE_LINES = 16, WIDE_THREADS = 16, BLOCK_THREADS = 128 };

/* Inputs 5 a + 3 b mod 15, outputs 10 a + 6 b mod 15: no twiddles. */
template <> __device__ __forceinline__ void dft<15>(float2 *v)
{
#pragma unroll
    for (int b = 0; b < 5; b++)
        dft3(v[3 * b], v[(5 + 3 * b) % 15], v[(10 + 3 * b) % 15]);
#pragma unroll
    for (int a = 0; a < 3; a++)
        dft5(v[5 * a], v[(5 * a + 3) % 15], v[(5 * a + 6) % 15], v[(5 * a + 9) % 15], v[(5 * a + 12) % 15]);
    float2 t[15];
#pragma unroll
    for (int k = 0; k < 15; k++)
        t[(10 * (k / 5) + 6 * (k % 5)) % 15] = v[(5 * (k / 5) + 3 * (k % 5)) % 15];
#pragma unroll
    for (int k = 0; k < 15; k++)
        v[k] = t[k];
}

/* As FFT_SIZES, and what is shorter. */
#define ROW_SIZES(X)  \
    X(16, 4, 2, 2, 1) \
    X(32, 4, 4, 2, 1) \
    X(48, 4, 4, 3, 1) \
    X(64, 4, 4, 4, 1) \
    X(80, 5, 4, 4, 1) \
    FFT_SIZES(X)

struct rows_args {
    struct lines_args lines;
    const float *spectrum; /* [sets / sets_per_plane][lines][n] */
    int sets_per_plane;
};

/* The last stage forth, the multiplication, and the first stage back. The butterfly that the last stage gives a thread
 * is the one that a transform with the radices in the opposite order begins with: the values stay in registers. */
template <int R>
static __device__ __forceinline__ void turn(const struct lines_args &a, const struct place &at, float2 *shared,
                                            const float *spectrum, int n, int lines)
{
    const int apart = n / R, t = at.thread;
    float2 v[R];
#pragma unroll
    for (int r = 0; r < R; r++)
        v[r] = shared[slot_of(true, n, lines, at, t + r * apart)];
    const float2 w = __ldg(a.twiddles + t);
    float2 power = w;
#pragma unroll
    for (int r = 1; r < R; r++) {
        v[r] = mul(v[r], power);
        power = mul(power, w);
    }
    dft<R>(v);
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float f = at.there ? __ldg(spectrum + t + r * apart) : 0.f;
        v[r] = make_float2(v[r].x * f, -v[r].y * f); /* a pass forth is a pass back between conjugates */
    }
    dft<R>(v);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; r++)
        shared[slot_of(true, n, lines, at, t * R + r)] = v[r];
    __syncthreads();
}

/* Rows of two stages. */
template <int A, int B>
static __global__ void __launch_bounds__(256, 3) convolve_two(const __grid_constant__ struct rows_args rows)
{
    extern __shared__ float2 shared[];
    constexpr int n = A * B;
    const struct lines_args &a = rows.lines;
    const int lines = (int)blockDim.x / WIDE_THREADS;
    const struct place at = place_of(a, true, lines, WIDE_THREADS);
    const size_t line = (size_t)blockIdx.x * lines + at.line_in_block;
    const float *spectrum = rows.spectrum + ((size_t)(blockIdx.y / rows.sets_per_plane) * a.pass.lines + line) * n;
    stage<A, true, FFT_FORTH, STAGE_FIRST>(a, at, shared, n, lines, 1);
    turn<B>(a, at, shared, spectrum, n, lines);
    stage<A, true, FFT_BACK, STAGE_LAST>(a, at, shared, n, lines, B);
}

/* Columns of two stages. */
template <int A, int B, fft_kind KIND>
static __global__ void __launch_bounds__(WIDE_LINES *WIDE_THREADS, 3)
    transform_two(const __grid_constant__ struct lines_args a)
{
    extern __shared__ float2 shared[];
    const struct place at = place_of(a, false, WIDE_LINES, WIDE_THREADS);
    stage<A, false, KIND, STAGE_FIRST>(a, at, shared, A * B, WIDE_LINES, 1);
    stage<B, false, KIND, STAGE_LAST>(a, at, shared, A * B, WIDE_LINES, A);
}

/* Blocks of rows as transform_size() has them; every row has as many threads as its last stage forth has butterflies.
 */
template <int R0, int R1, int R2, int R3>
static __global__ void __launch_bounds__(block_threads(R0 *R1 *R2 *R3 / (R3 > 1 ? R3 : R2), true),
                                         blocks_at_least(R0, R0 *R1 *R2 *R3 / (R3 > 1 ? R3 : R2), true))
    convolve_size(const __grid_constant__ struct rows_args rows)
{
    extern __shared__ float2 shared[];
    constexpr int n = R0 * R1 * R2 * R3, last = R3 > 1 ? R3 : R2, threads = n / last;
    const struct lines_args &a = rows.lines;
    const int lines = (int)blockDim.x / threads;
    const struct place at = place_of(a, true, lines, threads);
    const size_t line = (size_t)blockIdx.x * lines + at.line_in_block;
    const float *spectrum = rows.spectrum + ((size_t)(blockIdx.y / rows.sets_per_plane) * a.pass.lines + line) * n;
    stage<R0, true, FFT_FORTH, STAGE_FIRST>(a, at, shared, n, lines, 1);
    stage<R1, true, FFT_FORTH, STAGE_INNER>(a, at, shared, n, lines, R0);
    if (R3 > 1)
        stage<R2, true, FFT_FORTH, STAGE_INNER>(a, at, shared, n, lines, R0 * R1);
    turn<last>(a, at, shared, spectrum, n, lines);
    if (R3 > 1)
        stage<R2, true, FFT_BACK, STAGE_INNER>(a, at, shared, n, lines, last);
    stage<R1, true, FFT_BACK, STAGE_INNER>(a, at, shared, n, lines, R3 > 1 ? last * R2 : last);
    stage<R0, true, FFT_BACK, STAGE_LAST>(a, at, shared, n, lines, n / R0);
}

static void (*kernel_of_two(int n))(struct rows_args)
{
    switch (n) {
#define SIZE(N, A, B) \
    case N:           \
        return convolve_two<A, B>;
        TWO_STAGES(SIZE)
#undef SIZE
    default:
        return NULL;
    }
}

static void (*kernel_of_rows(int n, int *threads))(struct rows_args)
{
    switch (n) {
#define SIZE(N, R0, R1, R2, R3)            \
    case N:                                \
        *threads = N / (R3 > 1 ? R3 : R2); \
        return convolve_size<R0, R1, R2, R3>;
        ROW_SIZES(SIZE)
#undef SIZE
    default:
        return NULL;
    }
}

int fft_rows_size(int cells)
{
    int best = 0;
#define SIZE(N, R0, R1, R2, R3)                \
    if (N >= cells && (best == 0 || N < best)) \
        best = N;
    ROW_SIZES(SIZE)
#undef SIZE
    return best;
}

int fft_two_stage_size(int cells)
{
    int best = 0;
#define SIZE(N, FIRST, LAST)                   \
    if (N >= cells && (best == 0 || N < best)) \
        best = N;
    TWO_STAGES(SIZE)
#undef SIZE
    return best;
}

int fft_convolve_rows(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows)
{
    struct rows_args args = {};
    struct lines_args &a = args.lines;
    int threads = 0;
    void (*kernel)(struct rows_args) = kernel_of_two(plan->n);
    const bool wide = kernel != NULL;
    if (wide)
        threads = WIDE_THREADS;
    else
        kernel = kernel_of_rows(plan->n, &threads);
    if (!kernel || rows->sets > 65535)
        return err_set(ERR_INTERNAL, "Rows of %d cells in %d sets cannot be convolved in one pass.", plan->n,
                       rows->sets);
    const struct fft_view view = {1, (size_t)rows->kept, (size_t)rows->kept * rows->lines};
    a.pass.in = a.pass.out = rows->values;
    a.pass.in_view = a.pass.out_view = view;
    a.pass.kept = rows->kept;
    a.pass.lines = rows->lines;
    a.pass.sets = rows->sets;
    a.n = plan->n;
    a.threads = threads;
    a.twiddles = plan->twiddles;
    args.spectrum = rows->spectrum;
    args.sets_per_plane = rows->sets_per_plane;
    /* Small blocks: more of them wait for memory side by side. */
    int lines = wide ? WIDE_LINES : std::max(1, std::min(lines_that_fit(threads, true), BLOCK_THREADS / threads));
    while (lines > 1 &&
           gpu_blocks((size_t)rows->lines, (unsigned)lines) * (size_t)rows->sets < (size_t)gpu->multiprocessors)
        lines /= 2;
    a.lines_per_block = lines;
    const size_t shared = (size_t)lines * line_room(true, plan->n) * sizeof(float2);
    int rc = 0;
    if (shared > 48 * 1024)
        rc = gpu_check(
            cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
            "Preparing a convolution of rows");
    if (rc)
        return rc;
    const dim3 blocks(gpu_blocks((size_t)rows->lines, (unsigned)lines), (unsigned)rows->sets);
    kernel<<<blocks, lines * threads, shared, gpu->stream>>>(args);
    return gpu_launched("A convolution of rows");
}

static void (*kernel_of_columns(int n, fft_kind kind))(struct lines_args)
{
    switch (n) {
#define SIZE(N, A, B) \
    case N:           \
        return kind == FFT_FORTH ? transform_two<A, B, FFT_FORTH> : transform_two<A, B, FFT_BACK>;
        TWO_STAGES(SIZE)
#undef SIZE
    default:
        return NULL;
    }
}

int fft_convolve_columns(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass)
{
    void (*kernel)(struct lines_args) = kernel_of_columns(plan->n, pass->kind);
    if (!kernel || pass->lines < WIDE_LINES || pass->sets > 65535)
        return fft_run(gpu, plan, pass);
    struct lines_args a = {};
    a.pass = *pass;
    a.n = plan->n;
    a.threads = WIDE_THREADS;
    a.lines_per_block = WIDE_LINES;
    a.twiddles = plan->twiddles;
    const dim3 blocks(gpu_blocks((size_t)pass->lines, WIDE_LINES), (unsigned)pass->sets);
    kernel<<<blocks, WIDE_LINES * WIDE_THREADS, (size_t)plan->n * WIDE_LINES * sizeof(float2), gpu->stream>>>(a);
    return gpu_launched("An FFT pass of a convolution");
}
