/* brick2d ("planes"): sums 2-D samples of transforms that share a trajectory (coils, frames) into their grids on tensor
 * cores.
 *
 * A block sums a bin's samples, or a part of them, into a brick of 16 x 16 grid cells in registers, which contains all
 * cells that they reach. For 8 samples s at a time, with y and real/imaginary part as rows and x as columns:
 *   brick[(y, part)][x] += sum_s (data_s wy_s(y))[(y, part)][s] wx_s(x)[s][x]
 * one 16 x 8 x 8 product for each quarter of the brick and each transform; the weights are computed once for all
 * transforms of the block. Bricks are stored in a workspace, and then each cell of the grid adds up the bricks that
 * contain it in a fixed order (dense.h): no block waits for another, and crowded samples cost no more than others.
 *
 * Operands are rounded to TF32, so that errors are unbiased. The hardware truncates sums: an accumulator is limited to
 * the bin's depth with one product, and to 16 samples with three, those of remainders in BF16, then added in float32.
 */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <cuda_pipeline_primitives.h>

enum { PLANE_GROUP = 16 }; /* samples whose weights a lane reads at a time: 4 t .. 4 t + 3 */

struct plane_args {
    struct range_geometry geometry;
    const struct range_task *parts, *tasks; /* parts of heavy bins, then bins */
    uint32_t part_count;
    const struct range_point_gpu *points;
    const uint32_t *order;
    const float *weights; /* sorted, or NULL */
    const float2 *data;   /* [transforms][samples] in the caller's order */
    size_t samples;
    float4 *bricks; /* [transforms][tasks][PLANE_EDGE][PLANE_EDGE] cells */
    size_t step;    /* pairs of cells from one transform's bricks to the next's */
    struct kernel_pairs kernel;
    int transforms;
};

/* A block's staged samples. Rows of weights are 16 banks apart, so that the four that a quarter of a warp reads at a
 * time do not conflict. */
template <int SAMPLES, int TRANSFORMS> struct plane_stage {
    float weight[2][PLANE_EDGE][SAMPLES + 16]; /* [x, y][cell][sample] */
    float2 value[2][TRANSFORMS][SAMPLES];      /* of these samples, and of the next ones */
};

template <int WARPS> static __device__ __forceinline__ void wait_for_team()
{
    if (WARPS == 1)
        __syncwarp();
    else
        __syncthreads();
}

/* Round to TF32: the hardware ignores the low 13 bits. */
static __device__ __forceinline__ uint32_t tf32_rounded(float v)
{
    return __float_as_uint(v) + 0x1000u;
}

/* A sample's weights on an axis, times `factor`, to the rows from `base` on of a column of `stride`; those from
 * `before` on are cleared. ROUND: to TF32. */
template <int TERMS, bool ROUND>
static __device__ __forceinline__ void put_column(const struct kernel_pairs &kernel, int width, float above,
                                                  float factor, float *column, int stride, int before, int base)
{
    const float s = 2.f * above - (float)(width - 1), q = s * s;
    float *cleared = column + before * stride, *low = column + base * stride, *high = low + (width - 1) * stride;
    for (int j = 0; j < width; j++)
        cleared[j * stride] = 0.f;
#pragma unroll
    for (int j = 0; j < KERNEL_PAIRS; j++) {
        if (2 * j >= width)
            break;
        float even = kernel.even[j][TERMS - 1], odd = kernel.odd[j][TERMS - 1];
#pragma unroll
        for (int i = TERMS - 2; i >= 0; i--) {
            even = fmaf(even, q, kernel.even[j][i]);
            odd = fmaf(odd, q, kernel.odd[j][i]);
        }
        float near = fmaf(s, odd, even) * factor, far = fmaf(-s, odd, even) * factor;
        if (j == 0 && s >= 1.f)
            near = 0.f; /* the kernel's edge itself is outside, as in interpolation */
        low[j * stride] = ROUND ? __uint_as_float(tf32_rounded(near)) : near;
        if (j != width - 1 - j)
            high[-j * stride] = ROUND ? __uint_as_float(tf32_rounded(far)) : far;
    }
}

