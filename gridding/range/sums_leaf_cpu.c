/* sums_leaf_cpu.c: the CPU's sums of limited range. */
#include "gridding/base/dev_leaf.h"
#include "gridding/range/points_cpu.h"

#include <string.h>

static void memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory)
{
    *memory = (struct range_memory){.scatter = scatter_cpu_memory(dev->threads, params), .gather = POINTS_ROUNDING};
    points_cpu_memory(params, memory);
    pairs_cpu_memory(dev->threads, params->inputs, memory);
}

static int scatter_set(const void *state, const struct range_law *law, int channels, const float *values, float *grid,
                       const struct listener *listener)
{
    const struct range_box *box = &((const struct points_cpu *)state)->box;
    size_t nodes = (size_t)channels;
    for (int d = 0; d < box->dim; d++)
        nodes *= (size_t)box->cells[d];
    memset(grid, 0, nodes * sizeof *grid);
    return scatter_cpu_sum(state, law, channels, values, grid, listener);
}

const struct range_leaf range_leaf_cpu = {
    .create = points_cpu_create,
    .destroy = points_cpu_destroy,
    .memory = memory,
    .info = points_cpu_info,
    .partition = points_cpu_partition,
    .scatter = scatter_cpu_sum,
    .scatter_set = scatter_set,
    .gather = gather_cpu_sum,
    .pairs = pairs_cpu_sum,
    .count = pairs_cpu_count,
};
