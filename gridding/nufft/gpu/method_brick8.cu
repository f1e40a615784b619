/* brick8: sums 3-D samples into slots of the grid on tensor cores.
 *
 * For 8 samples s at a time and every z plane that they reach, with y and real/imaginary part as rows and x as columns:
 *   brick[z][(y, part)][x] += sum_s (data_s wy_s(y))[(y, part)][s] (wx_s(x) wz_s(z))[s][x]
 * one 16 x 8 x 8 product each; several transforms share the second factor. Planes that none of the eight samples
 * reaches are skipped; samples are sorted by z cell.
 *
 * A warp sums a run of bins along x. Four of a brick's columns are the bin's own, the other four those that its samples
 * reach in the next bin: when a bin is complete its own columns are stored in its slot, and the two fours swap roles.
 */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>

/* A slot is [BRICK_Z][BRICK_Y][4] cells. */
enum { SLOT_VECTORS = BRICK_Z * BRICK_Y * 2, ROW_Z = 18 };

struct brick_args {
    struct range_geometry geometry;
    const struct range_task *parts;
    const struct range_bin_run *runs;
    struct slot_rows rows;
    const uint32_t *first, *slot, *order;
    const struct range_point_gpu *points;
    const float *weights;
    const float2 *data;
    size_t samples; /* from one transform's data to the next's */
    float4 *slots, *partial;
    size_t slots_step, partial_step; /* from one transform's to the next's */
    struct kernel_pairs kernel;
    float gain;
    uint32_t *ticket; /* number of started tasks, apart from the blocks' first ones */
};

/* Up to 32 samples of one bin of a run. */
struct brick_stage {
    uint32_t from, count, bin;
};

/* `bound`, in lane i, is the start of the run's bin i. */
static __device__ __forceinline__ struct brick_stage next_stage(struct brick_stage s, uint32_t bound, uint32_t bins)
{
    s.from += s.count;
    if (s.from == __shfl_sync(~0u, bound, s.bin + 1))
        s.bin++;
    s.count = min(32u, __shfl_sync(~0u, bound, min(s.bin + 1, bins)) - s.from);
    return s;
}

/* The weights of cell k and its mirror image. */
template <int TERMS>
static __device__ __forceinline__ float2 mirrored(const struct kernel_pairs &kernel, int k, float s, float s2)
{
    float even = kernel.even[k][TERMS - 1], odd = kernel.odd[k][TERMS - 1];
#pragma unroll
    for (int i = TERMS - 2; i >= 0; i--) {
        even = fmaf(even, s2, kernel.even[k][i]);
        odd = fmaf(odd, s2, kernel.odd[k][i]);
    }
    return make_float2(fmaf(s, odd, even), fmaf(-s, odd, even));
}

/* A sample's weights on one axis, zero beyond the width. */
template <int TERMS>
static __device__ __forceinline__ float4 weights_of(const struct kernel_pairs &kernel, int width, float above)
{
    float s = 2.f * above - (float)(width - 1), s2 = s * s;
    float2 outer = mirrored<TERMS>(kernel, 0, s, s2), inner = mirrored<TERMS>(kernel, 1, s, s2);
    outer.x = s < 1.f ? outer.x : 0.f; /* the kernel's edge itself is outside, as in interpolation */
    return make_float4(outer.x, width > 2 ? inner.x : outer.y,
                       width > 3   ? inner.y
                       : width > 2 ? outer.y
                                   : 0.f,
                       width > 3 ? outer.y : 0.f);
}

/* Four weights at positions `shift` (0 .. 3) and up of seven. */
static __device__ __forceinline__ void shift_weights(float4 w, uint32_t shift, float (&v)[7])
{
    const bool one = shift & 1, two = shift & 2;
    const float u[5] = {one ? 0.f : w.x, one ? w.x : w.y, one ? w.y : w.z, one ? w.z : w.w, one ? w.w : 0.f};
#pragma unroll
    for (int i = 0; i < 7; i++)
        v[i] = two ? (i < 2 ? 0.f : u[i - 2]) : (i < 5 ? u[i] : 0.f);
}

/* A warp's 32 samples in shared memory, their weights spread over a brick's columns, rows and planes. Columns and rows
 * are in two halves, 16 banks apart, so that the 32 numbers that a warp reads at a time do not conflict. */
struct brick_samples {
    float x[2][32 * 4 + 16], y[2][32 * 4 + 16];
    float z[32 * ROW_Z];
};

