/* Bricks: 3-D samples to the grid on tensor cores.
 *
 * For 8 samples s at a time and every z plane they reach, with y and real/imaginary part as rows and x as columns:
 *   brick[z][(y, part)][x] += sum_s (data_s wy_s(y))[(y, part)][s] (wx_s(x) wz_s(z))[s][x]
 * one 16 x 8 x 8 product each. Planes that no sample of the eight reaches are skipped by a mask; samples come sorted by
 * z cell.
 */
#include "gridding/nufft_gpu.cuh"

#include <nv/target>

struct brick_args {
    struct range_geometry geometry;
    const struct range_task *tasks;
    uint32_t count, round, *done, *ticket;
    const struct range_point *points;
    const float2 *data;
    float2 *grid, *partial;
    struct kaiser kernel;
    bool aligned; /* every row of a brick starts at a multiple of four cells and is eight cells long */
};

struct brick_sample {
    float x, y, z; /* from the bin's first cell, times kernel.scale */
    uint32_t planes;
    float2 value;
    float2 pad;
};

enum { BRICK_WARPS = 4, TABLE_PAIRS = 11 };

static __device__ __forceinline__ void add_pair(float2 *to, float a, float b)
{
    float2 v = __ldcg(to);
    *to = make_float2(v.x + a, v.y + b);
}

/* The cache adds where the machine can (9.0); no other warp adds to these cells meanwhile, so the order stays fixed. */
static __device__ __forceinline__ void add_four(float2 *to, float a, float b, float c, float d)
{
    NV_IF_ELSE_TARGET(
        NV_PROVIDES_SM_90,
        (asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                      :
                      : "l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
                      : "memory");),
        (float4 v = __ldcg((const float4 *)to); *(float4 *)to = make_float4(v.x + a, v.y + b, v.z + c, v.w + d);))
}

/* Add a warp's brick to the grid. Lane 4 g + t holds cells x = 2t, 2t + 1 of row y = g; `touched` planes only. */
static __device__ __forceinline__ void add_brick(const struct brick_args &a, const int place[3],
                                                 const float (&sum)[BRICK_Z][4], uint32_t touched, float gain)
{
    int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    const struct range_axis *axis = a.geometry.axis;
    int nx = axis[0].cells, ny = axis[1].cells, nz = axis[2].cells, reach = a.geometry.width - 1;
    int y = axis_first(axis[1], place[1]) + g, x = axis_first(axis[0], place[0]) + 2 * t,
        z = axis_first(axis[2], place[2]);
    if (g >= axis_size(axis[1], place[1]) + reach)
        return;
    y -= y >= ny ? ny : 0;
    x -= x >= nx ? nx : 0;
    size_t plane = (size_t)nx * ny;
    if (a.aligned) {
        float2 *row = a.grid + (size_t)y * nx + x;
#pragma unroll
        for (int p = 0; p < BRICK_Z; p++) {
            int plane_z = z + p;
            plane_z -= plane_z >= nz ? nz : 0;
            if (touched >> p & 1)
                add_four(row + plane_z * plane, sum[p][0] * gain, sum[p][2] * gain, sum[p][1] * gain, sum[p][3] * gain);
        }
        return;
    }
    int columns = axis_size(axis[0], place[0]) + reach, x1 = x + 1 >= nx ? x + 1 - nx : x + 1;
#pragma unroll
    for (int p = 0; p < BRICK_Z; p++) {
        int plane_z = z + p;
        plane_z -= plane_z >= nz ? nz : 0;
        float2 *row = a.grid + plane_z * plane + (size_t)y * nx;
        if ((touched >> p & 1) && 2 * t < columns)
            add_pair(row + x, sum[p][0] * gain, sum[p][2] * gain);
        if ((touched >> p & 1) && 2 * t + 1 < columns)
            add_pair(row + x1, sum[p][1] * gain, sum[p][3] * gain);
    }
}

/* Blocks of 128 = 4 warps, a task each; 4 x (704 + 1024) bytes of shared memory. Lane 4 g + t works for rows y = g,
 * samples t and t + 4 of eight, and holds sum[z][] of its cells. */