/* A block's work: sorted samples [first, last), the bin's first cells, and, in shared memory, what the data are
 * multiplied by: 1, or TF32_RAISE. */
struct plane_task {
    uint32_t first, last;
    int x, y;
    const float *raise;
};

static __device__ __forceinline__ struct plane_task plane_task_of(const struct plane_args &a,
                                                                  const struct range_task &of, const float *raise)
{
    int place[3];
    range_bin_place(&a.geometry, of.bin, place);
    return plane_task{of.first, of.last, axis_first(a.geometry.axis[0], place[0]),
                      axis_first(a.geometry.axis[1], place[1]), raise};
}

/* The sample that a thread stages next: its position, and the caller's index of the one after it. */
struct plane_sample {
    struct range_point_gpu point;
    float weight;
    uint32_t source;
};

/* Warps that share the staged samples, each for its own transforms. A thread stages sample s; if there are twice as
 * many threads as samples, the first half does x and the second y. */
template <bool SPLIT, int WARPS, int EACH> struct plane_team {
    static constexpr int threads = 32 * WARPS, samples = WARPS == 1 ? 32 : 64, transforms = WARPS * EACH;
    static constexpr int stride = samples + 16, shares = threads / samples;
    using stage = plane_stage<samples, transforms>;

    static __device__ __forceinline__ int thread()
    {
        return (int)threadIdx.x % threads;
    }

    static __device__ __forceinline__ void load_sample(const struct plane_args &a, const struct plane_task &task,
                                                       uint32_t at, uint32_t step, struct plane_sample *sample)
    {
        const uint32_t i = at + thread() % samples;
        if (i < task.last) {
            *(float4 *)&sample->point = __ldg((const float4 *)(a.points + i));
            sample->weight = a.weights ? a.weights[i] * *task.raise : *task.raise;
        }
        if (i + step < task.last)
            sample->source = a.order[i + step];
    }

    /* Start copying the values of the samples from `at` on; missing samples and transforms are zero. Whole groups of
     * transforms take one pointer and a step: 8 copies in 35 instructions instead of 305. */
    static __device__ __forceinline__ void begin_values(const struct plane_args &a, const struct plane_task &task,
                                                        uint32_t at, uint32_t source, float2 (&to)[transforms][samples])
    {
        const int s = thread() % samples, share = thread() / samples, first = blockIdx.y * transforms;
        const bool exists = at + s < task.last;
        const float2 *from = a.data + (size_t)(first + share) * a.samples + source;
        const size_t step = shares * a.samples;
        if (exists && first + transforms <= a.transforms) {
#pragma unroll
            for (int t = 0; t < transforms; t += shares, from += step)
                __pipeline_memcpy_async(&to[share + t][s], from, sizeof(float2));
        } else {
#pragma unroll 1
            for (int t = share; t < transforms; t += shares, from += step) {
                if (exists && first + t < a.transforms)
                    __pipeline_memcpy_async(&to[t][s], from, sizeof(float2));
                else
                    to[t][s] = make_float2(0.f, 0.f);
            }
        }
    }

    /* `before`: position of the thread's last sample, on x and y. */
    static __device__ __forceinline__ void put_weights(const struct plane_args &a, const struct plane_task &task,
                                                       uint32_t at, const struct plane_sample &sample, stage &to,
                                                       int (&before)[2])
    {
        constexpr int terms = SPLIT ? 4 : 3;
        const int s = thread() % samples, share = thread() / samples;
        const int x = (int)(sample.point.base & 0xffff) - task.x, y = (int)(sample.point.base >> 16) - task.y;
        if (at + s >= task.last)
            return; /* its values are zero */
        if (shares == 1 || share == 0)
            put_column<terms, !SPLIT>(a.kernel, a.geometry.width, sample.point.x, 1.f, &to.weight[0][0][s], stride,
                                      before[0], x);
        if (shares == 1 || share == 1)
            put_column<terms, false>(a.kernel, a.geometry.width, sample.point.y, sample.weight, &to.weight[1][0][s],
                                     stride, before[1], y);
        before[0] = x;
        before[1] = y;
    }

    static __device__ __forceinline__ void clear_weights(stage &to)
    {
        float4 *all = (float4 *)to.weight;
        for (int i = thread(); i < (int)(sizeof to.weight / sizeof *all); i += threads)
            all[i] = make_float4(0.f, 0.f, 0.f, 0.f);
    }
};

