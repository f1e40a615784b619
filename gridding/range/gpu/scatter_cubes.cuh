/* scatter_cubes.cuh: Gaussians cut to cubes, of one channel, to 3-D grids by tensor cores. The sums at a tile of 16^3
 * nodes are a matrix product: rows are nodes along x, columns are nodes along y and z, and the inner dimension is
 * points. One factor is a point's weight along x times its value, the other the product of its weights along y and z.
 * Weights are in half precision, sums in float32: the error of a single point is 4e-4 (l2), that of many points is
 * smaller.
 *
 * A block computes the weights of 128 points at a time, with one thread per point and axis. Each of its four warps sums
 * four planes of the tile, and skips batches of 16 consecutive points if none of them reaches its planes. If float32
 * cannot decide whether a node is within reach, it is decided in double precision. */
#ifndef MRIRECON_SCATTER_CUBES_CUH
#define MRIRECON_SCATTER_CUBES_CUH

#include "gridding/range/gpu/scatter_node_points.cuh"

#include <cuda_fp16.h>

namespace
{

enum {
    CUBE_WARPS = 4,
    CUBE_THREADS = 32 * CUBE_WARPS,
    CUBE_SIDE = 16,                       /* side of a tile in nodes */
    CUBE_PLANES = CUBE_SIDE / CUBE_WARPS, /* planes per warp */
    CUBE_CAP = 192,                       /* capacity of a warp's list of points */
    CUBE_CHUNK = 128,                     /* points whose weights are in shared memory at a time */
    CUBE_BATCH = 16,                      /* points of one matrix product */
    CUBE_ROW = 40,                        /* half-precision values per point: along x, along y, and padding against bank
                                           * conflicts */
    CUBE_PAIR = 20,                       /* words per two points: along z */
    /* Points after which sums are added to the grid: the tensor cores' accumulation truncates by up to 2^-23 of the sum
     * each time. */
    CUBE_SUMMED = 2048
};

struct cubes_memory {
    near_list<CUBE_WARPS, CUBE_CAP> list;
    alignas(16) __half flat[CUBE_CHUNK][CUBE_ROW];
    alignas(16) __half2 high[CUBE_CHUNK / 2][CUBE_PAIR];
    uint16_t planes[CUBE_CHUNK]; /* planes that a point reaches: bit k */
    float relative;              /* what makes the largest value 1 */
};

/* Halves hold values relative to the largest. 0: they cannot. */
__host__ __device__ __forceinline__ float relative_of(float largest)
{
    const float relative = largest > 0 ? 1 / largest : 1;
    return (largest >= 0 && largest < INFINITY && relative < INFINITY) ? relative : 0;
}

/* ---- weights ---- */

/* Which of 16 nodes along axis d are within reach of a point: bit k. x: its position relative to the first of them. */
__device__ __noinline__ uint32_t exact_mask(const scatter_job &job, uint32_t tile, uint32_t point, int4 rel, int d)
{
    double at[3];
    exact_place(job, tile, point, rel, at);
    const double reach = job.law.reach * (double)__int_as_float(rel.w);
    uint32_t mask = 0;
    for (int k = 0; k < CUBE_SIDE; k++)
        mask |= (fabs((k - at[d]) * job.spacing[d]) < reach) << k;
    return mask;
}

__device__ __forceinline__ uint32_t node_mask(const scatter_job &job, uint32_t tile, uint32_t point, int4 rel, int d,
                                              float at, float reach)
{
    const float low = at - reach, high = at + reach; /* nodes between these, exclusive */
    if (fabsf(low - rintf(low)) < 1e-4f || fabsf(high - rintf(high)) < 1e-4f)
        return exact_mask(job, tile, point, rel, d);
    const int first = max((int)ceilf(fminf(low, 64.f)), 0), last = min((int)floorf(fmaxf(high, -64.f)), CUBE_SIDE - 1);
    return first > last ? 0 : (2u << last) - (1u << first);
}

/* Item `item` of a chunk: axis item % 3 of points item / 3 * 32 to .. + 31, one per lane. first: the chunk's first
 * point. */
__device__ __forceinline__ void make_weights(const scatter_job &job, cubes_memory &m, uint32_t tile, int item,
                                             int first, int all)
{
    const int lane = threadIdx.x & 31, d = item % 3, own = item / 3 * 32 + lane;
    int part = 0, at = first + own;
    for (; part < CUBE_WARPS - 1 && at >= m.list.held[part]; part++)
        at -= m.list.held[part];
    const bool there = first + own < all;
    at = there ? at : 0;
    const int4 rel = m.list.place[part][at];
    const float value = m.list.value[part][at], scale = __int_as_float(rel.w);
    const float place = (float)(d == 0 ? rel.x : d == 1 ? rel.y : rel.z) * job.step;
    const float unit = __fdividef(job.root_rate, scale) * job.width[d], begin = -place * unit;
    const uint32_t within =
        there ? node_mask(job, tile, m.list.point[part][at], rel, d, place, job.reach * scale * (float)job.nodes_of[d])
              : 0;
    /* Multiplying a weight by a factor adds to its logarithm. */
    const float factor = d == 0 ? __log2f(fabsf(value) * m.relative) : 0;
    const uint32_t sign = d == 0 && value < 0 ? 0x80008000u : 0;
    uint32_t words[CUBE_SIDE / 2];
#pragma unroll
    for (int k = 0; k < CUBE_SIDE; k += 2) {
        const float a = fmaf((float)k, unit, begin), b = fmaf((float)(k + 1), unit, begin);
        const float v = within >> k & 1 ? law_exp2(fmaf(-a, a, factor)) : 0;
        const float w = within >> (k + 1) & 1 ? law_exp2(fmaf(-b, b, factor)) : 0;
        const __half2 pair = __floats2half2_rn(v, w);
        words[k / 2] = *(const uint32_t *)&pair ^ sign;
    }
    if (d == 2) {
        uint16_t *to = (uint16_t *)&m.high[own / 2][0] + own % 2;
#pragma unroll
        for (int k = 0; k < CUBE_SIDE; k++)
            to[2 * k] = (uint16_t)(words[k / 2] >> (k % 2 * 16));
        m.planes[own] = (uint16_t)within;
        return;
    }
    uint4 *to = (uint4 *)&m.flat[own][d * CUBE_SIDE];
    to[0] = make_uint4(words[0], words[1], words[2], words[3]);
    to[1] = make_uint4(words[4], words[5], words[6], words[7]);
}

/* ---- products ---- */

/* Four matrices of 8 x 8 half-precision values, transposed. Each lane gives the address of a row of 8: lanes 0 to 7
 * those of the first matrix, and so on.
 */
__device__ __forceinline__ uint4 load_transposed(const __half *row)
{
    uint4 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
    return r;
}

/* D += A B, half-precision inputs, float32 sums. Lane 4 g + t has rows g and g + 8 of A, column g of B, and columns 2t
 * and 2t + 1 of rows g and g + 8 of D. */
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint4 &a, __half2 b0, __half2 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(*(uint32_t *)&b0), "r"(*(uint32_t *)&b1));
}