static __device__ __forceinline__ void put_columns(struct brick_samples &to, int lane, float4 w, uint32_t base,
                                                   bool full, bool swapped)
{
    float v[7];
    shift_weights(w, base, v);
    /* Also for a bin of three cells the next bin's columns begin at the fourth. */
    *(float4 *)(to.x[swapped] + lane * 4) = make_float4(v[0], v[1], v[2], full ? v[3] : 0.f);
    *(float4 *)(to.x[!swapped] + lane * 4) =
        full ? make_float4(v[4], v[5], v[6], 0.f) : make_float4(v[3], v[4], v[5], 0.f);
}

static __device__ __forceinline__ void put_rows(struct brick_samples &to, int lane, float4 w, uint32_t base)
{
    const bool four = base & 4;
    const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);
    float v[7];
    shift_weights(w, base & 3, v);
    const float4 low = make_float4(v[0], v[1], v[2], v[3]);
    *(float4 *)(to.y[0] + lane * 4) = four ? zero : low;
    *(float4 *)(to.y[1] + lane * 4) = four ? low : make_float4(v[4], v[5], v[6], 0.f);
}

/* `before`: position of the lane's last sample. */
static __device__ __forceinline__ void put_planes(struct brick_samples &to, int lane, float4 w, uint32_t base,
                                                  uint32_t &before)
{
    const bool odd = base & 1;
    const float2 zero = make_float2(0.f, 0.f);
    float2 *row = (float2 *)(to.z + lane * ROW_Z);
    row[before] = row[before + 1] = row[before + 2] = zero;
    before = base / 2;
    row[before] = make_float2(odd ? 0.f : w.x, odd ? w.x : w.y);
    row[before + 1] = make_float2(odd ? w.y : w.z, odd ? w.z : w.w);
    row[before + 2] = make_float2(odd ? w.w : 0.f, 0.f);
}

/* The left factor, and its TF32 remainder. */
template <bool SPLIT, int TRANSFORMS> struct brick_left {
    uint32_t high[TRANSFORMS][4], low[SPLIT ? TRANSFORMS : 1][4];
};

/* Add eight samples to planes 2 P and 2 P + 1. z: the row of weights of sample t; that of t + 4 is four rows later. */
template <int P, bool SPLIT, int TRANSFORMS>
static __device__ __forceinline__ void add_planes(float (&sum)[TRANSFORMS][BRICK_Z][4],
                                                  const struct brick_left<SPLIT, TRANSFORMS> &left, float wx0,
                                                  float wx1, const float *z)
{
    float2 wz0 = *(const float2 *)(z + 2 * P), wz1 = *(const float2 *)(z + 4 * ROW_Z + 2 * P);
    float v[4] = {wx0 * wz0.x, wx1 * wz1.x, wx0 * wz0.y, wx1 * wz1.y};
    uint32_t high[4], low[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        high[k] = SPLIT ? tf32_high(v[k]) : __float_as_uint(v[k]);
        low[k] = SPLIT ? tf32_low(v[k], high[k]) : 0;
    }
#pragma unroll
    for (int c = 0; c < TRANSFORMS; c++)
#pragma unroll
        for (int p = 0; p < 2; p++) {
            if (SPLIT) {
                mma_tf32(sum[c][2 * P + p], left.low[SPLIT ? c : 0], high[2 * p], high[2 * p + 1]);
                mma_tf32(sum[c][2 * P + p], left.high[c], low[2 * p], low[2 * p + 1]);
            }
            mma_tf32(sum[c][2 * P + p], left.high[c], high[2 * p], high[2 * p + 1]);
        }
}

/* What the warp's data are multiplied by while a task is summed: 1, or TF32_RAISE; and the sums that were stored. In
 * shared memory. */
template <int TRANSFORMS> struct brick_scale {
    float raise;
    bool stored[TRANSFORMS];    /* whether the transform's sums are stored */
    float most[TRANSFORMS][32]; /* the lane's largest */
};

/* Lane 4 g + t holds columns 2 t and 2 t + 1 of row y = g. Store four columns of all planes (`mine`: this lane has
 * them) and clear them. */
template <int TRANSFORMS>
static __device__ __forceinline__ void store_columns(float4 *to, size_t step, bool mine,
                                                     float (&sum)[TRANSFORMS][BRICK_Z][4],
                                                     struct brick_scale<TRANSFORMS> &scale)
{
    const float gain = scale.raise == 1.f ? 1.f : 1.f / TF32_RAISE;
    if (!mine)
        return;
#pragma unroll
    for (int c = 0; c < TRANSFORMS; c++) {
        float most = scale.most[c][threadIdx.x];
#pragma unroll
        for (int p = 0; p < BRICK_Z; p++) {
            float(&s)[4] = sum[c][p];
            most = fmaxf(most, fmaxf(fmaxf(fabsf(s[0]), fabsf(s[1])), fmaxf(fabsf(s[2]), fabsf(s[3]))));
            if (scale.stored[c])
                to[c * step + p * (BRICK_Y * 2)] = make_float4(s[0] * gain, s[2] * gain, s[1] * gain, s[3] * gain);
#pragma unroll
            for (int k = 0; k < 4; k++)
                s[k] = 0.f;
        }
        scale.most[c][threadIdx.x] = most;
    }
}

