/* scatter_spheres.cuh: Gaussians cut to spheres, of one channel, to 3-D grids. A block sums a tile of 16^3 nodes from
 * its list of nearby points (scatter_near_list.cuh), a warp 8^3 of them. It takes from the list, 32 at a time, the
 * points that reach its nodes, and stores in shared memory what the nodes share: the position along x and y, and the
 * weights along z. A lane has two columns of DEEP nodes. A node is within reach if its weight along z exceeds what its
 * column leaves of the weight at the reach. */
#ifndef MRIRECON_SCATTER_SPHERES_CUH
#define MRIRECON_SCATTER_SPHERES_CUH

#include "gridding/range/gpu/scatter_node_points.cuh"

namespace
{

enum {
    SPHERE_TILE = 16,
    SPHERE_CAP = 96,    /* capacity of a warp's list of points */
    SPHERE_FLOATS = 12, /* per stored point: three 16-byte words, an odd number, which avoids bank conflicts */
    SPHERE_ROWS = 4     /* of nodes along y, of a half of a warp's nodes */
};

struct spheres_memory {
    near_list<WARPS, SPHERE_CAP> list;
    alignas(16) float record[WARPS][32][SPHERE_FLOATS];
    int entry[WARPS][32];                /* of a stored doubtful point in the list */
    uint16_t taken[WARPS][64];           /* indices of list entries */
    uint16_t listed[WARPS * SPHERE_CAP]; /* those of all warps, without gaps */
};

/* A warp's first node relative to the tile's; a lane's nodes: [half along y][along z]. */
struct sphere_sums {
    int low[3];
    float sum[2][DEEP];
};

/* ---- points in shared memory ---- */

/* Points are grouped by the nodes of a warp that they reach: all, the lower or the upper half along z, the lower or the
 * upper half along y; doubtful points, for all nodes, come last. */
enum { SPHERE_ALL, SPHERE_Z0, SPHERE_Z1, SPHERE_Y0, SPHERE_Y1, SPHERE_DOUBTFUL, SPHERE_CLASSES };

/* least: u2 of the nearest nodes of both halves along z; rest: what x and both halves along y leave for it. */
__device__ __forceinline__ int sphere_class(const float least[2], const float rest[2], bool doubtful)
{
    const bool low[2] = {least[0] < rest[0], least[0] < rest[1]}, high[2] = {least[1] < rest[0], least[1] < rest[1]};
    const bool y0 = low[0] || high[0], y1 = low[1] || high[1], z0 = low[0] || low[1], z1 = high[0] || high[1];
    const int half = y0 && y1 ? (z0 && z1 ? SPHERE_ALL : z0 ? SPHERE_Z0 : SPHERE_Z1) : y0 ? SPHERE_Y0 : SPHERE_Y1;
    return !(y0 || y1) ? (int)SPHERE_CLASSES : doubtful ? (int)SPHERE_DOUBTFUL : half;
}

/* Store a point: its position along x and y and the step along x, scaled so that the rate times u2 is a square; its
 * value; its weights along z. */
__device__ __forceinline__ class_ends<SPHERE_CLASSES> put_sphere(const scatter_job &job, spheres_memory &m, int count,
                                                                 const int low[3])
{
    enum { HALF = DEEP / 2 };
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, entry = lane < count ? m.taken[warp][lane] : 0;
    const int4 point = m.list.place[0][entry];
    const float value = m.list.value[0][entry], scale = __int_as_float(point.w);
    const float unit = __fdividef(job.root_rate, fabsf(scale)), by_x = unit * job.width[0], by_y = unit * job.width[1];
    const float x = (float)((low[0] << job.bits) - point.x) * job.step,
                y = (float)((low[1] << job.bits) - point.y) * job.step;
    const float near_x = fmaxf(fmaxf(x, -x - (SIDE - 1)), 0.f) * by_x;
    const float near_0 = fmaxf(fmaxf(y, -y - (SPHERE_ROWS - 1)), 0.f) * by_y,
                near_1 = fmaxf(fmaxf(y + SPHERE_ROWS, -y - (2 * SPHERE_ROWS - 1)), 0.f) * by_y;
    const float rest = fmaf(-near_x, near_x, job.law.rate * 1.00001f);
    const float rests[2] = {fmaf(-near_0, near_0, rest), fmaf(-near_1, near_1, rest)};
    float u2[DEEP], least[2] = {INFINITY, INFINITY};
    (void)packed_squares<DEEP>(job, point.z, low[2], unit * unit * job.spacing2[2], u2);
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        least[k / HALF] = fminf(least[k / HALF], u2[k]);
    const int own = lane < count ? sphere_class(least, rests, scale < 0) : (int)SPHERE_CLASSES;
    class_ends<SPHERE_CLASSES> ends;
    const int place = class_places(own, ends);
    if (own != SPHERE_CLASSES) {
        float *r = m.record[warp][place];
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            u2[k] = law_exp2(-u2[k]);
        put_four(r, 0, x * by_x, y * by_y, by_x, value);
        put_four(r, 1, u2[0], u2[1], u2[2], u2[3]);
        put_four(r, 2, u2[4], u2[5], u2[6], u2[7]);
        m.entry[warp][place] = entry;
    }
    return ends;
}

/* ---- points added to nodes ---- */

/* What a column's nodes have in common: what weights along z must exceed; their factor. */
struct sphere_column {
    float least, weight;
};

/* The column at `half` along y of a stored point; x: its scaled distance along x, squared. */
__device__ __forceinline__ struct sphere_column column_of(const scatter_job &job, const float4 &flat, float square_x,
                                                          int half)
{
    const int lane = threadIdx.x & 31;
    const float row = (float)(lane / SIDE + half * SPHERE_ROWS) * job.width_ratio, y = fmaf(row, flat.z, flat.y);
    const float square = fmaf(y, y, square_x);
    const struct sphere_column column = {law_exp2(square - job.law.rate), law_exp2(-square) * flat.w};
    return column;
}

__device__ __forceinline__ float square_x_of(const float4 &flat)
{
    const float x = fmaf((float)((threadIdx.x & 31) % SIDE), flat.z, flat.x);
    return x * x;
}

/* Add stored points from `from` to `to` (exclusive) to the halves Y0 to Y1 along y of nodes Z0 to Z1 along z
 * (exclusive). */
template <int Y0, int Y1, int Z0, int Z1>
__device__ __forceinline__ void add_spheres_from(const scatter_job &job, const float (*record)[SPHERE_FLOATS], int from,
                                                 int to, float sum[2][DEEP])
{
#pragma unroll 1
    for (int i = from; i < to; i++) {
        const float4 *r = (const float4 *)record[i], flat = r[0];
        const float square_x = square_x_of(flat);
        float weight[DEEP];
#pragma unroll
        for (int k = Z0; k < Z1; k += 4) {
            const float4 w = r[1 + k / 4];
            weight[k] = w.x, weight[k + 1] = w.y, weight[k + 2] = w.z, weight[k + 3] = w.w;
        }
#pragma unroll
        for (int y = Y0; y < Y1; y++) {
            const struct sphere_column column = column_of(job, flat, square_x, y);
#pragma unroll
            for (int k = Z0; k < Z1; k++)
                if (weight[k] > column.least)
                    sum[y][k] = fmaf(column.weight, weight[k], sum[y][k]);
        }
    }
}

/* Which of a column's nodes are within a doubtful point's reach: bit k, in double precision. */
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

/* Add a doubtful point, entry `entry` of the list, to the half `half` along y. */
__device__ __forceinline__ void add_doubtful(const scatter_job &job, const spheres_memory &m, uint32_t tile,
                                             const float4 *r, int entry, int half, const int low[3], float sum[DEEP])
{
    const int lane = threadIdx.x & 31;
    const struct sphere_column column = column_of(job, r[0], square_x_of(r[0]), half);
    const float4 w[2] = {r[1], r[2]};
    const float weight[DEEP] = {w[0].x, w[0].y, w[0].z, w[0].w, w[1].x, w[1].y, w[1].z, w[1].w};
    float doubt = INFINITY;
    uint32_t within = 0;
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        within |= (weight[k] > column.least) << k;
        doubt = fminf(doubt, fabsf(weight[k] - column.least));
    }
    /* 1.4e-5 of a weight: 2e-5 of its binary logarithm. */
    if (doubt < 1.4e-5f * job.law.rate * column.least)
        within = settled(job, tile, m.list.point[0][entry], m.list.place[0][entry], low[0] + lane % SIDE,
                         low[1] + lane / SIDE + half * SPHERE_ROWS, low[2]);
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        if (within >> k & 1)
            sum[k] = fmaf(column.weight, weight[k], sum[k]);
}

