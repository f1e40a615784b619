#include "gridding/base/fft_gpu.cuh"
#include "gridding/base/fft_lines.cuh"

#include <cmath>
#include <cstdlib>
#include <cstring>

/* ---- blocks ---- */

/* 8 columns: 64 bytes side by side, two sectors; of long ones 4, if a block can hold as many threads. Of sizes up to
 * 4,096 a line alone has up to 810. */
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

/* Of a multiprocessor: large radices need more registers than two large blocks leave. */
static constexpr int blocks_at_least(int largest_radix, int threads, bool rows)
{
    return largest_radix > 10 || block_threads(threads, rows) > BLOCK_THREADS_MOST ? 1 : 2;
}

/* ---- sizes that are met often: everything known to the compiler ---- */

/* n, its radices, the largest first (a fourth of 1: there is none). */
#define FFT_SIZES(X)       \
    X(128, 8, 4, 4, 1)     \
    X(144, 9, 4, 4, 1)     \
    X(160, 8, 5, 4, 1)     \
    X(192, 8, 6, 4, 1)     \
    X(200, 8, 5, 5, 1)     \
    X(216, 6, 6, 6, 1)     \
    X(240, 8, 6, 5, 1)     \
    X(256, 8, 8, 4, 1)     \
    X(288, 9, 8, 4, 1)     \
    X(320, 8, 8, 5, 1)     \
    X(360, 9, 8, 5, 1)     \
    X(384, 8, 8, 6, 1)     \
    X(400, 10, 8, 5, 1)    \
    X(432, 9, 8, 6, 1)     \
    X(480, 10, 8, 6, 1)    \
    X(512, 8, 8, 8, 1)     \
    X(540, 10, 9, 6, 1)    \
    X(576, 9, 8, 8, 1)     \
    X(600, 10, 10, 6, 1)   \
    X(640, 10, 8, 8, 1)    \
    X(720, 10, 9, 8, 1)    \
    X(768, 16, 8, 6, 1)    \
    X(800, 10, 10, 8, 1)   \
    X(864, 16, 9, 6, 1)    \
    X(900, 10, 10, 9, 1)   \
    X(960, 16, 10, 6, 1)   \
    X(1024, 16, 8, 8, 1)   \
    X(1152, 16, 9, 8, 1)   \
    X(1280, 8, 8, 5, 4)    \
    X(1440, 16, 10, 9, 1)  \
    X(1536, 16, 12, 8, 1)  \
    X(1600, 16, 10, 10, 1) \
    X(1920, 16, 12, 10, 1) \
    X(2048, 16, 16, 8, 1)

/* Blocks of lines_that_fit(n / smallest radix) * that, or of rows fewer; shared memory: the lines. A block owns
 * neighbouring lines of one set; rows are read along the line, columns across the lines. */
