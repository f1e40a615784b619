/* points_gpu.cuh: points in compact bins on a GPU, and its functions behind gridding/range/sums.h. Only the GPU's leaf
 * of these sums includes this.
 *
 * Bins and the order within them are those of the CPU's points (points_cpu.h): sorted by bin, stably, x fastest; the
 * order within a bin is the order of the input. */
#ifndef MRIRECON_POINTS_GPU_CUH
#define MRIRECON_POINTS_GPU_CUH

#include "gridding/base/dev_gpu.cuh"
#include "gridding/range/point_bins.h"
#include "gridding/range/sums_leaf.h"

/* The arrays that a kernel reads; passed by value. Device memory, in the order of the bins. */
struct points_view {
    struct range_box box;
    int bins[3];            /* along each axis; 1 from dim on */
    double edge[3];         /* of a bin; the outermost bins of an open axis include all points outside */
    uint32_t all;           /* bins */
    uint32_t count;         /* points */
    size_t inputs;          /* the stride of a channel's values */
    const uint32_t *first;  /* [all + 1]: start of each bin's points */
    const float *at[3];     /* [count]: positions; NULL from dim on, and if they were given as doubles .. */
    const double *fine[3];  /* .. which are then here */
    const float *scale;     /* [count]; NULL: all 1 */
    const uint32_t *source; /* [count]: index in the input */
};

struct pair_cells; /* cells_gpu.cuh */

struct points_gpu {
    struct points_view view;
    struct gpu *gpu; /* its stream orders all work */
    struct dev *dev;
    size_t occupied, largest; /* bins with points, and the most points of one */
    size_t bytes;             /* of device memory */
    float widest;             /* the largest scale */
    int depth; /* as in range_points_params: > 0, or one of RANGE_DEPTH_; the view contains all points in any case
                */
    uint32_t *first, *source;         /* owned: those of the view */
    void *room;                       /* owned: positions and scales */
    struct points_overflow *overflow; /* for leaf.cu: the CPU's share of sums to and from grids; NULL: none */
    /* Owned: the cells for sums over pairs; created by the first of them, for which the points are const. */
    mutable struct pair_cells *cells;
};

int points_gpu_create(void **state, struct dev *dev, const struct range_points_params *params,
                      const struct listener *listener);
void points_gpu_destroy(void *state);
void points_gpu_info(const void *state, struct range_points_info *info);
int points_gpu_partition(const void *state, size_t depth, void **kept, void **rest);

/* memory->create and ->points. */
void points_gpu_memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory);

/* Whether positions are doubles. */
static __host__ __device__ __forceinline__ bool points_fine(const struct points_view &p)
{
    return p.fine[0] != NULL;
}

static __device__ __forceinline__ double points_at(const struct points_view &p, int d, uint32_t i)
{
    return p.fine[d] ? p.fine[d][i] : (double)p.at[d][i];
}

/* The bins of axis d that [low, high] (positions) touches, numbered continuously through the images of a periodic axis.
 */
static __host__ __device__ __forceinline__ struct bin_span points_span(const struct points_view &p, int d, double low,
                                                                       double high)
{
    if (d >= p.box.dim) {
        const struct bin_span none = {0, 0};
        return none;
    }
    return point_span(p.box.origin[d], p.edge[d], p.bins[d], p.box.periodic[d], low, high);
}

/* The number of a bin, from its indices within the box. */
static __host__ __device__ __forceinline__ uint32_t points_bin(const struct points_view &p, uint32_t x, uint32_t y,
                                                               uint32_t z)
{
    return (z * (uint32_t)p.bins[1] + y) * (uint32_t)p.bins[0] + x;
}

/* ---- the functions of struct range_leaf, entirely on the GPU ---- */

/* set: instead of adding to the grid. */
int sums_gpu_scatter(const void *state, const struct range_law *law, int channels, const float *values, bool set,
                     float *grid, const struct listener *listener);
int sums_gpu_clear(const struct points_gpu *points, int channels, float *grid);
int sums_gpu_gather(const void *state, const struct range_law *law, int channels, const float *grid, float *values,
                    const struct listener *listener);
/* memory->pairs and ->count. */
void pairs_gpu_memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory);
int pairs_gpu_sum(const void *to, const void *from, const struct range_pair_sums *sums, int channels,
                  const float *values, const struct listener *listener);
int pairs_gpu_count(const void *to, const void *from, int edges, const double *edge, uint64_t *counts,
                    const struct listener *listener);

#endif
