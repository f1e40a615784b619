/* pair_task.cuh: what a warp that sums over pairs is given: its task, the candidates of its part, and its cluster's
 * extent. Only the GPU's leaf of sums.h includes this. */
#ifndef MRIRECON_PAIR_TASK_CUH
#define MRIRECON_PAIR_TASK_CUH

#include "gridding/range/gpu/pair_scan.cuh"

/* One launch: tasks begin to begin + tasks. */
struct pair_args {
    struct cells_view to, from;
    const uint64_t *offset; /* of the plan */
    uint64_t begin;
    uint32_t tasks;
    bool itself;      /* to and from are the same points */
    float length[3];  /* of the box; 0 of open axes */
    float scan_reach; /* scale times the law's, and a little */
};

struct pair_task {
    uint32_t cluster;
    uint64_t part, parts;
};

static __device__ __forceinline__ struct pair_task task_of(const uint64_t *offset, uint32_t clusters, uint64_t task)
{
    struct pair_task t = {(uint32_t)task, 0, 1};
    if (!offset)
        return t;
    uint32_t low = 0, high = clusters; /* offset[low] <= task < offset[high] */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (offset[middle] <= task)
            low = middle;
        else
            high = middle;
    }
    t.cluster = low;
    t.part = task - offset[low];
    t.parts = offset[low + 1] - offset[low];
    return t;
}

/* The candidates of a part; the last one has the rest. */
struct pair_part {
    uint64_t first, last, seen; /* seen: candidates of the rows before */
};

static __device__ __forceinline__ struct pair_part part_of(const struct pair_task &t)
{
    const uint64_t each = PART_CANDIDATES, first = t.part * each;
    struct pair_part p = {first, t.part + 1 == t.parts ? ~(uint64_t)0 : first + each, 0};
    return p;
}

/* The extent of a cluster along an axis. `half` includes the rounding of `middle`, and of differences from it. */
struct pair_side {
    float middle, half;
};

static __device__ __forceinline__ struct pair_side side_of(float low, float high)
{
    struct pair_side s;
    s.middle = 0.5f * (low + high);
    s.half = fmaxf(high - s.middle, s.middle - low) * 1.0001f + 4e-7f * fabsf(s.middle);
    return s;
}

static __device__ __forceinline__ float side_gap(const struct pair_side &s, float at)
{
    return fmaxf(0.f, fabsf(at - s.middle) - s.half);
}

#endif
