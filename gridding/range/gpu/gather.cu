/* gather.cu: sums of grids to points on a GPU (gridding/range/sums.h).
 *
 * A warp per point iterates over the box of nodes that the point may reach, in blocks of at most SIDE nodes per axis.
 * Lane i of a block stores the values of node i of each axis: the squared distance along it, or its weight, and its
 * index in the grid. The lanes then share the block's nodes, and add up their sums in a fixed order. */
#include "gridding/range/gpu/law_gpu.cuh"
#include "gridding/range/gpu/points_gpu.cuh"
#include "gridding/range/gpu/sums_gpu.cuh"

#include <cstring>

namespace
{

const char what[] = "Summing a grid to points";

enum { WARPS = 4, THREADS = 32 * WARPS, SIDE = 32, TOGETHER = 4 };

struct gather_job {
    struct points_view points;
    struct law_gpu law;
    size_t nodes;
    int channels; /* of this pass, at most TOGETHER */
    const float *grid;
    float *values;
};

/* Nodes of an axis that a point may reach, numbered continuously through the images of a periodic axis. */
struct stretch {
    int from, to;
};

__device__ struct stretch stretch_of(const range_box &box, int d, double at, double reach)
{
    struct stretch s = {0, 0};
    if (d >= box.dim)
        return s;
    const double cells = reach / box.spacing[d] + 1e-6;
    double from = ceil(at - cells), to = floor(at + cells);
    if (!box.periodic[d]) {
        from = fmax(from, 0.0);
        to = fmin(to, box.cells[d] - 1.0);
    }
    s.from = from > to ? 0 : (int)from;
    s.to = from > to ? -1 : (int)to;
    return s;
}

/* A block of nodes, axis by axis; a warp's. */
struct block {
    float square[3][SIDE], weight[3][SIDE];
    int wrapped[3][SIDE]; /* the node in the grid */
};

/* The present point. */
struct target {
    double at[3], scale; /* in nodes */
    float unit;          /* 1 / (reach scale)^2 */
};

/* Lane i: node low[d] + i of each axis. A separable law's weights are 0 beyond reach, decided in double precision. */
__device__ void put_block(const gather_job &job, const target &point, const int low[3], block &b)
{
    const range_box &box = job.points.box;
    const int lane = threadIdx.x & 31;
    for (int d = 0; d < 3; d++) {
        const double base = rint(point.at[d]);
        const int node = low[d] + lane;
        const float away = ((float)(node - base) - (float)(point.at[d] - base)) * (float)box.spacing[d];
        const bool there = d < box.dim;
        const float u2 = there ? away * away * point.unit : 0;
        const int turn = node % box.cells[d];
        b.square[d][lane] = u2;
        b.wrapped[d][lane] = turn < 0 ? turn + box.cells[d] : turn;
        if (job.law.form == RANGE_SEPARABLE) {
            const bool in = fabs((node - point.at[d]) * box.spacing[d]) < job.law.reach * point.scale;
            b.weight[d][lane] = !there ? 1 : in ? law_p(job.law, u2) : 0;
        }
    }
    __syncwarp();
}

/* Whether a node is within reach, exactly. */
__device__ __noinline__ bool within_reach(const gather_job &job, const target &point, const int node[3])
{
    double sum = 0;
    for (int d = 2; d >= 0; d--) {
        const double away = d < job.points.box.dim ? (node[d] - point.at[d]) * job.points.box.spacing[d] : 0;
        sum = __dadd_rn(sum, __dmul_rn(away, away));
    }
    const double reach = job.law.reach * point.scale;
    return sum < __dmul_rn(reach, reach);
}

/* The law at node i of a block. */
__device__ __forceinline__ float weigh(const gather_job &job, const target &point, const block &b, const int low[3],
                                       const int i[3])
{
    if (job.law.form == RANGE_SEPARABLE)
        return b.weight[0][i[0]] * b.weight[1][i[1]] * b.weight[2][i[2]];
    const float u2 = b.square[0][i[0]] + b.square[1][i[1]] + b.square[2][i[2]];
    bool in = u2 < 1;
    if (fabsf(u2 - 1) < 1e-6f) {
        const int node[3] = {low[0] + i[0], low[1] + i[1], low[2] + i[2]};
        in = within_reach(job, point, node);
    }
    if (!in)
        return 0;
    const float p = law_p(job.law, u2);
    return job.law.form == RANGE_RADIAL ? p : law_inverse(job.law, u2, p);
}

/* A block of nodes: size[d] of each axis. Values of nodes out of reach do not matter, even if NaN. */
template <int CHANNELS>
__device__ void add_block(const gather_job &job, const target &point, const block &b, const int low[3],
                          const int size[3], float sum[CHANNELS])
{
    const range_box &box = job.points.box;
    const unsigned all = (unsigned)(size[0] * size[1] * size[2]), row = (unsigned)size[0],
                   plane = (unsigned)(size[0] * size[1]);
    for (unsigned n = threadIdx.x & 31; n < all; n += 32) {
        const unsigned z = n / plane, left = n - z * plane, y = left / row;
        const int i[3] = {(int)(left - y * row), (int)y, (int)z};
        const float weight = weigh(job, point, b, low, i);
        if (weight == 0)
            continue;
        const size_t place =
            ((size_t)b.wrapped[2][z] * (size_t)box.cells[1] + (size_t)b.wrapped[1][y]) * (size_t)box.cells[0] +
            (size_t)b.wrapped[0][i[0]];
#pragma unroll
        for (int c = 0; c < CHANNELS; c++)
            if (c < job.channels)
                sum[c] = fmaf(weight, job.grid[(size_t)c * job.nodes + place], sum[c]);
    }
}

/* A warp for each point, from `first` on. */
template <int CHANNELS>
__global__ void __launch_bounds__(THREADS)
    gather_points(const __grid_constant__ gather_job job, uint32_t first, uint32_t to)
{
    __shared__ block blocks[WARPS];
    block &b = blocks[threadIdx.x / 32];
    const points_view &p = job.points;
    const uint32_t i = first + blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= to)
        return;
    struct target point;
    struct stretch s[3];
    point.scale = p.scale ? (double)p.scale[i] : 1;
    const double reach = job.law.reach * point.scale;
    point.unit = (float)(1 / (reach * reach));
    for (int d = 0; d < 3; d++) {
        point.at[d] = d < p.box.dim ? (points_at(p, d, i) - p.box.origin[d]) / p.box.spacing[d] : 0;
        s[d] = stretch_of(p.box, d, point.at[d], reach);
    }
    double total[CHANNELS] = {};
    int low[3];
    for (low[2] = s[2].from; low[2] <= s[2].to; low[2] += SIDE)
        for (low[1] = s[1].from; low[1] <= s[1].to; low[1] += SIDE)
            for (low[0] = s[0].from; low[0] <= s[0].to; low[0] += SIDE) {
                int size[3];
                float sum[CHANNELS] = {};
                for (int d = 0; d < 3; d++)
                    size[d] = min(SIDE, s[d].to - low[d] + 1);
                put_block(job, point, low, b);
                add_block<CHANNELS>(job, point, b, low, size, sum);
                __syncwarp();
                for (int c = 0; c < CHANNELS; c++)
                    total[c] += (double)sum[c];
            }
    for (int c = 0; c < CHANNELS && c < job.channels; c++) {
        double sum = total[c];
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_down_sync(~0u, sum, step);
        if ((threadIdx.x & 31) == 0)
            job.values[(size_t)c * p.inputs + p.source[i]] = (float)sum;
    }
}