/* Add the first `count` taken points. */
__device__ __forceinline__ void add_spheres(const scatter_job &job, spheres_memory &m, uint32_t tile, int count,
                                            sphere_sums &nodes)
{
    enum { HALF = DEEP / 2 };
    const int warp = threadIdx.x / 32;
    const class_ends<SPHERE_CLASSES> n = put_sphere(job, m, count, nodes.low);
    const float(*record)[SPHERE_FLOATS] = m.record[warp];
    __syncwarp();
    add_spheres_from<0, 2, 0, DEEP>(job, record, 0, n.end[SPHERE_ALL], nodes.sum);
    add_spheres_from<0, 2, 0, HALF>(job, record, n.end[SPHERE_ALL], n.end[SPHERE_Z0], nodes.sum);
    add_spheres_from<0, 2, HALF, DEEP>(job, record, n.end[SPHERE_Z0], n.end[SPHERE_Z1], nodes.sum);
    add_spheres_from<0, 1, 0, DEEP>(job, record, n.end[SPHERE_Z1], n.end[SPHERE_Y0], nodes.sum);
    add_spheres_from<1, 2, 0, DEEP>(job, record, n.end[SPHERE_Y0], n.end[SPHERE_Y1], nodes.sum);
#pragma unroll 1
    for (int i = n.end[SPHERE_Y1]; i < n.end[SPHERE_DOUBTFUL]; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            add_doubtful(job, m, tile, (const float4 *)record[i], m.entry[warp][i], half, nodes.low, nodes.sum[half]);
    __syncwarp();
}

/* ---- a block ---- */

/* Gather the indices of the entries of all warps' lists. Returns their number. Called by all threads. */
__device__ __forceinline__ int list_entries(spheres_memory &m)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, own = lane < WARPS ? m.list.held[lane] : 0;
    int before = own;
#pragma unroll
    for (int step = 1; step < WARPS; step *= 2) {
        const int added = __shfl_up_sync(~0u, before, step);
        before += lane >= step ? added : 0;
    }
    const int all = __shfl_sync(~0u, before, WARPS - 1), held = __shfl_sync(~0u, own, warp);
    const int first = __shfl_sync(~0u, before, warp) - held;
    for (int i = lane; i < held; i += 32)
        m.listed[first + i] = (uint16_t)(warp * SPHERE_CAP + i);
    __syncthreads();
    return all;
}