/* A task's samples, and the destination of its sums: a lane's cells of the first bin's slot, and of the slot right of
 * the last. */
struct brick_task {
    uint32_t bin, bins, bound; /* bound: in lane i, the start of bin i */
    float4 *own, *right;
    size_t step;
};

static __device__ __forceinline__ struct brick_task task_of(const struct brick_args &a, uint32_t number, int lane)
{
    const struct slot_task work = slot_task_of(a.rows, number);
    struct brick_task task;
    if (work.part) {
        const struct range_task part = a.parts[work.number];
        task.bin = part.bin;
        task.bins = 1;
        task.bound = lane ? part.last : part.first;
        task.own = a.partial + (size_t)number * (2 * SLOT_VECTORS);
        task.right = task.own + SLOT_VECTORS;
        task.step = a.partial_step;
    } else {
        const struct range_bin_run run = a.runs[work.number];
        const uint32_t right = range_bin_right(&a.geometry, run.bin + run.bins - 1);
        task.bin = run.bin;
        task.bins = run.bins;
        task.bound = a.first[run.bin + min((uint32_t)lane, run.bins)];
        task.own = a.slots + (size_t)(a.slot[run.bin + 1] - 1 - work.base) * SLOT_VECTORS;
        task.right = a.slots + (size_t)(a.slot[right] - work.base) * SLOT_VECTORS;
        task.step = a.slots_step;
    }
    const int place = (lane >> 2) * 2 + (lane & 1);
    task.own += place;
    task.right += place;
    return task;
}

/* Load the lane's sample of a stage, if there is one. `source`: its index in the caller's order. */
template <int TRANSFORMS>
static __device__ __forceinline__ void load_values(const struct brick_args &a, const struct brick_stage &stage,
                                                   uint32_t source, float gain, float &weight,
                                                   float2 (&value)[TRANSFORMS])
{
    if (a.weights)
        weight = a.weights[stage.from + threadIdx.x] * gain;
#pragma unroll
    for (int c = 0; c < TRANSFORMS; c++)
        value[c] = __ldcs(a.data + c * a.samples + source);
}

/* Store the lane's sample, or zeros, into the operands in shared memory. It is in bin `bin` of a run that begins at bin
 * x of its row. */
template <int TERMS, int TRANSFORMS>
static __device__ __forceinline__ void put_sample(const struct brick_args &a, const struct range_point_gpu &point,
                                                  const float2 (&value)[TRANSFORMS], float weight, bool there,
                                                  uint32_t x, uint32_t bin, struct brick_samples &samples,
                                                  float2 (&values)[TRANSFORMS][32], uint32_t &last_plane)
{
    const int lane = threadIdx.x, width = a.geometry.width;
#pragma unroll
    for (int c = 0; c < TRANSFORMS; c++)
        values[c][lane] = there ? make_float2(value[c].x * weight, value[c].y * weight) : make_float2(0.f, 0.f);
    put_columns(samples, lane, weights_of<TERMS>(a.kernel, width, point.x), point.base & 255,
                axis_size(a.geometry.axis[0], (int)(x + bin)) > 3, bin & 1);
    put_rows(samples, lane, weights_of<TERMS>(a.kernel, width, point.y), point.base >> 8 & 255);
    put_planes(samples, lane, weights_of<TERMS>(a.kernel, width, point.z), point.base >> 16, last_plane);
}

/* Add eight stored samples, number e of the warp's four groups of eight, to the planes that they reach (a bit each, in
 * lane 8 e). Lane 4 g + t has row y = g and samples t and t + 4. */
