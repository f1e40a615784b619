/* scatter_node_points.cuh: how the quick sums of points to 3-D grids (scatter_nodes.cuh) hold points in shared memory.
 */
#ifndef MRIRECON_SCATTER_NODE_POINTS_CUH
#define MRIRECON_SCATTER_NODE_POINTS_CUH

#include "gridding/range/gpu/scatter_near_list.cuh"
#include "gridding/range/gpu/sums_gpu.cuh"

namespace
{

enum {
    TALL = NODES_TILE,      /* a lane's nodes, along z */
    NODES_FLOATS = 4 + TALL /* per stored point: five 16-byte words, an odd number, which avoids bank conflicts */
};

/* CAP: of a warp's list. All points near a tile fit if they are as dense as atoms of water, 12 A the reach and 0.5 A
 * the spacing. WAY_COULOMB: points of either sign are taken apart. */
template <int WAY> struct nodes_cap {
    enum { CAP = 312, SIGNS = WAY == WAY_COULOMB ? 2 : 1 };
    static const enum listing LISTS = WAY == WAY_COULOMB ? SIGNED : LEAN;
};

template <int WAY> struct nodes_memory {
    near_list<WARPS, nodes_cap<WAY>::CAP, nodes_cap<WAY>::LISTS> list;
    alignas(16) float record[WARPS][32][NODES_FLOATS];
    uint16_t taken[WARPS][nodes_cap<WAY>::SIGNS][64]; /* indices of list entries, by the sign of values */
};

/* The sums of a warp: its first node relative to the tile's, and a lane's nodes. */
struct nodes_sum {
    int low[3];
    float sum[TALL];
};

/* Along one axis: u2 at nodes low to low + COUNT for a point at fixed-point position x. Returns the smallest. */
template <int COUNT>
__device__ __forceinline__ float packed_squares(const scatter_job &job, int x, int low, float unit, float u2[COUNT])
{
    const int base = (x + (1 << (job.bits - 1))) >> job.bits;
    const float first = (float)(low - base), fraction = (float)(x - (base << job.bits)) * job.step;
    return node_squares<COUNT>(first, fraction, unit, u2);
}

__device__ __forceinline__ void put_four(float *to, int place, float a, float b, float c, float d)
{
    *(float4 *)(to + 4 * place) = make_float4(a, b, c, d);
}

/* Stored points are grouped by class; `end` is where those of each class end. */
template <int COUNT> struct class_ends {
    int end[COUNT];
};

/* The index at which to store a lane's point of class `own` of COUNT classes (COUNT: none). Called by all
 * lanes. */
template <int COUNT> __device__ __forceinline__ int class_places(int own, class_ends<COUNT> &ends)
{
    const uint32_t before = (1u << (threadIdx.x & 31)) - 1;
    int place = 0, all = 0;
#pragma unroll
    for (int c = 0; c < COUNT; c++) {
        const uint32_t bits = __ballot_sync(~0u, own == c);
        place = own == c ? all + __popc(bits & before) : place;
        ends.end[c] = all += __popc(bits);
    }
    return place;
}

/* ---- values relative to the largest ---- */

/* A power of two by which values, the bits of whose largest magnitude are given, are multiplied: then it is 1 to 2, or
 * less if it was subnormal, or up to 4. 0: it is not finite. */
__host__ __device__ __forceinline__ float relative_of(unsigned largest)
{
    const unsigned exponent = largest >> 23, bits = (exponent < 253 ? 254 - exponent : 1) << 23;
    float relative;
    memcpy(&relative, &bits, sizeof relative);
    return exponent < 255 ? relative : 0;
}

/* 1 / a power of two; of 2^127, 0. */
__device__ __forceinline__ float inverse_power(float power)
{
    return __uint_as_float((254u << 23) - __float_as_uint(power));
}

/* ---- tasks ---- */

/* A task of a launch, or a tile that is not divided; returns false if there is nothing to do. part, parts: the share of
 * its points. */
struct near_task {
    uint32_t tile;
    int slot;
    unsigned long long part, parts;
};

__device__ __forceinline__ bool near_task_of(const scatter_job &job, const sums_work &work, struct near_task &t)
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
    return (near > 0 || job.set) && near <= work.depth;
}

} // namespace

#endif
