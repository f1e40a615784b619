/* pairs_cpu.c: sums over pairs of points, and counts of their distances, on the CPU.
 *
 * The points of a bin are summed by one thread, over the rows of bins within reach: what a row holds between two bins
 * is one contiguous run. Rows, and bins of a row, are left out that the sphere around the bin does not touch; then rows
 * that the sphere around a point does not touch. */
#include "gridding/base/err.h"
#include "gridding/range/pencils.h"
#include "gridding/range/points_cpu.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* A box around points. */
struct bounds {
    double low[3], high[3];
};

/* One row's run against one bin's points. */
struct row {
    struct pair_run run;
    struct bounds bounds; /* of the row's bins along y and z */
    size_t first;         /* of the run, in `from` */
    long image[3];
};

struct pair_job {
    const struct points_cpu *to, *from;
    const struct pencils_leaf *leaf;
    double reach;
    const float *value; /* sorted as `from`, padded; or NULL */
    size_t run_floats;  /* of the longest run, padded .. */
    size_t bin_floats;  /* .. and of the fullest bin of `to` */
    /* What is done with points from `first` of `to` on and a row. */
    void (*each)(const struct pair_job *job, size_t first, const struct row *row, const struct pair_block *of);
    const struct range_law *law;
    bool vectors;
    double (*sums)[3]; /* [to->count] */
    int edges;
    const double *edge, *edge2;
    struct pair_counts *counts; /* [threads] */
};

/* ---- rows ---- */

static struct bounds bounds_of(const struct points_cpu *p, size_t first, size_t last)
{
    struct bounds b = {{0}, {0}};
    for (int d = 0; d < p->box.dim; d++) {
        b.low[d] = INFINITY;
        b.high[d] = -INFINITY;
        for (size_t i = first; i < last; i++) {
            b.low[d] = fmin(b.low[d], (double)p->at[d][i]);
            b.high[d] = fmax(b.high[d], (double)p->at[d][i]);
        }
    }
    return b;
}

/* Where a bin lies along axis d: of open axes, the outermost have no end. */
static void row_bounds(const struct points_cpu *p, int d, long bin, struct bounds *b)
{
    if (d >= p->box.dim) {
        b->low[d] = b->high[d] = 0;
        return;
    }
    const double slack = 1e-6 * p->edge[d];
    bool open = !p->box.periodic[d];
    b->low[d] = open && bin == 0 ? -INFINITY : p->box.origin[d] + (double)bin * p->edge[d] - slack;
    b->high[d] = open && bin == p->bins[d] - 1 ? INFINITY : p->box.origin[d] + (double)(bin + 1) * p->edge[d] + slack;
}

static double gap(double low, double high, double other_low, double other_high)
{
    return fmax(0, fmax(other_low - high, low - other_high));
}

/* Positions along axis d, moved. `room` has as many floats. */
static const float *moved(const float *at, size_t count, double move, float *room)
{
    for (size_t i = 0; i < count; i++)
        room[i] = (float)((double)at[i] + move);
    return room;
}

/* The points [first, last) of a bin against one row's run. Along an axis where the run is an image's, both are told
 * relative to the points' low corner, `b`: there float32 is finest. `room`: that of 3 runs and 3 bins. */
static void pair_row(const struct pair_job *job, size_t first, size_t last, const struct bounds *b, struct row *row,
                     float *room)
{
    const struct points_cpu *to = job->to, *from = job->from;
    const bool itself = to == from && !row->image[0] && !row->image[1] && !row->image[2];
    struct pair_block of = {.count = last - first,
                            .self = itself ? first - row->first : SIZE_MAX / 2,
                            .reach2 = job->reach * job->reach * (1 + 1e-5)};
    for (int d = 0; d < to->box.dim; d++) {
        const double length = from->box.cells[d] * from->box.spacing[d], shift = row->image[d] ? b->low[d] : 0;
        float *own = room + (size_t)d * (job->run_floats + job->bin_floats);
        of.at[d] = to->at[d] + first;
        row->run.at[d] = from->at[d] + row->first;
        if (row->image[d]) {
            row->run.at[d] = moved(row->run.at[d], row->run.count, (double)row->image[d] * length - shift, own);
            of.at[d] = moved(of.at[d], of.count, -shift, own + job->run_floats);
        }
        of.low[d] = row->bounds.low[d] - shift;
        of.high[d] = row->bounds.high[d] - shift;
    }
    job->each(job, first, row, &of);
}

