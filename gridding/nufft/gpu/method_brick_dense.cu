/* brick_dense: sums 3-D samples into the grid on tensor cores, separable kernels 5 to 8 cells wide, if there are
 * several samples per grid cell.
 *
 * A warp holds a brick of 8 x 8 x 16 grid cells in registers, so that a bin is 9 - width cells along x and y: the part
 * of the brick that a sample does not reach is an eighth (width 7), but four fifths of a 16^3 brick. For 16 samples s
 * at a time and the z planes that they reach, with y and real/imaginary part as rows and x as columns:
 *   brick[z][(y, part)][x] += sum_s (data_s wy_s(y))[(y, part)][s] (wx_s(x) wz_s(z))[s][x]
 * Samples come sorted by z cell, and where they are dense, all 16 lie in one: planes are summed in runs of `width`.
 *
 * There are many such bins, and they overlap many times, so they are not added to the grid one after the other: each
 * sum is stored in a brick of a workspace, and then each cell of the grid adds up the bricks that contain it (dense.h).
 * Data are read in the caller's order, without sorting or a search for the maximum: a warp scales by the largest value
 * so far, and rescales its sums when a larger one comes.
 */
#include "gridding/nufft/gpu/split_half.cuh"
#include "gridding/range/dense.h"

#include <algorithm>

enum {
    DENSE_GROUP = 16, /* samples of one product */
    DENSE_GROUPS = 2,
    DENSE_CHUNK = DENSE_GROUP * DENSE_GROUPS, /* a lane stages a sample */
    DENSE_X = 0,                              /* rows of weights: of x, y and z */
    DENSE_Y = DENSE_SIDE,
    DENSE_Z = 2 * DENSE_SIDE,
    DENSE_ROWS = 2 * DENSE_SIDE + DENSE_PLANES,
    BRICK_CELLS = DENSE_PLANES * DENSE_SIDE * DENSE_SIDE,
    BRICK_VECTORS = BRICK_CELLS / 2,
    DENSE_WARPS = 16,  /* of a multiprocessor */
    LINES_AT_ONCE = 4, /* lists of bricks whose loads a thread overlaps */
};

struct dense_args {
    const struct range_task *parts, *tasks; /* parts of heavy bins, then bins */
    uint32_t part_count, count;             /* count: of both */
    uint32_t *ticket;                       /* number of started tasks, apart from the warps' first ones */
    const struct range_point_gpu *points;
    const uint32_t *order;
    const float *weights;       /* sorted, or NULL */
    const float2 *data;         /* in the caller's order */
    float4 *bricks;             /* [count][DENSE_PLANES][DENSE_SIDE][DENSE_SIDE] cells: task i's */
    struct kernel_pairs kernel; /* times 2^WEIGHT_BITS */
};

/* A warp's staged samples: sample 4 t + i of a group is number i of four. */
template <bool SPLIT> struct dense_stage {
    four_halves<SPLIT> weights[DENSE_GROUPS][DENSE_ROWS][4]; /* [group][row][t] */
    four_halves<SPLIT> values[DENSE_GROUPS][4][2];           /* [group][t][real, imaginary] */
};

/* A warp's sums, times the power of two by which the data are scaled. */
struct dense_sum {
    float plane[DENSE_PLANES][4];
    uint32_t exponent;
};

/* A group's operands, except the weights along z. */
template <bool SPLIT> struct dense_group {
    four_halves<SPLIT> x;
    uint4 high, low;                  /* values times weights along y */
    const four_halves<SPLIT> *planes; /* of sample 4 t; the next plane's are four later */
};

