/* scatter_record.cuh: a warp's record of a point, and its addition to a lane's nodes (scatter.cu). */
#ifndef MRIRECON_SCATTER_RECORD_CUH
#define MRIRECON_SCATTER_RECORD_CUH

#include "gridding/range/gpu/scatter_near.cuh"

#include <cub/block/block_scan.cuh>

namespace
{

/* ---- a block's memory ---- */

template <int CHANNELS> struct point_list {
    double at[3][LIST]; /* in nodes from the tile's first */
    float scale[LIST];
    float value[CHANNELS][LIST];
};

struct row_list {
    unsigned long long before[LINES + 1]; /* points of the rows before; [rows] is all */
    uint32_t first[LINES];
    int image[3][LINES];
};

/* A warp's record of each of 32 points: along the third axis, the first and the second. */
template <int WAY, bool SOLID> struct record {
    enum {
        NODES = shape<SOLID>::SIDE + shape<SOLID>::ROWS + DEEP,
        STRIDE = NODES % 8 == 4 ? NODES : (NODES + 3) / 8 * 8 + 4 /* 16-byte accesses of 8 lanes fill the banks */
    };
};

template <int WAY, int CHANNELS, bool SOLID> struct block_memory {
    struct point_list<CHANNELS> list;
    struct row_list rows;
    alignas(16) float record[WARPS][32][record<WAY, SOLID>::STRIDE];
    float value[WARPS][32][CHANNELS];
    uint16_t taken[WARPS][64]; /* indices into the list */
    uint32_t held[WARPS];
    typename cub::BlockScan<unsigned long long, THREADS>::TempStorage scan;
};

/* ---- a warp's nodes ---- */

/* A lane's part of the sum: its warp's first node, relative to the tile's, and its sums. */
template <int CHANNELS> struct warp_nodes {
    int low[3];
    int edge[3];
    float sum[CHANNELS][DEEP];
};

/* Whether a node is within reach, exactly. */
__device__ __noinline__ bool within_reach(const scatter_job &job, const double at[3], double scale, const int node[3])
{
    double sum = 0;
    for (int d = 2; d >= 0; d--) {
        const double away = (node[d] - at[d]) * job.spacing[d];
        sum = __dadd_rn(sum, __dmul_rn(away, away));
    }
    const double reach = job.law.reach * scale;
    return sum < __dmul_rn(reach, reach);
}

/* More than the error of u2 in float32. */
#define DOUBT 1e-6f

/* Along one axis: u2 at nodes low to low + COUNT, of a point at `at`. Returns the least. */
template <int COUNT> __device__ __forceinline__ float squares(double at, int low, float unit, float u2[COUNT])
{
    const double base = rint(at);
    return node_squares<COUNT>((float)(low - base), (float)(at - base), unit, u2);
}

template <int COUNT> __device__ __forceinline__ void put(const float *from, float *to)
{
    if (COUNT % 4 == 0) {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4)
            *(float4 *)(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
    } else {
        for (int i = 0; i < COUNT; i++)
            to[i] = from[i];
    }
}

/* A separable law's weights from squares: 0 beyond reach, 1 along an unused axis. A node that float32 cannot decide is
 * decided in double precision. */
template <int COUNT>
__device__ __forceinline__ void axis_weights(const scatter_job &job, double at, double scale, int d, int low,
                                             const float u2[COUNT], float *to)
{
    const bool there = d < job.points.box.dim;
    float weight[COUNT];
    if (job.law.exponential)
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            weight[i] = job.law.peak * law_exp2(-job.law.rate * u2[i]);
    else
        law_poly<COUNT>(job.law, u2, weight);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        bool in = u2[i] < 1;
        if (fabsf(u2[i] - 1) < DOUBT)
            in = fabs((low + i - at) * job.spacing[d]) < job.law.reach * scale;
        weight[i] = !there ? 1 : in ? weight[i] : 0;
    }
    put<COUNT>(weight, to);
}

/* A lane's part of a record. */
template <bool SOLID> struct axes {
    float side[shape<SOLID>::SIDE], row[shape<SOLID>::ROWS], deep[DEEP];
};

/* unit: of u2, in spacings. Returns the least u2, about. */
template <bool SOLID>
__device__ __forceinline__ float make_axes(const scatter_job &job, const double at[3], float unit, const int low[3],
                                           axes<SOLID> &x)
{
    enum { A = shape<SOLID>::FIRST, B = shape<SOLID>::SECOND, C = shape<SOLID>::THIRD };
    return squares<shape<SOLID>::SIDE>(at[A], low[A], unit * job.spacing2[A], x.side) +
           squares<shape<SOLID>::ROWS>(at[B], low[B], unit * job.spacing2[B], x.row) +
           squares<DEEP>(at[C], low[C], unit * job.spacing2[C], x.deep);
}

