/* cells_gpu.cuh: points as sums over their pairs read them on a GPU: sorted once more, into cells of about CELL_POINTS
 * points each and finer within a cell, so that CLUSTER points that follow each other lie close together. A cluster is
 * what one warp sums for. Only the GPU's leaf of sums.h includes this. */
#ifndef MRIRECON_CELLS_GPU_CUH
#define MRIRECON_CELLS_GPU_CUH

#include "gridding/range/gpu/points_gpu.cuh"

enum { CLUSTER = 16, CELL_POINTS = 16, PART_CANDIDATES = 32768 };

/* What a kernel reads of cells; passed by value. */
struct cells_view {
    int dim, n[3];             /* cells along each axis; 1 beyond dim */
    double origin[3], edge[3]; /* of the first cell; of a cell: of an open axis, the outermost hold what lies beyond */
    double per[3], length[3];  /* 1 / edge; of the box */
    bool periodic[3];
    uint32_t count, clusters;
    float4 *point;          /* [count]: position, and room for a value */
    const double *fine[3];  /* [count]; NULL: positions are what `point` has */
    const float *unit2;     /* [count]: 1 / scale^2; NULL: all 1 */
    const uint32_t *first;  /* [cells + 1]: where a cell's points begin; x fastest */
    const uint32_t *source; /* [count]: index in the input */
    const uint2 *cluster;   /* [clusters]: points first to last (without): of one row of cells */
    double extent;          /* no double lies farther from the origin along an axis */
};

/* Tasks of clusters: the candidates of one are cut in parts of at most PART_CANDIDATES, a task each. */
struct pair_plan {
    double reach;         /* that it is for */
    uint64_t tasks, work; /* work: candidates, of all clusters */
    uint64_t *offset;     /* [clusters + 1]: tasks before a cluster; NULL: one each */
};

struct pair_cells {
    struct cells_view view;
    struct gpu *gpu;
    void *memory[8]; /* what the view points to */
    int held;
    struct pair_plan plan; /* of pairs of these points among themselves; reach 0: not made yet */
};

int pair_cells_create(struct pair_cells **out, const struct points_gpu *points);
void pair_cells_free(struct pair_cells *cells);
/* Bytes that cells hold, and allocate while they are made, at most. */
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
