/* scatter_potentials.cuh: points added to a warp's nodes by the laws of potentials: t^2 / r, and 1 / r less a smooth
 * part (scatter_nodes.cuh). */
#ifndef MRIRECON_SCATTER_POTENTIALS_CUH
#define MRIRECON_SCATTER_POTENTIALS_CUH

#include "gridding/range/gpu/scatter_node_points.cuh"

namespace
{

/* ---- t^2 / r ---- */

/* Points of one sign are grouped by the nodes of a lane that they reach: all, the lower half or the upper. u2 is
 * divided by the value's square, so that 1 / sqrt(u2) includes the value; the last class is for points where this is
 * not possible. */
enum { CLASS_PLAIN = CLASSES - 1 };

__device__ __forceinline__ struct class_ends put_coulomb(const scatter_job &job, nodes_memory<WAY_COULOMB> &m,
                                                         const taken_point &t, bool some, const int low[3])
{
    enum { HALF = DEEP / 2 };
    const int warp = threadIdx.x / 32;
    const float reach = job.reach * fabsf(__int_as_float(t.place.w)), square = t.value * t.value;
    const bool scaled = square > 1e-12f && square < 1e12f;
    float side[SIDE], row[4], deep[DEEP], unit = __frcp_rn(reach * reach);
    unit = scaled ? __fdividef(unit, square) : unit;
    const float flat = packed_squares<SIDE>(job, t.place.x, low[0], unit * job.spacing2[0], side) +
                       packed_squares<4>(job, t.place.y, low[1], unit * job.spacing2[1], row);
    (void)packed_squares<DEEP>(job, t.place.z, low[2], unit * job.spacing2[2], deep);
    float least[2] = {INFINITY, INFINITY};
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        least[k / HALF] = fminf(least[k / HALF], deep[k]);
    const float by = scaled ? square : 1;
    const bool lower = (flat + least[0]) * by < 1, upper = (flat + least[1]) * by < 1;
    const bool fast = scaled && flat + fminf(least[0], least[1]) > 1e-18f;
    const int half = lower && upper ? 0 : lower ? 1 : 2;
    const int own = !some || t.value == 0 || !(lower || upper) ? (int)CLASS_NONE : !fast ? (int)CLASS_PLAIN : half;
    struct class_ends ends;
    const int place = class_places<CLASSES>(own, ends);
    if (own != CLASS_NONE) {
        float *r = m.record[warp][place];
        const float plain = own == CLASS_PLAIN && scaled ? square : 1; /* on a node: u2 unchanged */
        put_four(r, 0, deep[0] * plain, deep[1] * plain, deep[2] * plain, deep[3] * plain);
        put_four(r, 1, deep[4] * plain, deep[5] * plain, deep[6] * plain, deep[7] * plain);
        put_four(r, 2, side[0] * plain, side[1] * plain, side[2] * plain, side[3] * plain);
        put_four(r, 3, side[4] * plain, side[5] * plain, side[6] * plain, side[7] * plain);
        put_four(r, 4, row[0] * plain, row[1] * plain, row[2] * plain, row[3] * plain);
        m.square[warp][place] = own == CLASS_PLAIN ? t.value : square;
    }
    return ends;
}

/* t^2 / sqrt(u2) at nodes FROM to TO (exclusive) for points whose record contains u2 / value^2. */
template <bool NEGATIVE, int FROM, int TO>
__device__ __forceinline__ void add_coulomb(const float (*record)[NODES_FLOATS], const float *square, int from, int to,
                                            float sum[DEEP])
{
    const int lane = threadIdx.x & 31;
#pragma unroll(TO - FROM == DEEP ? 4 : 2)
    for (int i = from; i < to; i++) {
        const float *r = record[i], off = r[DEEP + lane % SIDE] + r[DEEP + SIDE + lane / SIDE], by = square[i];
#pragma unroll
        for (int k = FROM; k < TO; k += 4) {
            const float4 four = *(const float4 *)(r + k);
            const float deep[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float u2 = deep[n] + off, t = __saturatef(fmaf(-by, u2, 1)), over = t * law_root(u2);
                sum[k + n] = fmaf(NEGATIVE ? -over : over, t, sum[k + n]);
            }
        }
    }
}

/* The same for points that lie on a node, or whose squared value overflows or underflows float32. */
__device__ __noinline__ float coulomb_plain(float u2, float value)
{
    const float t = __saturatef(1 - u2);
    return u2 > 0 ? t * t * rsqrtf(u2) * value : 0;
}

template <bool NEGATIVE>
__device__ __forceinline__ void add_coulombs_of(const float (*record)[NODES_FLOATS], const float *square,
                                                const class_ends &n, float sum[DEEP])
{
    enum { HALF = DEEP / 2 };
    add_coulomb<NEGATIVE, 0, DEEP>(record, square, 0, n.end[0], sum);
    add_coulomb<NEGATIVE, 0, HALF>(record, square, n.end[0], n.end[1], sum);
    add_coulomb<NEGATIVE, HALF, DEEP>(record, square, n.end[1], n.end[2], sum);
}

__device__ __forceinline__ void add_coulombs(const scatter_job &job, nodes_memory<WAY_COULOMB> &m, int negative,
                                             int count, nodes_sum &nodes)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const struct class_ends n =
        put_coulomb(job, m, taken_entry(m, negative, lane, lane < count), lane < count, nodes.low);
    const float(*record)[NODES_FLOATS] = m.record[warp];
    const float *square = m.square[warp];
    __syncwarp();
    if (negative)
        add_coulombs_of<true>(record, square, n, nodes.sum);
    else
        add_coulombs_of<false>(record, square, n, nodes.sum);
    for (int i = n.end[2]; i < n.end[3]; i++) {
        const float *r = record[i], off = r[DEEP + lane % SIDE] + r[DEEP + SIDE + lane / SIDE];
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            nodes.sum[k] += coulomb_plain(off + r[k], square[i]);
    }
    __syncwarp();
}

