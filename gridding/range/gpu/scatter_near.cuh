/* scatter_near.cuh: a sum of points to a grid as its kernels see it (scatter.cu), and the rows of bins near a tile. */
#ifndef MRIRECON_SCATTER_NEAR_CUH
#define MRIRECON_SCATTER_NEAR_CUH

#include "gridding/range/gpu/law_gpu.cuh"
#include "gridding/range/gpu/points_gpu.cuh"

namespace
{

enum { WARPS = 8, THREADS = 32 * WARPS, DEEP = 8, LIST = 512, LINES = THREADS, TOGETHER = 4 };

/* How a law is summed. */
enum way {
    WAY_SEPARABLE,
    WAY_RADIAL,
    WAY_GAUSSIAN, /* radial and exponential: the product of weights along the axes
                   */
    WAY_INVERSE,
    WAY_COULOMB /* inverse, t^2 / r, which is 0 at the reach */
};

/* The nodes of a warp: SIDE along x, lanes / SIDE along the second axis, DEEP along the third, one lane's. In 2-D and
 * 1-D the second is one that is not there. */
template <bool SOLID> struct shape {
    enum { SIDE = SOLID ? 8 : 32, ROWS = 32 / SIDE };
    enum { FIRST = 0, SECOND = SOLID ? 1 : 2, THIRD = SOLID ? 2 : 1 }; /* axes */
};

struct scatter_job {
    struct points_view points;
    struct law_gpu law;
    double spacing[3];              /* 0 beyond dim */
    double nodes_of[3];             /* 1 / spacing */
    float spacing2[3];              /* squared */
    double widest;                  /* the reach of the widest point */
    int tile[3], tiles[3], warp[3]; /* nodes of a tile; tiles; warps along each axis of a tile */
    size_t nodes;
    int channels;        /* of this pass, at most TOGETHER */
    const float *values; /* of its first channel, as grid */
    float *grid;
    float strength; /* what sums are multiplied by: WAY_COULOMB: the law is
                       strength t^2 / sqrt(u2); WAY_GAUSSIAN: its peak */
};

/* ---- the rows of bins near a tile ---- */

struct near_bins {
    struct bin_span span[3];
    long images; /* of x that the span touches */
    long rows;   /* in all: one for each y, z and image of x */
};

__device__ struct near_bins near_bins_of(const scatter_job &job, const int low[3])
{
    const points_view &p = job.points;
    struct near_bins n;
    for (int d = 0; d < 3; d++) {
        const int last = min(low[d] + job.tile[d], p.box.cells[d]) - 1;
        n.span[d] = points_span(p, d, p.box.origin[d] + low[d] * p.box.spacing[d] - job.widest,
                                p.box.origin[d] + last * p.box.spacing[d] + job.widest);
    }
    n.images = image_of(n.span[0].to, p.bins[0]) - image_of(n.span[0].from, p.bins[0]) + 1;
    n.rows = n.images * (n.span[1].to - n.span[1].from + 1) * (n.span[2].to - n.span[2].from + 1);
    return n;
}

/* A run of points, of one image of the box. */
struct near_row {
    uint32_t first, count;
    int image[3];
};

__device__ struct near_row near_row_of(const points_view &p, const near_bins &n, long row)
{
    struct near_row r;
    const long heights = n.span[1].to - n.span[1].from + 1, x = row % n.images;
    const long y = n.span[1].from + row / n.images % heights, z = n.span[2].from + row / n.images / heights;
    const long image[3] = {image_of(n.span[0].from, p.bins[0]) + x, image_of(y, p.bins[1]), image_of(z, p.bins[2])};
    const long base = image[0] * p.bins[0], from = n.span[0].from > base ? n.span[0].from - base : 0,
               to = n.span[0].to < base + p.bins[0] - 1 ? n.span[0].to - base : p.bins[0] - 1;
    const uint32_t line = points_bin(p, 0, (uint32_t)(y - image[1] * p.bins[1]), (uint32_t)(z - image[2] * p.bins[2]));
    r.first = p.first[line + from];
    r.count = p.first[line + to + 1] - r.first;
    for (int d = 0; d < 3; d++)
        r.image[d] = (int)image[d];
    return r;
}

__device__ void tile_low(const scatter_job &job, uint32_t tile, int low[3])
{
    low[0] = (int)(tile % (uint32_t)job.tiles[0]) * job.tile[0];
    low[1] = (int)(tile / (uint32_t)job.tiles[0] % (uint32_t)job.tiles[1]) * job.tile[1];
    low[2] = (int)(tile / (uint32_t)job.tiles[0] / (uint32_t)job.tiles[1]) * job.tile[2];
}

/* What tiles have near: of all together, and of the one that has most. */
struct near_sums {
    unsigned long long all, most;
};

/* A warp for each tile: how many points its rows hold. */
__global__ void count_near(const __grid_constant__ scatter_job job, uint32_t tiles, unsigned long long *near,
                           near_sums *sums)
{
    const uint32_t tile = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (tile >= tiles)
        return;
    int low[3];
    tile_low(job, tile, low);
    const near_bins n = near_bins_of(job, low);
    unsigned long long sum = 0;
    for (long row = threadIdx.x & 31; row < n.rows; row += 32)
        sum += near_row_of(job.points, n, row).count;
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(~0u, sum, step);
    if ((threadIdx.x & 31) == 0 && sum > 0) {
        atomicAdd(&sums->all, sum);
        atomicMax(&sums->most, sum);
    }
    if ((threadIdx.x & 31) == 0)
        near[tile] = sum;
}

} // namespace

#endif