/* Two numbers rounded to BF16 (8 bits, float32's exponents: data of any scale), `first` in the lower half. */
static __device__ __forceinline__ uint32_t bf16_pair(float first, float second)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

/* D += A B of 16 samples, BF16 operands, float32 sums; rows and columns are those of mma_tf32(). A lane's pairs are
 * samples 4 t, 4 t + 1 in a[0], a[1], b0 and 4 t + 2, 4 t + 3 in a[2], a[3], b1; the summands' order is free. */
static __device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Weights along x of a lane's four samples, for both halves of the brick's columns; SPLIT: their TF32 remainders and
 * the weights themselves in BF16, for the products with a remainder. */
template <bool SPLIT> struct plane_right {
    uint32_t high[2][4], low[SPLIT ? 2 : 1][2], whole[SPLIT ? 2 : 1][2];

    __device__ __forceinline__ plane_right(const float4 (&x)[2])
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float w[4] = {x[h].x, x[h].y, x[h].z, x[h].w};
#pragma unroll
            for (int k = 0; k < 4; k++)
                high[h][k] = SPLIT ? tf32_high(w[k]) : __float_as_uint(w[k]);
            if constexpr (SPLIT) {
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    const int one = 2 * k, two = one + 1;
                    whole[h][k] = bf16_pair(w[one], w[two]);
                    low[h][k] =
                        bf16_pair(w[one] - __uint_as_float(high[h][one]), w[two] - __uint_as_float(high[h][two]));
                }
            }
        }
    }
};

/* Add a transform's values of a lane's four samples to one half of the brick's rows. SPLIT: products with a remainder
 * are 2^-10 of the others, so that 8 bits are enough (brick2d_error()), and 16 instructions do for a transform and
 * group, not 24: d at 1e-5 takes 5 % less, r8 5 to 6 % (one H200, 2026-11-28). */
template <bool SPLIT>
static __device__ __forceinline__ void add_rows(const float4 &y, const float4 (&value)[2],
                                                const struct plane_right<SPLIT> &right, float (&sum)[2][4])
{
    const float v[8] = {value[0].x * y.x, value[0].y * y.x, value[0].z * y.y, value[0].w * y.y,
                        value[1].x * y.z, value[1].y * y.z, value[1].z * y.w, value[1].w * y.w};
    if constexpr (!SPLIT) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint32_t left[4] = {tf32_rounded(v[4 * k]), tf32_rounded(v[4 * k + 1]), tf32_rounded(v[4 * k + 2]),
                                      tf32_rounded(v[4 * k + 3])};
            mma_tf32(sum[0], left, right.high[0][2 * k], right.high[0][2 * k + 1]);
            mma_tf32(sum[1], left, right.high[1][2 * k], right.high[1][2 * k + 1]);
        }
    } else {
        float part[2][4] = {};
        uint32_t high[8], whole[4], low[4];
#pragma unroll
        for (int i = 0; i < 8; i++)
            high[i] = tf32_high(v[i]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int one = 4 * (i / 2) + i % 2, two = one + 2;
            whole[i] = bf16_pair(v[one], v[two]);
            low[i] = bf16_pair(v[one] - __uint_as_float(high[one]), v[two] - __uint_as_float(high[two]));
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            mma_bf16(part[h], low, right.whole[h][0], right.whole[h][1]);
#pragma unroll
        for (int h = 0; h < 2; h++)
            mma_bf16(part[h], whole, right.low[h][0], right.low[h][1]);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint32_t left[4] = {high[4 * k], high[4 * k + 1], high[4 * k + 2], high[4 * k + 3]};
#pragma unroll
            for (int h = 0; h < 2; h++)
                mma_tf32(part[h], left, right.high[h][2 * k], right.high[h][2 * k + 1]);
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[h][k] += part[h][k];
    }
}

