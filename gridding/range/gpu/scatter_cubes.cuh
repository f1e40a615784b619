/* scatter_cubes.cuh: Gaussians cut to cubes, of one channel, to 3-D grids by tensor cores. The sums at a warp's 16 x 16
 * x 8 nodes are a matrix product: rows are nodes along x, columns are nodes along y and z, and the inner dimension is
 * points. One factor is a point's weight along x times its value, the other the product of its weights along y and z.
 * Weights are in half precision, sums in float32: the error of a single point is 4e-4 (l2), that of many points is
 * smaller.
 *
 * A block of four warps sums a tile of 32 x 16 x 16 nodes from its list of nearby points (scatter_near_list.cuh). A
 * warp takes from the list, 32 at a time, the points that reach its nodes. Weights along x and y are computed by the
 * lanes that need them as operands, those along z by one lane per point. Which nodes a point reaches is decided when it
 * is listed, in double precision if fixed-point numbers cannot: then the point was marked when points were packed
 * (is_doubtful_cube()). */
#ifndef MRIRECON_SCATTER_CUBES_CUH
#define MRIRECON_SCATTER_CUBES_CUH

#include "gridding/range/gpu/scatter_lists.cuh"
#include "gridding/range/gpu/scatter_node_points.cuh"

#include <cuda_fp16.h>

