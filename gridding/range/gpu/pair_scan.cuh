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

/* `at`: the lane's point, as of cluster_least(); `reach` is a little more than the law's. */
static __device__ __forceinline__ void group_make(struct pair_group *to, const struct cells_view &from,
                                                  const double at[3], float reach)
{
    struct pair_group g;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const float cells = (float)(at[d] - from.origin[d]) * (float)from.per[d];
        const float first = floorf(__shfl_sync(ALL_LANES, cells, 0));
        g.base[d] = (int)fminf(fmaxf(first, 0.f), (float)(from.n[d] - 1));
        const float away = cells - (float)g.base[d];
        g.low[d] = cluster_least(away);
        g.high[d] = -cluster_least(-away);
        g.slack[d] = 2e-3f + 1e-6f * fmaxf(fabsf(g.low[d]), fabsf(g.high[d]));
        const struct pair_span span = span_of(from, g, d, reach * (float)from.per[d]);
        g.from[d] = span.from;
        g.to[d] = span.to;
        g.image_from[d] = from.periodic[d] ? image_floor(span.from, from.n[d]) : 0;
        g.image_to[d] = from.periodic[d] ? image_floor(span.to, from.n[d]) : 0;
    }
    if ((threadIdx.x & 31) == 0)
        *to = g;
    __syncwarp();
}

/* The distance of the cluster from cell `cell` (of image `image`) along axis d. */
static __device__ __forceinline__ float gap_of(const struct cells_view &from, const struct pair_group &g, int d,
                                               int cell, int image)
{
    const float at = (float)(cell + image * from.n[d] - g.base[d]);
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

/* Warp-collective: if f.wants(image), f.begin(image) before the runs of an image, f.end() after them, f.runs(first,
 * last) for up to 32 of them, a lane's own each, empty where first == last. `reach` is a little more than the law's. */
template <class F>
static __device__ __forceinline__ void pair_scan(const struct cells_view &from, const struct pair_group &g, float reach,
                                                 F &f)
{
    const unsigned lane = threadIdx.x & 31;
    for (int kz = g.image_from[2]; kz <= g.image_to[2]; kz++)
        for (int ky = g.image_from[1]; ky <= g.image_to[1]; ky++)
            for (int kx = g.image_from[0]; kx <= g.image_to[0]; kx++) {
                if (!f.wants(kx, ky, kz))
                    continue;
                const int z0 = max(g.from[2] - kz * from.n[2], 0), z1 = min(g.to[2] - kz * from.n[2], from.n[2] - 1);
                const int y0 = max(g.from[1] - ky * from.n[1], 0), y1 = min(g.to[1] - ky * from.n[1], from.n[1] - 1);
                const unsigned wide = (unsigned)(y1 - y0 + 1), rows = wide * (unsigned)(z1 - z0 + 1);
                f.begin(kx, ky, kz);
                for (unsigned row = lane; row - lane < rows; row += 32) {
                    uint2 run = {0, 0};
                    if (row < rows) {
                        const int z = z0 + (int)(row / wide), y = y0 + (int)(row % wide);
                        const float gy = gap_of(from, g, 1, y, ky), gz = gap_of(from, g, 2, z, kz);
                        run = run_of(from, g, reach * reach - gy * gy - gz * gz, kx, y, z);
                    }
                    f.runs(run.x, run.y);
                }
                f.end();
            }
}

#endif
