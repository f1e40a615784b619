/* split_scan.cuh: the points near a tile of nodes, found by one warp. Only split_gpu.cu includes this.
 *
 * Points lie in compact bins, as uint4: the position in the box, as a fraction of 2^32 along each axis, and the bits of
 * the value. The difference of two positions is that to the nearest image, and exact. */
#ifndef MRIRECON_SPLIT_SCAN_CUH
#define MRIRECON_SPLIT_SCAN_CUH

#include <cstdint>

namespace
{

enum { QUEUE = 64, WARPS = 8 };

/* Passed by value. */
struct points_packed {
    const uint4 *point;
    const uint32_t *first; /* [bins + 1] */
    int bins[3];
};

/* A grid of nodes in the box: `nodes` along an axis, of which a warp has tiles. */
struct grid_view {
    int nodes[3], cells[3]; /* in the box, and in memory */
    float reach[3];         /* of the points, in nodes */
};

/* A warp's points: relative to the first node of its tile, in nodes; w: the value. */
struct scan_queue {
    float4 point[QUEUE];
};

/* Bins [from, from + count) of an axis, modulo all, that [low, high] (in the box's length) touches. */
__device__ __forceinline__ void scan_span(int bins, double low, double high, int &from, int &count)
{
    const double slack = 1e-4;
    const int a = (int)floor(low * bins - slack), b = (int)floor(high * bins + slack);
    count = min(b - a + 1, bins);
    from = a - (a >= 0 ? a / bins : -((-a + bins - 1) / bins)) * bins;
}

__device__ __forceinline__ uint32_t fraction_of(double at)
{
    return (uint32_t)(long long)floor(at * 4294967296.0 + 0.5);
}

/* The bins that a tile's points lie in, and its middle. */
struct scan_range {
    int from[3], count[3];
    uint32_t middle[3];
    float nodes_of[3]; /* of 2^-32 of the box, along an axis */
};

__device__ __forceinline__ scan_range scan_range_of(const points_packed &p, const grid_view &g, const int low[3],
                                                    const int edge[3])
{
    scan_range r;
    for (int d = 0; d < 3; d++) {
        const double unit = 1.0 / g.nodes[d], half = 0.5 * (edge[d] - 1);
        scan_span(p.bins[d], (low[d] - (double)g.reach[d]) * unit, (low[d] + 2 * half + (double)g.reach[d]) * unit,
                  r.from[d], r.count[d]);
        r.middle[d] = fraction_of((low[d] + half) * unit);
        r.nodes_of[d] = (float)g.nodes[d] * (1.f / 4294967296.f);
    }
    return r;
}

/* The points of a lane's row of bins. Of the bins of a row, those up to the end of the axis, and the others, are two
 * parts. */
__device__ __forceinline__ void scan_row(const points_packed &p, const scan_range &r, int row, int parts,
                                         uint32_t &start, uint32_t &held)
{
    const int part = row % parts, y = (r.from[1] + row / parts % r.count[1]) % p.bins[1],
              z = (r.from[2] + row / parts / r.count[1]) % p.bins[2];
    const uint32_t line = (uint32_t)((z * p.bins[1] + y) * p.bins[0]);
    const int a = part ? 0 : r.from[0],
              b = part ? r.from[0] + r.count[0] - p.bins[0] : min(r.from[0] + r.count[0], p.bins[0]);
    start = __ldg(p.first + line + a);
    held = __ldg(p.first + line + b) - start;
}

/* The sum of x over the lanes before this one; all: over all lanes. */
__device__ __forceinline__ uint32_t sum_before(uint32_t x, uint32_t &all)
{
    const int lane = threadIdx.x & 31;
    uint32_t sum = x;
#pragma unroll
    for (int s = 1; s < 32; s *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, sum, s);
        sum += lane >= s ? other : 0;
    }
    all = __shfl_sync(~0u, sum, 31);
    return sum - x;
}