template <bool SPLIT, int TRANSFORMS>
static __device__ __forceinline__ void add_eight(const struct brick_samples &samples,
                                                 const float2 (&values)[TRANSFORMS][32], uint32_t e, uint32_t planes,
                                                 float (&sum)[TRANSFORMS][BRICK_Z][4])
{
    const int lane = threadIdx.x, g = lane >> 2, t = lane & 3;
    const uint32_t reached = __shfl_sync(~0u, planes, 8 * e);
    const int place = (8 * e + t) * 4 + (g & 3);
    const float *to_x = samples.x[g >> 2] + place, *to_y = samples.y[g >> 2] + place;
    const float *z = samples.z + (8 * e + t) * ROW_Z;
    float wx0 = to_x[0], wx1 = to_x[4 * 4], wy0 = to_y[0], wy1 = to_y[4 * 4];
    struct brick_left<SPLIT, TRANSFORMS> left;
#pragma unroll
    for (int c = 0; c < TRANSFORMS; c++) {
        float2 v0 = values[c][8 * e + t], v1 = values[c][8 * e + t + 4];
        float v[4] = {v0.x * wy0, v0.y * wy0, v1.x * wy1, v1.y * wy1};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            left.high[c][k] = SPLIT ? tf32_high(v[k]) : __float_as_uint(v[k]);
            if (SPLIT)
                left.low[c][k] = tf32_low(v[k], left.high[c][k]);
        }
    }
    switch ((__ffs(reached) - 1) / 2) {
#define PLANES(P)                               \
    case P:                                     \
        add_planes<P>(sum, left, wx0, wx1, z);  \
        if ((reached >> (2 * P + 1) >> 1) == 0) \
            break;                              \
        [[fallthrough]];
        PLANES(0)
        PLANES(1)
        PLANES(2)
        PLANES(3)
        PLANES(4)
        PLANES(5)
        PLANES(6)
#undef PLANES
    default:
        add_planes<7>(sum, left, wx0, wx1, z);
    }
}

/* Add the warp's `count` stored samples; planes: those that the lane's sample reaches, a bit each. */
template <bool SPLIT, int TRANSFORMS>
static __device__ __forceinline__ void add_put(const struct brick_samples &samples,
                                               const float2 (&values)[TRANSFORMS][32], uint32_t count, uint32_t planes,
                                               float (&sum)[TRANSFORMS][BRICK_Z][4])
{
#pragma unroll
    for (int i = 1; i < 8; i *= 2)
        planes |= __shfl_xor_sync(~0u, planes, i); /* of the lane's group of eight */
    __syncwarp();
    const uint32_t eights = (count + 7) / 8;
#pragma unroll 1
    for (uint32_t e = 0; e < eights; e++)
        add_eight<SPLIT>(samples, values, e, planes, sum);
}

/* Sum a task. `sum` is zero before and after, sum[z][] of the lane's cells; last_plane: put_planes. */
template <bool SPLIT, int TRANSFORMS>
static __device__ __forceinline__ void sum_task(const struct brick_args &a, const struct brick_task &task,
                                                struct brick_samples &samples, float2 (&values)[TRANSFORMS][32],
                                                float (&sum)[TRANSFORMS][BRICK_Z][4],
                                                struct brick_scale<TRANSFORMS> &scale, uint32_t &last_plane)
{
    constexpr int terms = SPLIT ? KERNEL_TERMS : KERNEL_TERMS - 1;
    const int lane = threadIdx.x, t = lane & 3;
    const uint32_t x = task.bin % (uint32_t)a.geometry.axis[0].bins;
    float4 *own = task.own;
    struct brick_stage now = {__shfl_sync(~0u, task.bound, 0), 0, 0}, next;
    now.count = min(32u, __shfl_sync(~0u, task.bound, 1) - now.from);
    next = next_stage(now, task.bound, task.bins);
    struct range_point_gpu point = {0, 0, 0, 0};
    float2 value[TRANSFORMS] = {};
    float weight = a.gain * scale.raise;
    uint32_t source = 0;
    if ((uint32_t)lane < now.count) {
        point = a.points[now.from + lane];
        source = a.order[now.from + lane];
        load_values(a, now, source, a.gain * scale.raise, weight, value);
    }
    if ((uint32_t)lane < next.count)
        source = a.order[next.from + lane];
    while (now.count > 0) {
        const bool there = (uint32_t)lane < now.count;
        const uint32_t planes = there ? ((1u << a.geometry.width) - 1) << (point.base >> 16) : 0;
        __syncwarp();
        put_sample<terms>(a, point, value, weight, there, x, now.bin, samples, values, last_plane);
        if ((uint32_t)lane < next.count) {
            point = a.points[next.from + lane];
            load_values(a, next, source, a.gain * scale.raise, weight, value);
        }
        const struct brick_stage after = next_stage(next, task.bound, task.bins);
        if ((uint32_t)lane < after.count)
            source = a.order[after.from + lane];
        add_put<SPLIT>(samples, values, now.count, planes, sum);
        if (next.bin != now.bin) {
            store_columns(own, task.step, (uint32_t)(t >> 1) == (now.bin & 1), sum, scale);
            own += SLOT_VECTORS;
        }
        now = next;
        next = after;
    }
    store_columns(task.right, task.step, (uint32_t)(t >> 1) == (task.bins & 1), sum, scale);
}