/* The row (y, z) of bins of `from` that may hold partners of the points in `b`. `room`: as of pair_row(). */
static void pair_rows(const struct pair_job *job, size_t first, size_t last, const struct bounds *b, long y, long z,
                      float *room)
{
    const struct points_cpu *from = job->from;
    const long yz[3] = {0, y, z};
    struct row row = {.image = {0, image_of(y, from->bins[1]), image_of(z, from->bins[2])}};
    double rest = job->reach * job->reach;
    for (int d = 1; d < 3; d++) {
        row_bounds(from, d, yz[d], &row.bounds);
        double away = gap(b->low[d], b->high[d], row.bounds.low[d], row.bounds.high[d]);
        rest -= away * away;
    }
    if (rest < 0)
        return;
    const double half = sqrt(rest) * (1 + 1e-6);
    const struct bin_span x = points_cpu_span(from, 0, b->low[0] - half, b->high[0] + half);
    for (long bin = x.from, end; bin <= x.to; bin = end + 1) {
        row.image[0] = image_of(bin, from->bins[0]);
        end = (row.image[0] + 1) * from->bins[0] - 1;
        end = end < x.to ? end : x.to;
        size_t after;
        points_cpu_run(from, bin - row.image[0] * from->bins[0], end - row.image[0] * from->bins[0],
                       y - row.image[1] * from->bins[1], z - row.image[2] * from->bins[2], &row.first, &after);
        row.run = (struct pair_run){.count = after - row.first};
        if (row.run.count == 0)
            continue;
        row.run.scale = from->scale ? from->scale + row.first : NULL;
        row.run.value = job->value ? job->value + row.first : NULL;
        pair_row(job, first, last, b, &row, room);
    }
}

static void pair_bin(const struct pair_job *job, size_t bin, float *room)
{
    const struct points_cpu *to = job->to, *from = job->from;
    const size_t first = to->first[bin], last = to->first[bin + 1];
    if (first == last)
        return;
    const struct bounds b = bounds_of(to, first, last);
    const struct bin_span ys = points_cpu_span(from, 1, b.low[1] - job->reach, b.high[1] + job->reach),
                          zs = points_cpu_span(from, 2, b.low[2] - job->reach, b.high[2] + job->reach);
    for (long z = zs.from; z <= zs.to; z++)
        for (long y = ys.from; y <= ys.to; y++)
            pair_rows(job, first, last, &b, y, z, room);
}

/* Points of the fullest row of bins, and padding: a run is no longer. */
static size_t run_floats(const struct points_cpu *p)
{
    size_t longest = 0;
    for (size_t bin = 0; bin < p->all; bin += (size_t)p->bins[0]) {
        size_t held = p->first[bin + (size_t)p->bins[0]] - p->first[bin];
        longest = held > longest ? held : longest;
    }
    return longest + POINTS_PADDING;
}

static int pair_all(struct pair_job *job)
{
    /* Only runs of images are copied: those of boxes that repeat. */
    const struct range_box *box = &job->from->box;
    const bool repeats = box->periodic[0] || box->periodic[1] || box->periodic[2];
    job->run_floats = run_floats(job->from);
    job->bin_floats = job->to->largest;
    const size_t floats = repeats ? 3 * (job->run_floats + job->bin_floats) : 0;
    float *room = calloc((size_t)job->to->threads * floats + 1, sizeof *room);
    if (!room)
        return err_no_memory_bytes((size_t)job->to->threads * floats * sizeof *room, "pairs of %zu points",
                                   job->from->count);
#pragma omp parallel for schedule(dynamic) num_threads(job->to->threads)
    for (size_t bin = 0; bin < job->to->all; bin++)
        pair_bin(job, bin, room + (size_t)omp_get_thread_num() * floats);
    free(room);
    return 0;
}

/* ---- sums ---- */

static void add_sums(const struct pair_job *job, size_t first, const struct row *row, const struct pair_block *of)
{
    job->leaf->pairs(job->law, job->from->box.dim, job->vectors, of, &row->run, job->sums + first);
}

static int sum_channel(struct pair_job *job, const float *values, float *sorted, float *sums)
{
    const struct points_cpu *to = job->to, *from = job->from;
    for (size_t j = 0; j < from->count; j++)
        sorted[j] = values[from->source[j]];
    memset(job->sums, 0, to->count * sizeof *job->sums);
    int rc = pair_all(job);
    const size_t parts = job->vectors ? (size_t)to->box.dim : 1;
    for (size_t i = 0; i < to->count && !rc; i++)
        for (size_t d = 0; d < parts; d++)
            sums[d * to->inputs + to->source[i]] = (float)job->sums[i][d];
    return rc;
}

int pairs_cpu_sum(const void *to, const void *from, const struct range_law *law, bool vectors, int channels,
                  const float *values, float *sums)
{
    struct pair_job job = {.to = to, .from = from, .leaf = pencils_best(), .each = add_sums, .law = law};
    float *sorted = calloc(job.from->count + POINTS_PADDING, sizeof *sorted);
    job.reach = law->params.reach * (double)job.from->widest;
    job.value = sorted;
    job.vectors = vectors;
    job.sums = malloc((job.to->count + 1) * sizeof *job.sums);
    int rc = sorted && job.sums ? 0 : err_no_memory("sums over pairs of %zu points", job.to->count);
    for (int c = 0; c < channels && !rc; c++)
        rc = sum_channel(&job, values + (size_t)c * job.from->inputs, sorted,
                         sums + (size_t)c * (size_t)(vectors ? job.to->box.dim : 1) * job.to->inputs);
    free(sorted);
    free(job.sums);
    return rc;
}