struct gather_job job_of(const struct points_gpu *p, const struct range_law *law)
{
    struct gather_job job;
    memset(&job, 0, sizeof job);
    job.points = p->view;
    job.law = law_gpu_of(law);
    job.nodes = 1;
    for (int d = 0; d < 3; d++)
        job.nodes *= (size_t)p->view.box.cells[d];
    return job;
}

/* Nodes of the box that the widest point reaches: the highest cost of a point. */
double nodes_reached(const struct points_gpu *p, double reach)
{
    double nodes = 32;
    for (int d = 0; d < p->view.box.dim; d++)
        nodes *= 2 * reach * (double)p->widest / p->view.box.spacing[d] + 1;
    return nodes;
}

} // namespace

int sums_gpu_gather(const void *state, const struct range_law *law, int channels, const float *grid, float *values,
                    const struct listener *listener)
{
    const struct points_gpu *p = (const struct points_gpu *)state;
    struct gather_job job = job_of(p, law);
    /* Work between two calls of the listener: about 10 ms. */
    const double pace = 2e7 * p->gpu->multiprocessors / nodes_reached(p, law->params.reach);
    const uint32_t count = p->view.count, step = pace < 4 ? 4 : pace < (double)count ? (uint32_t)pace : count;
    const int together = channels == 1 ? 1 : TOGETHER;
    const size_t passes = (size_t)((channels + together - 1) / together), most = passes * count + (count == 0);
    size_t done = 0;
    int rc = gpu_enter(p->gpu);
    if (!rc && listener)
        rc = listener->progress(listener->context, 0, most);
    for (int first = 0; first < channels && !rc; first += together) {
        job.channels = channels - first < together ? channels - first : together;
        job.grid = grid + (size_t)first * job.nodes;
        job.values = values + (size_t)first * job.points.inputs;
        for (uint32_t from = 0; from < count && !rc; from += step) {
            const uint32_t to = count - from < step ? count : from + step;
            (together == 1 ? gather_points<1>
                           : gather_points<TOGETHER>)<<<gpu_blocks(to - from, WARPS), THREADS, 0, p->gpu->stream>>>(
                job, from, to);
            rc = gpu_launched(what);
            done += to - from;
            if (!rc && listener)
                rc = gpu_finish(p->gpu, what);
            if (!rc && listener)
                rc = listener->progress(listener->context, done, most);
        }
    }
    if (!rc && listener && done < most)
        rc = listener->progress(listener->context, most, most);
    return rc ? rc : gpu_finish(p->gpu, what);
}

size_t sums_gpu_gather_bytes(void)
{
    return 0;
}
