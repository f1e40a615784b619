/* scatter_near_parts.cuh: which nodes of a tile, or parts of it, a listed point reaches (scatter_near_list.cuh). */
#ifndef MRIRECON_SCATTER_NEAR_PARTS_CUH
#define MRIRECON_SCATTER_NEAR_PARTS_CUH

#include "gridding/range/gpu/scatter_pack.cuh"

namespace
{

/* ---- positions ---- */

/* A packed position in nodes, less `middle`, with an error of 2^-10 nodes; avoids the conversion unit, which other
 * instructions need.
 */
__device__ __forceinline__ float place_about(const scatter_job &job, int x, float middle)
{
    return fmaf(__int_as_float((x >> 9) + 0x4b400000) - 12582912.f, 512 * job.step, -middle);
}

/* The image of the box that a list entry belongs to, along axis d; `rel` is its position relative to the tile's first
 * node. */
__device__ __forceinline__ int entry_image(const scatter_job &job, int rel, int place, int d, int low)
{
    const long long whole = (long long)rel + ((long long)low << job.bits) - place;
    return (int)rint((double)whole * job.per_box[d]);
}

/* The position of a listed point in double precision, in nodes relative to the tile's first. Without divisions: they
 * are calls, for which registers are saved. */
__device__ __forceinline__ void exact_place(const scatter_job &job, uint32_t tile, uint32_t point, const int4 &rel,
                                            double at[3])
{
    const points_view &p = job.points;
    int low[3];
    tile_low(job, tile, low);
    const int4 place = job.place[point];
    const int from[3] = {rel.x, rel.y, rel.z}, packed[3] = {place.x, place.y, place.z};
    for (int d = 0; d < 3; d++) {
        const double off = points_at(p, d, point) - p.box.origin[d], about = off * job.nodes_of[d];
        /* off / spacing, rounded once */
        const double nodes = fma(fma(-about, p.box.spacing[d], off), job.nodes_of[d], about);
        at[d] =
            nodes + (double)entry_image(job, from[d], packed[d], d, low[d]) * (double)p.box.cells[d] - (double)low[d];
    }
}

/* ---- the nodes that a point reaches, as masks ---- */

/* Nodes along y and z in a mask; along x there are twice as many. */
enum { MASK_SIDE = 16 };

/* Which of 32 nodes along axis d are within reach of a point, in double precision: bit k. rel: as in near_list. */
__device__ __noinline__ uint32_t exact_mask(const scatter_job &job, uint32_t tile, uint32_t point, int4 rel, int d)
{
    double at[3];
    exact_place(job, tile, point, rel, at);
    const double reach = job.law.reach * (double)fabsf(__int_as_float(rel.w));
    uint32_t mask = 0;
    for (int k = 0; k < 2 * MASK_SIDE; k++)
        mask |= (uint32_t)(fabs((k - at[d]) * job.spacing[d]) < reach) << k;
    return mask;
}

/* The same of fixed-point numbers. No node lies next to where the reach ends (is_doubtful_cube()). */
__device__ __forceinline__ uint32_t node_mask(int at, int reach, int bits)
{
    const int from = max(((at - reach) >> bits) + 1, 0), to = (at + reach + (1 << bits) - 1) >> bits;
    uint32_t mask;
    asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(mask) : "r"(from), "r"(max(to - from, 0)));
    return mask;
}

/* The nodes of a tile that a point reaches: x: along x; y: along y, and along z in the upper half. 0: none along some
 * axis. */
__device__ __forceinline__ uint2 masks_of(const scatter_job &job, uint32_t tile, uint32_t point, const int4 &rel)
{
    const float scale = __int_as_float(rel.w), positive = fabsf(scale);
    uint32_t x = node_mask(rel.x, __float2int_rn(positive * job.reach_steps[0]), job.bits),
             y = node_mask(rel.y, __float2int_rn(positive * job.reach_steps[1]), job.bits),
             z = node_mask(rel.z, __float2int_rn(positive * job.reach_steps[2]), job.bits);
    if (scale < 0) {
        x = exact_mask(job, tile, point, rel, 0);
        y = exact_mask(job, tile, point, rel, 1);
        z = exact_mask(job, tile, point, rel, 2);
    }
    const uint32_t flat = __byte_perm(y, z, 0x5410);
    return x && flat & 0xffff && flat >> MASK_SIDE ? make_uint2(x, flat) : make_uint2(0, 0);
}

/* ---- the parts of a tile that a point reaches ---- */

/* Along axis d, a tile is cut into COUNT parts of NODES nodes: their squared distances from a point at `at`, or a
 * little less. */
template <int NODES, int COUNT>
__device__ __forceinline__ void part_gaps(const scatter_job &job, int at, int d, float gap2[COUNT])
{
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        const float middle = 0.5f * (float)(NODES - 1) + (float)(n * NODES);
        const float gap = fmaxf(fabsf(place_about(job, at, middle)) - half_side(NODES), 0.f) * job.width[d];
        gap2[n] = gap * gap;
    }
}

enum { OCTANT_SIDE = MASK_SIDE / 2 };

/* Which octants of a tile of MASK_SIDE^3 nodes a point reaches, or nearly reaches: bit x + 2 y + 4 z. */
__device__ __forceinline__ uint32_t octants_of(const scatter_job &job, const int4 &p)
{
    const float reach = job.reach * fabsf(__int_as_float(p.w)) * 1.00001f;
    float x[2], y[2], z[2];
    part_gaps<OCTANT_SIDE, 2>(job, p.x, 0, x);
    part_gaps<OCTANT_SIDE, 2>(job, p.y, 1, y);
    part_gaps<OCTANT_SIDE, 2>(job, p.z, 2, z);
    uint32_t octants = 0;
#pragma unroll
    for (int n = 0; n < 8; n++)
        octants |= x[n & 1] + y[n >> 1 & 1] < fmaf(reach, reach, -z[n >> 2]) ? 1u << n : 0;
    return octants;
}

/* A warp's nodes along x and y (scatter_nodes.cuh), and those of each of its slices along z; a tile's nodes along each
 * axis. */
enum { SIDE = 8, LINE = 4, SLICE = 4, SLICES = 4, NODES_TILE = SLICE * SLICES };

/* Which slices of a tile of 2 x 4 warps a point without a scale reaches, or nearly reaches: bit z + 4 (x + 2 y). */
__device__ __forceinline__ uint32_t slices_of(const scatter_job &job, const int4 &p)
{
    const float reach = job.reach * 1.00001f;
    float x[2], y[4], z[SLICES];
    part_gaps<SIDE, 2>(job, p.x, 0, x);
    part_gaps<LINE, 4>(job, p.y, 1, y);
    part_gaps<SLICE, SLICES>(job, p.z, 2, z);
    uint32_t slices = 0;
#pragma unroll
    for (int n = 0; n < 32; n++)
        slices |= x[n >> 2 & 1] + y[n >> 3] + z[n & 3] < reach * reach ? 1u << n : 0;
    return slices;
}

/* Of these, the warp's four. */
__device__ __forceinline__ uint32_t warp_slices(uint32_t slices)
{
    return slices >> (SLICES * (threadIdx.x / 32)) & ((1 << SLICES) - 1);
}

} // namespace

#endif