/* Add `count` staged samples of EACH transforms: sum[transform][half of y][half of x]. */
template <bool SPLIT, int EACH, int SAMPLES, int TRANSFORMS>
static __device__ __forceinline__ void add_samples(const struct plane_stage<SAMPLES, TRANSFORMS> &stage, int buffer,
                                                   int transform, uint32_t count, float (&sum)[EACH][2][2][4])
{
    const int g = threadIdx.x >> 2 & 7, t = threadIdx.x & 3;
#pragma unroll 1
    for (uint32_t s = 4 * t; s < count + 4 * t; s += PLANE_GROUP) {
        const float4 x[2] = {*(const float4 *)&stage.weight[0][g][s], *(const float4 *)&stage.weight[0][g + 8][s]};
        const float4 y[2] = {*(const float4 *)&stage.weight[1][g][s], *(const float4 *)&stage.weight[1][g + 8][s]};
        const struct plane_right<SPLIT> right(x);
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            const float4 *from = (const float4 *)&stage.value[buffer][transform + c][s];
            const float4 value[2] = {from[0], from[1]};
            add_rows<SPLIT>(y[0], value, right, sum[c][0]);
            add_rows<SPLIT>(y[1], value, right, sum[c][1]);
        }
    }
}

/* Store a lane's cells of a transform's brick: 4 g + t holds cells 2 t and 2 t + 1 of row g of each quarter. */
static __device__ __forceinline__ float4 *brick_of(const struct plane_args &a, int transform)
{
    const int g = threadIdx.x >> 2 & 7, t = threadIdx.x & 3;
    return a.bricks + transform * a.step + (size_t)blockIdx.x * BRICK_PAIRS + g * (PLANE_EDGE / 2) + t;
}

static __device__ __forceinline__ int quarter_place(int y, int x)
{
    return y * (BRICK_PAIRS / 2) + x * (PLANE_EDGE / 4);
}

/* Store the bricks of those transforms whose bit in `which` is set; their sums are first multiplied by `gain`. Returns
 * the bits of those that are faint. */
template <int EACH>
static __device__ __forceinline__ uint32_t store_bricks(const struct plane_args &a, int transform, float gain,
                                                        uint32_t which, const float (&sum)[EACH][2][2][4])
{
    uint32_t faint = 0;
#pragma unroll
    for (int c = 0; c < EACH; c++) {
        float most = 0.f;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const float *v = sum[c][q / 2][q % 2];
            most = fmaxf(most, fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))));
            if (which >> c & 1 && transform + c < a.transforms)
                __stcs(brick_of(a, transform + c) + quarter_place(q / 2, q % 2),
                       make_float4(v[0] * gain, v[2] * gain, v[1] * gain, v[3] * gain));
        }
        faint |= (uint32_t)tf32_is_faint(most) << c;
    }
    return faint;
}

/* The same for four warps that have summed the same transforms: each adds up and stores a quarter, in order. shared:
 * [warp][EACH][quarter][lane]. */
