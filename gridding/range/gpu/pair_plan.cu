/* pair_plan.cu: the numbers of clusters' candidates, and the tasks that follow from them. */
#include "gridding/range/gpu/pair_plan.cuh"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <cstdlib>
#include <cstring>

static const char what[] = "Planning sums over pairs";

/* ---- candidates ---- */

struct candidate_count {
    unsigned long long own; /* of a lane */

    __device__ __forceinline__ bool joins(const struct cells_view &, const struct pair_group &) const
    {
        return false;
    }
    __device__ __forceinline__ bool wants(int, int, int) const
    {
        return true;
    }
    __device__ __forceinline__ void begin(bool, int, int, int)
    {
    }
    __device__ __forceinline__ void end()
    {
    }
    __device__ __forceinline__ void runs(uint2 run)
    {
        own += run.y - run.x;
    }
};

enum { PLAN_WARPS = 4 };

/* Up to how many clusters are summed in the order of their candidates. Of a few rounds of warps the last one, whose
 * warps end one by one, takes a notable part of the time, and less if its tasks are the shortest. Of many it does not,
 * and neighbours that are summed together share what caches hold. */
enum { LONGEST_FIRST = 65536 };

/* One warp per cluster: its parts, and its candidates (NULL: not wanted); `work`: those of all. */
static __global__ void count_parts(cells_view to, cells_view from, float reach, uint64_t *parts, uint32_t *candidates,
                                   unsigned long long *work)
{
    const uint32_t cluster = (uint32_t)(((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32), lane = threadIdx.x & 31;
    if (cluster >= to.clusters)
        return;
    const uint2 points = to.cluster[cluster];
    const uint32_t i = min(points.x + lane % CLUSTER, points.y - 1);
    float low[3], high[3];
    for (int d = 0; d < 3; d++) {
        const float at = d < to.dim ? (float)(cells_at(to, d, i) - from.origin[d]) : 0.f;
        low[d] = cluster_least(at);
        high[d] = -cluster_least(-at);
    }
    struct candidate_count count = {0};
    __shared__ struct pair_group group[PLAN_WARPS];
    group_make(&group[threadIdx.x / 32], from, low, high, reach);
    pair_scan(from, group[threadIdx.x / 32], reach, count);
    for (int o = 16; o > 0; o >>= 1)
        count.own += __shfl_xor_sync(ALL_LANES, count.own, o);
    if (lane != 0)
        return;
    parts[cluster] = count.own > PART_CANDIDATES ? (count.own + PART_CANDIDATES - 1) / PART_CANDIDATES : 1;
    if (candidates)
        candidates[cluster] = (uint32_t)min(count.own, (unsigned long long)PART_CANDIDATES); /* if it is not cut */
    atomicAdd(work, count.own);
}

/* ---- the plan ---- */

static int prefix_bytes(size_t count, size_t *bytes)
{
    uint64_t *none = NULL;
    return gpu_check(cub::DeviceScan::ExclusiveSum(NULL, *bytes, none, none, (int64_t)count), what);
}

static int sort_longest(const uint32_t *const candidates[2], const uint2 *clusters, uint2 *longest, size_t count,
                        void *room, size_t *bytes, cudaStream_t stream)
{
    enum { BITS = 16 };
    static_assert((int)PART_CANDIDATES < 1 << BITS, "bits of a number of candidates");
    return gpu_check(cub::DeviceRadixSort::SortPairsDescending(room, *bytes, candidates[0], (uint32_t *)candidates[1],
                                                               (const uint64_t *)clusters, (uint64_t *)longest,
                                                               (int)count, 0, BITS, stream),
                     what);
}

static int sort_bytes(size_t clusters, size_t *bytes)
{
    const uint32_t *const none[2] = {NULL, NULL};
    return sort_longest(none, NULL, NULL, clusters, NULL, bytes, 0);
}

struct planning {
    uint64_t *parts;
    unsigned long long *work;
    uint32_t *candidates[2]; /* of clusters, and sorted; NULL: too many */
    void *room;
    size_t room_bytes;
};

static int planning_memory(struct gpu *gpu, size_t clusters, struct planning *p)
{
    size_t sort = 0;
    int rc = prefix_bytes(clusters + 1, &p->room_bytes);
    if (!rc && clusters <= LONGEST_FIRST)
        rc = sort_bytes(clusters, &sort);
    p->room_bytes = std::max(p->room_bytes, sort);
    for (int i = 0; i < 2 && !rc && clusters <= LONGEST_FIRST; i++)
        rc = gpu_array(gpu, clusters, &p->candidates[i], what);
    if (!rc)
        rc = gpu_array(gpu, clusters + 1, &p->parts, what);
    if (!rc)
        rc = gpu_array(gpu, 1, &p->work, what);
    if (!rc)
        rc = gpu_alloc(gpu, p->room_bytes, &p->room, what);
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(p->parts, 0, (clusters + 1) * sizeof *p->parts, gpu->stream), what);
    return rc ? rc : gpu_check(cudaMemsetAsync(p->work, 0, sizeof *p->work, gpu->stream), what);
}

static float scan_reach(double reach)
{
    return (float)(reach * (1 + 2e-5));
}

static int count_tasks(struct gpu *gpu, const struct cells_view &to, const struct cells_view &from, struct planning *p,
                       struct pair_plan *plan)
{
    const size_t clusters = to.clusters;
    int rc = gpu_array(gpu, clusters + 1, &plan->offset, what);
    if (rc)
        return rc;
    count_parts<<<gpu_blocks(clusters, PLAN_WARPS), 32 * PLAN_WARPS, 0, gpu->stream>>>(
        to, from, scan_reach(plan->reach), p->parts, p->candidates[0], p->work);
    rc = gpu_launched(what);
    if (!rc)
        rc = gpu_check(cub::DeviceScan::ExclusiveSum(p->room, p->room_bytes, p->parts, plan->offset,
                                                     (int64_t)clusters + 1, gpu->stream),
                       what);
    if (!rc)
        rc = gpu_download(gpu, &plan->tasks, plan->offset + clusters, sizeof plan->tasks);
    if (!rc)
        rc = gpu_download(gpu, &plan->work, p->work, sizeof plan->work);
    if (!rc && plan->tasks > clusters)
        return 0;
    gpu_release(gpu, plan->offset);
    plan->offset = NULL;
    if (!rc && p->candidates[0])
        rc = gpu_array(gpu, clusters, &plan->longest, what);
    return rc || !plan->longest
               ? rc
               : sort_longest(p->candidates, to.cluster, plan->longest, clusters, p->room, &p->room_bytes, gpu->stream);
}

static int plan_make(struct pair_plan *plan, const struct pair_cells *to, const struct pair_cells *from, double reach)
{
    struct planning p;
    memset(&p, 0, sizeof p);
    memset(plan, 0, sizeof *plan);
    plan->reach = reach;
    if (to->view.count == 0)
        return 0;
    plan->tasks = to->view.clusters;
    if (from->view.count == 0)
        return 0;
    int rc = planning_memory(to->gpu, to->view.clusters, &p);
    if (!rc)
        rc = count_tasks(to->gpu, to->view, from->view, &p, plan);
    gpu_release(to->gpu, p.parts);
    gpu_release(to->gpu, p.work);
    gpu_release(to->gpu, p.candidates[0]);
    gpu_release(to->gpu, p.candidates[1]);
    gpu_release(to->gpu, p.room);
    return rc;
}

/* ---- the work ---- */

int pair_cells_of(const struct points_gpu *points, double reach, struct pair_cells **out)
{
    const int rc = points->cells ? 0 : pair_cells_create(&points->cells, points, reach);
    *out = points->cells;
    return rc;
}

int pair_work_begin(struct pair_work *work, const struct points_gpu *to, const struct points_gpu *from, double reach)
{
    memset(work, 0, sizeof *work);
    int rc = pair_cells_of(to, reach, &work->to);
    if (!rc)
        rc = pair_cells_of(from, reach, &work->from);
    if (rc)
        return rc;
    work->owned = work->to != work->from;
    if (work->owned)
        return plan_make(&work->plan, work->to, work->from, reach);
    struct pair_plan *kept = &work->to->plan;
    if (kept->reach != reach) {
        gpu_release(work->to->gpu, kept->offset);
        gpu_release(work->to->gpu, kept->longest);
        rc = plan_make(kept, work->to, work->from, reach);
        kept->reach = rc ? 0 : reach;
    }
    work->plan = *kept;
    return rc;
}

void pair_work_end(struct pair_work *work)
{
    if (!work->owned || !work->to)
        return;
    gpu_release(work->to->gpu, work->plan.offset);
    gpu_release(work->to->gpu, work->plan.longest);
}

struct pair_args pair_work_args(const struct pair_work *work, double reach)
{
    struct pair_args a;
    memset(&a, 0, sizeof a);
    a.to = work->to->view;
    a.from = work->from->view;
    a.offset = work->plan.offset;
    a.itself = work->to == work->from;
    a.scan_reach = scan_reach(reach);
    for (int d = 0; d < 3; d++)
        a.length[d] = a.from.periodic[d] ? (float)a.from.length[d] : 0.f;
    return a;
}

uint32_t pair_work_slice(const struct pair_work *work)
{
    if (work->plan.offset || work->plan.tasks == 0)
        return SLICE_PARTS;
    const uint64_t each = work->plan.work / work->plan.tasks + 256; /* candidates, and a task's overhead */
    const uint64_t tasks = (uint64_t)SLICE_PARTS * PART_CANDIDATES / each;
    return (uint32_t)std::min<uint64_t>(std::max<uint64_t>(tasks, SLICE_PARTS), SLICE_MOST);
}

size_t pair_work_bytes(const struct range_points_params *params)
{
    size_t held = 0, made = 0, scan = 0, sort = 0;
    pair_cells_memory(params, &held, &made);
    const size_t clusters = pair_clusters_most(params), few = std::min<size_t>(clusters, LONGEST_FIRST);
    if (prefix_bytes(clusters + 1, &scan) || sort_bytes(few, &sort))
        scan = (clusters + few) * sizeof(uint64_t);
    return std::max(made, held + 2 * (clusters + 1) * sizeof(uint64_t) + std::max(scan, sort) +
                              few * (sizeof(uint2) + 2 * sizeof(uint32_t)) + (size_t)4096);
}