/* A warp's sums: planes, halves along y, and a lane's share of 16 x 8 nodes. */
struct cube_sums {
    float of[CUBE_PLANES][2][4];
};

/* Points `first` to first + CUBE_BATCH of the chunk. */
__device__ __forceinline__ void add_batch(const cubes_memory &m, int first, cube_sums &sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, matrix = lane / 8, row = lane % 8, t = lane % 4;
    const uint4 x = load_transposed(&m.flat[first + matrix / 2 * 8 + row][matrix % 2 * 8]);
    const uint4 y = load_transposed(&m.flat[first + matrix % 2 * 8 + row][CUBE_SIDE + matrix / 2 * 8]);
    const uint4 low = *(const uint4 *)&m.high[first / 2 + t][warp * CUBE_PLANES],
                high = *(const uint4 *)&m.high[first / 2 + t + 4][warp * CUBE_PLANES];
    const uint32_t z0[CUBE_PLANES] = {low.x, low.y, low.z, low.w}, z1[CUBE_PLANES] = {high.x, high.y, high.z, high.w};
    const uint32_t y0[2] = {y.x, y.z}, y1[2] = {y.y, y.w};
#pragma unroll
    for (int k = 0; k < CUBE_PLANES; k++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            multiply_add(sums.of[k][half], x, __hmul2(*(const __half2 *)&y0[half], *(const __half2 *)&z0[k]),
                         __hmul2(*(const __half2 *)&y1[half], *(const __half2 *)&z1[k]));
}

/* Add the block's list to the warp's planes. */
__device__ __forceinline__ void add_cubes(const scatter_job &job, cubes_memory &m, uint32_t tile, cube_sums &sums,
                                          int *summed)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    int all = 0;
    for (int part = 0; part < CUBE_WARPS; part++)
        all += m.list.held[part];
    for (int first = 0; first < all; first += CUBE_CHUNK) {
        const int count = min(all - first, (int)CUBE_CHUNK), groups = (count + 31) / 32;
        for (int item = warp; item < 3 * groups; item += CUBE_WARPS)
            make_weights(job, m, tile, item, first, all);
        __syncthreads();
        for (int from = 0; from < count; from += 32) {
            const uint32_t near = __ballot_sync(~0u, (m.planes[from + lane] >> (warp * CUBE_PLANES) & 15) != 0);
            if (near & 0xffff)
                add_batch(m, from, sums);
            if (near >> 16)
                add_batch(m, from + CUBE_BATCH, sums);
        }
        __syncthreads();
    }
    *summed += all;
}