/* Add the block's list to the warp's nodes. */
__device__ __forceinline__ void add_sphere_list(const scatter_job &job, spheres_memory &m, uint32_t tile,
                                                sphere_sums &nodes)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const float half[3] = {half_side(SIDE), half_side(SIDE), half_side(DEEP)};
    const float middle[3] = {(float)nodes.low[0] + 3.5f, (float)nodes.low[1] + 3.5f, (float)nodes.low[2] + 3.5f};
    const int all = list_entries(m);
    int taken = 0;
#pragma unroll 1
    for (int first = 0; first < all; first += 32) {
        const int i = first + lane;
        const uint16_t entry = m.listed[i < all ? i : 0];
        const bool near = i < all && place_reaches<false>(job, m.list.place[0][entry], middle, half);
        const uint32_t hits = __ballot_sync(~0u, near);
        if (near)
            m.taken[warp][taken + __popc(hits & ((1u << lane) - 1))] = entry;
        taken += __popc(hits);
        __syncwarp();
        if (taken >= 32) {
            add_spheres(job, m, tile, 32, nodes);
            taken -= 32;
            const uint16_t moved = m.taken[warp][32 + lane];
            __syncwarp();
            m.taken[warp][lane] = moved;
            __syncwarp();
        }
    }
    if (taken > 0)
        add_spheres(job, m, tile, taken, nodes);
}

