/* scatter_tiles.cuh: the kernels of sums of points to grids by any law (scatter.cu describes the method). */
#ifndef MRIRECON_SCATTER_TILES_CUH
#define MRIRECON_SCATTER_TILES_CUH

#include "gridding/range/gpu/scatter_record.cuh"
#include "gridding/range/gpu/sums_gpu.cuh"

namespace
{

/* Whether a point reaches nodes [low, low + edge). */
__device__ __forceinline__ bool reaches(const scatter_job &job, const float at[3], float scale, const int low[3],
                                        const int edge[3])
{
    const float reach = (float)job.law.reach * scale, most = reach * reach * 1.00001f;
    float sum = 0;
    bool within = true;
    for (int d = 0; d < 3; d++) {
        /* Less than the rounding error of the point's float32 position. */
        const float away = fmaxf(fmaxf((float)low[d] - at[d], at[d] - (float)(low[d] + edge[d] - 1)) - 2e-5f, 0);
        const float square = away * away * job.spacing2[d];
        within = within && square < most;
        sum += square;
    }
    return within && (job.law.form == RANGE_SEPARABLE || sum < most);
}

/* Add the first `count` selected points, at most 32, to the warp's nodes. */
template <int WAY, int CHANNELS, bool SOLID>
__device__ __forceinline__ void add_points(const scatter_job &job, block_memory<WAY, CHANNELS, SOLID> &m, int count,
                                           warp_nodes<CHANNELS> &nodes)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const uint32_t place = lane < count ? m.taken[warp][lane] : 0;
    const double at[3] = {m.list.at[0][place], m.list.at[1][place], m.list.at[2][place]};
    const float scale = m.list.scale[place], reach = (float)job.law.reach * scale;
    axes<SOLID> x;
    if (lane < count) {
        make_axes<SOLID>(job, at, 1 / (reach * reach), nodes.low, x);
        put_record<WAY, SOLID>(job, at, scale, nodes.low, x, m.record[warp][lane]);
        for (int c = 0; c < CHANNELS; c++)
            m.value[warp][lane][c] = m.list.value[c][place];
    }
    __syncwarp();
    for (int i = 0; i < count; i++)
        add_point<WAY, CHANNELS, SOLID>(job, m.list, m.taken[warp][i], nodes.low, m.record[warp][i], m.value[warp][i],
                                        nodes.sum);
    __syncwarp();
}

/* Add the block's list of `held` points to the warp's nodes. */
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
        const int least = first + 32 < held ? 32 : 1; /* fewer at the end of the list */
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

/* The listed row that contains point `number` of those of the listed rows. */
template <class MEMORY> __device__ __forceinline__ int row_find(const MEMORY &m, unsigned long long number)
{
    int row = 0;
    for (int step = LINES / 2; step > 0; step /= 2)
        row += number >= m.rows.before[row + step] ? step : 0;
    return row;
}

/* Point `number` of those of the rows held: onto the list, if it reaches the tile. Called by all threads; returns how
 * many the list then holds. */
template <int CHANNELS, class MEMORY>
__device__ int list_point(const scatter_job &job, MEMORY &m, const int low[3], bool some, unsigned long long number,
                          int held)
{
    const points_view &p = job.points;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    double at[3] = {0, 0, 0};
    int image[3] = {0, 0, 0};
    float scale = 1;
    uint32_t point = 0;
    bool near = false;
    if (some) {
        const int row = row_find(m, number);
        point = m.rows.first[row] + (uint32_t)(number - m.rows.before[row]);
        scale = p.scale ? p.scale[point] : 1;
        float rough[3] = {0, 0, 0};
        for (int d = 0; d < p.box.dim; d++) {
            image[d] = m.rows.image[d][row];
            at[d] = points_at(p, d, point);
            rough[d] = (float)((at[d] - p.box.origin[d]) * job.nodes_of[d] +
                               ((double)image[d] * (double)p.box.cells[d] - (double)low[d]));
        }
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
            m.list.at[d][place] = d < p.box.dim ? (at[d] - p.box.origin[d]) / p.box.spacing[d] +
                                                      (double)image[d] * (double)p.box.cells[d] - (double)low[d]
                                                : 0;
        m.list.scale[place] = scale;
        for (int c = 0; c < CHANNELS; c++)
            m.list.value[c][place] = c < job.channels ? job.values[(size_t)c * p.inputs + p.source[point]] : 0;
    }
    __syncthreads();
    return all;
}

/* List the next LINES rows, from `row` on; returns their number of points. */
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

/* Add points [from, to) of those near a tile: THREADS at a time, from rows that are listed LINES at a time. */
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

/* The index of a lane's node k, in the grid and in the tile; false: not in the grid. */
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
    sum_tiles(const __grid_constant__ scatter_job job, const __grid_constant__ sums_work work)
{
    extern __shared__ __align__(16) char memory[];
    block_memory<WAY, CHANNELS, SOLID> &m = *(block_memory<WAY, CHANNELS, SOLID> *)memory;
    sums_task task = {work.first + blockIdx.x, -1, 0, 0};
    if (work.tasks)
        task = work.tasks[blockIdx.x];
    else
        task.to = work.near[task.tile];
    if (task.to == 0 || (!work.tasks && task.to > work.depth))
        return;
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
                work.slots[(size_t)task.slot * job.slot + (size_t)c * tile_nodes + in_tile] = total.sum[c][k];
    }
}

/* Add a tile's slots, in order, to the grid. */
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
            sum += slots[(size_t)s * job.slot + (size_t)c * tile_nodes + (size_t)i] * job.strength;
        *to = sum;
    }
}

} // namespace

#endif
