/* scatter_tiles.cuh: the kernels of sums of points to grids (scatter.cu says how they go about it). */
#ifndef MRIRECON_SCATTER_TILES_CUH
#define MRIRECON_SCATTER_TILES_CUH

#include "gridding/range/gpu/scatter_near.cuh"
#include "gridding/range/gpu/sums_gpu.cuh"

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

/* What a warp puts down for each of 32 points: along the third axis, the first and the second. */
template <int WAY, bool SOLID> struct record {
    enum {
        NODES = shape<SOLID>::SIDE + shape<SOLID>::ROWS + DEEP,
        KINDS = WAY == WAY_GAUSSIAN ? 2 : 1, /* squares, and weights */
        FLOATS = KINDS * NODES,
        STRIDE = FLOATS % 8 == 4 ? FLOATS : (FLOATS + 3) / 8 * 8 + 4 /* 16-byte accesses of 8 lanes fill the banks */
    };
};

template <int WAY, int CHANNELS, bool SOLID> struct block_memory {
    struct point_list<CHANNELS> list;
    struct row_list rows;
    alignas(16) float record[WARPS][32][record<WAY, SOLID>::STRIDE];
    float value[WARPS][32][CHANNELS];
    uint16_t taken[WARPS][64]; /* places in the list */
    uint32_t held[WARPS];
    typename cub::BlockScan<unsigned long long, THREADS>::TempStorage scan;
};

/* ---- a warp's nodes ---- */

/* A lane's view of the sum: where its warp's nodes begin, counted from the tile's first, and what it has added up. */
template <int CHANNELS> struct warp_nodes {
    int low[3];
    int edge[3];
    float sum[CHANNELS][DEEP];
};

/* Whether a node lies within reach, exactly. */
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

/* What float32 can err by in u2, and more. */
#define DOUBT 1e-6f

/* Along one axis: u2 at nodes low to low + COUNT, of a point at `at`. Returns the least. */
template <int COUNT> __device__ __forceinline__ float put_squares(double at, int low, float unit, float *to)
{
    const double base = rint(at);
    const float first = (float)(low - base), fraction = (float)(at - base);
    float least = INFINITY;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float away = (first + (float)i) - fraction;
        to[i] = away * away * unit;
        least = fminf(least, to[i]);
    }
    return least;
}

/* Weights from squares, 1 along an axis that is not there. cut: 0 beyond reach; a node that float32 cannot place is
 * looked at in double precision. */
template <int COUNT>
__device__ __forceinline__ void put_weights(const scatter_job &job, bool cut, double at, double scale, int d, int low,
                                            const float *square, float *to)
{
    const bool there = d < job.points.box.dim;
    for (int i = 0; i < COUNT; i++) {
        const float u2 = square[i];
        bool in = u2 < 1;
        if (cut && fabsf(u2 - 1) < DOUBT)
            in = fabs((low + i - at) * job.spacing[d]) < job.law.reach * scale;
        to[i] = !there ? 1 : in || !cut ? law_p(job.law, u2) : 0;
    }
}

