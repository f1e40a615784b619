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

/* A warp's points: relative to the first node of its tile, in nodes; w: the value. shift: of the rows that are searched
 * and not empty, the offset from a candidate's number to its place. */
struct scan_queue {
    float4 point[QUEUE];
    uint32_t shift[32];
};

/* Bins [from, from + count) of an axis, modulo all, that [low, high] (in the box's length, between -1 and 2) touches.
 */
__device__ __forceinline__ void scan_span(int bins, float low, float high, int &from, int &count)
{
    const float slack = 1e-3f; /* of at most 512 bins: more than float32's rounding */
    const int a = (int)floorf(low * (float)bins - slack), b = (int)floorf(high * (float)bins + slack);
    count = min(b - a + 1, bins);
    from = a < 0 ? a + bins : a >= bins ? a - bins : a;
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

/* Each axis by a lane of its own. Called by a whole warp. */
__device__ __forceinline__ scan_range scan_range_of(const points_packed &p, const grid_view &g, const int low[3],
                                                    const int edge[3])
{
    const int lane = threadIdx.x & 31, own = lane < 3 ? lane : 0;
    const int first = own == 0 ? low[0] : own == 1 ? low[1] : low[2];
    const int more = (own == 0 ? edge[0] : own == 1 ? edge[1] : edge[2]) - 1;
    const float unit = 1.f / (float)g.nodes[own], reach = g.reach[own];
    const uint32_t middle = fraction_of((first + 0.5 * more) / g.nodes[own]);
    int from, count;
    scan_range r;
    scan_span(p.bins[own], ((float)first - reach) * unit, ((float)(first + more) + reach) * unit, from, count);
    for (int d = 0; d < 3; d++) {
        r.from[d] = __shfl_sync(~0u, from, d);
        r.count[d] = __shfl_sync(~0u, count, d);
        r.middle[d] = __shfl_sync(~0u, middle, d);
        r.nodes_of[d] = (float)g.nodes[d] * (1.f / 4294967296.f);
    }
    return r;
}

/* The points of a lane's row of bins. Of the bins of a row, those up to the end of the axis, and the others, are two
 * parts (parts is 1 or 2). A tile has fewer than 2^20 rows: float32 divides their numbers exactly. */
__device__ __forceinline__ void scan_row(const points_packed &p, const scan_range &r, int row, int parts,
                                         uint32_t &start, uint32_t &held)
{
    const int part = row & (parts - 1), of = row >> (parts - 1),
              plane = (int)__fdividef((float)of + 0.5f, (float)r.count[1]);
    const int over_y = r.from[1] + of - plane * r.count[1], over_z = r.from[2] + plane;
    const int y = over_y < p.bins[1] ? over_y : over_y - p.bins[1],
              z = over_z < p.bins[2] ? over_z : over_z - p.bins[2];
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
        const uint32_t before = sum_before(held, all), some = __ballot_sync(~0u, held > 0), earlier = (1u << lane) - 1;
        __syncwarp();
        if (held > 0)
            queue.shift[__popc(some & earlier)] = start - before;
        __syncwarp();
        for (uint32_t first = 0; first < all; first += 32) {
            /* A candidate's row: those that begin before all of these 32, and those that begin up to it. */
            const uint32_t number = first + lane, ahead = before - first;
            const uint32_t starts = __reduce_or_sync(~0u, held > 0 && ahead < 32 ? 1u << ahead : 0);
            const int at =
                __popc(__ballot_sync(~0u, held > 0 && before < first)) + __popc(starts & ((2u << lane) - 1)) - 1;
            const uint32_t place = queue.shift[at] + number;
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