template <bool SPLIT, int DEGREE, bool PARTIAL>
static __global__ void __launch_bounds__(32 * BRICK_WARPS, SPLIT ? 3 : 4)
    scatter_bricks(const __grid_constant__ struct brick_args a)
{
    __shared__ __align__(16) float tables[BRICK_WARPS][TABLE_PAIRS * 16];
    __shared__ __align__(16) struct brick_sample samples[BRICK_WARPS][32];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    uint32_t number = PARTIAL ? blockIdx.x * BRICK_WARPS + warp : range_ticket(a.ticket);
    if (number >= a.count)
        return;
    const struct range_task task = a.tasks[number];
    float *table = tables[warp] + t * 4;
    struct brick_sample *staged = samples[warp];
    float sum[BRICK_Z][4];
#pragma unroll
    for (int p = 0; p < BRICK_Z; p++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum[p][k] = 0.f;
    const float scale = a.kernel.scale, row = g * scale, eight = 8.f * scale;
    const uint32_t reach = (1u << a.geometry.width) - 1;
    uint32_t touched = 0;
    struct range_point point = {0, 0, 0, 0};
    float2 value = make_float2(0.f, 0.f);
    uint32_t last = PARTIAL || task.parts == 0 ? task.last : task.first; /* a heavy bin's samples are summed already */
    if (task.first + lane < last) {
        point = a.points[task.first + lane];
        value = a.data[task.first + lane];
    }
    for (uint32_t i = task.first; i < last; i += 32) {
        struct brick_sample s;
        uint32_t base_z = point.base >> 16;
        bool there = i + lane < last;
        s.x = ((float)(point.base & 255) + point.x) * scale;
        s.y = ((float)(point.base >> 8 & 255) + point.y) * scale;
        s.z = ((float)base_z + point.z) * scale;
        s.planes = there ? reach << base_z : 0;
        s.value = there ? value : make_float2(0.f, 0.f);
        s.pad = make_float2(0.f, 0.f);
        staged[lane] = s;
        if (i + 32 + lane < last) {
            point = a.points[i + 32 + lane];
            value = a.data[i + 32 + lane];
        }
        __syncwarp();
        uint32_t eights = (min(32u, last - i) + 7) / 8;
#pragma unroll 1
        for (uint32_t e = 0; e < eights; e++) {
            const struct brick_sample s0 = staged[8 * e + t], s1 = staged[8 * e + t + 4];
            uint32_t planes = __reduce_or_sync(~0u, s0.planes | s1.planes);
            int lowest = (__ffs(planes) - 1) & ~1;
            touched |= planes;
            float z = (float)(lowest + g) * scale;
            float *write = table + ((lowest + g) >> 1) * 16 + (g & 1) * 2;
            *(float2 *)write =
                make_float2(kaiser_at<DEGREE>(a.kernel, z - s0.z), kaiser_at<DEGREE>(a.kernel, z - s1.z));
            if (planes >> (lowest + 8))
                *(float2 *)(write + 64) = make_float2(kaiser_at<DEGREE>(a.kernel, z + eight - s0.z),
                                                      kaiser_at<DEGREE>(a.kernel, z + eight - s1.z));
            float wx0 = kaiser_at<DEGREE>(a.kernel, row - s0.x), wx1 = kaiser_at<DEGREE>(a.kernel, row - s1.x);
            float wy0 = kaiser_at<DEGREE>(a.kernel, row - s0.y), wy1 = kaiser_at<DEGREE>(a.kernel, row - s1.y);
            float left[4] = {s0.value.x * wy0, s0.value.y * wy0, s1.value.x * wy1, s1.value.y * wy1};
            uint32_t high[4], low[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                high[k] = SPLIT ? tf32_high(left[k]) : __float_as_uint(left[k]);
                low[k] = SPLIT ? tf32_low(left[k], high[k]) : 0;
            }
            __syncwarp();
#pragma unroll
            for (int pair = 0; pair < BRICK_Z / 2; pair++)
                if (planes & (3u << (2 * pair))) {
                    float4 wz = *(const float4 *)(table + pair * 16);
                    float v[4] = {wx0 * wz.x, wx1 * wz.y, wx0 * wz.z, wx1 * wz.w};
                    if (SPLIT) {
                        uint32_t h[4], l[4];
#pragma unroll
                        for (int k = 0; k < 4; k++) {
                            h[k] = tf32_high(v[k]);
                            l[k] = tf32_low(v[k], h[k]);
                        }
                        mma_tf32(sum[2 * pair], low, h[0], h[1]);
                        mma_tf32(sum[2 * pair + 1], low, h[2], h[3]);
                        mma_tf32(sum[2 * pair], high, l[0], l[1]);
                        mma_tf32(sum[2 * pair + 1], high, l[2], l[3]);
                        mma_tf32(sum[2 * pair], high, h[0], h[1]);
                        mma_tf32(sum[2 * pair + 1], high, h[2], h[3]);
                    } else {
                        mma_tf32(sum[2 * pair], high, __float_as_uint(v[0]), __float_as_uint(v[1]));
                        mma_tf32(sum[2 * pair + 1], high, __float_as_uint(v[2]), __float_as_uint(v[3]));
                    }
                }
            __syncwarp();
        }
    }
    float gain = SPLIT ? 1.f : TF32_GAIN;
    float4 *slot = (float4 *)(a.partial + (size_t)task.slot * (BRICK_X * BRICK_Y * BRICK_Z)) + lane;
    if (PARTIAL) {
#pragma unroll
        for (int p = 0; p < BRICK_Z; p++)
            slot[p * 32] = make_float4(sum[p][0] * gain, sum[p][2] * gain, sum[p][1] * gain, sum[p][3] * gain);
        return;
    }
    int place[3];
    range_bin_place(a.geometry, task.bin, place);
    if (task.parts > 0) {
#pragma unroll
        for (int p = 0; p < BRICK_Z; p++) {
            float4 v = slot[p * 32];
            sum[p][0] = v.x;
            sum[p][2] = v.y;
            sum[p][1] = v.z;
            sum[p][3] = v.w;
        }
        gain = 1.f;
        touched = (1u << (axis_size(a.geometry.axis[2], place[2]) + a.geometry.width - 1)) - 1;
    }
    range_wait(a.geometry, task, place, a.done, a.round);
    add_brick(a, place, sum, touched, gain);
    range_signal(a.done, task.bin, a.round);
}

template <bool PARTIAL>
static int launch(const struct nufft_gpu *plan, struct brick_args *a, const struct range_task *tasks, uint32_t count)
{
    if (count == 0)
        return 0;
    a->tasks = tasks;
    a->count = count;
    unsigned blocks = gpu_blocks(count, BRICK_WARPS);
    if (plan->split)
        scatter_bricks<true, 9, PARTIAL><<<blocks, 32 * BRICK_WARPS, 0, plan->gpu->stream>>>(*a);
    else
        scatter_bricks<false, 6, PARTIAL><<<blocks, 32 * BRICK_WARPS, 0, plan->gpu->stream>>>(*a);
    return gpu_launched("Gridding");
}

int nufft_gpu_scatter_bricks(struct nufft_gpu *plan)
{
    struct range_bins *bins = &plan->bins;
    const struct range_axis x = bins->geometry.axis[0];
    struct brick_args a = {};
    int rc = range_tickets(bins, plan->gpu);
    bins->round++;
    a.geometry = bins->geometry;
    a.round = bins->round;
    a.done = bins->done;
    a.ticket = bins->ticket;
    a.points = bins->points;
    a.data = (const float2 *)plan->sorted;
    a.grid = (float2 *)plan->grid;
    a.partial = (float2 *)plan->partial;
    a.kernel = plan->kernel;
    a.aligned = x.cells % 4 == 0 && x.bins == x.cells / 4;
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(plan->grid, 0, plan->cells * sizeof *plan->grid, plan->gpu->stream),
                       "Clearing the grid");
    if (!rc)
        rc = launch<true>(plan, &a, bins->parts, bins->slots);
    if (!rc)
        rc = nufft_gpu_add_partials(plan);
    return rc ? rc : launch<false>(plan, &a, bins->tasks, bins->occupied);
}