/* Sum a task, and again with raised data where its sums are faint. */
template <bool SPLIT, int TRANSFORMS>
static __device__ __forceinline__ void
sum_scaled(const struct brick_args &a, uint32_t number, struct brick_samples &samples, float2 (&values)[TRANSFORMS][32],
           float (&sum)[TRANSFORMS][BRICK_Z][4], struct brick_scale<TRANSFORMS> &scale, uint32_t &last_plane)
{
    const int lane = threadIdx.x;
    bool again = false;
#pragma unroll 1
    do {
        __syncwarp(); /* the lanes have read what the last sum was scaled by */
        for (int c = 0; c < TRANSFORMS; c++) {
            scale.stored[c] = !again || tf32_is_faint(scale.most[c][lane]);
            scale.most[c][lane] = 0.f;
        }
        scale.raise = again ? TF32_RAISE : 1.f;
        __syncwarp();
        sum_task<SPLIT, TRANSFORMS>(a, task_of(a, number, lane), samples, values, sum, scale, last_plane);
        bool faint = false;
        for (int c = 0; c < TRANSFORMS; c++)
            faint = tf32_is_faint(scale.most[c][lane]) || faint;
        again = !again && faint;
    } while (again);
}

/* Blocks of one warp, as many as fit on the device; each processes tasks one after the other: parts of heavy bins, then
 * runs. 4.6 KB of shared memory, and 388 bytes per transform. */
template <bool SPLIT, int TRANSFORMS>
static __global__ void __launch_bounds__(32, TRANSFORMS == 1 ? 16 : 12)
    sum_bricks(const __grid_constant__ struct brick_args a)
{
    __shared__ __align__(16) struct brick_samples samples;
    __shared__ float2 values[TRANSFORMS][32];
    __shared__ struct brick_scale<TRANSFORMS> scale;
    const int lane = threadIdx.x;
    const uint32_t tasks = slot_tasks(a.rows);
    float sum[TRANSFORMS][BRICK_Z][4] = {};
    uint32_t last_plane = 0;
    for (int i = lane; i < 32 * ROW_Z / 2; i += 32)
        ((float2 *)samples.z)[i] = make_float2(0.f, 0.f);
    for (uint32_t number = blockIdx.x, next; number < tasks; number = next) {
        if (lane == 0)
            next = gridDim.x + atomicAdd(a.ticket, 1u);
        sum_scaled<SPLIT, TRANSFORMS>(a, number, samples, values, sum, scale, last_plane);
        next = __shfl_sync(~0u, next, 0);
    }
}

int nufft_gpu_brick8_make(struct nufft_gpu *plan)
{
    const int slot[3] = {4, BRICK_Y, BRICK_Z};
    return nufft_gpu_slots_make(plan, slot, plan->split ? 1 : 2);
}

int nufft_gpu_scatter_brick8(struct nufft_gpu *plan, const struct slot_rows *rows, int transforms,
                             const struct c32 *data, const float *weights)
{
    const struct range_bins_gpu *bins = &plan->bins;
    const struct nufft_slots *slots = &plan->slots;
    struct brick_args a = {};
    unsigned tasks = slot_tasks(*rows);
    if (tasks == 0)
        return 0;
    a.geometry = bins->geometry;
    a.parts = bins->parts;
    a.runs = bins->runs;
    a.rows = *rows;
    a.ticket = bins->ticket;
    a.first = bins->first;
    a.slot = bins->slot;
    a.order = bins->order;
    a.points = bins->points;
    a.weights = weights;
    a.data = (const float2 *)data;
    a.samples = plan->samples;
    a.slots = (float4 *)slots->slot;
    a.partial = (float4 *)slots->partial;
    a.slots_step = (size_t)slots->slots * SLOT_VECTORS;
    a.partial_step = (size_t)slots->parts * 2 * SLOT_VECTORS;
    a.kernel = plan->pairs;
    a.gain = plan->split ? 1.f : TF32_GAIN;
    void (*kernel)(struct brick_args) = plan->split       ? sum_bricks<true, 1>
                                        : transforms == 2 ? sum_bricks<false, 2>
                                                          : sum_bricks<false, 1>;
    int rc = range_tickets(&plan->bins, plan->gpu);
    if (rc)
        return rc;
    unsigned room = (unsigned)plan->gpu->multiprocessors * (transforms == 1 ? 16 : 12);
    kernel<<<std::min(tasks, room), 32, 0, plan->gpu->stream>>>(a);
    return gpu_launched("Gridding");
}