/* Write one column of DEEP sums, `plane` apart, or add them. No other block writes these nodes, and the memory's own
 * additions need not be waited for; they take subnormal numbers for 0. */
__device__ __forceinline__ void put_column(float *to, size_t plane, int deep, bool adds, float strength,
                                           const float sum[DEEP])
{
#pragma unroll
    for (int k = 0; k < DEEP; k++, to += plane)
        if (k < deep) {
            if (adds)
                atomicAdd(to, sum[k] * strength);
            else
                *to = sum[k] * strength;
        }
}

/* Add sums to the grid (job.set and not `again`: write them), or (slot >= 0) write them to a slot, adding to it if
 * `again`; then set them to 0. */
__device__ __forceinline__ void put_spheres(const scatter_job &job, const spheres_memory &m, const sums_work &work,
                                            const near_task &task, bool again, sphere_sums &nodes)
{
    const int lane = threadIdx.x & 31, slot = task.slot;
    const int x = nodes.low[0] + lane % SIDE, y = nodes.low[1] + lane / SIDE, z = nodes.low[2];
    size_t row = SPHERE_TILE, plane = SPHERE_TILE * SPHERE_TILE;
    float *to = work.slots + (size_t)max(slot, 0) * job.slot;
    int size[3] = {SPHERE_TILE, SPHERE_TILE, SPHERE_TILE};
    if (slot < 0) {
        row = (size_t)job.points.box.cells[0];
        plane = row * (size_t)job.points.box.cells[1];
        to = job.grid + (size_t)m.list.span[0].low[2] * plane + (size_t)m.list.span[0].low[1] * row +
             (size_t)m.list.span[0].low[0];
        for (int d = 0; d < 3; d++)
            size[d] = job.points.box.cells[d] - m.list.span[0].low[d];
    }
    const bool adds = again || (slot < 0 && !job.set);
    const float strength = slot < 0 ? job.strength : 1;
    to += (size_t)z * plane + (size_t)y * row + (size_t)x;
#pragma unroll
    for (int half = 0; half < 2; half++, to += SPHERE_ROWS * row) {
        if (x < size[0] && y + half * SPHERE_ROWS < size[1])
            put_column(to, plane, size[2] - z, adds, strength, nodes.sum[half]);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            nodes.sum[half][k] = 0;
    }
}

__global__ void __launch_bounds__(THREADS, 3)
    sum_spheres(const __grid_constant__ scatter_job job, const __grid_constant__ sums_work work)
{
    extern __shared__ __align__(16) char memory[];
    spheres_memory &m = *(spheres_memory *)memory;
    struct near_task task;
    if (!near_task_of(job, work, task))
        return;
    const int warp = threadIdx.x / 32;
    sphere_sums nodes = {{warp % 2 * SIDE, warp / 2 % 2 * SIDE, warp / 4 * DEEP}, {}};
    near_scan<WARPS, SPHERE_CAP, false> scan(job, m.list, task.tile);
    scan.take_part(task.part, task.parts);
    bool more = true, again = false;
    while (more) {
        more = scan.fill();
        more = __syncthreads_or(more);
        add_sphere_list(job, m, task.tile, nodes);
        put_spheres(job, m, work, task, again, nodes);
        again = true;
        if (more)
            __syncthreads();
    }
}

} // namespace

#endif
