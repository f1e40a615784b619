/* The passes of a convolution, of grids that are not transformed in halves (fft_gpu_halves.cu). Along x both FFTs and
 * the multiplication by the kernel's transform are one pass, of the sizes of ROW_SIZES. Along y and z they are
 * fft_run()'s. */
#include "gridding/fft/fft_halves.cuh"
#include "gridding/fft/fft_sizes.cuh"

#include <algorithm>

enum { BLOCK_THREADS = 128 };

/* FFT_SIZES and shorter sizes. */
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

/* The last stage forth, the multiplication, and the first stage back. A thread's butterfly of the last stage is its
 * first butterfly of a transform with the radices in the opposite order, so the values stay in registers. */
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

/* Blocks of rows as in transform_size(); a row has as many threads as its last stage forth has butterflies.
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
    gpu_begin_behind();
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

/* NULL: such rows are transformed in halves. */
template <int R0, int R1, int R2, int R3> static void (*kernel_of_radices())(struct rows_args)
{
    if constexpr (fft_in_halves(R0 * R1 * R2 * R3))
        return NULL;
    else
        return convolve_size<R0, R1, R2, R3>;
}

static void (*kernel_of_rows(int n, int *threads))(struct rows_args)
{
    switch (n) {
#define SIZE(N, R0, R1, R2, R3)            \
    case N:                                \
        *threads = N / (R3 > 1 ? R3 : R2); \
        return kernel_of_radices<R0, R1, R2, R3>();
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

int fft_rows_place(int n, int f)
{
    return fft_in_halves(n) ? fft_halves_place(n, f) : f;
}

int fft_convolve_rows(struct gpu *gpu, const struct fft_plan *plan, const struct fft_rows *rows)
{
    struct rows_args args = {};
    struct lines_args &a = args.lines;
    int threads = 0;
    if (fft_in_halves(plan->n))
        return fft_halves_rows(gpu, plan, rows);
    void (*const kernel)(struct rows_args) = kernel_of_rows(plan->n, &threads);
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
    /* Small blocks, so that more of them overlap their memory latency. */
    int lines = std::max(1, std::min(lines_that_fit(threads, true), BLOCK_THREADS / threads));
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
    return gpu_launch_behind(gpu, (const void *)kernel, blocks, lines * threads, shared, &args,
                             "A convolution of rows");
}

int fft_convolve_columns(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass)
{
    return fft_in_halves(plan->n) ? fft_halves_columns(gpu, plan, pass) : fft_run(gpu, plan, pass);
}