/* A point's record. Returns whether it may lie on a node. */
template <int WAY, bool SOLID>
__device__ __forceinline__ bool put_record(const scatter_job &job, const double at[3], float scale, const int low[3],
                                           float *r)
{
    enum { SIDE = shape<SOLID>::SIDE, ROWS = shape<SOLID>::ROWS, NODES = record<WAY, SOLID>::NODES };
    const float reach = (float)job.law.reach * scale, unit = 1 / (reach * reach);
    constexpr int a = shape<SOLID>::FIRST, b = shape<SOLID>::SECOND, c = shape<SOLID>::THIRD;
    float least = put_squares<SIDE>(at[a], low[a], unit * job.spacing2[a], r + DEEP);
    least += put_squares<ROWS>(at[b], low[b], unit * job.spacing2[b], r + DEEP + SIDE);
    least += put_squares<DEEP>(at[c], low[c], unit * job.spacing2[c], r);
    if (WAY == WAY_SEPARABLE || WAY == WAY_GAUSSIAN) {
        float *to = WAY == WAY_GAUSSIAN ? r + NODES : r;
        const bool cut = WAY == WAY_SEPARABLE;
        put_weights<SIDE>(job, cut, at[a], scale, a, low[a], r + DEEP, to + DEEP);
        put_weights<ROWS>(job, cut, at[b], scale, b, low[b], r + DEEP + SIDE, to + DEEP + SIDE);
        put_weights<DEEP>(job, cut, at[c], scale, c, low[c], r, to);
    }
    return least < 1e-30f;
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

/* Squares u2 of a lane's nodes; those in doubt are moved to one side of 1. Rare. */
template <bool SOLID>
__device__ __noinline__ void settle(const scatter_job &job, const double *x, const double *y, const double *z,
                                    float scale, const int low[3], float u2[DEEP])
{
    enum { SIDE = shape<SOLID>::SIDE };
    const int lane = threadIdx.x & 31;
    const double where[3] = {*x, *y, *z};
    for (int k = 0; k < DEEP; k++)
        if (fabsf(u2[k] - 1) < DOUBT) {
            int node[3];
            node[shape<SOLID>::FIRST] = low[shape<SOLID>::FIRST] + lane % SIDE;
            node[shape<SOLID>::SECOND] = low[shape<SOLID>::SECOND] + lane / SIDE;
            node[shape<SOLID>::THIRD] = low[shape<SOLID>::THIRD] + k;
            u2[k] = within_reach(job, where, scale, node) ? 1 - DOUBT : 1 + DOUBT;
        }
}

/* The law at a lane's nodes. off: u2 but for the third axis. careful: the point may lie on a node. */
template <int WAY, int CHANNELS, bool SOLID>
__device__ __forceinline__ void weigh(const scatter_job &job, const point_list<CHANNELS> &list, uint32_t place,
                                      const int low[3], int lane, const float *r, bool careful, float weight[DEEP])
{
    enum { SIDE = shape<SOLID>::SIDE, NODES = record<WAY, SOLID>::NODES };
    const float *across = r + DEEP + lane % SIDE, *rows = r + DEEP + SIDE + lane / SIDE;
    if (WAY == WAY_SEPARABLE) {
        const float side = *across * *rows;
        read_deep(r, weight);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            weight[k] *= side;
        return;
    }
    float u2[DEEP];
    const float off = *across + *rows;
    read_deep(r, u2);
    if (WAY == WAY_COULOMB) {
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            u2[k] += off;
            const float t = __saturatef(1 - u2[k]);
            weight[k] = t * (t * law_root(u2[k]));
        }
        if (careful)
#pragma unroll
            for (int k = 0; k < DEEP; k++) {
                const float t = __saturatef(1 - u2[k]);
                weight[k] = u2[k] > 0 ? t * (t * rsqrtf(u2[k])) : 0;
            }
        return;
    }
    float doubt = 1;
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        u2[k] += off;
        doubt = fminf(doubt, fabsf(u2[k] - 1));
    }
    if (doubt < DOUBT) {
        float settled[DEEP]; /* apart, that the others stay in registers */
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            settled[k] = u2[k];
        settle<SOLID>(job, &list.at[0][place], &list.at[1][place], &list.at[2][place], list.scale[place], low, settled);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            u2[k] = settled[k];
    }
    if (WAY == WAY_GAUSSIAN) {
        const float side = across[NODES] * rows[NODES];
        read_deep(r + NODES, weight);
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            weight[k] = u2[k] < 1 ? weight[k] * side : 0;
        return;
    }
    law_poly<DEEP>(job.law, u2, weight);
#pragma unroll
    for (int k = 0; k < DEEP; k++) {
        if (WAY == WAY_INVERSE)
            weight[k] = law_inverse(job.law, u2[k], weight[k]);
        weight[k] = u2[k] < 1 ? weight[k] : 0;
    }
}