template <int EACH>
static __device__ __forceinline__ uint32_t store_together(const struct plane_args &a, int transform, float gain,
                                                          uint32_t which, const float (&sum)[EACH][2][2][4],
                                                          float4 *shared)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t faint = 0;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4 * EACH; i++) {
        const float *v = sum[i / 4][i / 2 % 2][i % 2];
        shared[(warp * 4 * EACH + i) * 32 + lane] = make_float4(v[0], v[2], v[1], v[3]);
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < EACH; c++) {
        float4 all = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
        for (int w = 0; w < 4; w++)
            add_pair(all, shared[((w * EACH + c) * 4 + warp) * 32 + lane]);
        if (which >> c & 1 && transform + c < a.transforms)
            brick_of(a, transform + c)[quarter_place(warp / 2, warp % 2)] =
                make_float4(all.x * gain, all.y * gain, all.z * gain, all.w * gain);
        faint |= (uint32_t)tf32_is_faint(fmaxf(fmaxf(fabsf(all.x), fabsf(all.y)), fmaxf(fabsf(all.z), fabsf(all.w))))
                 << c;
    }
    return faint;
}

/* Add a team's samples of a task, `step` apart from `at` on, of EACH transforms from the team's `transform` on. */
template <bool SPLIT, int WARPS, int EACH>
static __device__ __forceinline__ void
sum_task(const struct plane_args &a, const struct plane_task &task, uint32_t at, uint32_t step, int transform,
         typename plane_team<SPLIT, WARPS, EACH>::stage &stage, float (&sum)[EACH][2][2][4])
{
    using team = plane_team<SPLIT, WARPS, EACH>;
    struct plane_sample sample = {{0, 0, 0, 0}, 1.f, 0};
    int before[2] = {0, 0}, buffer = 0;
    const uint32_t first = at + team::thread() % team::samples;
    const uint32_t source = first < task.last ? a.order[first] : 0;
    team::load_sample(a, task, at, step, &sample);
    team::clear_weights(stage);
    team::begin_values(a, task, at, source, stage.value[0]);
    __pipeline_commit();
    wait_for_team<WARPS>();
    for (; at < task.last; at += step, buffer ^= 1) {
        const bool more = at + step < task.last;
        team::put_weights(a, task, at, sample, stage, before);
        if (more)
            team::begin_values(a, task, at + step, sample.source, stage.value[buffer ^ 1]);
        __pipeline_commit();
        if (more)
            team::load_sample(a, task, at + step, step, &sample);
        __pipeline_wait_prior(1);
        wait_for_team<WARPS>();
        add_samples<SPLIT, EACH>(stage, buffer, transform, min((uint32_t)team::samples, task.last - at), sum);
        wait_for_team<WARPS>();
    }
}

/* Blocks of 128 (tasks, groups of transforms): one team of four warps, or four teams of one that process samples
 * alternately. A warp holds the bricks of EACH transforms. 18 to 32 KB of shared memory. */
template <bool SPLIT, int WARPS, int EACH>
static __global__ void __launch_bounds__(128, EACH == 4 ? 4 : 5) sum_planes(const __grid_constant__ struct plane_args a)
{
    using team = plane_team<SPLIT, WARPS, EACH>;
    constexpr int teams = 4 / WARPS;
    __shared__ __align__(16) typename team::stage stages[teams];
    static_assert(teams == 1 || sizeof stages >= 4 * 4 * EACH * 32 * sizeof(float4));
    __shared__ uint32_t which[4]; /* of a warp: the bits of the transforms that it stores */
    __shared__ float raise;
    const uint32_t number = blockIdx.x, mine = threadIdx.x / team::threads;
    const struct range_task of = number < a.part_count ? a.parts[number] : a.tasks[number - a.part_count];
    if (of.parts > 0)
        return; /* a heavy bin's parts are tasks of their own */
    const struct plane_task task = plane_task_of(a, of, &raise);
    const int transform = WARPS == 1 ? 0 : (int)threadIdx.x / 32 * EACH; /* of the team's */
    const int first = (int)blockIdx.y * team::transforms + transform;
    raise = 1.f;
    which[threadIdx.x / 32] = ~0u;
    __syncthreads();
#pragma unroll 1
    for (bool faint = true; faint;) {
        float sum[EACH][2][2][4] = {};
        sum_task<SPLIT, WARPS, EACH>(a, task, task.first + mine * team::samples, teams * team::samples, transform,
                                     stages[mine], sum);
        uint32_t &stored = which[threadIdx.x / 32], again;
        const float gain = raise == 1.f ? 1.f : 1.f / TF32_RAISE;
        if constexpr (teams == 1)
            again = store_bricks<EACH>(a, first, gain, stored, sum);
        else
            again = store_together<EACH>(a, first, gain, stored, sum, (float4 *)stages);
        faint = __syncthreads_or(gain == 1.f && again != 0);
        stored = again;
        raise = TF32_RAISE;
        __syncthreads();
    }
}