/* Stage the lane's sample. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void stage_sample(const struct kernel_pairs &kernel,
                                                    const struct range_point_gpu &point, float2 value, bool there,
                                                    struct dense_stage<SPLIT> &stage)
{
    const int lane = threadIdx.x, s = lane % DENSE_GROUP, row = 4 * sizeof(four_halves<SPLIT>) / sizeof(__half);
    uint4 *clear = (uint4 *)stage.weights;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < (int)(sizeof stage.weights / sizeof(uint4) / 32); k++)
        clear[32 * k + lane] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    __half *to = (__half *)&stage.weights[lane / DENSE_GROUP][0][s >> 2] + (s & 3);
    if (there) {
        put_weights<W, SPLIT>(kernel, point.x, to + (DENSE_X + (point.base & 255)) * row);
        put_weights<W, SPLIT>(kernel, point.y, to + (DENSE_Y + (point.base >> 8 & 255)) * row);
        put_weights<W, SPLIT>(kernel, point.z, to + (DENSE_Z + (point.base >> 16)) * row);
    }
    four_halves<SPLIT> *values = stage.values[lane / DENSE_GROUP][s >> 2];
    put<SPLIT>((__half *)&values[0] + (s & 3), value.x);
    put<SPLIT>((__half *)&values[1] + (s & 3), value.y);
    __syncwarp();
}

/* Scale the lane's value, and rescale the sums if necessary. Missing samples are zero. */
static __device__ __forceinline__ float2 scale_value(float2 value, struct dense_sum &sum)
{
    uint32_t largest = __reduce_max_sync(~0u, max(__float_as_uint(fabsf(value.x)), __float_as_uint(fabsf(value.y))));
    uint32_t exponent = value_exponent(largest);
    if (exponent < sum.exponent) {
        float change = __uint_as_float((uint32_t)max(0, 127 + (int)exponent - (int)sum.exponent) << 23);
#pragma unroll
        for (int p = 0; p < DENSE_PLANES; p++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum.plane[p][k] *= change;
        sum.exponent = exponent;
    }
    const float scale = __uint_as_float(sum.exponent << 23);
    return make_float2(value.x * scale, value.y * scale);
}

template <bool SPLIT>
static __device__ __forceinline__ struct dense_group<SPLIT> group_of(const struct dense_stage<SPLIT> &stage,
                                                                     int group) {
    const int g = threadIdx.x >> 2, t = threadIdx.x & 3;
    const four_halves<SPLIT> value[2] = {stage.values[group][t][0], stage.values[group][t][1]};
    const four_halves<SPLIT> y = stage.weights[group][DENSE_Y + g][t];
    union {
        __half2 half[4];
        uint4 bits;
    } high, low = {};
#pragma unroll
    for (int k = 0; k < 4; k++)
        multiply<SPLIT>(value[k & 1], y, k >> 1, &high.half[k], &low.half[k]);
    return dense_group<SPLIT>{stage.weights[group][DENSE_X + g][t], high.bits, low.bits,
                              &stage.weights[group][DENSE_Z][t]};
}

/* Add N planes of a group, from plane P on. If the samples are in one z cell, the kernel is below a hundredth (W = 7)
 * to a tenth (W = 5) of its peak at the first and the last plane: there, products with a low half are left out
 * (`ends`). The tensor cores truncate their sums, so an accumulator has only the three products of one group, and is
 * added to the others in float32, which costs nothing here (with 16^3 bricks a tenth of the time, with brick2d a
 * seventh). */
template <bool SPLIT, int P, int N, bool ENDS>
static __device__ __forceinline__ void add_planes(const struct dense_group<SPLIT> &group, float (&sum)[DENSE_PLANES][4])
{
    [[maybe_unused]] constexpr int from = ENDS ? 1 : 0, to = ENDS ? N - 1 : N;
    __half2 h[N][2], l[N][2];
#pragma unroll
    for (int n = 0; n < N; n++) {
        const four_halves<SPLIT> z = group.planes[4 * (P + n)];
        multiply<SPLIT>(group.x, z, 0, &h[n][0], &l[n][0]);
        multiply<SPLIT>(group.x, z, 1, &h[n][1], &l[n][1]);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        if constexpr (!SPLIT) {
            mma_half(sum[P + n], group.high, h[n]);
        } else {
            float part[4];
            mma_half_anew(part, group.high, h[n]);
            if (n >= from && n < to) {
                mma_half(part, group.low, h[n]);
                mma_half(part, group.high, l[n]);
            }
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[P + n][k] += part[k];
        }
    }
}

/* A run of W planes whose first is known at run time only, as registers cannot be indexed. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void add_run(const struct dense_group<SPLIT> &group, uint32_t from,
                                               float (&sum)[DENSE_PLANES][4])
{
    switch (from) {
#define RUN(P)                                         \
    case P:                                            \
        if constexpr (P + W <= DENSE_PLANES)           \
            add_planes<SPLIT, P, W, true>(group, sum); \
        break;
        RUN(0)
        RUN(1)
        RUN(2)
        RUN(3)
        RUN(4)
        RUN(5)
        RUN(6)
        RUN(7)
        RUN(8)
        RUN(9)
        RUN(10)
        RUN(11)
#undef RUN
    }
}

/* Planes [from, to), each behind a branch. */
template <bool SPLIT, int P = 0>
static __device__ __forceinline__ void add_each(const struct dense_group<SPLIT> &group, uint32_t from, uint32_t to,
                                                float (&sum)[DENSE_PLANES][4])
{
    if (P >= from && P < to)
        add_planes<SPLIT, P, 1, false>(group, sum);
    if constexpr (P + 1 < DENSE_PLANES)
        add_each<SPLIT, P + 1>(group, from, to, sum);
}

/* Store the lane's cells of a brick, or add them to it, and clear them. */
static __device__ __forceinline__ void store_brick(float4 *to, bool add, struct dense_sum &sum)
{
    const float gain = unscaled(sum.exponent);
#pragma unroll
    for (int p = 0; p < DENSE_PLANES; p++) {
        float *s = sum.plane[p];
        float4 old = make_float4(0.f, 0.f, 0.f, 0.f);
        if (add)
            old = to[p * 32];
        to[p * 32] = make_float4(fmaf(s[0], gain, old.x), fmaf(s[2], gain, old.y), fmaf(s[1], gain, old.z),
                                 fmaf(s[3], gain, old.w));
#pragma unroll
        for (int k = 0; k < 4; k++)
            s[k] = 0.f;
    }
    sum.exponent = EXPONENT_MOST;
}

/* Add `count` staged samples, whose z cells are in the lanes. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void add_chunk(const struct dense_stage<SPLIT> &stage, uint32_t z, uint32_t count,
                                                 float (&sum)[DENSE_PLANES][4])
{
#pragma unroll 1
    for (uint32_t first = 0; first < count; first += DENSE_GROUP) {
        const uint32_t from = __shfl_sync(~0u, z, first),
                       top = __shfl_sync(~0u, z, min(first + DENSE_GROUP, count) - 1);
        const struct dense_group<SPLIT> group = group_of<SPLIT>(stage, first / DENSE_GROUP);
        if (from == top)
            add_run<W, SPLIT>(group, from, sum);
        else
            add_each<SPLIT>(group, from, top + W, sum);
    }
}

/* Sum a task into its brick. `sum` is zero before and after. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void sum_task(const struct dense_args &a, const struct range_task &task,
                                                float4 *brick, struct dense_stage<SPLIT> &stage, struct dense_sum &sum)
{
    const uint32_t lane = threadIdx.x, last = task.last;
    struct range_point_gpu point = {0, 0, 0, 0};
    float2 value = make_float2(0.f, 0.f);
    float weight = 1.f;
    uint32_t source = 0, i = task.first + lane;
    if (i < last) {
        point = a.points[i];
        value = __ldcs(a.data + a.order[i]);
        if (a.weights)
            weight = a.weights[i];
    }
    if (i + DENSE_CHUNK < last)
        source = a.order[i + DENSE_CHUNK];
#pragma unroll 1
    for (uint32_t at = task.first; at < last; at += DENSE_CHUNK, i += DENSE_CHUNK) {
        const bool there = i < last;
        value = there ? make_float2(value.x * weight, value.y * weight) : make_float2(0.f, 0.f);
        stage_sample<W, SPLIT>(a.kernel, point, scale_value(value, sum), there, stage);
        const uint32_t z = point.base >> 16, chunk = min((uint32_t)DENSE_CHUNK, last - at);
        if (i + DENSE_CHUNK < last) {
            point = a.points[i + DENSE_CHUNK];
            value = __ldcs(a.data + source);
            if (a.weights)
                weight = a.weights[i + DENSE_CHUNK];
        }
        if (i + 2 * DENSE_CHUNK < last)
            source = a.order[i + 2 * DENSE_CHUNK];
        add_chunk<W, SPLIT>(stage, z, chunk, sum.plane);
        const uint32_t done = at + DENSE_CHUNK - task.first;
        if (done % SPLIT_SAMPLES_MOST == 0 || at + DENSE_CHUNK >= last)
            store_brick(brick, done > SPLIT_SAMPLES_MOST, sum);
    }
}

/* Blocks of one warp, as many as fit on the device; each processes tasks one after the other. 4.4 KB of shared memory,
 * or half of that. */
template <int W, bool SPLIT>
static __global__ void __launch_bounds__(32, DENSE_WARPS) sum_dense(const __grid_constant__ struct dense_args a)
{
    __shared__ __align__(16) struct dense_stage<SPLIT> stage;
    struct dense_sum sum = {{}, EXPONENT_MOST};
    for (uint32_t number = blockIdx.x, next; number < a.count; number = next) {
        if (threadIdx.x == 0)
            next = gridDim.x + atomicAdd(a.ticket, 1u);
        const struct range_task task = number < a.part_count ? a.parts[number] : a.tasks[number - a.part_count];
        if (task.parts == 0) /* a heavy bin's parts are tasks of their own */
            sum_task<W, SPLIT>(a, task, a.bricks + (size_t)number * BRICK_VECTORS + threadIdx.x, stage, sum);
        next = __shfl_sync(~0u, next, 0);
    }
}

/* ---- bricks to the grid ---- */

struct dense_grid_args {
    struct range_geometry geometry;
    const struct brick_list *of_bin; /* [bins] */
    const float2 *bricks;
    float2 *grid;
};

/* Add the values of a cell, at `at` of its bin on x, from the lists of `count` lines of bricks; the loads of several
 * lists overlap. */
static __device__ __forceinline__ void add_lines(const struct dense_grid_args &a, const struct dense_line *lines,
                                                 int count, const struct dense_reach &at, float2 &sum)
{
    for (int first = 0; first < count; first += LINES_AT_ONCE) {
        struct brick_list held[LINES_AT_ONCE];
        const float2 *from[LINES_AT_ONCE];
        float2 value[LINES_AT_ONCE];
#pragma unroll
        for (int i = 0; i < LINES_AT_ONCE; i++) {
            held[i] = brick_list{0, 0};
            if (first + i < count)
                held[i] = a.of_bin[lines[first + i].bin + (uint32_t)at.bin];
        }
#pragma unroll
        for (int i = 0; i < LINES_AT_ONCE; i++) {
            value[i] = make_float2(0.f, 0.f);
            from[i] = a.bricks + (size_t)held[i].first * BRICK_CELLS + at.offset;
            if (held[i].count > 0) {
                from[i] += lines[first + i].cell;
                value[i] = *from[i];
            }
        }
#pragma unroll
        for (int i = 0; i < LINES_AT_ONCE; i++) {
            sum = make_float2(sum.x + value[i].x, sum.y + value[i].y);
#pragma unroll 4
            for (uint32_t p = 1; p < held[i].count; p++) {
                const float2 more = from[i][(size_t)p * BRICK_CELLS];
                sum = make_float2(sum.x + more.x, sum.y + more.y);
            }
        }
    }
}

/* Blocks of 128, one per line of cells along x (y, z); a thread owns every 128th cell. */
static __global__ void __launch_bounds__(128) sum_to_grid(const __grid_constant__ struct dense_grid_args a)
{
    __shared__ struct dense_line lines[DENSE_LINES_MOST];
    __shared__ int count;
    const struct range_axis axis = a.geometry.axis[0];
    const int reach = a.geometry.width - 1;
    if (threadIdx.x == 0)
        count = dense_lines(&a.geometry, blockIdx.x, blockIdx.y, lines);
    __syncthreads();
    for (int x = threadIdx.x; x < axis.cells; x += blockDim.x) {
        float2 sum = make_float2(0.f, 0.f);
        struct dense_reach at = dense_first(axis, x);
        do {
            add_lines(a, lines, count, at, sum);
        } while (dense_next(axis, reach, &at));
        a.grid[((size_t)blockIdx.y * a.geometry.axis[1].cells + blockIdx.x) * axis.cells + x] = sum;
    }
}

/* Blocks of 256; a thread owns one occupied bin. */
static __global__ void list_bricks(uint32_t count, uint32_t parts, const struct range_task *tasks,
                                   struct brick_list *of_bin)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        of_bin[tasks[i].bin] = tasks[i].parts ? brick_list{tasks[i].slot, tasks[i].parts} : brick_list{parts + i, 1};
}