/* Whether a point reaches nodes low to low + edge (without). */
__device__ __forceinline__ bool reaches(const scatter_job &job, const float at[3], float scale, const int low[3],
                                        const int edge[3])
{
    const float reach = (float)job.law.reach * scale, most = reach * reach * 1.00001f;
    float sum = 0;
    bool within = true;
    for (int d = 0; d < 3; d++) {
        /* Less than float32 may have moved the point by. */
        const float away = fmaxf(fmaxf((float)low[d] - at[d], at[d] - (float)(low[d] + edge[d] - 1)) - 2e-5f, 0);
        const float square = away * away * job.spacing2[d];
        within = within && square < most;
        sum += square;
    }
    return within && (job.law.form == RANGE_SEPARABLE || sum < most);
}

/* The first `count` points of those taken, at most 32, are added to the warp's nodes. */
template <int WAY, int CHANNELS, bool SOLID>
__device__ __forceinline__ void add_points(const scatter_job &job, block_memory<WAY, CHANNELS, SOLID> &m, int count,
                                           warp_nodes<CHANNELS> &nodes)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    bool on_node = false;
    if (lane < count) {
        const uint32_t place = m.taken[warp][lane];
        const double at[3] = {m.list.at[0][place], m.list.at[1][place], m.list.at[2][place]};
        on_node = put_record<WAY, SOLID>(job, at, m.list.scale[place], nodes.low, m.record[warp][lane]);
        for (int c = 0; c < CHANNELS; c++)
            m.value[warp][lane][c] = m.list.value[c][place];
    }
    const uint32_t careful = __ballot_sync(~0u, on_node);
    __syncwarp();
    for (int i = 0; i < count; i++) {
        float weight[DEEP];
        weigh<WAY, CHANNELS, SOLID>(job, m.list, m.taken[warp][i], nodes.low, lane, m.record[warp][i], careful >> i & 1,
                                    weight);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            const float value = m.value[warp][i][c];
#pragma unroll
            for (int k = 0; k < DEEP; k++)
                nodes.sum[c][k] = fmaf(weight[k], value, nodes.sum[c][k]);
        }
    }
    __syncwarp();
}

/* The block's list of `held` points is added to the warp's nodes. */
template <int WAY, int CHANNELS, bool SOLID>
__device__ __forceinline__ void add_list(const scatter_job &job, block_memory<WAY, CHANNELS, SOLID> &m, int held,
                                         warp_nodes<CHANNELS> &total)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    warp_nodes<CHANNELS> nodes = total;
    int taken = 0;
    for (int c = 0; c < CHANNELS; c++)
        for (int k = 0; k < DEEP; k++)
            nodes.sum[c][k] = 0;
    for (int first = 0; first < held; first += 32) {
        const int i = first + lane;
        bool near = false;
        if (i < held) {
            const float at[3] = {(float)m.list.at[0][i], (float)m.list.at[1][i], (float)m.list.at[2][i]};
            near = reaches(job, at, m.list.scale[i], nodes.low, nodes.edge);
        }
        const uint32_t hits = __ballot_sync(~0u, near);
        if (near)
            m.taken[warp][taken + __popc(hits & ((1u << lane) - 1))] = (uint16_t)i;
        taken += __popc(hits);
        __syncwarp();
        const int least = first + 32 < held ? 32 : 1; /* the last of the list are fewer */
        while (taken >= least) {
            const int count = min(taken, 32);
            add_points<WAY, CHANNELS, SOLID>(job, m, count, nodes);
            taken -= count;
            const uint16_t moved = m.taken[warp][32 + lane];
            __syncwarp();
            m.taken[warp][lane] = moved;
            __syncwarp();
        }
    }
    for (int c = 0; c < CHANNELS; c++)
        for (int k = 0; k < DEEP; k++)
            total.sum[c][k] += nodes.sum[c][k];
}

/* ---- a block ---- */

/* Point `number` of those of the rows held: onto the list, if it reaches the tile. Called by all threads; returns how
 * many the list then holds. */
