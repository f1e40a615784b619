/* pair_counts_cpu.c: counts of the distances between points on the CPU. */
#include "gridding/range/pairs_cpu.h"

#include "gridding/base/err.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

/* A pair whose bin cannot be decided in float32. */
struct doubt {
    const struct pair_job *job;
    const struct pair_cut *row;
    size_t first; /* point 0 of the block, in `to` */
    uint64_t *counts;
};

static void decide(void *of, size_t i, size_t j)
{
    const struct doubt *pair = of;
    const struct points_cpu *to = pair->job->to, *from = pair->job->from;
    double r2 = 0;
    for (int d = 0; d < to->box.dim; d++) {
        double away = points_cpu_at(from, d, pair->row->first + j) - points_cpu_at(to, d, pair->first + i) +
                      (double)pair->row->image[d] * (from->box.cells[d] * from->box.spacing[d]);
        r2 += away * away;
    }
    const int interval = interval_of(pair->job->edges, pair->job->edge2, r2);
    if (interval >= 0)
        pair->counts[(size_t)interval * PAIR_COPIES]++;
}

static void add_counts(struct pair_state *b, const struct pair_cut *row, const struct pair_block *of)
{
    const struct pair_job *job = b->job;
    struct pair_counts to = job->counts[omp_get_thread_num()];
    struct doubt doubt = {job, row, b->first, to.counts};
    to.doubt = decide;
    to.of = &doubt;
    job->leaf->count(job->to->box.dim, of, &row->run, &to);
}

/* The error of shifted double positions: they keep 48 bits of a block's extent, which may be large at the border of an
 * open box.
 */
static double moved_error(const struct points_cpu *p)
{
    const struct pair_bounds all = pair_bounds_of(p, 0, p->fine[0] ? p->count : 0);
    double extent = 0;
    for (int d = 0; d < p->box.dim && p->fine[0] && p->count > 0; d++)
        extent = fmax(extent, all.high[d] - all.low[d]);
    return ldexp(extent, -46);
}

/* Differences of float32 positions are rounded once, and so are those of positions in two parts, except for the lower
 * part's own error: r has an error of a few units of its last place, and of 2^-46 of the coordinates. */
static struct interval_error count_error(const struct pair_job *job)
{
    double longest = job->reach;
    for (int d = 0; d < job->to->box.dim; d++)
        longest += job->from->box.cells[d] * job->from->box.spacing[d] + 2 * fmax(job->to->edge[d], job->from->edge[d]);
    return (struct interval_error){5e-7, ldexp(longest, -44) + 2 * (moved_error(job->to) + moved_error(job->from))};
}

static int make_counts(struct pair_job *job, uint64_t **all, uint16_t **table, double **edge2)
{
    const size_t threads = (size_t)job->to->threads, each = (size_t)job->edges * PAIR_COPIES;
    const struct interval_error error = count_error(job);
    *all = calloc(threads * each, sizeof **all);
    *edge2 = malloc((size_t)job->edges * sizeof **edge2);
    job->counts = malloc(threads * sizeof *job->counts);
    if (!*all || !*edge2 || !job->counts)
        return err_no_memory("counts of %d distances", job->edges);
    for (int e = 0; e < job->edges; e++)
        (*edge2)[e] = job->edge[e] * job->edge[e];
    job->edge2 = *edge2;
    const struct interval_octaves octaves = interval_octaves(job->edges, *edge2, &error);
    *table = malloc((size_t)octaves.places * sizeof **table);
    if (!*table)
        return err_no_memory("counts of %d distances", job->edges);
    interval_table(job->edges, *edge2, &error, octaves.places, interval_octaves_end, &octaves, *table);
    for (size_t t = 0; t < threads; t++)
        job->counts[t] = (struct pair_counts){.octaves = octaves, .table = *table, .counts = *all + t * each};
    return 0;
}

int pairs_cpu_count(const void *to, const void *from, int edges, const double *edge, uint64_t *counts,
                    const struct listener *listener)
{
    struct watch watch;
    struct pair_job job = {
        .to = to, .from = from, .leaf = pencils_best(), .each = add_counts, .edges = edges, .watch = &watch};
    uint64_t *all = NULL;
    uint16_t *table = NULL;
    double *edge2 = NULL;
    job.edge = edge;
    job.reach = edge[edges - 1];
    job.once = to == from;
    watch_begin(&watch, listener, job.to->count);
    const uint64_t orders = job.once ? 2 : 1;
    int rc = make_counts(&job, &all, &table, &edge2);
    if (!rc)
        rc = pairs_cpu_tasks(&job);
    if (!rc)
        rc = pairs_cpu_all(&job, true);
    for (int t = 0; t < job.to->threads && !rc; t++)
        for (int e = 0; e < edges - 1; e++)
            for (int copy = 0; copy < PAIR_COPIES; copy++)
                counts[e] += orders * job.counts[t].counts[(size_t)e * PAIR_COPIES + (size_t)copy];
    free(all);
    free(table);
    free(edge2);
    free(job.counts);
    free(job.task);
    return rc;
}
