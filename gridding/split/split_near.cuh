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

struct near_memory {
    scan_queue queue[WARPS];
    float node[WARPS][NEAR_NODES]; /* NaN: excluded */
};

/* The nodes of the tile within reach of `at` along an axis. */
__device__ __forceinline__ void near_span(float at, float reach, float &first, float &count)
{
    first = fmaxf(0.f, ceilf(at - reach));
    count = fminf(NEAR_EDGE - 1, floorf(at + reach)) - first + 1;
}

/* A node's part of a point's term; (dx, dy, dz): from the point to the node. */
template <int DEGREE>
__device__ __forceinline__ void near_add(const near_job &job, float *node, float value, float dx, float dy, float dz)
{
    const float r2 = fmaf(dz, dz, fmaf(dy, dy, dx * dx));
    if (r2 < job.exclusion2) {
        *node = __int_as_float(0x7fffffff);
    } else if (r2 < job.reach2 && r2 > 0) {
        const float t = fmaf(-2.f * job.per_reach2, r2, 1.f);
        float p = job.c[DEGREE];
#pragma unroll
        for (int d = DEGREE - 1; d >= 0; d--)
            p = fmaf(p, t, job.c[d]);
        const float fall = fmaf(-job.fall, r2, 1.f);
        *node = fmaf(value, fall * fall * (law_root(r2) - p), *node);
    }
}

/* Add the first `count` points of the queue to the tile's nodes: each lane prepares a point, then all lanes share the
 * nodes around one point after the other. */
template <int DEGREE>
__device__ __forceinline__ void near_flush(const near_job &job, const scan_queue &queue, float *node, int count)
{
    const float up = 8388608.f; /* 2^23: adding it rounds down to integers */
    const int lane = threadIdx.x & 31;
    const float4 v = queue.point[lane < count ? lane : 0];
    float first[3], along[3];
    near_span(v.x, job.lattice.reach[0], first[0], along[0]);
    near_span(v.y, job.lattice.reach[1], first[1], along[1]);
    near_span(v.z, job.lattice.reach[2], first[2], along[2]);
    const bool some = lane < count && along[0] > 0 && along[1] > 0 && along[2] > 0;
    const float per_row = __fdividef(1.f, along[0]), plane = along[0] * along[1], all = plane * along[2],
                per_plane = __fdividef(1.f, plane);
    const float from[3] = {(first[0] - v.x) * job.spacing[0], (first[1] - v.y) * job.spacing[1],
                           (first[2] - v.z) * job.spacing[2]};
    const float place = fmaf(first[2], NEAR_EDGE * NEAR_EDGE, fmaf(first[1], NEAR_EDGE, first[0]));
    for (uint32_t left = __ballot_sync(~0u, some); left; left &= left - 1) {
        const int k = __ffs(left) - 1;
        const auto of = [&](float x) { return __shfl_sync(~0u, x, k); };
        const float x0 = of(from[0]), y0 = of(from[1]), z0 = of(from[2]), value = of(v.w), row = of(along[0]),
                    rows = of(plane), nodes = of(all), by_row = of(per_row), by_plane = of(per_plane), base = of(place);
        for (float i = (float)lane; i < nodes; i += 32) {
            const float z = __fmaf_rd(i + 0.5f, by_plane, up) - up, rest = fmaf(-z, rows, i);
            const float y = __fmaf_rd(rest + 0.5f, by_row, up) - up, x = fmaf(-y, row, rest);
            near_add<DEGREE>(job, node + (int)(base + fmaf(z, NEAR_EDGE * NEAR_EDGE, fmaf(y, NEAR_EDGE, x))), value,
                             fmaf(x, job.spacing[0], x0), fmaf(y, job.spacing[1], y0), fmaf(z, job.spacing[2], z0));
        }
        __syncwarp();
    }
}

template <int DEGREE> __global__ void __launch_bounds__(32 * WARPS) add_near(const __grid_constant__ near_job job)
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
    const auto flush = [&](int count) { near_flush<DEGREE>(job, queue, node, count); };
    scan_points<NEAR_EDGE, NEAR_EDGE, NEAR_EDGE>(job.points, job.lattice, low, queue, flush);
    __syncwarp();
    const int *n = job.lattice.cells;
    for (int i = lane; i < NEAR_NODES; i += 32) {
        const int x = low[0] + i % NEAR_EDGE, y = low[1] + i / NEAR_EDGE % NEAR_EDGE,
                  z = low[2] + i / NEAR_EDGE / NEAR_EDGE;
        if (x >= n[0] || y >= n[1] || z >= n[2])
            continue;
        float *to = job.grid + ((size_t)z * n[1] + y) * n[0] + x;
        *to = isnan(node[i]) ? 0.f : *to + node[i];
    }
}

} // namespace

#endif