template <int CHANNELS, class MEMORY>
__device__ int list_point(const scatter_job &job, MEMORY &m, const int low[3], bool some, unsigned long long number,
                          int held)
{
    const points_view &p = job.points;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    double at[3] = {0, 0, 0};
    float scale = 1;
    uint32_t point = 0;
    bool near = false;
    if (some) {
        int row = 0;
        for (int step = LINES / 2; step > 0; step /= 2)
            row += number >= m.rows.before[row + step] ? step : 0;
        point = m.rows.first[row] + (uint32_t)(number - m.rows.before[row]);
        scale = p.scale ? p.scale[point] : 1;
        for (int d = 0; d < p.box.dim; d++)
            at[d] = (points_at(p, d, point) - p.box.origin[d]) / p.box.spacing[d] +
                    (double)m.rows.image[d][row] * (double)p.box.cells[d] - (double)low[d];
        const float rough[3] = {(float)at[0], (float)at[1], (float)at[2]};
        const int zero[3] = {0, 0, 0};
        near = reaches(job, rough, scale, zero, job.tile);
    }
    const uint32_t hits = __ballot_sync(~0u, near);
    if (lane == 0)
        m.held[warp] = (uint32_t)__popc(hits);
    __syncthreads();
    int place = held + __popc(hits & ((1u << lane) - 1)), all = held;
    for (int w = 0; w < WARPS; w++) {
        place += w < warp ? (int)m.held[w] : 0;
        all += (int)m.held[w];
    }
    if (near) {
        for (int d = 0; d < 3; d++)
            m.list.at[d][place] = at[d];
        m.list.scale[place] = scale;
        for (int c = 0; c < CHANNELS; c++)
            m.list.value[c][place] = c < job.channels ? job.values[(size_t)c * p.inputs + p.source[point]] : 0;
    }
    __syncthreads();
    return all;
}

/* The next LINES rows, from `row` on; returns the points that they hold. */
template <class MEMORY>
__device__ unsigned long long list_rows(const scatter_job &job, MEMORY &m, const near_bins &n, long row)
{
    const int i = threadIdx.x;
    near_row r = {0, 0, {0, 0, 0}};
    if (row + i < n.rows)
        r = near_row_of(job.points, n, row + i);
    unsigned long long before, all;
    cub::BlockScan<unsigned long long, THREADS>(m.scan).ExclusiveSum((unsigned long long)r.count, before, all);
    m.rows.before[i] = before;
    m.rows.first[i] = r.first;
    for (int d = 0; d < 3; d++)
        m.rows.image[d][i] = r.image[d];
    __syncthreads();
    return all;
}

/* A tile's points `from` to `to` (without) of those near: THREADS at a time, from rows that are listed LINES at a time.
 */
template <int WAY, int CHANNELS, bool SOLID>
__device__ __forceinline__ void add_near(const scatter_job &job, block_memory<WAY, CHANNELS, SOLID> &m,
                                         const int low[3], unsigned long long from, unsigned long long to,
                                         warp_nodes<CHANNELS> &total)
{
    const near_bins n = near_bins_of(job, low);
    unsigned long long before = 0, all = 0, next = from; /* points of the rows before, of the rows listed; the next */
    long row = 0;
    int held = 0;
    bool more = true;
    while (more) {
        while (next >= before + all && row < n.rows && before + all < to) {
            __syncthreads();
            before += all;
            all = list_rows(job, m, n, row);
            row += LINES;
        }
        const unsigned long long last = to < before + all ? to : before + all;
        if (next < last) {
            held = list_point<CHANNELS>(job, m, low, next + threadIdx.x < last, next + threadIdx.x - before, held);
            next = next + THREADS < last ? next + THREADS : last;
        }
        more = next < to && (next < before + all || row < n.rows);
        if (held > LIST - THREADS || !more) {
            add_list<WAY, CHANNELS, SOLID>(job, m, held, total);
            held = 0;
            __syncthreads();
        }
    }
}