template <int R0, int R1, int R2, int R3, bool ROWS, fft_kind KIND>
static __global__ void __launch_bounds__(block_threads(R0 *R1 *R2 *R3 / (R3 > 1 ? R3 : R2), ROWS),
                                         blocks_at_least(R0, R0 *R1 *R2 *R3 / (R3 > 1 ? R3 : R2), ROWS))
    transform_size(const __grid_constant__ struct lines_args a)
{
    extern __shared__ float2 shared[];
    constexpr int n = R0 * R1 * R2 * R3, threads = n / (R3 > 1 ? R3 : R2);
    const int lines = ROWS ? (int)blockDim.x / threads : lines_that_fit(threads, false);
    const struct place at = place_of(a, ROWS, lines, threads);
    if (KIND == FFT_BACK_PIECES && !sum_lines<(n / threads + 3) / 4>(a, at, shared, n, threads)) {
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

/* Rows are never the image's side: a NUFFT has two dimensions or more. */
template <int R0, int R1, int R2, int R3> static void (*kernel_of_kind(bool rows, fft_kind kind))(struct lines_args)
{
    switch (kind) {
    case FFT_BACK:
        return rows ? transform_size<R0, R1, R2, R3, true, FFT_BACK> : transform_size<R0, R1, R2, R3, false, FFT_BACK>;
    case FFT_FORTH:
        return rows ? transform_size<R0, R1, R2, R3, true, FFT_FORTH>
                    : transform_size<R0, R1, R2, R3, false, FFT_FORTH>;
    case FFT_BACK_PIECES:
        return transform_size<R0, R1, R2, R3, true, FFT_BACK_PIECES>;
    case FFT_BACK_BRICKS:
        return transform_size<R0, R1, R2, R3, true, FFT_BACK_BRICKS>;
    case FFT_BACK_IMAGE:
        return transform_size<R0, R1, R2, R3, false, FFT_BACK_IMAGE>;
    case FFT_FORTH_IMAGE:
    default:
        return transform_size<R0, R1, R2, R3, false, FFT_FORTH_IMAGE>;
    }
}

static void (*kernel_of_size(int n, bool rows, fft_kind kind))(struct lines_args)
{
    switch (n) {
#define SIZE(N, R0, R1, R2, R3) \
    case N:                     \
        return kernel_of_kind<R0, R1, R2, R3>(rows, kind);
        FFT_SIZES(SIZE)
#undef SIZE
    default:
        return NULL;
    }
}

static bool radices_of_size(int n, struct fft_plan *plan)
{
    switch (n) {
#define SIZE(N, R0, R1, R2, R3)                   \
    case N: {                                     \
        const int radix[4] = {R0, R1, R2, R3};    \
        plan->stages = R3 > 1 ? 4 : 3;            \
        memcpy(plan->radix, radix, sizeof radix); \
        return true;                              \
    }
        FFT_SIZES(SIZE)
#undef SIZE
    default:
        return false;
    }
}

bool fft_size_known(int n)
{
    struct fft_plan plan;
    return radices_of_size(n, &plan);
}

/* ---- any size ---- */

/* Not inlined: together in one function the compiler works out the addresses of all radices before it takes one, and
 * runs out of registers. */
template <int R, bool ROWS, fft_kind KIND, stage_step STEP>
static __device__ __noinline__ void any_stage(const struct lines_args &a, const struct place at, int done)
{
    extern __shared__ float2 shared[];
    stage<R, ROWS, KIND, STEP>(a, at, shared, a.n, a.lines_per_block, done);
}

template <bool ROWS, fft_kind KIND, stage_step STEP>
static __device__ __forceinline__ void stage_of(int radix, const struct lines_args &a, const struct place &at, int done)
{
    switch (radix) {
#define STAGE(R)                                     \
    case R:                                          \
        any_stage<R, ROWS, KIND, STEP>(a, at, done); \
        break;
        STAGE(1)
        STAGE(2)
        STAGE(3)
        STAGE(4)
        STAGE(5)
        STAGE(6)
        STAGE(7)
        STAGE(8)
        STAGE(9)
        STAGE(10)
#undef STAGE
    }
}

/* As transform_size. */
template <bool ROWS, fft_kind KIND>
static __global__ void __launch_bounds__(LINE_THREADS_MOST, 1)
    transform_any(const __grid_constant__ struct lines_args a)
{
    extern __shared__ float2 shared[];
    const struct place at = place_of(a, ROWS, a.lines_per_block, a.threads);
    int done = a.radix[0];
    if (KIND == FFT_BACK_PIECES && !sum_lines<2>(a, at, shared, a.n, a.threads)) {
        clear_lines(a.pass, at, a.threads);
        return;
    }
    if (KIND == FFT_BACK_BRICKS)
        sum_bricks(a, shared, a.n, a.lines_per_block);
    stage_of<ROWS, KIND, STAGE_FIRST>(a.radix[0], a, at, 1);
    for (int s = 1; s < a.stages - 1; s++) {
        stage_of<ROWS, KIND, STAGE_INNER>(a.radix[s], a, at, done);
        done *= a.radix[s];
    }
    stage_of<ROWS, KIND, STAGE_LAST>(a.radix[a.stages - 1], a, at, done);
}

static void (*kernel_of_any(bool rows, fft_kind kind))(struct lines_args)
{
    switch (kind) {
    case FFT_BACK:
        return rows ? transform_any<true, FFT_BACK> : transform_any<false, FFT_BACK>;
    case FFT_FORTH:
        return rows ? transform_any<true, FFT_FORTH> : transform_any<false, FFT_FORTH>;
    case FFT_BACK_PIECES:
        return transform_any<true, FFT_BACK_PIECES>;
    case FFT_BACK_BRICKS:
        return transform_any<true, FFT_BACK_BRICKS>;
    case FFT_BACK_IMAGE:
        return transform_any<false, FFT_BACK_IMAGE>;
    case FFT_FORTH_IMAGE:
    default:
        return transform_any<false, FFT_FORTH_IMAGE>;
    }
}

/* ---- plans ---- */

/* The fewest stages; among those, the largest smallest radix (a line has n / that many threads). */
static void search_radices(int rest, int largest, int depth, int *now, struct fft_plan *best)
{
    if (rest == 1) {
        int least = depth ? now[depth - 1] : 1;
        if (best->stages == 0 || depth < best->stages || (depth == best->stages && least > best->radix[depth - 1])) {
            best->stages = depth;
            memcpy(best->radix, now, (size_t)depth * sizeof *now);
        }
        return;
    }
    if (depth == FFT_STAGES_MOST || (best->stages && depth >= best->stages))
        return;
    for (int r = largest; r >= 2; r--)
        if (rest % r == 0) {
            now[depth] = r;
            search_radices(rest / r, r, depth + 1, now, best);
        }
}

int fft_plan_make(struct fft_plan *plan, struct gpu *gpu, int n)
{
    int now[FFT_STAGES_MOST];
    memset(plan, 0, sizeof *plan);
    plan->n = n;
    if (!radices_of_size(n, plan))
        search_radices(n, 10, 0, now, plan);
    if (n < 2 || plan->stages == 0)
        return err_set(ERR_BAD_PARAMETER,
                       "A grid of %d cells cannot be transformed: its size must be a product of 2, 3, 5 and 7.", n);
    if (plan->stages == 1)
        plan->radix[plan->stages++] = 1; /* the first stage only reads and the last only writes the device's memory */
    plan->threads = n / plan->radix[plan->stages - 1];
    float2 *host = (float2 *)malloc((size_t)n * sizeof *host);
    if (!host)
        return err_set(ERR_NO_MEMORY, "Not enough memory for the twiddle factors of a grid of %d cells.", n);
    for (int j = 0; j < n; j++) {
        double phase = 2.0 * M_PI * j / n;
        host[j] = make_float2((float)cos(phase), (float)sin(phase));
    }
    int rc = gpu_array(gpu, (size_t)n, &plan->twiddles, "The FFT's twiddle factors");
    if (!rc)
        rc = gpu_upload(gpu, plan->twiddles, host, (size_t)n * sizeof *host);
    free(host);
    return rc;
}

void fft_plan_free(struct fft_plan *plan, struct gpu *gpu)
{
    gpu_release(gpu, plan->twiddles);
    memset(plan, 0, sizeof *plan);
}

int fft_run(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass)
{
    struct lines_args a;
    bool summed = pass->kind == FFT_BACK_PIECES || pass->kind == FFT_BACK_BRICKS;
    bool rows = (summed || pass->in_view.step == 1) && pass->out_view.step == 1;
    void (*kernel)(struct lines_args) = kernel_of_size(plan->n, rows, pass->kind);
    size_t line_bytes = (size_t)line_room(rows, plan->n) * sizeof(float2);
    a.pass = *pass;
    a.n = plan->n;
    a.stages = plan->stages;
    memcpy(a.radix, plan->radix, sizeof a.radix);
    a.threads = plan->threads;
    a.twiddles = plan->twiddles;
    a.lines_per_block = lines_that_fit(a.threads, rows);
    while (!kernel && a.lines_per_block > 1 &&
           (a.lines_per_block * line_bytes > gpu->shared_most || a.lines_per_block * a.threads > BLOCK_THREADS_MOST))
        a.lines_per_block /= 2;
    /* Few rows are shared by all multiprocessors. */
    while (rows && a.lines_per_block > 1 &&
           gpu_blocks((size_t)pass->lines, (unsigned)a.lines_per_block) * (size_t)pass->sets <
               (size_t)gpu->multiprocessors)
        a.lines_per_block /= 2;
    if (!kernel)
        kernel = kernel_of_any(rows, pass->kind);
    size_t shared = a.lines_per_block * line_bytes;
    if (a.threads > LINE_THREADS_MOST || shared > gpu->shared_most || pass->sets > 65535)
        return err_set(ERR_BAD_PARAMETER, "A grid of %d cells is longer than the GPU's FFT handles.", plan->n);
    if (shared > 48 * 1024) {
        int rc = gpu_check(
            cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
            "Preparing an FFT pass");
        if (rc)
            return rc;
    }
    dim3 blocks(gpu_blocks((size_t)pass->lines, (unsigned)a.lines_per_block), (unsigned)pass->sets);
    kernel<<<blocks, a.lines_per_block * a.threads, shared, gpu->stream>>>(a);
    return gpu_launched("An FFT pass");
}
