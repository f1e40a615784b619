/* sums_cpu.h: shared by sums to a grid (scatter_cpu.c) and from a grid (gather_cpu.c) on the CPU. Only these include
 * this. */
#ifndef MRIRECON_SUMS_CPU_H
#define MRIRECON_SUMS_CPU_H

#include "gridding/range/pencils.h"
#include "gridding/range/points_cpu.h"

/* One sum; the grid is of job.law.channels channels, which are summed together. */
struct sums_job {
    const struct points_cpu *points;
    const struct pencils_leaf *leaf;
    struct pencil_law law;
    double reach; /* of the widest point */
    size_t nodes; /* of a channel */
    const float *values;
    float *grid;
    int tile[3], tiles[3]; /* nodes of a tile; number of tiles */
    struct watch *watch;
};

static inline struct sums_job sums_job_of(const struct points_cpu *p, const struct range_law *law)
{
    struct sums_job job = {
        .points = p, .leaf = pencils_best(), .reach = law->params.reach * (double)p->widest, .nodes = 1};
    job.law = (struct pencil_law){.law = law, .dim = p->box.dim};
    for (int d = 0; d < 3; d++) {
        job.law.spacing[d] = p->box.spacing[d];
        job.nodes *= (size_t)p->box.cells[d];
    }
    return job;
}

static inline struct pencil_point sums_point_of(const struct sums_job *job, size_t i, const long image[3])
{
    const struct points_cpu *p = job->points;
    struct pencil_point point = {.scale = p->scale ? (double)p->scale[i] : 1};
    for (int d = 0; d < p->box.dim; d++)
        point.at[d] = (points_cpu_at(p, d, i) - p->box.origin[d]) / p->box.spacing[d] +
                      (double)image[d] * (double)p->box.cells[d];
    return point;
}

#endif
