/* pair_plan.cuh: sums over pairs and counts as tasks of bounded size: a cluster's candidates are cut into parts of at
 * most PART_CANDIDATES. Only the GPU's leaf of sums.h includes this. */
#ifndef MRIRECON_PAIR_PLAN_CUH
#define MRIRECON_PAIR_PLAN_CUH

#include "gridding/range/gpu/cells_gpu.cuh"
#include "gridding/range/gpu/pair_warp.cuh"

/* The cells of points, created at the first use, for its reach; the points own them. */
int pair_cells_of(const struct points_gpu *points, double reach, struct pair_cells **out);

/* The two sets of a sum, and its tasks; call pair_work_end() in any case. */
struct pair_work {
    struct pair_cells *to, *from;
    struct pair_plan plan;
    bool owned; /* the plan is not the cells' own */
};

/* reach: scale times the law's. */
int pair_work_begin(struct pair_work *work, const struct points_gpu *to, const struct points_gpu *from, double reach);
void pair_work_end(struct pair_work *work);

struct pair_args pair_work_args(const struct pair_work *work, double reach);

/* Tasks per launch, so that it takes at most some tens of milliseconds. */
enum { SLICE_PARTS = 65536, SLICE_MOST = 262144 };
uint32_t pair_work_slice(const struct pair_work *work);

/* Bytes of the cells of one set, and of a plan. */
size_t pair_work_bytes(const struct range_points_params *params);
size_t counts_gpu_bytes(void); /* of tables and counts */

#endif
