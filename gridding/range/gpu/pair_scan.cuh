/* pair_scan.cuh: finds the points that may be partners of a cluster's. The lanes of a warp examine rows of cells in
 * parallel, one row per lane; each gives one contiguous run of points. Image by image: calls after begin() concern one
 * image of the box. Only the GPU's leaf of sums.h includes this. */
#ifndef MRIRECON_PAIR_SCAN_CUH
#define MRIRECON_PAIR_SCAN_CUH

#include "gridding/range/gpu/cells_gpu.cuh"

static const unsigned ALL_LANES = 0xffffffffu;

/* Minimum over the points of a cluster, one in each of CLUSTER consecutive lanes. */
static __device__ __forceinline__ float cluster_least(float v)
{
#pragma unroll
    for (int o = CLUSTER / 2; o > 0; o >>= 1)
        v = fminf(v, __shfl_xor_sync(ALL_LANES, v, o));
    return v;
}

/* A cluster relative to its partners' cells: its extent in cells, relative to the cell of its first point; the cells
 * within reach, and their images. In shared memory, because it is rarely read. */
struct pair_group {
    int base[3];
    float low[3], high[3], slack[3]; /* slack: more than rounding errors */
    int from[3], to[3], image_from[3], image_to[3];
};

/* One axis: the cells within reach, numbered continuously through the images of a periodic axis. */
struct pair_span {
    int from, to;
};

static __device__ __forceinline__ int image_floor(int cell, int n)
{
    if (cell >= 0 && cell < n)
        return 0;
    return cell >= 0 ? cell / n : -((-cell + n - 1) / n);
}

static __device__ __forceinline__ int cell_floor(float cells)
{
    return (int)floorf(fminf(fmaxf(cells, -1e9f), 1e9f));
}

static __device__ __forceinline__ int within(int cell, int n)
{
    return min(max(cell, 0), n - 1);
}

static __device__ __forceinline__ struct pair_span span_of(const struct cells_view &from, const struct pair_group &g,
                                                           int d, float half)
{
    struct pair_span s = {g.base[d] + cell_floor(g.low[d] - half - g.slack[d]),
                          g.base[d] + cell_floor(g.high[d] + half + g.slack[d])};
    if (!from.periodic[d]) {
        s.from = within(s.from, from.n[d]);
        s.to = within(s.to, from.n[d]);
    }
    return s;
}

/* Axis d of a group: a cluster from `low` to `high`, relative to the first cell's lower face. */
static __device__ __forceinline__ void group_axis(struct pair_group *g, const struct cells_view &from, int d, float low,
                                                  float high, float reach)
{
    const float per = (float)from.per[d];
    const int base = (int)fminf(fmaxf(floorf(low * per), 0.f), (float)(from.n[d] - 1));
    g->base[d] = base;
    g->low[d] = low * per - (float)base;
    g->high[d] = high * per - (float)base;
    g->slack[d] = 2e-3f + 1e-6f * fmaxf(fabsf(g->low[d]), fabsf(g->high[d]));
    const struct pair_span span = span_of(from, *g, d, reach * per);
    g->from[d] = span.from;
    g->to[d] = span.to;
    g->image_from[d] = from.periodic[d] ? image_floor(span.from, from.n[d]) : 0;
    g->image_to[d] = from.periodic[d] ? image_floor(span.to, from.n[d]) : 0;
}

/* Called by all lanes; `reach` is a little more than the law's. */
static __device__ __forceinline__ void group_make(struct pair_group *g, const struct cells_view &from,
                                                  const float low[3], const float high[3], float reach)
{
    const int d = (int)(threadIdx.x & 31);
    if (d < 3)
        group_axis(g, from, d,
                   d == 0   ? low[0]
                   : d == 1 ? low[1]
                            : low[2],
                   d == 0   ? high[0]
                   : d == 1 ? high[1]
                            : high[2],
                   reach);
    __syncwarp();
}