namespace
{

enum {
    CUBE_WARPS = 4,
    CUBE_THREADS = 32 * CUBE_WARPS,
    CUBE_SIDE = MASK_SIDE,     /* side of a tile in nodes, along y and z */
    CUBE_WIDE = 2 * CUBE_SIDE, /* along x */
    CUBE_HALF = CUBE_SIDE / 2, /* a warp's nodes along z */
    CUBE_CAP = 256,            /* capacity of a warp's list of points */
    CUBE_BATCH = 16,           /* points of one matrix product */
    CUBE_AHEAD = 2,            /* as in near_scan */
    CUBE_TAKEN = 32 + 2 * 32   /* capacity for points that a warp has taken */
};

/* Nodes within reach of two points: in the lower halves of the first, in the upper halves of the second. */
struct cube_pair {
    uint16_t x[2], y[2];
};

/* Points that a warp adds. */
struct cube_points {
    /* The scaled distance of the warp's first node along x and y, the logarithm of the value, and the scale of lengths.
     */
    float4 point[32];
    alignas(16) uint32_t high[16][CUBE_HALF]; /* their weights along z, of two points a word */
    alignas(8) struct cube_pair within[16];
};

struct cubes_memory {
    near_list<CUBE_WARPS, CUBE_CAP, MASKS> list;
    cube_points points[CUBE_WARPS];
    uint16_t taken[CUBE_WARPS][CUBE_TAKEN]; /* indices of list entries */
};

/* A warp's sums: planes, halves along y, and a lane's share of 16 x 8 nodes. low: its first node along x and z, in the
 * tile. */
struct cube_sums {
    int low[2];
    float of[CUBE_HALF][2][4];
};

/* ---- weights ---- */

/* The weight at `at`, in units in which the Gaussian is exp2(-at^2), times exp2(factor). */
__device__ __forceinline__ float cube_weight(float at, float factor)
{
    return law_exp2(fmaf(-at, at, factor));
}

__device__ __forceinline__ uint32_t two_halves(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* Both halves of a word, set where the highest bit of a byte of `bits` is: of the lower half, byte FIRST; of the upper
 * half, byte FIRST + 2. */
template <int FIRST> __device__ __forceinline__ uint32_t halves_where(uint32_t bits)
{
    uint32_t mask; /* 8 and above: the sign of byte n - 8, throughout */
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(mask) : "r"(bits), "n"(0xaa88 + 0x1111 * FIRST));
    return mask;
}

/* Store weights along z, of one point a lane: a word has those of two points, and a row the eight nodes. The even lane
 * of two has the lower four nodes of both points, the odd lane the upper four. high, unit: the scaled distance of the
 * warp's first node, and the scale; within: nodes within its reach, bits 0 to 7. */
__device__ __forceinline__ void put_high(const scatter_job &job, cube_points &points, float high, float unit,
                                         uint32_t within, bool negative)
{
    const int lane = threadIdx.x & 31;
    const bool odd = lane & 1;
    const uint32_t own = (within & 255) | (negative ? 0x8000 : 0), other = __shfl_xor_sync(~0u, own, 1);
    const float other_high = __shfl_xor_sync(~0u, high, 1), other_unit = __shfl_xor_sync(~0u, unit, 1);
    const uint32_t both = __byte_perm(own, other, odd ? 0x1054 : 0x5410), sign = both & 0x80008000;
    const uint32_t bits = odd ? both >> 4 : both;
    const float units[2] = {odd ? other_unit : unit, odd ? unit : other_unit}, skip = odd ? 4 * job.width[2] : 0;
    const float first[2] = {fmaf(skip, units[0], odd ? other_high : high),
                            fmaf(skip, units[1], odd ? high : other_high)};
    uint32_t w[CUBE_HALF / 2];
#pragma unroll
    for (int k = 0; k < CUBE_HALF / 2; k++) {
        const float by = (float)k * job.width[2];
        w[k] = two_halves(cube_weight(fmaf(by, units[0], first[0]), 0), cube_weight(fmaf(by, units[1], first[1]), 0));
        w[k] = (w[k] & halves_where<0>(bits << (7 - k))) ^ sign;
    }
    *(uint4 *)&points.high[lane / 2][odd ? 4 : 0] = make_uint4(w[0], w[1], w[2], w[3]);
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
__device__ __forceinline__ void add_batch(const scatter_job &job, const cube_points &points, int first, cube_sums &sums)
{
    const int lane = threadIdx.x & 31, g = lane / 4, t = lane % 4;
    const float x[2] = {(float)g * job.width[0], (float)(g + 8) * job.width[0]},
                y[2] = {(float)g * job.width[1], (float)(g + 8) * job.width[1]};
    uint32_t a[4], b[2][2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int at = first + 8 * h + 2 * t;
        const float4 p = points.point[at], q = points.point[at + 1];
        const uint2 in = *(const uint2 *)&points.within[at / 2];
        const uint32_t in_x = in.x << (7 - g), in_y = in.y << (7 - g); /* nodes g and g + 8 are bits 7 and 15 */
        uint32_t w[2], v[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            w[n] = two_halves(cube_weight(fmaf(x[n], p.w, p.x), p.z), cube_weight(fmaf(x[n], q.w, q.x), q.z));
            v[n] = two_halves(cube_weight(fmaf(y[n], p.w, p.y), 0), cube_weight(fmaf(y[n], q.w, q.y), 0));
        }
        a[2 * h] = w[0] & halves_where<0>(in_x);
        a[2 * h + 1] = w[1] & halves_where<1>(in_x);
        b[h][0] = v[0] & halves_where<0>(in_y);
        b[h][1] = v[1] & halves_where<1>(in_y);
    }
    const uint4 *low = (const uint4 *)&points.high[first / 2 + t][0],
                *high = (const uint4 *)&points.high[first / 2 + t + 4][0];
#pragma unroll
    for (int k = 0; k < CUBE_HALF; k += 4) {
        const uint4 l = low[k / 4], u = high[k / 4];
        const uint32_t z0[4] = {l.x, l.y, l.z, l.w}, z1[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int up = 0; up < 2; up++)
                multiply_add(sums.of[k + n][up], a, __hmul2(*(const __half2 *)&b[0][up], *(const __half2 *)&z0[n]),
                             __hmul2(*(const __half2 *)&b[1][up], *(const __half2 *)&z1[n]));
    }
}

/* Add up to 32 points, one of each of the first `count` lanes. at: relative to the tile's first node, .w as packed;
 * nodes: masks_of(). Other lanes have any point. */
__device__ __forceinline__ void add_cube_points(const scatter_job &job, cube_points &points, const int4 &at,
                                                const uint2 &nodes, float value, float relative, int count,
                                                cube_sums &sums)
{
    const int lane = threadIdx.x & 31;
    const float unit = __fdividef(job.root_rate, fabsf(__int_as_float(at.w))), by = unit * job.step;
    points.point[lane] = make_float4((float)((sums.low[0] << job.bits) - at.x) * (by * job.width[0]),
                                     (float)-at.y * (by * job.width[1]), __log2f(fabsf(value) * relative), unit);
    points.within[lane / 2].x[lane & 1] = lane < count ? (uint16_t)(nodes.x >> sums.low[0]) : 0;
    points.within[lane / 2].y[lane & 1] = (uint16_t)nodes.y;
    put_high(job, points, (float)((sums.low[1] << job.bits) - at.z) * (by * job.width[2]), unit,
             nodes.y >> (CUBE_SIDE + sums.low[1]), value < 0);
    __syncwarp();
#pragma unroll 1
    for (int from = 0; from < count; from += CUBE_BATCH)
        add_batch(job, points, from, sums);
    __syncwarp();
}

/* Add `count` taken points from `first` on, at most 32. */
__device__ __forceinline__ void add_taken(const scatter_job &job, cubes_memory &m, float relative, int first, int count,
                                          cube_sums &sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const int entry = m.taken[warp][first + (lane < count ? lane : 0)];
    const int4 at = (&m.list.place[0][0])[entry];
    const uint2 nodes = (&m.list.within[0][0])[entry];
    const float value = (&m.list.value[0][0])[entry];
    add_cube_points(job, m.points[warp], at, nodes, value, relative, count, sums);
}

/* Add the block's list to the warp's nodes. */
__device__ __forceinline__ void add_cubes(const scatter_job &job, cubes_memory &m, float relative, cube_sums &sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t x = 0xffffu << sums.low[0], z = 255u << (CUBE_SIDE + sums.low[1]), earlier = (1u << lane) - 1;
    int taken = 0;
#pragma unroll 1
    for (int part = 0; part < CUBE_WARPS; part++) {
        const int held = m.list.held[part];
        int first = lane;
        bool more = true;
        while (more) {
#pragma unroll
            for (int k = 0; k < 2; k++, first += 32) {
                uint2 nodes = make_uint2(0, 0);
                if (first < held)
                    nodes = m.list.within[part][first];
                const bool near = nodes.x & x && nodes.y & z;
                const uint32_t hits = __ballot_sync(~0u, near);
                if (near)
                    m.taken[warp][taken + __popc(hits & earlier)] = (uint16_t)(part * CUBE_CAP + first);
                taken += __popc(hits);
            }
            __syncwarp();
            more = first - lane < held;
            const bool last = !more && part == CUBE_WARPS - 1;
            while (taken >= 32 || (last && taken > 0)) {
                const int count = min(taken, 32);
                taken -= count;
                add_taken(job, m, relative, taken, count, sums);
            }
        }
    }
}

/* ---- a block ---- */

/* Add sums to the grid (job.set and not `again`: write them), or (slot >= 0) write them to a slot, adding to it if
 * `again`. As put_nodes(). tile_at: the tile's first node. */
__device__ __forceinline__ void put_cubes(const scatter_job &job, const int tile_at[3], float *slots, int slot,
                                          bool again, float relative, const cube_sums &sums)
{
    const int lane = threadIdx.x & 31, *cells = job.points.box.cells;
    const int x = sums.low[0] + lane / 4, y = lane % 4 * 2, z = sums.low[1];
    float *to = slots + (size_t)max(slot, 0) * job.slot;
    size_t width = CUBE_WIDE, plane = CUBE_WIDE * CUBE_SIDE;
    int size[3] = {CUBE_WIDE, CUBE_SIDE, CUBE_SIDE};
    if (slot < 0) {
        width = (size_t)cells[0];
        plane = width * (size_t)cells[1];
        to = job.grid + (size_t)tile_at[2] * plane + (size_t)tile_at[1] * width + (size_t)tile_at[0];
        for (int d = 0; d < 3; d++)
            size[d] = cells[d] - tile_at[d];
    }
    const float strength = (slot < 0 ? job.strength : 1.f) * inverse_power(relative);
    const bool adds = again || (slot < 0 && !job.set),
               whole = size[0] >= CUBE_WIDE && size[1] >= CUBE_SIDE && size[2] >= CUBE_SIDE;
    to += z * plane + y * width + x;
    if (whole && !adds) { /* almost all tiles */
#pragma unroll
        for (int k = 0; k < CUBE_HALF; k++, to += plane)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float *row = to + (n / 2 * CUBE_HALF + n % 2) * width;
                /* Not kept in the cache: the points are. */
                __stcs(row, sums.of[k][n / 2][n % 2] * strength);
                __stcs(row + 8, sums.of[k][n / 2][2 + n % 2] * strength);
            }
        return;
    }
#pragma unroll
    for (int k = 0; k < CUBE_HALF; k++, to += plane)
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int right = n / 2 % 2 * 8, up = n / 4 * CUBE_HALF + n % 2;
            const float sum = sums.of[k][n / 4][n % 4] * strength;
            if (x + right >= size[0] || y + up >= size[1] || z + k >= size[2])
                continue;
            if (adds)
                atomicAdd(to + up * width + right, sum);
            else
                to[up * width + right] = sum;
        }
}

