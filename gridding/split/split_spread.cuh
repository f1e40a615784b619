/* split_spread.cuh: values spread on a mesh by a window. A warp has 8 x 8 x 16 nodes: a lane those of x = lane % 8, y =
 * lane / 8 and 4 more, and all z. Points come 32 at a time; each lane evaluates the window of one along each axis, and
 * then every lane adds the 32 products. Only split_gpu.cu includes this. */
#ifndef MRIRECON_SPLIT_SPREAD_CUH
#define MRIRECON_SPLIT_SPREAD_CUH

#include "gridding/range/gpu/law_gpu.cuh"
#include "gridding/split/split_scan.cuh"

namespace
{

enum {
    SPREAD_EDGE = 8,
    SPREAD_DEEP = 16,
    SPREAD_PART = 8,                                  /* along z, nodes that a point reaches together or not at all */
    SPREAD_STRIDE = 2 * SPREAD_EDGE + SPREAD_DEEP + 4 /* floats of a point's weights: 16-byte stores hit all banks */
};

struct spread_job {
    points_packed points;
    grid_view mesh;
    law_gpu window;
    float *nodes; /* [z][y][x] */
};

struct spread_memory {
    scan_queue queue[WARPS];
    float weight[WARPS][32][SPREAD_STRIDE];
};

/* Weights of a point at `at` on nodes 0 to 7. */
__device__ __forceinline__ void window_weights(const law_gpu &window, float at, float per_reach, float scale, float *to)
{
    float u2[SPREAD_EDGE], p[SPREAD_EDGE];
#pragma unroll
    for (int k = 0; k < SPREAD_EDGE; k++) {
        const float u = ((float)k - at) * per_reach;
        u2[k] = u * u;
    }
    law_poly<SPREAD_EDGE>(window, u2, p);
#pragma unroll
    for (int k = 0; k < SPREAD_EDGE; k++)
        p[k] = u2[k] < 1 ? p[k] * scale : 0;
    *(float4 *)to = make_float4(p[0], p[1], p[2], p[3]);
    *(float4 *)(to + 4) = make_float4(p[4], p[5], p[6], p[7]);
}

/* Add a point's COUNT weights along z, times those of both columns of a lane. */
template <int COUNT>
__device__ __forceinline__ void spread_add(const float *weight, float first, float second, float *one, float *two)
{
#pragma unroll
    for (int k = 0; k < COUNT; k += 4) {
        const float4 four = *(const float4 *)(weight + k);
        const float z[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            one[k + j] = fmaf(first, z[j], one[k + j]);
            two[k + j] = fmaf(second, z[j], two[k + j]);
        }
    }
}

__global__ void __launch_bounds__(32 * WARPS, 4) spread_points(const __grid_constant__ spread_job job)
{
    extern __shared__ __align__(16) char memory[];
    spread_memory &m = *(spread_memory *)memory;
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, x = lane & 7, y = lane >> 3;
    int low[3];
    if (!tile_of<SPREAD_EDGE, SPREAD_EDGE, SPREAD_DEEP>(job.mesh, low))
        return;
    scan_queue &queue = m.queue[warp];
    float(&weight)[32][SPREAD_STRIDE] = m.weight[warp];
    float sum[2][SPREAD_DEEP] = {};
    const auto flush = [&](int count) {
        if (lane < count) {
            const float4 v = queue.point[lane];
            window_weights(job.window, v.x, 1 / job.mesh.reach[0], v.w, weight[lane]);
            window_weights(job.window, v.y, 1 / job.mesh.reach[1], 1, weight[lane] + 8);
            for (int k = 0; k < SPREAD_DEEP; k += SPREAD_EDGE)
                window_weights(job.window, v.z - (float)k, 1 / job.mesh.reach[2], 1, weight[lane] + 16 + k);
            weight[lane][16 + SPREAD_DEEP] = v.z;
        }
        __syncwarp();
        for (int i = 0; i < count; i++) {
            const float *w = weight[i];
            const float first = w[x] * w[8 + y], second = w[x] * w[12 + y];
            const float at = w[16 + SPREAD_DEEP], reach = job.mesh.reach[2];
#pragma unroll
            for (int k = 0; k < SPREAD_DEEP; k += SPREAD_PART)
                if (at > (float)k - reach && at < (float)(k + SPREAD_PART - 1) + reach)
                    spread_add<SPREAD_PART>(w + 16 + k, first, second, sum[0] + k, sum[1] + k);
        }
        __syncwarp();
    };
    scan_points<SPREAD_EDGE, SPREAD_EDGE, SPREAD_DEEP>(job.points, job.mesh, low, queue, flush);
    const int *n = job.mesh.cells;
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int k = 0; k < SPREAD_DEEP; k++) {
            const int node[3] = {low[0] + x, low[1] + y + 4 * half, low[2] + k};
            if (node[0] < n[0] && node[1] < n[1] && node[2] < n[2])
                job.nodes[((size_t)node[2] * (size_t)n[1] + (size_t)node[1]) * (size_t)n[0] + (size_t)node[0]] =
                    sum[half][k];
        }
}

} // namespace

#endif
