/* scatter_near.cuh: arguments of the kernels of sums to a grid (scatter.cu), and the rows of bins near a tile. */
#ifndef MRIRECON_SCATTER_NEAR_CUH
#define MRIRECON_SCATTER_NEAR_CUH

#include "gridding/range/gpu/law_gpu.cuh"
#include "gridding/range/gpu/points_gpu.cuh"

namespace
{

enum { WARPS = 8, THREADS = 32 * WARPS, DEEP = 8, LIST = 512, LINES = THREADS, TOGETHER = 4 };

/* The ways to sum a law. */
enum way {
    WAY_SEPARABLE,
    WAY_RADIAL,
    WAY_INVERSE,
    /* Of one channel on a 3-D grid, from packed points: */
    WAY_GAUSSIAN, /* radial and exponential: the product of weights along the axes */
    WAY_COULOMB,  /* inverse, t^2 / r, which is 0 at the reach; of points without scales */
    WAY_SHIFTED,  /* likewise short, 1 / r less the polynomial of degree 2 in r^2 that meets it at the reach */
    WAY_CUBES     /* separable and exponential, by tensor cores */
};

/* The nodes of a warp: SIDE along x, lanes / SIDE along the second axis, DEEP along the third, those of one lane. In
 * 2-D and 1-D the second axis has one node. */
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
    size_t slot;         /* floats of a part's slot: channels of a tile's nodes */
    int channels;        /* of this pass, at most TOGETHER */
    const float *values; /* of its first channel, as grid */
    float *grid;
    bool set; /* Of packed points: each node is written once, and its former value is not read. */
    /* Factor of sums. WAY_COULOMB: the law is strength t^2 / sqrt(u2); WAY_SHIFTED: strength (1 / sqrt(u2) - P(u2));
     * WAY_GAUSSIAN: its peak; WAY_CUBES: that of three axes. */
    float strength;
    /* Of packed points: */
    /* [count]: nodes from the grid's first, by 2^-bits, and the bits of the scale, whose sign is set for doubtful
     * points of a sphere or cube (is_doubtful()); or (lean: points have no scales) those of the value. */
    const int4 *place;
    bool lean;
    const float *packed; /* [count]: values */
    int bits;
    float step;             /* 2^-bits */
    double per_box[3];      /* 2^-bits / cells */
    double margin[3];       /* nodes beyond the grid's ends, to which positions are held */
    float width[3];         /* spacing */
    double bins_of[3];      /* bins per length */
    float bin_nodes[3];     /* nodes per bin */
    float node_bins[3];     /* bins per node */
    float widest_bins[3];   /* the reach of the widest point, in bins */
    float reach, per_reach; /* the law's; 1 / reach */
    float reach_steps[3];   /* the law's reach, in nodes by 2^-bits */
    float root_rate;        /* the square root of law.rate, over the reach */
    /* WAY_GAUSSIAN: weights along z are multiplied by `floor`, those along x by 2^shift, so that the product of the
     * three is 2^-126 at the reach; values by `lift`, sums by `raise`. */
    float floor, shift, lift, raise;
    const unsigned *largest; /* the bits of the largest magnitude of a value */
    unsigned *told;          /* the host's memory: that, and whether lists failed (WAY_CUBES, WAY_GAUSSIAN) */
};

/* Half the side of `nodes` nodes, plus the error of place_about(). */
__device__ __forceinline__ float half_side(int nodes)
{
    return 0.5f * (float)(nodes - 1) + 4e-3f;
}

/* ---- the rows of bins near a tile ---- */

struct near_bins {
    struct bin_span span[3];
    long images; /* of x that the span touches */
    long rows;   /* in all: one for each y, z and image of x */
};

/* The bins of axis d near a tile. */
__device__ struct bin_span near_span_of(const scatter_job &job, const int low[3], int d)
{
    const points_view &p = job.points;
    const int last = min(low[d] + job.tile[d], p.box.cells[d]) - 1;
    return points_span(p, d, p.box.origin[d] + low[d] * p.box.spacing[d] - job.widest,
                       p.box.origin[d] + last * p.box.spacing[d] + job.widest);
}

__device__ struct near_bins near_bins_of(const scatter_job &job, const int low[3])
{
    const points_view &p = job.points;
    struct near_bins n;
    for (int d = 0; d < 3; d++)
        n.span[d] = near_span_of(job, low, d);
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

/* a / b, exactly; without an integer division where float32 can tell it. */
__device__ __forceinline__ uint32_t quotient(uint32_t a, uint32_t b)
{
    return a < 1 << 20 ? (uint32_t)__fdividef((float)a + 0.5f, (float)b) : a / b;
}

__device__ void tile_low(const scatter_job &job, uint32_t tile, int low[3])
{
    const uint32_t row = quotient(tile, (uint32_t)job.tiles[0]), plane = quotient(row, (uint32_t)job.tiles[1]);
    low[0] = (int)(tile - row * (uint32_t)job.tiles[0]) * job.tile[0];
    low[1] = (int)(row - plane * (uint32_t)job.tiles[1]) * job.tile[1];
    low[2] = (int)plane * job.tile[2];
}

/* What tiles have near: of all together, and of the one that has most; of packed points, the bits of the largest
 * magnitude of a value. */
struct near_sums {
    unsigned long long all, most;
    unsigned largest;
    unsigned failed;           /* not 0: lists do not fit (scatter_lists.cuh) */
    unsigned long long listed; /* their entries */
};

/* Along one axis: unit times the squared distances of COUNT nodes, `first` and on, from a point `fraction` off the node
 * that they count from. Returns the least. */
template <int COUNT>
__device__ __forceinline__ float node_squares(float first, float fraction, float unit, float u2[COUNT])
{
    float least = INFINITY;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        const float away = (first + (float)i) - fraction;
        u2[i] = away * away * unit;
        least = fminf(least, u2[i]);
    }
    return least;
}

/* A warp per tile: the number of points in its rows. blockDim.x is THREADS. */
__global__ void count_near(const __grid_constant__ scatter_job job, uint32_t tiles, unsigned long long *near,
                           near_sums *sums)
{
    const uint32_t tile = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    __shared__ unsigned long long of[WARPS];
    unsigned long long sum = 0, most = 0;
    if (tile < tiles) {
        int low[3];
        tile_low(job, tile, low);
        const near_bins n = near_bins_of(job, low);
        for (long row = threadIdx.x & 31; row < n.rows; row += 32)
            sum += near_row_of(job.points, n, row).count;
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_down_sync(~0u, sum, step);
        if ((threadIdx.x & 31) == 0)
            near[tile] = sum;
    }
    if ((threadIdx.x & 31) == 0)
        of[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    sum = 0;
    for (int w = 0; w < WARPS; w++) {
        sum += of[w];
        most = max(most, of[w]);
    }
    if (sum > 0) {
        atomicAdd(&sums->all, sum);
        atomicMax(&sums->most, most);
    }
}

} // namespace

#endif