/* ---- counts ---- */

/* A pair that float32 leaves in doubt. */
struct doubt {
    const struct pair_job *job;
    const struct row *row;
    size_t first; /* point 0 of the block, in `to` */
    uint64_t *counts;
};

static void decide(void *of, size_t i, size_t j)
{
    const struct doubt *pair = of;
    const struct points_cpu *to = pair->job->to, *from = pair->job->from;
    double r2 = 0;
    for (int d = 0; d < to->box.dim; d++) {
        double away = (double)from->at[d][pair->row->first + j] - (double)to->at[d][pair->first + i] +
                      (double)pair->row->image[d] * (from->box.cells[d] * from->box.spacing[d]);
        r2 += away * away;
    }
    const double *edge2 = pair->job->edge2;
    if (r2 < edge2[0] || r2 >= edge2[pair->job->edges - 1])
        return;
    int low = 0, high = pair->job->edges - 1; /* edge2[low] <= r2 < edge2[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (r2 < edge2[middle])
            high = middle;
        else
            low = middle;
    }
    pair->counts[(size_t)low * PAIR_COPIES]++;
}

static void add_counts(const struct pair_job *job, size_t first, const struct row *row, const struct pair_block *of)
{
    struct pair_counts to = job->counts[omp_get_thread_num()];
    struct doubt doubt = {job, row, first, to.counts};
    to.doubt = decide;
    to.of = &doubt;
    job->leaf->count(job->to->box.dim, of, &row->run, &to);
}

/* Places of the table: an interval where no edge is near. float32 distances err by less than a millionth of the reach
 * times the largest coordinate they are made of. */
static float fill_table(const struct pair_job *job, int places, uint16_t *table)
{
    const double last = job->edge2[job->edges - 1], step = (places - 1) / last;
    double longest = 0;
    for (int d = 0; d < job->to->box.dim; d++)
        longest = fmax(longest, fmax(job->to->edge[d], job->from->edge[d]));
    const double error = 1e-6 * (last + job->reach * (job->reach + 2 * longest));
    int interval = -1; /* the last whose lower edge lies below a place */
    for (int t = 0; t < places; t++) {
        const double low = t / step - error, high = (t + 1) / step + error;
        while (interval + 1 < job->edges && job->edge2[interval + 1] <= low)
            interval++;
        bool sure = interval + 1 == job->edges || high <= job->edge2[interval + 1];
        bool outside = interval < 0 || interval == job->edges - 1;
        table[t] = !sure ? PAIR_DOUBT : outside ? PAIR_FAR : (uint16_t)interval;
    }
    return (float)step;
}

static int make_counts(struct pair_job *job, uint64_t **all, uint16_t **table, double **edge2)
{
    const size_t threads = (size_t)job->to->threads, each = (size_t)job->edges * PAIR_COPIES;
    /* Few places stay in the nearest cache; of many intervals, few would leave too much in doubt. */
    const int places = job->edges <= 64 ? 2048 : 8192;
    *all = calloc(threads * each, sizeof **all);
    *table = malloc((size_t)places * sizeof **table);
    *edge2 = malloc((size_t)job->edges * sizeof **edge2);
    job->counts = malloc(threads * sizeof *job->counts);
    if (!*all || !*table || !*edge2 || !job->counts)
        return err_no_memory("counts of %d distances", job->edges);
    for (int e = 0; e < job->edges; e++)
        (*edge2)[e] = job->edge[e] * job->edge[e];
    job->edge2 = *edge2;
    float step = fill_table(job, places, *table);
    for (size_t t = 0; t < threads; t++)
        job->counts[t] =
            (struct pair_counts){.step = step, .places = places, .table = *table, .counts = *all + t * each};
    return 0;
}

int pairs_cpu_count(const void *to, const void *from, int edges, const double *edge, uint64_t *counts)
{
    struct pair_job job = {.to = to, .from = from, .leaf = pencils_best(), .each = add_counts, .edges = edges};
    uint64_t *all = NULL;
    uint16_t *table = NULL;
    double *edge2 = NULL;
    job.edge = edge;
    job.reach = edge[edges - 1];
    int rc = make_counts(&job, &all, &table, &edge2);
    if (!rc)
        rc = pair_all(&job);
    for (int t = 0; t < job.to->threads && !rc; t++)
        for (int e = 0; e < edges - 1; e++)
            for (int copy = 0; copy < PAIR_COPIES; copy++)
                counts[e] += job.counts[t].counts[(size_t)e * PAIR_COPIES + (size_t)copy];
    free(all);
    free(table);
    free(edge2);
    free(job.counts);
    return rc;
}