int nufft_gpu_brick_dense_make(struct nufft_gpu *plan)
{
    const struct range_bins_gpu *bins = &plan->bins;
    struct gpu *gpu = plan->gpu;
    size_t available, total, cells = ((size_t)bins->slots + bins->occupied) * BRICK_CELLS;
    size_t wanted = (cells + plan->cells) * sizeof(struct c32) + bins->count * sizeof *plan->bricks;
    int rc = gpu_available(gpu, &available, &total);
    if (rc)
        return rc;
    if (wanted > available)
        return nufft_gpu_no_room(plan, wanted, available);
    plan->bytes += wanted;
    plan->group = plan->together = 1;
    rc = gpu_array(gpu, cells, &plan->partial, "Partial sums");
    if (!rc)
        rc = gpu_array(gpu, plan->cells, &plan->grid, "The grid");
    if (!rc)
        rc = gpu_array(gpu, bins->count, &plan->bricks, "The list of bricks");
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(plan->bricks, 0, bins->count * sizeof *plan->bricks, gpu->stream),
                       "Listing bricks");
    if (rc || bins->occupied == 0)
        return rc;
    list_bricks<<<gpu_blocks(bins->occupied, 256), 256, 0, gpu->stream>>>(bins->occupied, bins->slots, bins->tasks,
                                                                          plan->bricks);
    return gpu_launched("Listing bricks");
}