/* ---- a block ---- */

/* Add sums to the grid (job.set and not `again`: write them), or (slot >= 0) write them to a slot, adding to it if
 * `again`; then set them to 0. As put_nodes(). */
__device__ __forceinline__ void put_cubes(const scatter_job &job, const cubes_memory &m, const sums_work &work,
                                          const near_task &task, bool again, cube_sums &sums)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, *cells = job.points.box.cells, slot = task.slot;
    const int x = lane / 4, y = lane % 4 * 2, z = warp * CUBE_PLANES;
    int tile[3];
    for (int d = 0; d < 3; d++)
        tile[d] = m.list.low[d];
    float *to = work.slots + (size_t)max(slot, 0) * TOGETHER * CUBE_SIDE * CUBE_SIDE * CUBE_SIDE;
    size_t width = CUBE_SIDE, plane = CUBE_SIDE * CUBE_SIDE;
    int size[3] = {CUBE_SIDE, CUBE_SIDE, CUBE_SIDE};
    if (slot < 0) {
        width = (size_t)cells[0];
        plane = width * (size_t)cells[1];
        to = job.grid + (size_t)tile[2] * plane + (size_t)tile[1] * width + (size_t)tile[0];
        for (int d = 0; d < 3; d++)
            size[d] = cells[d] - tile[d];
    }
    const float strength = __fdividef(slot < 0 ? job.strength : 1.f, m.relative);
    const bool adds = again || (slot < 0 && !job.set),
               whole = size[0] >= CUBE_SIDE && size[1] >= CUBE_SIDE && size[2] >= CUBE_SIDE;
    to += z * plane + y * width + x;
#pragma unroll
    for (int k = 0; k < CUBE_PLANES; k++, to += plane)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int right = n / 2 * 8, up = half * 8 + n % 2;
                const float sum = sums.of[k][half][n] * strength;
                if (!whole && (x + right >= size[0] || y + up >= size[1] || z + k >= size[2]))
                    continue;
                if (adds)
                    atomicAdd(to + up * width + right, sum);
                else
                    to[up * width + right] = sum;
            }
    sums = {};
}

__global__ void __launch_bounds__(CUBE_THREADS, 6)
    sum_cubes(const __grid_constant__ scatter_job job, const __grid_constant__ sums_work work)
{
    extern __shared__ __align__(16) char memory[];
    cubes_memory &m = *(cubes_memory *)memory;
    struct near_task task;
    if (!near_task_of(job, work, task))
        return;
    int summed = 0;
    cube_sums sums = {};
    const float relative = relative_of(__uint_as_float(*job.largest));
    if (relative == 0) /* then the host sums them another way */
        return;
    if (threadIdx.x == 0)
        m.relative = relative; /* the barriers of a list follow */
    near_scan<CUBE_WARPS, CUBE_CAP, false> scan(job, m.list, task.tile);
    scan.take_part(task.part, task.parts);
    bool more = true, again = false;
    while (more) {
        more = scan.fill();
        more = __syncthreads_or(more);
        add_cubes(job, m, task.tile, sums, &summed);
        if (summed >= CUBE_SUMMED || !more) {
            put_cubes(job, m, work, task, again, sums);
            again = true;
            summed = 0;
        }
        if (more)
            __syncthreads();
    }
}

} // namespace

#endif
