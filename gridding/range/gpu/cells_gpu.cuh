/* cells_gpu.cuh: points as sums over their pairs read them on a GPU: sorted once more, into cells of about CELL_POINTS
 * points each, cut along x, and finer within a cell, so that CLUSTER points that follow each other lie close together.
 * A cluster is what one warp sums for. Only the GPU's leaf of sums.h includes this. */
#ifndef MRIRECON_CELLS_GPU_CUH
#define MRIRECON_CELLS_GPU_CUH

#include "gridding/range/gpu/points_gpu.cuh"

/* Cells are cut along x in CELLS_THIN: the run of a row then ends near the reach. */
enum { CLUSTER = 16, CELL_POINTS = 16, CELLS_THIN = 4, PART_CANDIDATES = 32768 };

/* The arrays that a kernel reads; passed by value. */
struct cells_view {
    int dim, n[3]; /* cells along each axis; 1 from dim on */
    double origin[3],
        edge[3]; /* of the first cell; of a cell. The outermost cells of an open axis include all points outside */
    double per[3], length[3]; /* 1 / edge; of the box */
    bool periodic[3];
    uint32_t count, clusters;
    float4 *point;          /* [count]: position, and space for a value */
    const double *fine[3];  /* [count]; NULL: positions are those in `point` */
    const float *unit2;     /* [count]: 1 / scale^2; NULL: all 1 */
    const uint32_t *first;  /* [cells + 1]: where a cell's points begin; x fastest */
    const uint32_t *source; /* [count]: index in the input */
    const uint2 *cluster;   /* [clusters]: points [first, last) of one row of cells */
    double extent;          /* the largest distance of a double from the origin along an axis */
};

/* Tasks of clusters: a cluster's candidates are cut into parts of at most PART_CANDIDATES, one task each. */
struct pair_plan {
    double reach;         /* of the plan */
    uint64_t tasks, work; /* work: candidates, of all clusters */
    uint64_t *offset;     /* [clusters + 1]: tasks before a cluster; NULL: one each */
    uint2 *longest;       /* the clusters, those of most candidates first; NULL: in the order of the cells */
};

struct pair_cells {
    struct cells_view view;
    struct gpu *gpu;
    uint32_t *next;  /* 0: counts tasks during a sum over pairs of these points */
    void *memory[9]; /* the view's arrays, and `next` */
    int held;
    struct pair_plan plan; /* of pairs among these points; reach 0: not created yet */
};

/* reach: of the sum that needs them first. */
int pair_cells_create(struct pair_cells **out, const struct points_gpu *points, double reach);
void pair_cells_free(struct pair_cells *cells);
/* Upper bounds of the bytes of cells, and of their creation. */
void pair_cells_memory(const struct range_points_params *params, size_t *held, size_t *made);
size_t pair_clusters_most(const struct range_points_params *params);

static __device__ __forceinline__ double cells_at(const struct cells_view &c, int d, uint32_t i)
{
    if (c.fine[0])
        return c.fine[d][i];
    const float4 p = c.point[i];
    return d == 0 ? (double)p.x : d == 1 ? (double)p.y : (double)p.z;
}

#endif