/* The distance of the cluster from cell `cell`, numbered through the images, along axis d. */
static __device__ __forceinline__ float gap_of(const struct cells_view &from, const struct pair_group &g, int d,
                                               int cell)
{
    const float at = (float)(cell - g.base[d]);
    float below = at - g.high[d], above = g.low[d] - (at + 1); /* of the cluster: below the cell, above it */
    if (!from.periodic[d] && cell == 0)
        below = 0;
    if (!from.periodic[d] && cell == from.n[d] - 1)
        above = 0;
    return fmaxf(0.f, fmaxf(below, above) - g.slack[d]) * (float)from.edge[d];
}

/* The run of a row of cells; `rest`: the remainder of the squared reach along x. */
static __device__ __forceinline__ uint2 run_of(const struct cells_view &from, const struct pair_group &g, float rest,
                                               int image, int y, int z)
{
    uint2 run = {0, 0};
    if (!(rest > 0))
        return run;
    const int n = from.n[0];
    const struct pair_span x = span_of(from, g, 0, sqrtf(rest) * (float)from.per[0]);
    const int low = max(x.from - image * n, 0), high = min(x.to - image * n, n - 1);
    if (low <= high) {
        const size_t row = ((size_t)z * from.n[1] + y) * (size_t)n;
        run.x = from.first[row + low];
        run.y = from.first[row + high + 1];
    }
    return run;
}

/* The cells of one image, or of all images. */
static __device__ __forceinline__ struct pair_span image_span(const struct cells_view &from, const struct pair_group &g,
                                                              int d, int image, bool all)
{
    struct pair_span s = {g.from[d], g.to[d]};
    if (!all) {
        s.from = max(s.from, image * from.n[d]);
        s.to = min(s.to, (image + 1) * from.n[d] - 1);
    }
    return s;
}

/* Warp-collective: if f.wants(image), f.begin(image) before the runs of an image, f.end() after them, f.runs(run,
 * image) for up to 32 of them, a lane's own each, empty where run.x == run.y. Or, if f.joins(), f.begin() and f.end()
 * once for the runs of all images, of which there are then at most two along an axis, 0 and -1 or 1. `reach` is a
 * little more than the law's. */
template <class F>
static __device__ __forceinline__ void pair_scan(const struct cells_view &from, const struct pair_group &g, float reach,
                                                 F &f)
{
    const unsigned lane = threadIdx.x & 31;
    const bool joined = f.joins(from, g);
    const int last_z = joined ? g.image_from[2] : g.image_to[2], last_y = joined ? g.image_from[1] : g.image_to[1];
    for (int kz = g.image_from[2]; kz <= last_z; kz++)
        for (int ky = g.image_from[1]; ky <= last_y; ky++)
            for (int kx = g.image_from[0]; kx <= g.image_to[0]; kx++) {
                if (!joined && !f.wants(kx, ky, kz))
                    continue;
                const struct pair_span z = image_span(from, g, 2, kz, joined), y = image_span(from, g, 1, ky, joined);
                const unsigned wide = (unsigned)(y.to - y.from + 1), rows = wide * (unsigned)(z.to - z.from + 1);
                if (!joined || kx == g.image_from[0])
                    f.begin(joined, kx, ky, kz);
                for (unsigned row = lane; row - lane < rows; row += 32) {
                    uint2 run = {0, 0};
                    if (row < rows) {
                        const int cz = z.from + (int)(row / wide), cy = y.from + (int)(row % wide);
                        const float gy = gap_of(from, g, 1, cy), gz = gap_of(from, g, 2, cz);
                        const int iy = joined ? (cy >= from.n[1]) - (cy < 0) : ky,
                                  iz = joined ? (cz >= from.n[2]) - (cz < 0) : kz;
                        run = run_of(from, g, reach * reach - gy * gy - gz * gz, kx, cy - iy * from.n[1],
                                     cz - iz * from.n[2]);
                    }
                    f.runs(run);
                }
                if (!joined || kx == g.image_to[0])
                    f.end();
            }
}

#endif