/* Where a lane's node k lies: false: not in the grid. place: in the grid, and in the tile. */
template <bool SOLID>
__device__ __forceinline__ bool node_place(const scatter_job &job, const int low[3], const int warp_low[3], int k,
                                           size_t *in_grid, size_t *in_tile)
{
    enum { SIDE = shape<SOLID>::SIDE };
    const int lane = threadIdx.x & 31, *cells = job.points.box.cells;
    int node[3];
    node[shape<SOLID>::FIRST] = warp_low[shape<SOLID>::FIRST] + lane % SIDE;
    node[shape<SOLID>::SECOND] = warp_low[shape<SOLID>::SECOND] + lane / SIDE;
    node[shape<SOLID>::THIRD] = warp_low[shape<SOLID>::THIRD] + k;
    *in_tile = ((size_t)node[2] * (size_t)job.tile[1] + (size_t)node[1]) * (size_t)job.tile[0] + (size_t)node[0];
    bool inside = true;
    for (int d = 0; d < 3; d++) {
        node[d] += low[d];
        inside = inside && node[d] < cells[d];
    }
    *in_grid = ((size_t)node[2] * (size_t)cells[1] + (size_t)node[1]) * (size_t)cells[0] + (size_t)node[0];
    return inside;
}

template <int WAY, int CHANNELS, bool SOLID>
__global__ void __launch_bounds__(THREADS, CHANNELS == 1 ? 3 : 1)
    sum_tiles(const __grid_constant__ scatter_job job, const sums_task *tasks, float *slots)
{
    extern __shared__ __align__(16) char memory[];
    block_memory<WAY, CHANNELS, SOLID> &m = *(block_memory<WAY, CHANNELS, SOLID> *)memory;
    const sums_task task = tasks[blockIdx.x];
    int low[3], warp = threadIdx.x / 32;
    tile_low(job, task.tile, low);
    warp_nodes<CHANNELS> total = {};
    for (int i = 0; i < 3; i++) {
        const int d = i == 0 ? shape<SOLID>::FIRST : i == 1 ? shape<SOLID>::SECOND : shape<SOLID>::THIRD;
        total.edge[d] = i == 0 ? shape<SOLID>::SIDE : i == 1 ? shape<SOLID>::ROWS : DEEP;
        total.low[d] = warp % job.warp[d] * total.edge[d];
        warp /= job.warp[d];
    }
    add_near<WAY, CHANNELS, SOLID>(job, m, low, task.from, task.to, total);
    const size_t tile_nodes = (size_t)job.tile[0] * (size_t)job.tile[1] * (size_t)job.tile[2];
    for (int k = 0; k < DEEP; k++) {
        size_t in_grid, in_tile;
        if (!node_place<SOLID>(job, low, total.low, k, &in_grid, &in_tile))
            continue;
        for (int c = 0; c < CHANNELS && c < job.channels; c++)
            if (task.slot < 0)
                job.grid[(size_t)c * job.nodes + in_grid] += total.sum[c][k] * job.strength;
            else
                slots[((size_t)task.slot * TOGETHER + (size_t)c) * tile_nodes + in_tile] = total.sum[c][k];
    }
}

/* A tile's slots, in order, to the grid. */
__global__ void add_slots(const __grid_constant__ scatter_job job, const sums_group *groups, const float *slots)
{
    const sums_group group = groups[blockIdx.x];
    const int c = blockIdx.y, edge[2] = {job.tile[0], job.tile[1]};
    const size_t tile_nodes = (size_t)job.tile[0] * (size_t)job.tile[1] * (size_t)job.tile[2];
    int low[3];
    tile_low(job, group.tile, low);
    for (int i = threadIdx.x; i < (int)tile_nodes; i += blockDim.x) {
        const int node[3] = {low[0] + i % edge[0], low[1] + i / edge[0] % edge[1], low[2] + i / edge[0] / edge[1]};
        const int *cells = job.points.box.cells;
        if (node[0] >= cells[0] || node[1] >= cells[1] || node[2] >= cells[2])
            continue;
        float *to = job.grid + (size_t)c * job.nodes +
                    ((size_t)node[2] * (size_t)cells[1] + (size_t)node[1]) * (size_t)cells[0] + (size_t)node[0];
        float sum = *to;
        for (uint32_t s = group.slot; s < group.slot + group.slots; s++)
            sum += slots[((size_t)s * TOGETHER + (size_t)c) * tile_nodes + (size_t)i] * job.strength;
        *to = sum;
    }
}

} // namespace

#endif