/* ---- the method ---- */

/* Grids have even sizes. Bins do, too: bricks are read in pairs along x, and samples by squares, of which odd bins
 * leave more empty. But adjoint plans with three products have the longest bins along y that a brick allows: 9 cells,
 * not 8 (d at 1e-5 2.02 to 1.98 ms, 16 coils 0.157 to 0.151, r8 +-1 %; one H200, 2026-11-28). */
struct range_axis nufft_gpu_brick2d_axis(const struct nufft_shape *shape, bool split, int d)
{
    const int cells = shape->grid[d], most = PLANE_EDGE + 1 - shape->width, pairs = most / 2;
    if (d == 1 && split && shape->purpose == NUFFT_FOR_ADJOINT)
        return range_axis_make(cells, most);
    return range_axis{cells, (cells / 2 + pairs - 1) / pairs, 1};
}

template <bool SPLIT, int WARPS, int EACH>
static void launch_sum(const struct plane_args *a, unsigned tasks, cudaStream_t stream)
{
    dim3 blocks(tasks, gpu_blocks((size_t)a->transforms, WARPS * EACH));
    sum_planes<SPLIT, WARPS, EACH><<<blocks, 128, 0, stream>>>(*a);
}

/* Depends on the plan's batch, not the call's, so that a transform's bits do not depend on the number of transforms in
 * a call. */
template <bool SPLIT>
static void launch_sums(const struct plane_args *a, int batch, unsigned tasks, cudaStream_t stream)
{
    if (batch == 1)
        launch_sum<SPLIT, 1, 1>(a, tasks, stream);
    else if (batch == 2)
        launch_sum<SPLIT, 1, 2>(a, tasks, stream);
    else if (batch <= 4)
        launch_sum<SPLIT, 1, 4>(a, tasks, stream);
    else if (batch <= 8)
        launch_sum<SPLIT, 4, 2>(a, tasks, stream);
    else
        launch_sum<SPLIT, 4, 4>(a, tasks, stream);
}

size_t nufft_gpu_brick2d_cells(const struct nufft_gpu *plan)
{
    return ((size_t)plan->bins.slots + plan->bins.occupied) * 2 * BRICK_PAIRS;
}

int nufft_gpu_sum_brick2d(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights)
{
    const struct range_bins_gpu *bins = &plan->bins;
    struct plane_args a = {};
    unsigned tasks = bins->slots + bins->occupied;
    a.geometry = bins->geometry;
    a.parts = bins->parts;
    a.tasks = bins->tasks;
    a.part_count = bins->slots;
    a.points = bins->points;
    a.order = bins->order;
    a.weights = weights;
    a.data = (const float2 *)data;
    a.samples = plan->samples;
    a.bricks = (float4 *)plan->partial;
    a.step = nufft_gpu_brick2d_cells(plan) / 2;
    a.kernel = plan->pairs;
    a.transforms = transforms;
    if (tasks == 0)
        return 0;
    (plan->split ? launch_sums<true> : launch_sums<false>)(&a, plan->shape.batch, tasks, plan->gpu->stream);
    return gpu_launched("Gridding");
}
