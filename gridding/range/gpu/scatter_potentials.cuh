/* scatter_potentials.cuh: points added to a warp's nodes by the laws of potentials: t^2 / r, and 1 / r less a smooth
 * part (scatter_nodes.cuh). */
#ifndef MRIRECON_SCATTER_POTENTIALS_CUH
#define MRIRECON_SCATTER_POTENTIALS_CUH

#include "gridding/range/gpu/scatter_node_points.cuh"

namespace
{

/* P of u2 = (r / reach)^2 that 1 / sqrt(u2) and its first two derivatives meet at the reach: the law of WAY_SHIFTED is
 * (1 / sqrt(u2) - P) / reach. In float32, too, P(1) is 1, so that nodes beyond the reach need no test: u2 is cut off at
 * 1 for them, and what is added is 0. */
__device__ __forceinline__ float shifted_smooth(float u2)
{
    return fmaf(fmaf(0.375f, u2, -1.25f), u2, 1.875f);
}

/* A stored point has its position along x and y from the warp's first node and the factor of lengths, then u2 along z
 * at the lane's nodes. WAY_COULOMB: lengths are in units of the reach times the magnitude of the value, so that
 * 1 / sqrt(u2) includes the value, and `by` is minus the value's square; WAY_SHIFTED: of the reach, and `by` is the
 * value. Returns the sum with the node's term added. */
template <int WAY> __device__ __forceinline__ float potential_add(float u2, float by, float sum)
{
    if (WAY == WAY_SHIFTED) {
        const float within = __saturatef(u2);
        return fmaf(by, law_root(within) - shifted_smooth(within), sum);
    }
    const float t = __saturatef(fmaf(by, u2, 1));
    return fmaf(t * law_root(u2), t, sum);
}

/* Points of one sign (WAY_SHIFTED: of either) are grouped by the nodes of a lane that they reach: by slices, from the
 * first or up to the last; of those that reach a slice or two between, with what lies on one side. The last class is
 * stored as it was packed, relative to the warp's first node: points among the nodes or within half a spacing of them,
 * where float32 would round the distance to the nearest node by more than 2e-6, and those whose squared value float32
 * cannot hold. */
enum { CLASS_PLAIN = 7, CLASSES, CLASS_NONE = CLASSES };

/* The class of a point that reaches some slices (warp_slices()). */
__device__ __forceinline__ int slices_class(uint32_t slices)
{
    /* Of none, 0, 1, 01, 2, 02, 12, 012; 3, 03, 13, 013, 23, 023, 123, all, from the lowest four bits on. */
    const uint32_t low = 0x11143358, high = 0x02040206;
    return (int)((slices < 8 ? low >> 4 * slices : high >> 4 * (slices - 8)) & 15);
}

/* class_places() of the first `count` lanes, all of which have a class. Bits are counted where roots are evaluated,
 * here no oftener than needed. */
__device__ __forceinline__ int potential_places(int own, int count, class_ends<CLASSES> &ends)
{
    const uint32_t plain = __ballot_sync(~0u, own == CLASS_PLAIN);
    uint32_t same = plain;
    int first = 0, all = 0;
#pragma unroll
    for (int c = 0; c < CLASS_PLAIN; c++) {
        const uint32_t bits = __ballot_sync(~0u, own == c);
        same = own == c ? bits : same;
        first = own == c ? all : first;
        if (c < CLASS_PLAIN - 1)
            ends.end[c] = all += __popc(bits);
    }
    ends.end[CLASS_PLAIN - 1] = ends.end[CLASS_PLAIN] = count;
    if (plain)
        ends.end[CLASS_PLAIN - 1] -= __popc(plain);
    first = own == CLASS_PLAIN ? ends.end[CLASS_PLAIN - 1] : first;
    return first + __popc(same & ((1u << (threadIdx.x & 31)) - 1));
}

/* Store a point, one of `count`, in each lane; it reaches some slices, or none if the lane has no point. */
template <int WAY>
__device__ __forceinline__ class_ends<CLASSES> put_potential(const scatter_job &job, nodes_memory<WAY> &m,
                                                             const int4 &at, uint32_t slices, int count,
                                                             const int low[3])
{
    const int rel[3] = {(low[0] << job.bits) - at.x, (low[1] << job.bits) - at.y, (low[2] << job.bits) - at.z};
    const float value = __int_as_float(at.w), square = value * value, per_reach = job.per_reach, *w = job.width;
    const float x = (float)rel[0] * job.step, y = (float)rel[1] * job.step, z = (float)rel[2] * job.step;
    const bool scaled = WAY == WAY_SHIFTED || (square > 1e-12f && square < 1e12f);
    const bool among = fabsf(x + 0.5f * (SIDE - 1)) < 0.5f * SIDE && fabsf(y + 0.5f * (LINE - 1)) < 0.5f * LINE &&
                       fabsf(z + 0.5f * (TALL - 1)) < 0.5f * TALL;
    const int own = slices == 0 || (scaled && !among) ? slices_class(slices) : (int)CLASS_PLAIN;
    class_ends<CLASSES> ends;
    const int place = potential_places(own, count, ends);
    if (own == CLASS_NONE)
        return ends;
    float *r = m.record[threadIdx.x / 32][place];
    const float unit = WAY == WAY_SHIFTED ? per_reach : __fdividef(per_reach, fabsf(value));
    if (own == CLASS_PLAIN) {
        put_four(r, 0, __int_as_float(rel[0]), __int_as_float(rel[1]), __int_as_float(rel[2]), value);
        return ends;
    }
    float deep[TALL];
    const float step = w[2] * unit, first = z * step;
#pragma unroll
    for (int k = 0; k < TALL; k++) {
        const float away = fmaf((float)k, step, first);
        deep[k] = away * away;
    }
    put_four(r, 0, x * w[0] * unit, y * w[1] * unit, unit, WAY == WAY_SHIFTED ? value : -square);
#pragma unroll
    for (int k = 0; k < TALL; k += 4)
        put_four(r, 1 + k / 4, deep[k], deep[k + 1], deep[k + 2], deep[k + 3]);
    return ends;
}

/* Add stored points [from, to) to slices FROM to TO (exclusive) of the lane, which is x and y from the warp's first
 * node. */
template <int WAY, int FROM, int TO>
__device__ __forceinline__ void add_potential(const float (*record)[NODES_FLOATS], int from, int to, float x, float y,
                                              float sum[TALL])
{
#pragma unroll 2
    for (int i = from; i < to; i++) {
        const float4 *r = (const float4 *)record[i], flat = r[0];
        const float dx = fmaf(x, flat.z, flat.x), dy = fmaf(y, flat.z, flat.y), off = fmaf(dx, dx, dy * dy);
#pragma unroll
        for (int s = FROM; s < TO; s++) {
            const float4 deep = r[1 + s];
            float *to = sum + s * SLICE;
            to[0] = potential_add<WAY>(deep.x + off, flat.w, to[0]);
            to[1] = potential_add<WAY>(deep.y + off, flat.w, to[1]);
            to[2] = potential_add<WAY>(deep.z + off, flat.w, to[2]);
            to[3] = potential_add<WAY>(deep.w + off, flat.w, to[3]);
        }
    }
}

/* A term of a point of the last class; 0 where it lies on the node. */
template <int WAY> __device__ __forceinline__ float potential_plain(float u2, float value)
{
    const float within = __saturatef(u2), root = law_root(within), t = 1 - within;
    return u2 > 0 ? (WAY == WAY_SHIFTED ? root - shifted_smooth(within) : t * t * root) * value : 0;
}

template <int WAY>
__device__ __forceinline__ void add_potential_plain(const scatter_job &job, const float *r, float sum[TALL])
{
    const int lane = threadIdx.x & 31;
    const int x = __float_as_int(r[0]) + (lane % SIDE << job.bits),
              y = __float_as_int(r[1]) + (lane / SIDE << job.bits);
    const float unit = job.per_reach * job.step, *w = job.width;
    const float dx = (float)x * (unit * w[0]), dy = (float)y * (unit * w[1]), off = fmaf(dx, dx, dy * dy);
#pragma unroll
    for (int k = 0; k < TALL; k++) {
        const float dz = (float)(__float_as_int(r[2]) + (k << job.bits)) * (unit * w[2]);
        sum[k] += potential_plain<WAY>(fmaf(dz, dz, off), WAY == WAY_COULOMB ? fabsf(r[3]) : r[3]);
    }
}

/* Negative points (WAY_COULOMB) are added to the sums with the other sign: one loop serves both signs, which is half
 * the code, and quicker. */
__device__ __forceinline__ void sums_turn(float sum[TALL])
{
#pragma unroll
    for (int k = 0; k < TALL; k++)
        sum[k] = -sum[k];
}

/* Add list entries m.taken[sign][first] and on, at most 32. */
template <int WAY>
__device__ __forceinline__ void add_potentials(const scatter_job &job, nodes_memory<WAY> &m, int sign, int first,
                                               int count, nodes_sum &nodes)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const float x = (float)(lane % SIDE) * job.width[0], y = (float)(lane / SIDE) * job.width[1];
    const int entry = m.taken[warp][sign][first + (lane < count ? lane : 0)];
    const uint32_t slices = lane < count ? warp_slices((&m.list.slices[0][0])[entry]) : 0;
    const class_ends<CLASSES> n = put_potential<WAY>(job, m, (&m.list.place[0][0])[entry], slices, count, nodes.low);
    const float(*record)[NODES_FLOATS] = m.record[warp];
    __syncwarp();
    if (WAY == WAY_COULOMB && sign > 0)
        sums_turn(nodes.sum);
    add_potential<WAY, 0, 4>(record, 0, n.end[0], x, y, nodes.sum);
    add_potential<WAY, 0, 3>(record, n.end[0], n.end[1], x, y, nodes.sum);
    add_potential<WAY, 1, 4>(record, n.end[1], n.end[2], x, y, nodes.sum);
    add_potential<WAY, 0, 2>(record, n.end[2], n.end[3], x, y, nodes.sum);
    add_potential<WAY, 2, 4>(record, n.end[3], n.end[4], x, y, nodes.sum);
    add_potential<WAY, 0, 1>(record, n.end[4], n.end[5], x, y, nodes.sum);
    add_potential<WAY, 3, 4>(record, n.end[5], n.end[6], x, y, nodes.sum);
#pragma unroll 1
    for (int i = n.end[6]; i < n.end[7]; i++)
        add_potential_plain<WAY>(job, record[i], nodes.sum);
    if (WAY == WAY_COULOMB && sign > 0)
        sums_turn(nodes.sum);
    __syncwarp();
}

} // namespace

#endif
