/* split_near.cuh: the near part is added to the smooth part, and excluded nodes become 0. A warp has 8^3 nodes in
 * shared memory. It takes one point after the other; its lanes share the nodes of the box around the point, as far as
 * they are the warp's, so that every node adds in the order of the points. Only split_gpu.cu includes this. */
#ifndef MRIRECON_SPLIT_NEAR_CUH
#define MRIRECON_SPLIT_NEAR_CUH

#include "gridding/range/gpu/law_gpu.cuh"
#include "gridding/split/split_scan.cuh"

namespace
{

enum { NEAR_EDGE = 8, NEAR_NODES = NEAR_EDGE * NEAR_EDGE * NEAR_EDGE };

struct near_job {
    points_packed points;
    grid_view lattice;
    float c[RANGE_DEGREE_MOST + 1]; /* of the law, in 1 - 2 (r / reach)^2 */
    float fall;                     /* 1 / fall^2 */
    float spacing[3];
    float reach2, per_reach2; /* of the law: squared, and 1 over that */
    float exclusion2;
    float *grid;
};

/* A point whose nodes a warp's lanes share: from it to the first of them; its value; the nodes of a row, of a plane,
 * and all; 1 / those of a row and of a plane; 2^23 plus the first node's place in the tile. An odd number of 16-byte
 * words, which avoids bank conflicts. */
struct near_point {
    float x, y, z, value;
    float row, plane, all, per_row;
    float per_plane, base, unused[2];
};

struct near_memory {
    scan_queue queue[WARPS];
    alignas(16) near_point point[WARPS][32];
    float node[WARPS][NEAR_NODES]; /* NaN: excluded */
};

/* The nodes of the tile within reach of `at` along an axis. */
__device__ __forceinline__ void near_span(float at, float reach, float &first, float &count)
{
    first = fmaxf(0.f, ceilf(at - reach));
    count = fminf(NEAR_EDGE - 1, floorf(at + reach)) - first + 1;
}

/* 2^23: adding it rounds to integers, which are then the lowest bits. */
__device__ __forceinline__ float near_up()
{
    return 8388608.f;
}

/* Node i of those around a point: what the node holds with the point's term added; *at: its place in the tile. */
template <int DEGREE>
__device__ __forceinline__ float near_term(const near_job &job, const near_point &p, float i, const float *node,
                                           int *at)
{
    const float up = near_up();
    const float z = __fmaf_rd(i + 0.5f, p.per_plane, up) - up, rest = fmaf(-z, p.plane, i);
    const float y = __fmaf_rd(rest + 0.5f, p.per_row, up) - up, x = fmaf(-y, p.row, rest);
    const float dx = fmaf(x, job.spacing[0], p.x), dy = fmaf(y, job.spacing[1], p.y), dz = fmaf(z, job.spacing[2], p.z);
    const float r2 = fmaf(dz, dz, fmaf(dy, dy, dx * dx)), t = fmaf(-2.f * job.per_reach2, r2, 1.f);
    *at = __float_as_int(fmaf(z, NEAR_EDGE * NEAR_EDGE, fmaf(y, NEAR_EDGE, x + p.base))) & (NEAR_NODES - 1);
    float sum = job.c[DEGREE];
#pragma unroll
    for (int d = DEGREE - 1; d >= 0; d--)
        sum = fmaf(sum, t, job.c[d]);
    const float fall = fmaf(-job.fall, r2, 1.f), held = node[*at];
    const float more = fmaf(p.value, fall * fall * (law_root(r2) - sum), held);
    return r2 < job.exclusion2 ? __int_as_float(0x7fffffff) : r2 < job.reach2 && r2 > 0 ? more : held;
}

/* Each lane prepares a point of the queue's first `count`; returns how many reach the tile. */
__device__ __forceinline__ int near_prepare(const near_job &job, const scan_queue &queue, near_point *point, int count)
{
    const int lane = threadIdx.x & 31;
    const float4 v = queue.point[lane < count ? lane : 0];
    float first[3], along[3];
    near_span(v.x, job.lattice.reach[0], first[0], along[0]);
    near_span(v.y, job.lattice.reach[1], first[1], along[1]);
    near_span(v.z, job.lattice.reach[2], first[2], along[2]);
    const bool some = lane < count && along[0] > 0 && along[1] > 0 && along[2] > 0;
    const uint32_t there = __ballot_sync(~0u, some);
    if (some) {
        const float plane = along[0] * along[1];
        float4 *to = (float4 *)&point[__popc(there & ((1u << lane) - 1))];
        to[0] = make_float4((first[0] - v.x) * job.spacing[0], (first[1] - v.y) * job.spacing[1],
                            (first[2] - v.z) * job.spacing[2], v.w);
        to[1] = make_float4(along[0], plane, plane * along[2], __fdividef(1.f, along[0]));
        to[2] =
            make_float4(__fdividef(1.f, plane),
                        near_up() + fmaf(first[2], NEAR_EDGE * NEAR_EDGE, fmaf(first[1], NEAR_EDGE, first[0])), 0, 0);
    }
    __syncwarp();
    return __popc(there);
}

/* Add the first `count` points of the queue to the tile's nodes: all lanes share the nodes around one point after the
 * other. */
template <int DEGREE>
__device__ __forceinline__ void near_flush(const near_job &job, const scan_queue &queue, near_point *point, float *node,
                                           int count)
{
    const float lane = (float)(threadIdx.x & 31);
    const int held = near_prepare(job, queue, point, count);
    for (int k = 0; k < held; k++) {
        const near_point p = point[k];
        for (float i = lane; i < p.all; i += 32) {
            int at;
            const float sum = near_term<DEGREE>(job, p, i, node, &at);
            node[at] = sum;
        }
        __syncwarp();
    }
}

template <int DEGREE> __global__ void __launch_bounds__(32 * WARPS, 6) add_near(const __grid_constant__ near_job job)
{
    extern __shared__ __align__(16) char memory[];
    near_memory &m = *(near_memory *)memory;
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    int low[3];
    if (!tile_of<NEAR_EDGE, NEAR_EDGE, NEAR_EDGE>(job.lattice, low))
        return;
    scan_queue &queue = m.queue[warp];
    float *node = m.node[warp];
    for (int i = lane; i < NEAR_NODES; i += 32)
        node[i] = 0;
    __syncwarp();
    const auto flush = [&](int count) { near_flush<DEGREE>(job, queue, m.point[warp], node, count); };
    scan_points<NEAR_EDGE, NEAR_EDGE, NEAR_EDGE>(job.points, job.lattice, low, queue, flush);
    __syncwarp();
    const int *n = job.lattice.cells;
    for (int i = lane; i < NEAR_NODES; i += 32) {
        const int x = low[0] + i % NEAR_EDGE, y = low[1] + i / NEAR_EDGE % NEAR_EDGE,
                  z = low[2] + i / NEAR_EDGE / NEAR_EDGE;
        if (x >= n[0] || y >= n[1] || z >= n[2])
            continue;
        float *to = job.grid + ((size_t)z * n[1] + y) * n[0] + x;
        if (isnan(node[i]))
            *to = 0;
        else
            atomicAdd(to, node[i]); /* the node's only one: the memory adds, and no thread waits for the old value */
    }
}

} // namespace

#endif