/* ---- 1 / r less a smooth part ---- */

/* P of u2 = (r / reach)^2 that 1 / sqrt(u2) and its first two derivatives meet at the reach: the law is
 * (1 / sqrt(u2) - P) / reach. In float32, too, P(1) is 1, so that nodes beyond the reach need no test: u2 is cut off at
 * 1 for them, and what is added is 0. */
__device__ __forceinline__ float shifted_smooth(float u2)
{
    return fmaf(fmaf(0.375f, u2, -1.25f), u2, 1.875f);
}

/* Points are grouped by the nodes of a lane that they reach, as those of t^2 / r; the last class is for points on
 * nodes. */
__device__ __forceinline__ struct class_ends put_shifted(const scatter_job &job, nodes_memory<WAY_SHIFTED> &m,
                                                         const taken_point &t, bool some, const int low[3])
{
    enum { HALF = DEEP / 2 };
    const int warp = threadIdx.x / 32;
    const float reach = job.reach * fabsf(__int_as_float(t.place.w)), unit = __frcp_rn(reach * reach);
    float side[SIDE], row[4], deep[DEEP];
    const float flat = packed_squares<SIDE>(job, t.place.x, low[0], unit * job.spacing2[0], side) +
                       packed_squares<4>(job, t.place.y, low[1], unit * job.spacing2[1], row);
    (void)packed_squares<DEEP>(job, t.place.z, low[2], unit * job.spacing2[2], deep);
    float least[2] = {INFINITY, INFINITY};
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        least[k / HALF] = fminf(least[k / HALF], deep[k]);
    const bool lower = flat + least[0] < 1, upper = flat + least[1] < 1;
    const bool fast = flat + fminf(least[0], least[1]) > 1e-18f;
    const int half = lower && upper ? 0 : lower ? 1 : 2;
    const int own = !some || t.value == 0 || !(lower || upper) ? (int)CLASS_NONE : !fast ? (int)CLASS_PLAIN : half;
    struct class_ends ends;
    const int place = class_places<CLASSES>(own, ends);
    if (own != CLASS_NONE) {
        float *r = m.record[warp][place];
        put_four(r, 0, deep[0], deep[1], deep[2], deep[3]);
        put_four(r, 1, deep[4], deep[5], deep[6], deep[7]);
        put_four(r, 2, side[0], side[1], side[2], side[3]);
        put_four(r, 3, side[4], side[5], side[6], side[7]);
        put_four(r, 4, row[0], row[1], row[2], row[3]);
        m.square[warp][place] = t.value;
    }
    return ends;
}

/* Add points to nodes FROM to TO (exclusive) of the lane. */
template <int FROM, int TO>
__device__ __forceinline__ void add_shifted(const float (*record)[NODES_FLOATS], const float *value, int from, int to,
                                            float sum[DEEP])
{
    const int lane = threadIdx.x & 31;
#pragma unroll(TO - FROM == DEEP ? 4 : 2)
    for (int i = from; i < to; i++) {
        const float *r = record[i], off = r[DEEP + lane % SIDE] + r[DEEP + SIDE + lane / SIDE], by = value[i];
#pragma unroll
        for (int k = FROM; k < TO; k += 4) {
            const float4 four = *(const float4 *)(r + k);
            const float deep[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float u2 = __saturatef(deep[n] + off);
                sum[k + n] = fmaf(by, law_root(u2) - shifted_smooth(u2), sum[k + n]);
            }
        }
    }
}

/* The same for points that lie on a node. */
__device__ __noinline__ float shifted_plain(float u2, float value)
{
    const float within = __saturatef(u2);
    return u2 > 0 ? (rsqrtf(within) - shifted_smooth(within)) * value : 0;
}

__device__ __forceinline__ void add_shifteds(const scatter_job &job, nodes_memory<WAY_SHIFTED> &m, int count,
                                             nodes_sum &nodes)
{
    enum { HALF = DEEP / 2 };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const struct class_ends n = put_shifted(job, m, taken_entry(m, 0, lane, lane < count), lane < count, nodes.low);
    const float(*record)[NODES_FLOATS] = m.record[warp];
    const float *value = m.square[warp];
    __syncwarp();
    add_shifted<0, DEEP>(record, value, 0, n.end[0], nodes.sum);
    add_shifted<0, HALF>(record, value, n.end[0], n.end[1], nodes.sum);
    add_shifted<HALF, DEEP>(record, value, n.end[1], n.end[2], nodes.sum);
    for (int i = n.end[2]; i < n.end[3]; i++) {
        const float *r = record[i], off = r[DEEP + lane % SIDE] + r[DEEP + SIDE + lane / SIDE];
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            nodes.sum[k] += shifted_plain(off + r[k], value[i]);
    }
    __syncwarp();
}

} // namespace

#endif
