/* scatter_cubes.cuh: Gaussians cut to cubes, of one channel, to 3-D grids by tensor cores. The sums at a warp's 16 x 8
 * x 8 nodes are a matrix product: rows are nodes along x, columns are nodes along y and z, and the inner dimension is
 * points. One factor is a point's weight along x times its value, the other the product of its weights along y and z.
 * Weights are in half precision, sums in float32: the error of a single point is 4e-4 (l2), that of many points is
 * smaller.
 *
 * A block of four warps sums a tile of 16^3 nodes from its list of nearby points (scatter_near_list.cuh). A warp takes
 * from the list, 32 at a time, the points that reach its nodes. Weights along x and y are computed by the lanes that
 * need them as operands, those along z by one lane per point. Which nodes a point reaches is decided when it is listed,
 * in double precision if float32 cannot: then the point was marked when points were packed (is_doubtful_cube()). */
#ifndef MRIRECON_SCATTER_CUBES_CUH
#define MRIRECON_SCATTER_CUBES_CUH

#include "gridding/range/gpu/scatter_node_points.cuh"

#include <cuda_fp16.h>

namespace
{

enum {
    CUBE_WARPS = 4,
    CUBE_THREADS = 32 * CUBE_WARPS,
    CUBE_SIDE = 16,            /* side of a tile in nodes */
    CUBE_HALF = CUBE_SIDE / 2, /* a warp's nodes along y and along z */
    CUBE_CAP = 192,            /* capacity of a warp's list of points */
    CUBE_BATCH = 16,           /* points of one matrix product */
    /* Points after which sums are added to the grid: the tensor cores' accumulation truncates by up to 2^-23 of the sum
     * each time. */
    CUBE_SUMMED = 2048
};

struct cubes_memory {
    near_list<CUBE_WARPS, CUBE_CAP, false, true> list;
    /* Points that a warp adds: the scaled distance of its first node along x and y, the logarithm of the value, and the
     * scale of lengths. */
    float4 point[CUBE_WARPS][32];
    alignas(16) uint32_t high[CUBE_WARPS][16][CUBE_HALF]; /* their weights along z, of two points a word */
    alignas(8)
        uint32_t within[CUBE_WARPS][32]; /* nodes within their reach: bits 0 to 15: along x, 16 to 23: y, 24 to 31: z */
    uint16_t taken[CUBE_WARPS][64];      /* indices of list entries */
};

/* Halves hold values relative to the largest. 0: they cannot. */
__host__ __device__ __forceinline__ float relative_of(float largest)
{
    const float relative = largest > 0 ? 1 / largest : 1;
    return (largest >= 0 && largest < INFINITY && relative < INFINITY) ? relative : 0;
}

/* A warp's sums: planes, and a lane's share of 16 x 8 nodes. low: its first node along y and z, in the tile. */
struct cube_sums {
    int low[2];
    float of[CUBE_HALF][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int k = 0; k < CUBE_HALF; k++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                of[k][n] = 0;
    }
};

/* ---- weights ---- */

/* The weight at `at`, in units in which the Gaussian is exp2(-at^2), times exp2(factor); 0 if no bit of `bit` is in
 * `within`. */
__device__ __forceinline__ float cube_weight(float at, float factor, uint32_t within, uint32_t bit)
{
    const float weight = law_exp2(fmaf(-at, at, factor));
    return within & bit ? weight : 0.f;
}

__device__ __forceinline__ uint32_t two_halves(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* Store weights along z, of one point a lane: a word has those of two points, and a row the eight nodes. high, unit:
 * the scaled distance of the warp's first node, and the scale. */
__device__ __forceinline__ void put_high(const scatter_job &job, cubes_memory &m, float high, float unit,
                                         uint32_t within, uint32_t sign)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const bool odd = lane & 1;
    uint32_t w[CUBE_HALF / 2];
#pragma unroll
    for (int k = 0; k < CUBE_HALF; k += 2) {
        const float a = fmaf((float)k * job.width[2], unit, high), b = fmaf((float)(k + 1) * job.width[2], unit, high);
        w[k / 2] =
            two_halves(cube_weight(a, 0, within, 1u << (24 + k)), cube_weight(b, 0, within, 2u << (24 + k))) ^ sign;
    }
    /* The even lane of two has the lower four nodes of both points, the odd lane the upper four. */
    const uint32_t own[2] = {odd ? w[2] : w[0], odd ? w[3] : w[1]}, even_words = odd ? 0x1054 : 0x5410,
                   odd_words = odd ? 0x3276 : 0x7632;
    const uint32_t other[2] = {__shfl_xor_sync(~0u, odd ? w[0] : w[2], 1), __shfl_xor_sync(~0u, odd ? w[1] : w[3], 1)};
    *(uint4 *)&m.high[warp][lane / 2][odd ? 4 : 0] =
        make_uint4(__byte_perm(own[0], other[0], even_words), __byte_perm(own[0], other[0], odd_words),
                   __byte_perm(own[1], other[1], even_words), __byte_perm(own[1], other[1], odd_words));
}

/* ---- products ---- */

/* D += A B, half-precision inputs, float32 sums. Lane 4 g + t has rows g and g + 8 of A, column g of B, and columns 2t
 * and 2t + 1 of rows g and g + 8 of D. */
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], __half2 b0, __half2 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(*(uint32_t *)&b0), "r"(*(uint32_t *)&b1));
}