/* A point relative to the tile's middle, in nodes; w: its value. */
__device__ __forceinline__ float4 scan_point(const points_packed &p, const scan_range &r, uint32_t place)
{
    const uint4 q = __ldg(p.point + place);
    return make_float4((float)(int)(q.x - r.middle[0]) * r.nodes_of[0], (float)(int)(q.y - r.middle[1]) * r.nodes_of[1],
                       (float)(int)(q.z - r.middle[2]) * r.nodes_of[2], __uint_as_float(q.w));
}

/* Remove the queue's first 32 points. */
__device__ __forceinline__ void queue_advance(scan_queue &queue)
{
    const int lane = threadIdx.x & 31;
    __syncwarp();
    const float4 moved = queue.point[32 + lane];
    __syncwarp();
    queue.point[lane] = moved;
    __syncwarp();
}

/* Find the points within reach of the tile of EX x EY x EZ nodes from `low` on, and hand them over in the order of the
 * bins: flush(count), at most 32 points at a time, which are in the queue. Called by a whole warp. */
template <int EX, int EY, int EZ, class FLUSH>
__device__ __forceinline__ void scan_points(const points_packed &p, const grid_view &g, const int low[3],
                                            scan_queue &queue, const FLUSH &flush)
{
    const int edge[3] = {EX, EY, EZ}, lane = threadIdx.x & 31;
    const scan_range r = scan_range_of(p, g, low, edge);
    const float half[3] = {0.5f * (EX - 1), 0.5f * (EY - 1), 0.5f * (EZ - 1)};
    const int parts = r.from[0] + r.count[0] > p.bins[0] ? 2 : 1, rows = parts * r.count[1] * r.count[2];
    int waiting = 0;
    for (int first_row = 0; first_row < rows; first_row += 32) {
        uint32_t start = 0, held = 0, all;
        if (first_row + lane < rows)
            scan_row(p, r, first_row + lane, parts, start, held);
        const uint32_t before = sum_before(held, all);
        for (uint32_t number = lane; number - lane < all; number += 32) {
            int at = 0;
#pragma unroll
            for (int s = 16; s > 0; s /= 2)
                at += __shfl_sync(~0u, before, at + s) <= number ? s : 0;
            const uint32_t place = __shfl_sync(~0u, start - before, at) + number;
            const float4 v = number < all ? scan_point(p, r, place) : make_float4(0, 0, 0, 0);
            const bool near = fabsf(v.x) < half[0] + g.reach[0] && fabsf(v.y) < half[1] + g.reach[1] &&
                              fabsf(v.z) < half[2] + g.reach[2] && v.w != 0;
            const uint32_t hits = __ballot_sync(~0u, near);
            if (near)
                queue.point[waiting + __popc(hits & ((1u << lane) - 1))] =
                    make_float4(v.x + half[0], v.y + half[1], v.z + half[2], v.w);
            waiting += __popc(hits);
            __syncwarp();
            if (waiting >= 32) {
                flush(32);
                waiting -= 32;
                queue_advance(queue);
            }
        }
    }
    if (waiting)
        flush(waiting);
}

/* Blocks of WARPS warps, 2 x 2 x 2: the first node of a warp's tile; false: outside the grid. */
template <int EX, int EY, int EZ> __device__ __forceinline__ bool tile_of(const grid_view &g, int low[3])
{
    const int warp = threadIdx.x / 32;
    low[0] = (int)(blockIdx.x * 2 + (warp & 1)) * EX;
    low[1] = (int)(blockIdx.y * 2 + (warp >> 1 & 1)) * EY;
    low[2] = (int)(blockIdx.z * 2 + (warp >> 2)) * EZ;
    return low[0] < g.cells[0] && low[1] < g.cells[1] && low[2] < g.cells[2];
}

template <int EX, int EY, int EZ> dim3 tiles_of(const grid_view &g)
{
    const int edge[3] = {2 * EX, 2 * EY, 2 * EZ};
    unsigned n[3];
    for (int d = 0; d < 3; d++)
        n[d] = (unsigned)((g.cells[d] + edge[d] - 1) / edge[d]);
    return dim3(n[0], n[1], n[2]);
}

} // namespace

#endif
