/* scatter_spheres.cuh: Gaussians cut to spheres, of one channel, to 3-D grids. A block sums a tile of 16^3 nodes from
 * its list of nearby points (scatter_near_list.cuh), a warp 8^3 of them. It takes from the list, 32 at a time, the
 * points that reach its nodes, and stores in shared memory what the nodes share: weights along x, y and z. A lane has
 * 4 x 4 nodes along y and z. The product of the three weights is scaled so that at the reach it is the smallest normal
 * float32: beyond, the multiplication itself gives 0, and no comparison is needed. */
#ifndef MRIRECON_SCATTER_SPHERES_CUH
#define MRIRECON_SCATTER_SPHERES_CUH

#include "gridding/range/gpu/scatter_lists.cuh"
#include "gridding/range/gpu/scatter_node_points.cuh"

namespace
{

enum {
    SPHERE_TILE = 16,
    SPHERE_CAP = 96,    /* capacity of a warp's list of points */
    SPHERE_FLOATS = 36, /* per stored point: nine 16-byte words, an odd number, which avoids bank conflicts */
    SPHERE_Y = 8,       /* of these, weights along y, after those along z, in the order of the lanes that need them */
    SPHERE_X = 16,      /* weights along x, each with the value */
    SPHERE_HALF = 4,    /* nodes of a half of a warp's along y or z */
    SPHERE_EACH = 4     /* nodes of a lane along y or z */
};

/* Stored points of a warp. */
struct sphere_points {
    alignas(16) float record[32][SPHERE_FLOATS];
    int entry[32]; /* of a doubtful point, in the list that it is from */
};

struct spheres_memory {
    near_list<WARPS, SPHERE_CAP, OCTANTS> list;
    sphere_points points[WARPS];
    uint16_t taken[WARPS][32 + 2 * 32];  /* indices of list entries */
    uint32_t listed[WARPS * SPHERE_CAP]; /* those of all warps, without gaps; octants in the upper half */
};

/* Gaussians exp(-rate) and smaller at the reach, whose products float32 might not hold, are summed another way. */
const double SPHERE_RATE_MOST = 60;

/* The factors of weights, values and sums. */
inline void scale_products(scatter_job &job)
{
    const int powers = (int)ceilf(job.law.rate); /* of two, to which a weight falls at the reach, or one more */
    job.floor = (float)ldexp(1, powers - 126);
    job.shift = job.law.rate - (float)powers;
    job.lift = (float)ldexp(1, 126 - powers);
    job.raise = (float)exp2((double)-job.shift);
}

/* A warp's first node relative to the tile's; a lane's nodes, every other along y and z: [along y][along z]. */
struct sphere_sums {
    int low[3];
    float sum[SPHERE_EACH][SPHERE_EACH];
};

/* A lane's first node along each axis. */
__device__ __forceinline__ int3 lane_node()
{
    const int lane = threadIdx.x & 31;
    return make_int3(lane % SIDE, lane / SIDE % 2, lane / (2 * SIDE));
}

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

/* Weights along an axis of SIDE nodes, `by` apart, of which the first is at `at`: exp2(factor - at^2). */
__device__ __forceinline__ void axis_weights(float at, float by, float factor, float weight[SIDE])
{
#pragma unroll
    for (int k = 0; k < SIDE; k++) {
        const float away = fmaf((float)k, by, at);
        weight[k] = law_exp2(fmaf(-away, away, factor));
    }
}

/* Store what the nodes share of up to 32 points, one of each of the first `count` lanes. at: relative to the tile's
 * first node, .w as packed; own_value: relative to the largest. Other lanes have any point. */
__device__ __forceinline__ class_ends<SPHERE_CLASSES> put_sphere(const scatter_job &job, sphere_points &points,
                                                                 const int4 &point, float own_value, int entry,
                                                                 int count, const int low[3])
{
    enum { HALF = DEEP / 2 };
    const int lane = threadIdx.x & 31;
    const float value = own_value * job.lift, scale = __int_as_float(point.w);
    const float unit = __fdividef(job.root_rate, fabsf(scale)), by_x = unit * job.width[0], by_y = unit * job.width[1];
    const float x = (float)((low[0] << job.bits) - point.x) * job.step,
                y = (float)((low[1] << job.bits) - point.y) * job.step;
    const float near_x = fmaxf(fmaxf(x, -x - (SIDE - 1)), 0.f) * by_x;
    const float near_0 = fmaxf(fmaxf(y, -y - (SPHERE_HALF - 1)), 0.f) * by_y,
                near_1 = fmaxf(fmaxf(y + SPHERE_HALF, -y - (2 * SPHERE_HALF - 1)), 0.f) * by_y;
    const float rest = fmaf(-near_x, near_x, job.law.rate * 1.00001f);
    const float rests[2] = {fmaf(-near_0, near_0, rest), fmaf(-near_1, near_1, rest)};
    float w[DEEP], least[2] = {INFINITY, INFINITY};
    (void)packed_squares<DEEP>(job, point.z, low[2], unit * unit * job.spacing2[2], w);
#pragma unroll
    for (int k = 0; k < DEEP; k++)
        least[k / HALF] = fminf(least[k / HALF], w[k]);
    const int own = lane < count ? sphere_class(least, rests, scale < 0) : (int)SPHERE_CLASSES;
    class_ends<SPHERE_CLASSES> ends;
    const int place = class_places(own, ends);
    if (own != SPHERE_CLASSES) {
        float *r = points.record[place];
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            w[k] = law_exp2(-w[k]) * job.floor;
        put_four(r, 0, w[0], w[2], w[4], w[6]);
        put_four(r, 1, w[1], w[3], w[5], w[7]);
        axis_weights(y * by_y, by_y, 0, w);
        put_four(r + SPHERE_Y, 0, w[0], w[2], w[4], w[6]);
        put_four(r + SPHERE_Y, 1, w[1], w[3], w[5], w[7]);
        axis_weights(x * by_x, by_x, job.shift, w);
#pragma unroll
        for (int k = 0; k < SIDE; k += 2)
            put_four(r + SPHERE_X, k / 2, w[k], value, w[k + 1], value);
        points.entry[place] = entry;
    }
    return ends;
}

/* ---- points added to nodes ---- */

/* a b; 0 if that is below the smallest normal number. */
__device__ __forceinline__ float normal_product(float a, float b)
{
    float product;
    asm("mul.ftz.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    return product;
}

/* Weights along y or z of a lane's nodes FROM to TO (exclusive). */
template <int FROM, int TO> __device__ __forceinline__ void load_weights(const float *from, float weight[SPHERE_EACH])
{
    if (TO - FROM == SPHERE_EACH) {
        const float4 w = *(const float4 *)from;
        weight[0] = w.x, weight[1] = w.y, weight[2] = w.z, weight[3] = w.w;
    } else {
        const float2 w = *(const float2 *)(from + FROM);
        weight[FROM] = w.x, weight[FROM + 1] = w.y;
    }
}

/* Add stored points from `from` to `to` (exclusive) to a lane's nodes Y0 to Y1 along y and Z0 to Z1 along z
 * (exclusive). */
template <int Y0, int Y1, int Z0, int Z1>
__device__ __forceinline__ void add_spheres_from(const float (*record)[SPHERE_FLOATS], int from, int to,
                                                 float sum[SPHERE_EACH][SPHERE_EACH])
{
    const int3 own = lane_node();
    const float *x = record[from] + SPHERE_X + 2 * own.x, *y = record[from] + SPHERE_Y + SPHERE_EACH * own.y,
                *z = record[from] + SPHERE_EACH * own.z;
#pragma unroll 1
    for (int left = to - from; left > 0; left--) {
        const float2 flat = *(const float2 *)x; /* the weight, and the value */
        float by_y[SPHERE_EACH], by_z[SPHERE_EACH];
        load_weights<Y0, Y1>(y, by_y);
        load_weights<Z0, Z1>(z, by_z);
        x += SPHERE_FLOATS, y += SPHERE_FLOATS, z += SPHERE_FLOATS;
        if (Y1 - Y0 <= Z1 - Z0) {
#pragma unroll
            for (int j = Y0; j < Y1; j++)
                by_y[j] *= flat.x;
        } else {
#pragma unroll
            for (int k = Z0; k < Z1; k++)
                by_z[k] *= flat.x;
        }
#pragma unroll
        for (int j = Y0; j < Y1; j++)
#pragma unroll
            for (int k = Z0; k < Z1; k++)
                sum[j][k] = fmaf(normal_product(by_y[j], by_z[k]), flat.y, sum[j][k]);
    }
}

/* Which of a lane's nodes, of which (x, y, z) is the first, are within a doubtful point's reach, in double precision:
 * bit 4 j + k. */
__device__ __forceinline__ uint32_t settled(const scatter_job &job, uint32_t tile, uint32_t point, const int4 &rel,
                                            int x, int y, int z)
{
    double at[3];
    exact_place(job, tile, point, rel, at);
    const double reach = job.law.reach * (double)fabsf(__int_as_float(rel.w));
    uint32_t within = 0;
#pragma unroll 1
    for (int n = 0; n < SPHERE_EACH * SPHERE_EACH; n++) {
        const int node[3] = {x, y + n / SPHERE_EACH * 2, z + n % SPHERE_EACH * 2};
        double sum = 0;
        for (int d = 2; d >= 0; d--) {
            const double away = (node[d] - at[d]) * job.spacing[d];
            sum = __dadd_rn(sum, __dmul_rn(away, away));
        }
        within |= (sum < __dmul_rn(reach, reach)) << n;
    }
    return within;
}

/* Add a doubtful point, whose number and place are given. */
__device__ __forceinline__ void add_doubtful(const scatter_job &job, uint32_t tile, const float *record,
                                             const uint32_t &number, const int4 &rel, sphere_sums &nodes)
{
    const int3 own = lane_node();
    const float2 flat = *(const float2 *)(record + SPHERE_X + 2 * own.x);
    float by_y[SPHERE_EACH], by_z[SPHERE_EACH], doubt = INFINITY;
    load_weights<0, SPHERE_EACH>(record + SPHERE_Y + SPHERE_EACH * own.y, by_y);
    load_weights<0, SPHERE_EACH>(record + SPHERE_EACH * own.z, by_z);
#pragma unroll
    for (int j = 0; j < SPHERE_EACH; j++) {
        by_y[j] *= flat.x;
        const float high = by_y[j] * 0x1p126f;
#pragma unroll
        for (int k = 0; k < SPHERE_EACH; k++)
            doubt = fminf(doubt, fabsf(fmaf(high, by_z[k], -1.f)));
    }
    /* 1.4e-5 of a weight: 2e-5 of its binary logarithm. */
    const bool doubtful = doubt < 1.4e-5f * job.law.rate;
    if (!__any_sync(~0u, doubtful)) {
#pragma unroll
        for (int j = 0; j < SPHERE_EACH; j++)
#pragma unroll
            for (int k = 0; k < SPHERE_EACH; k++)
                nodes.sum[j][k] = fmaf(normal_product(by_y[j], by_z[k]), flat.y, nodes.sum[j][k]);
        return;
    }
    uint32_t within = 0;
    if (doubtful)
        within = settled(job, tile, number, rel, nodes.low[0] + own.x, nodes.low[1] + own.y, nodes.low[2] + own.z);
#pragma unroll
    for (int j = 0; j < SPHERE_EACH; j++)
#pragma unroll
        for (int k = 0; k < SPHERE_EACH; k++) {
            float product = normal_product(by_y[j], by_z[k]);
            if (doubtful)
                product = within >> (SPHERE_EACH * j + k) & 1 ? by_y[j] * by_z[k] : 0;
            nodes.sum[j][k] = fmaf(product, flat.y, nodes.sum[j][k]);
        }
}

/* Add stored points to the nodes that they reach; then those that are doubtful are left. */
__device__ __forceinline__ void add_stored(const sphere_points &points, const class_ends<SPHERE_CLASSES> &n,
                                           sphere_sums &nodes)
{
    enum { ALL = SPHERE_EACH, HALF = SPHERE_EACH / 2 };
    const float(*record)[SPHERE_FLOATS] = points.record;
    add_spheres_from<0, ALL, 0, ALL>(record, 0, n.end[SPHERE_ALL], nodes.sum);
    add_spheres_from<0, ALL, 0, HALF>(record, n.end[SPHERE_ALL], n.end[SPHERE_Z0], nodes.sum);
    add_spheres_from<0, ALL, HALF, ALL>(record, n.end[SPHERE_Z0], n.end[SPHERE_Z1], nodes.sum);
    add_spheres_from<0, HALF, 0, ALL>(record, n.end[SPHERE_Z1], n.end[SPHERE_Y0], nodes.sum);
    add_spheres_from<HALF, ALL, 0, ALL>(record, n.end[SPHERE_Y0], n.end[SPHERE_Y1], nodes.sum);
}

/* Add `count` taken points from `first` on, at most 32. */
__device__ __forceinline__ void add_spheres(const scatter_job &job, spheres_memory &m, uint32_t tile, float relative,
                                            int first, int count, sphere_sums &nodes)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const int own = m.taken[warp][first + (lane < count ? lane : 0)];
    const class_ends<SPHERE_CLASSES> n =
        put_sphere(job, m.points[warp], m.list.place[0][own], m.list.value[0][own] * relative, own, count, nodes.low);
    __syncwarp();
    add_stored(m.points[warp], n, nodes);
#pragma unroll 1
    for (int i = n.end[SPHERE_Y1]; i < n.end[SPHERE_DOUBTFUL]; i++) {
        const int entry = m.points[warp].entry[i];
        add_doubtful(job, tile, m.points[warp].record[i], m.list.point[0][entry], m.list.place[0][entry], nodes);
    }
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
        m.listed[first + i] = (uint32_t)(warp * SPHERE_CAP + i) | (uint32_t)m.list.octants[warp][i] << 16;
    __syncthreads();
    return all;
}

/* Add the block's list to the warp's nodes. */
__device__ __forceinline__ void add_sphere_list(const scatter_job &job, spheres_memory &m, uint32_t tile,
                                                float relative, sphere_sums &nodes)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t octant = 1u << (16 + warp), earlier = (1u << lane) - 1;
    const int all = list_entries(m);
    int taken = 0;
#pragma unroll 1
    for (int first = 0; first < all;) {
#pragma unroll
        for (int k = 0; k < 2; k++, first += 32) {
            const uint32_t entry = first + lane < all ? m.listed[first + lane] : 0;
            const uint32_t hits = __ballot_sync(~0u, entry & octant);
            if (entry & octant)
                m.taken[warp][taken + __popc(hits & earlier)] = (uint16_t)entry;
            taken += __popc(hits);
        }
        __syncwarp();
#pragma unroll 1
        while (taken >= 32 || (first >= all && taken > 0)) {
            const int count = min(taken, 32);
            taken -= count;
            add_spheres(job, m, tile, relative, taken, count, nodes);
        }
    }
}

