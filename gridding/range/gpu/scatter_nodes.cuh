/* scatter_nodes.cuh: quick sums of points to 3-D grids: potentials (scatter_potentials.cuh) of one channel. A block
 * sums a tile from its list of nearby points (scatter_near_list.cuh). Each warp takes from the list, 32 at a time, the
 * points that reach its own nodes, stores the terms that nodes share along each axis in shared memory, and adds the
 * points to TALL nodes per lane. */
#ifndef MRIRECON_SCATTER_NODES_CUH
#define MRIRECON_SCATTER_NODES_CUH

#include "gridding/range/gpu/scatter_potentials.cuh"

namespace
{

/* Add the block's list to the warp's nodes; points of either sign by turns, so that the sums stay small. */
template <int WAY>
__device__ __forceinline__ void add_near_list(const scatter_job &job, nodes_memory<WAY> &m, nodes_sum &nodes)
{
    enum { CAP = nodes_cap<WAY>::CAP, SIGNS = nodes_cap<WAY>::SIGNS };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t earlier = (1u << lane) - 1;
    int taken = 0, other = 0; /* points of the sign whose turn it is, and of the other */
#pragma unroll 1
    for (int part = 0; part < WARPS; part++) {
        const int most = SIGNS > 1 ? max(m.list.held[part], m.list.behind[part]) : m.list.held[part];
        const bool last = part == WARPS - 1;
#pragma unroll 1
        for (int first = 0; first < most || (last && taken + other > 0); first += 32)
#pragma unroll 1
            for (int sign = 0; sign < SIGNS; sign++) {
                const int held = sign > 0 ? m.list.behind[part] : m.list.held[part];
                const int i = first + lane, entry = part * CAP + (sign > 0 ? CAP - 1 - i : i);
                const bool near = i < held && warp_slices((&m.list.slices[0][0])[entry]) != 0;
                const uint32_t hits = __ballot_sync(~0u, near);
                if (near)
                    m.taken[warp][sign][taken + __popc(hits & earlier)] = (uint16_t)entry;
                taken += __popc(hits);
                __syncwarp();
                if (taken >= 32 || (last && first + 32 >= held && taken > 0)) {
                    const int count = min(taken, 32);
                    taken -= count;
                    add_potentials(job, m, sign, taken, count, nodes);
                }
                if (SIGNS > 1) {
                    const int mine = taken;
                    taken = other;
                    other = mine;
                }
            }
    }
}

/* Add sums to the grid (job.set: the first ones are written to it), or (slot >= 0) to a slot, which the first ones are
 * written to. No other block adds to these nodes, and the memory's own additions need not be waited for; they take
 * subnormal numbers for 0. */
__device__ __forceinline__ void put_nodes(const scatter_job &job, const sums_work &work, const near_task &task,
                                          const nodes_sum &nodes, bool first)
{
    const int slot = task.slot;
    int tile[3];
    tile_low(job, task.tile, tile);
    const int lane = threadIdx.x & 31, *cells = job.points.box.cells;
    const int x = nodes.low[0] + lane % SIDE, y = nodes.low[1] + lane / SIDE;
    if (slot >= 0) {
        const size_t plane = (size_t)job.tile[0] * job.tile[1];
        float *to =
            work.slots + (size_t)slot * job.slot + (size_t)nodes.low[2] * plane + (size_t)y * job.tile[0] + (size_t)x;
#pragma unroll
        for (int k = 0; k < TALL; k++)
            to[k * plane] = first ? nodes.sum[k] : to[k * plane] + nodes.sum[k];
        return;
    }
    if (tile[0] + x >= cells[0] || tile[1] + y >= cells[1])
        return;
    const size_t plane = (size_t)cells[0] * cells[1];
    const int deep = min((int)TALL, cells[2] - tile[2] - nodes.low[2]);
    float *to = job.grid + (size_t)(tile[2] + nodes.low[2]) * plane + (size_t)(tile[1] + y) * cells[0] + tile[0] + x;
#pragma unroll
    for (int k = 0; k < TALL; k++)
        if (k < deep) {
            if (job.set && first)
                to[k * plane] = nodes.sum[k] * job.strength;
            else
                atomicAdd(to + k * plane, nodes.sum[k] * job.strength);
        }
}

template <int WAY>
__global__ void __launch_bounds__(THREADS, 3)
    sum_nodes(const __grid_constant__ scatter_job job, const __grid_constant__ sums_work work)
{
    extern __shared__ __align__(16) char memory[];
    nodes_memory<WAY> &m = *(nodes_memory<WAY> *)memory;
    struct near_task task;
    if (!near_task_of(job, work, task))
        return;
    const int warp = threadIdx.x / 32;
    nodes_sum nodes = {{warp % 2 * SIDE, warp / 2 * LINE, 0}, {}};
    near_scan<WARPS, nodes_cap<WAY>::CAP, true, nodes_cap<WAY>::LISTS> scan(job, m.list, task.tile);
    scan.take_part(task.part, task.parts);
    bool more = true;
    for (bool first = true; more; first = false) {
        more = scan.fill();
        more = __syncthreads_or(more);
#pragma unroll
        for (int k = 0; k < TALL; k++)
            nodes.sum[k] = 0;
        add_near_list(job, m, nodes);
        put_nodes(job, work, task, nodes, first);
        if (more)
            __syncthreads();
    }
}

} // namespace

#endif