/* A record: along the third axis, the first and the second. */
template <int WAY, bool SOLID>
__device__ __forceinline__ void put_record(const scatter_job &job, const double at[3], float scale, const int low[3],
                                           const axes<SOLID> &x, float *r)
{
    enum { SIDE = shape<SOLID>::SIDE, ROWS = shape<SOLID>::ROWS };
    enum { A = shape<SOLID>::FIRST, B = shape<SOLID>::SECOND, C = shape<SOLID>::THIRD };
    if (WAY == WAY_SEPARABLE) {
        axis_weights<DEEP>(job, at[C], scale, C, low[C], x.deep, r);
        axis_weights<SIDE>(job, at[A], scale, A, low[A], x.side, r + DEEP);
        axis_weights<ROWS>(job, at[B], scale, B, low[B], x.row, r + DEEP + SIDE);
        return;
    }
    put<DEEP>(x.deep, r);
    put<SIDE>(x.side, r + DEEP);
    put<ROWS>(x.row, r + DEEP + SIDE);
}

__device__ __forceinline__ void read_deep(const float *from, float to[DEEP])
{
#pragma unroll
    for (int i = 0; i < DEEP; i += 4) {
        const float4 four = *(const float4 *)(from + i);
        to[i] = four.x;
        to[i + 1] = four.y;
        to[i + 2] = four.z;
        to[i + 3] = four.w;
    }
}

/* t = 1 - u2 of a lane's nodes; if float32 cannot decide whether that is above 0, double precision does. Rare. */
template <bool SOLID>
__device__ __noinline__ void settle(const scatter_job &job, const double *x, const double *y, const double *z,
                                    float scale, const int low[3], float t[DEEP])
{
    enum { SIDE = shape<SOLID>::SIDE };
    const int lane = threadIdx.x & 31;
    const double where[3] = {*x, *y, *z};
    for (int k = 0; k < DEEP; k++)
        if (fabsf(t[k]) < DOUBT) {
            int node[3];
            node[shape<SOLID>::FIRST] = low[shape<SOLID>::FIRST] + lane % SIDE;
            node[shape<SOLID>::SECOND] = low[shape<SOLID>::SECOND] + lane / SIDE;
            node[shape<SOLID>::THIRD] = low[shape<SOLID>::THIRD] + k;
            t[k] = within_reach(job, where, scale, node) ? DOUBT : -DOUBT;
        }
}

/* t of a lane's nodes, with all decided. */
template <int CHANNELS, bool SOLID>
__device__ __forceinline__ void read_t(const scatter_job &job, const point_list<CHANNELS> &list, uint32_t place,
                                       const int low[3], const float *r, float t[DEEP])
{
    enum { SIDE = shape<SOLID>::SIDE };
    const int lane = threadIdx.x & 31;
    const float off = 1 - (r[DEEP + lane % SIDE] + r[DEEP + SIDE + lane / SIDE]);
    float doubt = 1;
    read_deep(r, t);
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        t[k] = off - t[k];
        doubt = fminf(doubt, fabsf(t[k]));
    }
    if (doubt < DOUBT) {
        float settled[DEEP]; /* separate, so that the others stay in registers */
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            settled[k] = t[k];
        settle<SOLID>(job, &list.at[0][place], &list.at[1][place], &list.at[2][place], list.scale[place], low, settled);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            t[k] = settled[k];
    }
}

/* Add a point's record to a lane's nodes. */
template <int WAY, int CHANNELS, bool SOLID>
__device__ __forceinline__ void add_point(const scatter_job &job, const point_list<CHANNELS> &list, uint32_t place,
                                          const int low[3], const float *r, const float value[CHANNELS],
                                          float sum[CHANNELS][DEEP])
{
    enum { SIDE = shape<SOLID>::SIDE };
    const int lane = threadIdx.x & 31;
    float t[DEEP], weight[DEEP], side = 1;
    if (WAY == WAY_SEPARABLE) {
        side = r[DEEP + lane % SIDE] * r[DEEP + SIDE + lane / SIDE];
        read_deep(r, weight);
    } else {
        read_t<CHANNELS, SOLID>(job, list, place, low, r, t);
    }
    if (WAY == WAY_RADIAL || WAY == WAY_INVERSE) {
        float u2[DEEP];
        const float off = r[DEEP + lane % SIDE] + r[DEEP + SIDE + lane / SIDE];
        read_deep(r, u2);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            u2[k] += off;
        law_poly<DEEP>(job.law, u2, weight);
        if (WAY == WAY_INVERSE)
#pragma unroll
            for (int k = 0; k < DEEP; k++)
                weight[k] = law_inverse(job.law, u2[k], weight[k]);
    }
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        const float of = side * value[c];
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            if (WAY == WAY_SEPARABLE || t[k] > 0)
                sum[c][k] = fmaf(weight[k], of, sum[c][k]);
    }
}

} // namespace

#endif