/* Add sums to the grid (job.set and not `again`: write them), or (slot >= 0) write them to a slot, adding to it if
 * `again`. tile_at: the tile's first node. No other block writes these nodes, and the memory's own additions need not
 * be waited for; they take subnormal numbers for 0. */
__device__ __forceinline__ void put_spheres(const scatter_job &job, const int tile_at[3], float *slots, int slot,
                                            bool again, float relative, const sphere_sums &nodes)
{
    const int3 own = lane_node();
    const int x = nodes.low[0] + own.x, y = nodes.low[1] + own.y, z = nodes.low[2] + own.z;
    size_t row = SPHERE_TILE, plane = SPHERE_TILE * SPHERE_TILE;
    float *to = slots + (size_t)max(slot, 0) * job.slot;
    int size[3] = {SPHERE_TILE, SPHERE_TILE, SPHERE_TILE};
    if (slot < 0) {
        row = (size_t)job.points.box.cells[0];
        plane = row * (size_t)job.points.box.cells[1];
        to = job.grid + (size_t)tile_at[2] * plane + (size_t)tile_at[1] * row + (size_t)tile_at[0];
        for (int d = 0; d < 3; d++)
            size[d] = job.points.box.cells[d] - tile_at[d];
    }
    const bool adds = again || (slot < 0 && !job.set),
               whole = size[0] >= SPHERE_TILE && size[1] >= SPHERE_TILE && size[2] >= SPHERE_TILE;
    const float strength = (slot < 0 ? job.strength * job.raise : job.raise) * inverse_power(relative);
    to += (size_t)z * plane + (size_t)y * row + (size_t)x;
    if (whole && !adds) { /* almost all tiles */
#pragma unroll
        for (int k = 0; k < SPHERE_EACH; k++, to += 2 * plane)
#pragma unroll
            for (int j = 0; j < SPHERE_EACH; j++)
                to[2 * j * row] = nodes.sum[j][k] * strength;
    } else {
#pragma unroll
        for (int k = 0; k < SPHERE_EACH; k++, to += 2 * plane)
#pragma unroll
            for (int j = 0; j < SPHERE_EACH; j++) {
                if (x >= size[0] || y + 2 * j >= size[1] || z + 2 * k >= size[2])
                    continue;
                if (adds)
                    atomicAdd(to + 2 * j * row, nodes.sum[j][k] * strength);
                else
                    to[2 * j * row] = nodes.sum[j][k] * strength;
            }
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
    const unsigned largest = *job.largest;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *job.told = largest;
    const float relative = relative_of(largest);
    if (relative == 0) /* then the host sums them another way */
        return;
    near_scan<WARPS, SPHERE_CAP, false, OCTANTS> scan(job, m.list, task.tile);
    scan.take_part(task.part, task.parts);
    bool more = true, again = false;
    while (more) {
        more = scan.fill();
        more = __syncthreads_or(more);
        sphere_sums nodes = {{warp % 2 * SIDE, warp / 2 % 2 * SIDE, warp / 4 * DEEP}, {}};
        add_sphere_list(job, m, task.tile, relative, nodes);
        put_spheres(job, m.list.span[0].low, work.slots, task.slot, again, relative, nodes);
        again = true;
        if (more)
            __syncthreads();
    }
}

/* ---- from lists of all octants (scatter_lists.cuh) ---- */

struct listed_spheres {
    sphere_points points[WARPS];
    listed_points coming[WARPS];
};

__global__ void __launch_bounds__(THREADS, 3)
    sum_listed_spheres(const __grid_constant__ scatter_job job, const __grid_constant__ box_lists lists)
{
    extern __shared__ __align__(16) char memory[];
    listed_spheres &m = *(listed_spheres *)memory;
    const int warp = threadIdx.x / 32;
    const float relative = lists_begin(job, lists);
    if (relative == 0)
        return;
    const uint32_t end = min((blockIdx.x + 1) * TILES_EACH, lists.tiles);
    uint32_t tile = blockIdx.x * TILES_EACH;
    sphere_points &points = m.points[warp];
    list_reader reader(job, lists, tile, WARPS, warp, m.coming[warp]);
#pragma unroll 1
    for (; tile < end; tile++) {
        sphere_sums nodes = {{warp % 2 * SIDE, warp / 2 % 2 * SIDE, warp / 4 * DEEP}, {}};
        int low[3];
        tile_low(job, tile, low);
        reader.turn();
#pragma unroll 1
        while (reader.left > 0) {
            const int count = min(reader.left, 32);
            const listed_point p = reader.take();
            const class_ends<SPHERE_CLASSES> n = put_sphere(job, points, relative_place(job, p.place, low),
                                                            p.value * relative, (int)p.number, count, nodes.low);
            __syncwarp();
            add_stored(points, n, nodes);
#pragma unroll 1
            for (int i = n.end[SPHERE_Y1]; i < n.end[SPHERE_DOUBTFUL]; i++) {
                const uint32_t number = (uint32_t)points.entry[i];
                const int4 rel = relative_place(job, job.place[number], low);
                add_doubtful(job, tile, points.record[i], number, rel, nodes);
            }
            __syncwarp();
        }
        reader.end();
        put_spheres(job, low, NULL, -1, false, relative, nodes);
    }
}

} // namespace

#endif