/* Points `first` to first + CUBE_BATCH of those that the warp has stored. */
__device__ __forceinline__ void add_batch(const scatter_job &job, const cubes_memory &m, int first, cube_sums &sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const float x = (float)g * job.width[0], above = (float)(g + 8) * job.width[0], y = (float)g * job.width[1];
    const uint32_t bit = 1u << g;
    uint32_t a[4], b[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int at = first + 8 * h + 2 * t;
        const float4 p = m.point[warp][at], q = m.point[warp][at + 1];
        const uint2 in = *(const uint2 *)&m.within[warp][at];
        a[2 * h] =
            two_halves(cube_weight(fmaf(x, p.w, p.x), p.z, in.x, bit), cube_weight(fmaf(x, q.w, q.x), q.z, in.y, bit));
        a[2 * h + 1] = two_halves(cube_weight(fmaf(above, p.w, p.x), p.z, in.x, bit << 8),
                                  cube_weight(fmaf(above, q.w, q.x), q.z, in.y, bit << 8));
        b[h] = two_halves(cube_weight(fmaf(y, p.w, p.y), 0, in.x, bit << 16),
                          cube_weight(fmaf(y, q.w, q.y), 0, in.y, bit << 16));
    }
    const uint4 *low = (const uint4 *)&m.high[warp][first / 2 + t][0],
                *high = (const uint4 *)&m.high[warp][first / 2 + t + 4][0];
#pragma unroll
    for (int k = 0; k < CUBE_HALF; k += 4) {
        const uint4 l = low[k / 4], u = high[k / 4];
        const uint32_t z0[4] = {l.x, l.y, l.z, l.w}, z1[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int n = 0; n < 4; n++)
            multiply_add(sums.of[k + n], a, __hmul2(*(const __half2 *)&b[0], *(const __half2 *)&z0[n]),
                         __hmul2(*(const __half2 *)&b[1], *(const __half2 *)&z1[n]));
    }
}

/* Add `count` taken points from `first` on, at most 32. */
__device__ __forceinline__ void add_taken(const scatter_job &job, cubes_memory &m, float relative, int first, int count,
                                          cube_sums &sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const bool there = lane < count;
    const int entry = m.taken[warp][first + (there ? lane : 0)];
    const int4 at = (&m.list.place[0][0])[entry];
    const uint2 nodes = (&m.list.within[0][0])[entry];
    const float value = (&m.list.value[0][0])[entry];
    const float unit = __fdividef(job.root_rate, fabsf(__int_as_float(at.w))), by = unit * job.step;
    const uint32_t y = nodes.y >> sums.low[0] & 255, z = nodes.y >> (CUBE_SIDE + sums.low[1]) & 255;
    const uint32_t within = there ? nodes.x | y << 16 | z << 24 : 0;
    m.point[warp][lane] =
        make_float4((float)-at.x * (by * job.width[0]), (float)((sums.low[0] << job.bits) - at.y) * (by * job.width[1]),
                    __log2f(fabsf(value) * relative), unit);
    m.within[warp][lane] = within;
    put_high(job, m, (float)((sums.low[1] << job.bits) - at.z) * (by * job.width[2]), unit, within,
             value < 0 ? 0x80008000u : 0);
    __syncwarp();
#pragma unroll 1
    for (int from = 0; from < count; from += CUBE_BATCH)
        add_batch(job, m, from, sums);
    __syncwarp();
}

/* The list's entry `i`, without the gaps between the warps' parts. ends: where the parts end, but the last. */
__device__ __forceinline__ int cube_entry(const int ends[CUBE_WARPS - 1], int i)
{
    int entry = i, before = 0;
#pragma unroll
    for (int part = 0; part < CUBE_WARPS - 1; part++) {
        entry += i >= ends[part] ? CUBE_CAP - (ends[part] - before) : 0;
        before = ends[part];
    }
    return entry;
}

/* Add the block's list to the warp's nodes. */
__device__ __forceinline__ void add_cubes(const scatter_job &job, cubes_memory &m, float relative, cube_sums &sums,
                                          int *summed)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t y = 255u << sums.low[0], z = 255u << (CUBE_SIDE + sums.low[1]);
    int ends[CUBE_WARPS], taken = 0;
