/* scatter_nodes.cuh: quick sums of points to 3-D grids: potentials (scatter_potentials.cuh), and Gaussians cut to
 * spheres, of one channel. A block sums a tile from its list of nearby points (scatter_near_list.cuh). Each warp takes
 * from the list, 32 at a time, the points that reach its own nodes, stores the terms that nodes share along each axis
 * in shared memory, and adds the points to DEEP nodes per lane. */
#ifndef MRIRECON_SCATTER_NODES_CUH
#define MRIRECON_SCATTER_NODES_CUH

#include "gridding/range/gpu/scatter_potentials.cuh"

namespace
{

/* ---- Gaussians cut to spheres ---- */

/* Which of a lane's nodes are within a doubtful point's reach: bit k, in double precision if float32 cannot tell. */
__device__ __noinline__ uint32_t settled(const scatter_job &job, uint32_t tile, uint32_t point, int4 rel, int x, int y,
                                         int z)
{
    double at[3];
    exact_place(job, tile, point, rel, at);
    const double reach = job.law.reach * (double)fabsf(__int_as_float(rel.w));
    uint32_t within = 0;
    for (int k = 0; k < DEEP; k++) {
        const int node[3] = {x, y, z + k};
        double sum = 0;
        for (int d = 2; d >= 0; d--) {
            const double away = (node[d] - at[d]) * job.spacing[d];
            sum = __dadd_rn(sum, __dmul_rn(away, away));
        }
        within |= (sum < __dmul_rn(reach, reach)) << k;
    }
    return within;
}

/* Store a point: its position along x and y and the step to the next node, scaled so that the rate times u2 is a
 * square; the same along z at the lane's nodes, and the weights there times the value. Points are grouped by the nodes
 * of a lane that they reach: all, the lower half or the upper; doubtful points come last. */
__device__ __forceinline__ struct class_ends put_gaussian(const scatter_job &job, nodes_memory<WAY_GAUSSIAN> &m,
                                                          const taken_point &t, bool some, const int low[3])
{
    enum { HALF = DEEP / 2 };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const float scale = __int_as_float(t.place.w), unit = __fdividef(job.root_rate, fabsf(scale));
    const float by_x = unit * job.width[0], by_y = unit * job.width[1];
    const float x = (float)((low[0] << job.bits) - t.place.x) * job.step,
                y = (float)((low[1] << job.bits) - t.place.y) * job.step;
    const float near_x = fmaxf(fmaxf(x, -x - (SIDE - 1)), 0.f) * by_x, near_y = fmaxf(fmaxf(y, -y - 3), 0.f) * by_y;
    float u2[DEEP], least[2] = {INFINITY, INFINITY};
    (void)packed_squares<DEEP>(job, t.place.z, low[2], unit * unit * job.spacing2[2], u2);
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        least[k / HALF] = fminf(least[k / HALF], u2[k]);
    const float rest = job.law.rate * 1.00001f - fmaf(near_x, near_x, near_y * near_y);
    const bool lower = least[0] < rest, upper = least[1] < rest;
    const int own = !some || !(lower || upper) ? (int)CLASS_NONE : scale < 0 ? 3 : lower && upper ? 0 : lower ? 1 : 2;
    struct class_ends ends;
    const int place = class_places<4>(own, ends);
    if (own != CLASS_NONE) {
        float *r = m.record[warp][place], weight[DEEP];
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            weight[k] = law_exp2(-u2[k]) * t.value;
        put_four(r, 0, x * by_x, y * by_y, by_x, by_y);
        put_four(r, 1, u2[0], u2[1], u2[2], u2[3]);
        put_four(r, 2, u2[4], u2[5], u2[6], u2[7]);
        put_four(r, 3, weight[0], weight[1], weight[2], weight[3]);
        put_four(r, 4, weight[4], weight[5], weight[6], weight[7]);
        if (scale < 0) /* whose entry it is */
            m.square[warp][place] = __int_as_float(m.taken[warp][0][lane]);
    }
    return ends;
}

/* Add a point to nodes FROM to TO (exclusive) of the lane. */
template <int FROM, int TO>
__device__ __forceinline__ void add_gaussian(const scatter_job &job, const float4 *r, float sum[DEEP])
{
    const int lane = threadIdx.x & 31;
    const float4 flat = r[0];
    const float x = fmaf((float)(lane % SIDE), flat.z, flat.x), y = fmaf((float)(lane / SIDE), flat.w, flat.y);
    const float square = fmaf(x, x, y * y), rest = job.law.rate - square, side = law_exp2(-square);
#pragma unroll
    for (int k = FROM; k < TO; k += 4) {
        const float4 d = r[1 + k / 4], w = r[3 + k / 4];
        const float deep[4] = {d.x, d.y, d.z, d.w}, weight[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (deep[n] < rest)
                sum[k + n] = fmaf(side, weight[n], sum[k + n]);
    }
}

template <int FROM, int TO>
__device__ __forceinline__ void add_gaussians_from(const scatter_job &job, const float (*record)[NODES_FLOATS],
                                                   int from, int to, float sum[DEEP])
{
#pragma unroll 2
    for (int i = from; i < to; i++)
        add_gaussian<FROM, TO>(job, (const float4 *)record[i], sum);
}

/* Add a doubtful point, entry `entry` of the list. */
__device__ __forceinline__ void add_doubtful(const scatter_job &job, const nodes_memory<WAY_GAUSSIAN> &m, uint32_t tile,
                                             const float4 *r, int entry, nodes_sum &nodes)
{
    enum { CAP = nodes_cap<WAY_GAUSSIAN>::CAP };
    const int lane = threadIdx.x & 31, part = entry / CAP, at = entry % CAP;
    const float4 flat = r[0], w[2] = {r[3], r[4]};
    const float x = fmaf((float)(lane % SIDE), flat.z, flat.x), y = fmaf((float)(lane / SIDE), flat.w, flat.y);
    const float side = law_exp2(-fmaf(x, x, y * y));
    const float weight[DEEP] = {w[0].x, w[0].y, w[0].z, w[0].w, w[1].x, w[1].y, w[1].z, w[1].w};
    const float4 d[2] = {r[1], r[2]};
    const float deep[DEEP] = {d[0].x, d[0].y, d[0].z, d[0].w, d[1].x, d[1].y, d[1].z, d[1].w};
    const float rest = job.law.rate - fmaf(x, x, y * y);
    uint32_t within = 0;
    float doubt = INFINITY;
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        within |= (deep[k] < rest) << k;
        doubt = fminf(doubt, fabsf(deep[k] - rest));
    }
    if (doubt < 2e-5f * job.law.rate)
        within = settled(job, tile, m.list.point[part][at], m.list.place[part][at], nodes.low[0] + lane % SIDE,
                         nodes.low[1] + lane / SIDE, nodes.low[2]);
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        if (within >> k & 1)
            nodes.sum[k] = fmaf(side, weight[k], nodes.sum[k]);
}

__device__ __forceinline__ void add_gaussians(const scatter_job &job, nodes_memory<WAY_GAUSSIAN> &m, uint32_t tile,
                                              int count, nodes_sum &nodes)
{
    enum { HALF = DEEP / 2 };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const struct class_ends n = put_gaussian(job, m, taken_entry(m, 0, lane, lane < count), lane < count, nodes.low);
    const float(*record)[NODES_FLOATS] = m.record[warp];
    __syncwarp();
    add_gaussians_from<0, DEEP>(job, record, 0, n.end[0], nodes.sum);
    add_gaussians_from<0, HALF>(job, record, n.end[0], n.end[1], nodes.sum);
    add_gaussians_from<HALF, DEEP>(job, record, n.end[1], n.end[2], nodes.sum);
#pragma unroll 1
    for (int i = n.end[2]; i < n.end[3]; i++)
        add_doubtful(job, m, tile, (const float4 *)record[i], __float_as_int(m.square[warp][i]), nodes);
    __syncwarp();
}

/* ---- a block ---- */

__device__ __forceinline__ void add_taken(const scatter_job &job, nodes_memory<WAY_COULOMB> &m, uint32_t, int sign,
                                          int count, nodes_sum &nodes)
{
    add_coulombs(job, m, sign, count, nodes);
}

__device__ __forceinline__ void add_taken(const scatter_job &job, nodes_memory<WAY_SHIFTED> &m, uint32_t, int,
                                          int count, nodes_sum &nodes)
{
    add_shifteds(job, m, count, nodes);
}

__device__ __forceinline__ void add_taken(const scatter_job &job, nodes_memory<WAY_GAUSSIAN> &m, uint32_t tile, int,
                                          int count, nodes_sum &nodes)
{
    add_gaussians(job, m, tile, count, nodes);
}

/* Add the block's list to the warp's nodes. */
template <int WAY>
__device__ __forceinline__ void add_near_list(const scatter_job &job, nodes_memory<WAY> &m, uint32_t tile,
                                              nodes_sum &nodes)
{
    enum { CAP = nodes_cap<WAY>::CAP, SIGNS = nodes_cap<WAY>::SIGNS };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const float half[3] = {half_side(SIDE), half_side(4), half_side(DEEP)};
    const float middle[3] = {(float)nodes.low[0] + 3.5f, (float)nodes.low[1] + 1.5f, (float)nodes.low[2] + 3.5f};
    int taken[SIGNS] = {}, waiting = 0;
#pragma unroll 1
    for (int part = 0; part < WARPS; part++) {
        const int held = m.list.held[part];
        const bool last = part == WARPS - 1;
        for (int first = 0; first < held || (last && waiting > 0); first += 32) {
            const int i = first + lane;
            bool near = false, negative = false;
            if (i < held) {
                const int4 place = m.list.place[part][i];
                near = place_reaches(job, place, middle, half);
                negative = SIGNS > 1 && place.w < 0;
            }
            waiting = 0;
#pragma unroll
            for (int sign = 0; sign < SIGNS; sign++) {
                const bool own = near && negative == (sign > 0);
                const uint32_t hits = __ballot_sync(~0u, own);
                if (own)
                    m.taken[warp][sign][taken[sign] + __popc(hits & ((1u << lane) - 1))] = (uint16_t)(part * CAP + i);
                taken[sign] += __popc(hits);
            }
            __syncwarp();
#pragma unroll
            for (int sign = 0; sign < SIGNS; sign++) {
                int &here = taken[sign];
                if (here >= 32 || (last && first + 32 >= held && here > 0)) {
                    add_taken(job, m, tile, sign, min(here, 32), nodes);
                    here = max(here - 32, 0);
                    const uint16_t moved = m.taken[warp][sign][32 + lane];
                    __syncwarp();
                    m.taken[warp][sign][lane] = moved;
                    __syncwarp();
                }
                waiting += here;
            }
        }
    }
}

/* A task of a launch, or a tile that is not divided; returns false if there is nothing to do. part, parts: the share of
 * its points. */
struct near_task {
    uint32_t tile;
    int slot;
    unsigned long long part, parts;
};

__device__ __forceinline__ bool near_task_of(const sums_work &work, struct near_task &t)
{
    if (work.tasks) {
        const sums_task task = work.tasks[blockIdx.x];
        t.tile = task.tile;
        t.slot = task.slot;
        t.part = task.from / work.depth;
        t.parts = (work.near[task.tile] + work.depth - 1) / work.depth;
        return true;
    }
    t.tile = work.first + blockIdx.x;
    t.slot = -1;
    t.part = 0;
    t.parts = 1;
    const unsigned long long near = work.near ? work.near[t.tile] : 1;
    return near > 0 && near <= work.depth;
}

/* Add sums to the grid, or (slot >= 0) write them to a slot. No other block adds to these nodes, and the memory's own
 * additions need not be waited for; they take subnormal numbers for 0. */
__device__ __forceinline__ void put_nodes(const scatter_job &job, const sums_work &work, const near_task &task,
                                          const nodes_sum &nodes)
{
    const int slot = task.slot;
    int tile[3];
    tile_low(job, task.tile, tile);
    const int lane = threadIdx.x & 31, *cells = job.points.box.cells;
    const int x = nodes.low[0] + lane % SIDE, y = nodes.low[1] + lane / SIDE;
    if (slot >= 0) {
        const size_t plane = (size_t)job.tile[0] * job.tile[1];
        float *to = work.slots + (size_t)slot * TOGETHER * plane * job.tile[2] + (size_t)nodes.low[2] * plane +
                    (size_t)y * job.tile[0] + (size_t)x;
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            to[k * plane] = nodes.sum[k];
        return;
    }
    if (tile[0] + x >= cells[0] || tile[1] + y >= cells[1])
        return;
    const size_t plane = (size_t)cells[0] * cells[1];
    const int deep = min((int)DEEP, cells[2] - tile[2] - nodes.low[2]);
    float *to = job.grid + (size_t)(tile[2] + nodes.low[2]) * plane + (size_t)(tile[1] + y) * cells[0] + tile[0] + x;
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        if (k < deep)
            atomicAdd(to + k * plane, nodes.sum[k] * job.strength);
}

template <int WAY>
__global__ void __launch_bounds__(THREADS, WAY == WAY_GAUSSIAN ? 3 : 4)
    sum_nodes(const __grid_constant__ scatter_job job, const __grid_constant__ sums_work work)
{
    extern __shared__ __align__(16) char memory[];
    nodes_memory<WAY> &m = *(nodes_memory<WAY> *)memory;
    struct near_task task;
    if (!near_task_of(work, task))
        return;
    const int warp = threadIdx.x / 32;
    nodes_sum nodes = {{warp % 2 * SIDE, warp / 2 % 2 * 4, warp / 4 * DEEP}, {}}, total = nodes;
    near_scan<WARPS, nodes_cap<WAY>::CAP, WAY != WAY_GAUSSIAN> scan(job, m.list, task.tile);
    scan.take_part(task.part, task.parts);
    bool more = true;
    while (more) {
        more = scan.fill();
        more = __syncthreads_or(more);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            nodes.sum[k] = 0;
        add_near_list(job, m, task.tile, nodes);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            total.sum[k] += nodes.sum[k];
        if (more)
            __syncthreads();
    }
    put_nodes(job, work, task, total);
}

} // namespace

#endif