template <int W> static void (*kernel_of(bool split))(struct dense_args)
{
    return split ? sum_dense<W, true> : sum_dense<W, false>;
}

int nufft_gpu_brick_dense_to_grid(struct nufft_gpu *plan, int, const struct c32 *data, const float *weights)
{
    struct range_bins_gpu *bins = &plan->bins;
    struct dense_args a = {};
    const struct dense_grid_args to = {bins->geometry, plan->bricks, (const float2 *)plan->partial,
                                       (float2 *)plan->grid};
    void (*const kernels[])(struct dense_args) = {kernel_of<5>(plan->split), kernel_of<6>(plan->split),
                                                  kernel_of<7>(plan->split), kernel_of<8>(plan->split)};
    int rc = range_tickets(bins, plan->gpu);
    a.parts = bins->parts;
    a.tasks = bins->tasks;
    a.part_count = bins->slots;
    a.count = bins->slots + bins->occupied;
    a.ticket = bins->ticket;
    a.points = bins->points;
    a.order = bins->order;
    a.weights = weights;
    a.data = (const float2 *)data;
    a.bricks = (float4 *)plan->partial;
    a.kernel = scaled_pairs(plan->pairs);
    if (!rc && a.count > 0) {
        unsigned room = (unsigned)plan->gpu->multiprocessors * DENSE_WARPS;
        kernels[plan->shape.width - 5]<<<std::min(a.count, room), 32, 0, plan->gpu->stream>>>(a);
        rc = gpu_launched("Gridding");
    }
    if (rc)
        return rc;
    sum_to_grid<<<dim3((unsigned)plan->shape.grid[1], (unsigned)plan->shape.grid[2]), 128, 0, plan->gpu->stream>>>(to);
    return gpu_launched("Adding up the grid");
}
