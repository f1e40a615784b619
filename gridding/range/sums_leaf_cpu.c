/* sums_leaf_cpu.c: the CPU's sums of limited range. */
#include "gridding/base/dev_leaf.h"
#include "gridding/range/points_cpu.h"

static void memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory)
{
    *memory = (struct range_memory){.scatter = scatter_cpu_memory(dev->threads, params), .gather = POINTS_ROUNDING};
    points_cpu_memory(params, memory);
    pairs_cpu_memory(dev->threads, params->inputs, memory);
}

const struct range_leaf range_leaf_cpu = {
    .create = points_cpu_create,
    .destroy = points_cpu_destroy,
    .memory = memory,
    .info = points_cpu_info,
    .partition = points_cpu_partition,
    .scatter = scatter_cpu_sum,
    .gather = gather_cpu_sum,
    .pairs = pairs_cpu_sum,
    .count = pairs_cpu_count,
};