__global__ void __launch_bounds__(CUBE_THREADS, 4)
    sum_cubes(const __grid_constant__ scatter_job job, const __grid_constant__ sums_work work)
{
    extern __shared__ __align__(16) char memory[];
    cubes_memory &m = *(cubes_memory *)memory;
    struct near_task task;
    if (!near_task_of(job, work, task))
        return;
    const int warp = threadIdx.x / 32;
    const unsigned largest = *job.largest;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *job.told = largest;
    near_scan<CUBE_WARPS, CUBE_CAP, false, MASKS, CUBE_AHEAD> scan(job, m.list, task.tile);
    scan.take_part(task.part, task.parts);
    bool more = true, again = false;
    while (more) {
        more = scan.fill();
        more = __syncthreads_or(more);
        const float relative = relative_of(largest);
        if (relative == 0) /* then the host sums them another way */
            return;
        /* Of one list, so that the tensor cores, which truncate by up to 2^-23 of a sum each time, do not add many. */
        cube_sums sums = {{warp % 2 * (CUBE_WIDE / 2), warp / 2 * CUBE_HALF}, {}};
        add_cubes(job, m, relative, sums);
        put_cubes(job, m.list.span[0].low, work.slots, task.slot, again, relative, sums);
        again = true;
        if (more)
            __syncthreads();
    }
}

