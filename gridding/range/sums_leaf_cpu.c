/* sums_leaf_cpu.c: the CPU's sums of limited range. */
#include "gridding/base/dev_leaf.h"
#include "gridding/range/points_cpu.h"

const struct range_leaf range_leaf_cpu = {
    .create = points_cpu_create,
    .destroy = points_cpu_destroy,
    .memory = sums_cpu_memory,
    .info = points_cpu_info,
    .partition = points_cpu_partition,
    .scatter = sums_cpu_scatter,
    .gather = sums_cpu_gather,
    .pairs = pairs_cpu_sum,
    .count = pairs_cpu_count,
};
