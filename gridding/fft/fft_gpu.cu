#include "gridding/fft/fft_halves.cuh"
#include "gridding/fft/fft_several.cuh"
#include "gridding/fft/fft_sizes.cuh"
#include "gridding/fft/fft_two.cuh"

#include <cmath>
#include <cstdlib>
#include <cstring>

/* ---- frequent sizes ---- */

static void (*kernel_of_table(int n, bool rows, fft_kind kind))(struct lines_args)
{
    switch (kind) {
    case FFT_BACK:
    case FFT_BACK_IMAGE:
        return fft_back_kernel(n, rows, kind);
    case FFT_BACK_SLOTS:
    case FFT_BACK_BRICKS:
        return fft_sums_kernel(n, kind);
    default:
        return fft_forth_kernel(n, rows, kind);
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

int fft_known_size(int cells)
{
    int best = 0;
#define SIZE(N, R0, R1, R2, R3)                \
    if (N >= cells && (best == 0 || N < best)) \
        best = N;
    FFT_SIZES(SIZE)
#undef SIZE
    return best;
}

/* ---- any size ---- */

/* Not inlined: in a single function the compiler computes the addresses of all radices before it selects one, and runs
 * out of registers. */
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
    gpu_begin_behind();
    if (KIND == FFT_BACK_SLOTS && !sum_lines<2>(a, at, shared, a.n, a.threads)) {
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
    case FFT_BACK_SLOTS:
        return transform_any<true, FFT_BACK_SLOTS>;
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
        plan->radix[plan->stages++] = 1; /* only the first stage reads device memory, and only the last writes it */
    plan->threads = n / plan->radix[plan->stages - 1];
    const size_t turns = (size_t)fft_halves_turns(n), count = n + turns; /* n is even: the turns lie at 16 bytes */
    float2 *host = (float2 *)malloc(count * sizeof *host);
    if (!host)
        return err_no_memory("the twiddle factors of a grid of %d cells", n);
    for (int j = 0; j < n; j++) {
        double phase = 2.0 * M_PI * j / n;
        host[j] = make_float2((float)cos(phase), (float)sin(phase));
    }
    if (turns)
        fft_halves_turns_fill(n, host + n);
    int rc = gpu_array(gpu, count, &plan->twiddles, "The FFT's twiddle factors");
    if (!rc)
        rc = gpu_upload(gpu, plan->twiddles, host, count * sizeof *host);
    plan->turns = plan->twiddles + n;
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
    return fft_run_several(gpu, plan, pass, 1, 0, 0);
}

/* The kernel of a pass, and its threads of a line and lines of a block. */
static void (*choose_kernel(const struct gpu *gpu, bool rows, size_t line_bytes, int count,
                            struct lines_args *a))(struct lines_args)
{
    const struct fft_pass *pass = &a->pass;
    const struct fft_kernel two = (pass->volume ? fft_two_serves : fft_two_serves_planes)(a->n, pass->kind)
                                      ? fft_two_kernel(a->n, rows, pass->kind)
                                      : fft_kernel{NULL, 0, 0};
    void (*kernel)(struct lines_args) = two.kernel ? two.kernel : kernel_of_table(a->n, rows, pass->kind);
    a->lines_per_block = two.kernel ? two.lines : lines_that_fit(a->threads, rows);
    a->threads = two.kernel ? two.threads : a->threads;
    while (!kernel && a->lines_per_block > 1 &&
           (a->lines_per_block * line_bytes > gpu->shared_most || a->lines_per_block * a->threads > BLOCK_THREADS_MOST))
        a->lines_per_block /= 2;
    /* Distribute few rows over all multiprocessors. */
    while (rows && a->lines_per_block > 1 &&
           gpu_blocks((size_t)pass->lines, (unsigned)a->lines_per_block) * (size_t)pass->sets * (size_t)count <
               (size_t)gpu->multiprocessors)
        a->lines_per_block /= 2;
    return kernel ? kernel : kernel_of_any(rows, pass->kind);
}

int fft_run_several(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass, int count,
                    size_t in_step, size_t out_step)
{
    struct lines_args a;
    const bool summed = pass->kind == FFT_BACK_SLOTS || pass->kind == FFT_BACK_BRICKS;
    const bool rows = (summed || pass->in_view.step == 1) && pass->out_view.step == 1;
    const size_t line_bytes = (size_t)line_room(rows, plan->n) * sizeof(float2);
    a.pass = *pass;
    a.n = plan->n;
    a.stages = plan->stages;
    memcpy(a.radix, plan->radix, sizeof a.radix);
    a.threads = plan->threads;
    a.twiddles = plan->twiddles;
    a.in_step = in_step;
    a.out_step = out_step;
    void (*const kernel)(struct lines_args) = choose_kernel(gpu, rows, line_bytes, count, &a);
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
    const dim3 blocks(gpu_blocks((size_t)pass->lines, (unsigned)a.lines_per_block), (unsigned)pass->sets,
                      (unsigned)count);
    return gpu_launch_behind(gpu, (const void *)kernel, blocks, a.lines_per_block * a.threads, shared, &a,
                             "An FFT pass");
}