/* ---- from lists of all boxes (scatter_lists.cuh) ---- */

struct listed_cubes {
    cube_points points[CUBE_WARPS];
    listed_points coming[CUBE_WARPS];
};

__global__ void __launch_bounds__(CUBE_THREADS, 4)
    sum_listed_cubes(const __grid_constant__ scatter_job job, const __grid_constant__ box_lists lists)
{
    __shared__ listed_cubes m;
    const uint32_t warp = threadIdx.x / 32, end = min((blockIdx.x + 1) * TILES_EACH, lists.tiles);
    const float relative = lists_begin(job, lists);
    if (relative == 0)
        return;
    uint32_t tile = blockIdx.x * TILES_EACH;
    list_reader reader(job, lists, tile, CUBE_WARPS, warp, m.coming[warp]);
#pragma unroll 1
    for (; tile < end; tile++) {
        cube_sums sums = {{(int)warp % 2 * (CUBE_WIDE / 2), (int)warp / 2 * CUBE_HALF}, {}};
        int low[3];
        tile_low(job, tile, low);
        reader.turn();
#pragma unroll 1
        while (reader.left > 0) {
            const int count = min(reader.left, 32);
            const listed_point p = reader.take();
            const int4 at = relative_place(job, p.place, low);
            const uint2 nodes = masks_of(job, tile, p.number, at);
            add_cube_points(job, m.points[warp], at, nodes, p.value, relative, count, sums);
        }
        reader.end();
        put_cubes(job, low, NULL, -1, false, relative, sums);
    }
}

} // namespace

#endif