#pragma unroll
    for (int part = 0; part < CUBE_WARPS; part++)
        ends[part] = m.list.held[part] + (part > 0 ? ends[part - 1] : 0);
    const int all = ends[CUBE_WARPS - 1];
    *summed += all;
#pragma unroll 1
    for (int first = 0; first < all; first += 32) {
        const int i = first + lane, entry = cube_entry(ends, i < all ? i : 0);
        const uint32_t nodes = (&m.list.within[0][0])[entry].y;
        const bool near = i < all && nodes & y && nodes & z;
        const uint32_t hits = __ballot_sync(~0u, near);
        if (near)
            m.taken[warp][taken + __popc(hits & ((1u << lane) - 1))] = (uint16_t)entry;
        taken += __popc(hits);
        __syncwarp();
        const bool last = first + 32 >= all;
        while (taken >= 32 || (last && taken > 0)) {
            const int count = min(taken, 32);
            taken -= count;
            add_taken(job, m, relative, taken, count, sums);
        }
    }
}

/* ---- a block ---- */

/* Add sums to the grid (job.set and not `again`: write them), or (slot >= 0) write them to a slot, adding to it if
 * `again`; then set them to 0. As put_nodes(). */
__device__ __forceinline__ void put_cubes(const scatter_job &job, const cubes_memory &m, const sums_work &work,
                                          const near_task &task, bool again, float relative, cube_sums &sums)
{
    const int lane = threadIdx.x & 31, *cells = job.points.box.cells, slot = task.slot;
    const int x = lane / 4, y = sums.low[0] + lane % 4 * 2, z = sums.low[1];
    float *to = work.slots + (size_t)max(slot, 0) * TOGETHER * CUBE_SIDE * CUBE_SIDE * CUBE_SIDE;
    size_t width = CUBE_SIDE, plane = CUBE_SIDE * CUBE_SIDE;
    int size[3] = {CUBE_SIDE, CUBE_SIDE, CUBE_SIDE};
    if (slot < 0) {
        width = (size_t)cells[0];
        plane = width * (size_t)cells[1];
        to = job.grid + (size_t)m.list.low[2] * plane + (size_t)m.list.low[1] * width + (size_t)m.list.low[0];
        for (int d = 0; d < 3; d++)
            size[d] = cells[d] - m.list.low[d];
    }
    const float strength = __fdividef(slot < 0 ? job.strength : 1.f, relative);
    const bool adds = again || (slot < 0 && !job.set),
               whole = size[0] >= CUBE_SIDE && size[1] >= CUBE_SIDE && size[2] >= CUBE_SIDE;
    to += z * plane + y * width + x;
    if (whole && !adds) { /* almost all tiles */
#pragma unroll
        for (int k = 0; k < CUBE_HALF; k++, to += plane)
#pragma unroll
            for (int up = 0; up < 2; up++) {
                float *row = to + up * width;
                row[0] = sums.of[k][up] * strength;
                row[8] = sums.of[k][2 + up] * strength;
            }
        sums.clear();
        return;
    }
#pragma unroll
    for (int k = 0; k < CUBE_HALF; k++, to += plane)
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int right = n / 2 * 8, up = n % 2;
            const float sum = sums.of[k][n] * strength;
            if (x + right >= size[0] || y + up >= size[1] || z + k >= size[2])
                continue;
            if (adds)
                atomicAdd(to + up * width + right, sum);
            else
                to[up * width + right] = sum;
        }
    sums.clear();
}

__global__ void __launch_bounds__(CUBE_THREADS, 5)
    sum_cubes(const __grid_constant__ scatter_job job, const __grid_constant__ sums_work work)
{
    extern __shared__ __align__(16) char memory[];
    cubes_memory &m = *(cubes_memory *)memory;
    struct near_task task;
    if (!near_task_of(job, work, task))
        return;
    const int warp = threadIdx.x / 32;
    cube_sums sums = {{warp % 2 * CUBE_HALF, warp / 2 * CUBE_HALF}, {}};
    int summed = 0;
    const float relative = relative_of(__uint_as_float(*job.largest));
    if (blockIdx.x == 0 && threadIdx.x == 0 && job.told)
        *job.told = *job.largest;
    if (relative == 0) /* then the host sums them another way */
        return;
    near_scan<CUBE_WARPS, CUBE_CAP, false, false, true> scan(job, m.list, task.tile);
    scan.take_part(task.part, task.parts);
    bool more = true, again = false;
    while (more) {
        more = scan.fill();
        more = __syncthreads_or(more);
        add_cubes(job, m, relative, sums, &summed);
        if (summed >= CUBE_SUMMED || !more) {
            put_cubes(job, m, work, task, again, relative, sums);
            again = true;
            summed = 0;
        }
        if (more)
            __syncthreads();
    }
}

} // namespace

#endif
