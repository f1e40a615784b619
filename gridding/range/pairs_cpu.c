/* pairs_cpu.c: sums over pairs of points, and counts of their distances, on the CPU.
 *
 * The points of a bin, PAIR_BLOCK at a time, are a task of one thread: they are summed over the rows of bins within
 * reach. A row's points between two bins are one contiguous run, processed in cuts of PAIR_RUN points. Rows, and bins
 * of a row, that the sphere around the block does not touch are skipped; then rows that the sphere around a point does
 * not touch. The sums of a task do not depend on its thread. Counts among the points of one set need each pair once:
 * with the points after the first, and in images of which the opposite ones are left out. */
#include "gridding/base/err.h"
#include "gridding/range/pencils.h"
#include "gridding/range/points_cpu.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_FLOATS = 3 * 2 * (PAIR_RUN + PAIR_BLOCK + 2 * POINTS_PADDING) }; /* buffer of a thread for shifted points */

/* A box around points. */
struct bounds {
    double low[3], high[3];
};

/* One row's run against one bin's points. */
struct row {
    struct pair_run run;
    struct bounds bounds; /* indices of the row's bins along y and z */
    size_t first;         /* range of the run in `from` */
    long image[3];
};

/* Points of `to`: of one bin. */
struct task {
    uint32_t first, last;
};

struct block;

struct pair_job {
    const struct points_cpu *to, *from;
    const struct pencils_leaf *leaf;
    double reach;
    bool fine;          /* at least one of the sets has double positions */
    bool once;          /* each pair of one set in one order only */
    const float *value; /* sorted as `from`, padded; or NULL */
    struct task *task;
    size_t tasks;
    struct watch *watch;
    struct pair_laws laws;
    float *vectors, *scalars; /* of this channel; or NULL */
    /* Process a block and a row. */
    void (*each)(struct block *b, const struct row *row, const struct pair_block *of);
    int edges;
    const double *edge, *edge2;
    struct pair_counts *counts; /* [threads]; NULL: sums */
};

/* The state of a task. */
struct block {
    const struct pair_job *job;
    size_t first, last;
    struct bounds bounds;
    float *room; /* [ROOM_FLOATS], buffer for shifted points */
    struct watch_pace *pace;
    double sums[PAIR_BLOCK][PAIR_PARTS];
};

/* ---- rows ---- */

static struct bounds bounds_of(const struct points_cpu *p, size_t first, size_t last)
{
    struct bounds b = {{0}, {0}};
    for (int d = 0; d < p->box.dim; d++) {
        b.low[d] = INFINITY;
        b.high[d] = -INFINITY;
        for (size_t i = first; i < last; i++) {
            b.low[d] = fmin(b.low[d], points_cpu_at(p, d, i));
            b.high[d] = fmax(b.high[d], points_cpu_at(p, d, i));
        }
    }
    return b;
}

/* The extent of a bin along axis d; on open axes, the outermost bins are unbounded. */
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
    const double below = other_low - high, above = low - other_high, away = below > above ? below : above;
    return away > 0 ? away : 0;
}

/* Shifted positions along axis d of the points from `first` on: as float32, and the remainder. */
static void move(const struct points_cpu *p, int d, size_t first, size_t count, double by, float *at, float *rest)
{
    for (size_t i = 0; i < count; i++) {
        const double place = points_cpu_at(p, d, first + i) + by;
        at[i] = (float)place;
        rest[i] = (float)(place - (double)at[i]);
    }
}

/* The block against one row's run. Points of a periodic image, and points given as doubles, are taken relative to the
 * block's low corner, as is the block. */
static void pair_row(struct block *b, struct row *row)
{
    const struct pair_job *job = b->job;
    const struct points_cpu *to = job->to, *from = job->from;
    const bool itself = to == from && !row->image[0] && !row->image[1] && !row->image[2];
    const bool moved = job->fine || row->image[0] || row->image[1] || row->image[2];
    struct pair_block of = {.count = b->last - b->first,
                            .self = itself ? b->first - row->first : SIZE_MAX / 2,
                            .reach2 = job->reach * job->reach * (1 + 1e-5)};
    for (int d = 0; d < to->box.dim; d++) {
        const double length = from->box.cells[d] * from->box.spacing[d], shift = moved ? b->bounds.low[d] : 0;
        if (moved) {
            float *at = b->room + (size_t)d * (ROOM_FLOATS / 3), *rest = at + PAIR_RUN + POINTS_PADDING;
            float *own = rest + PAIR_RUN + POINTS_PADDING, *own_rest = own + PAIR_BLOCK + POINTS_PADDING;
            move(from, d, row->first, row->run.count, (double)row->image[d] * length - shift, at, rest);
            move(to, d, b->first, of.count, -shift, own, own_rest);
            row->run.at[d] = at;
            row->run.rest[d] = rest;
            of.at[d] = own;
            of.rest[d] = own_rest;
        } else {
            row->run.at[d] = from->at[d] + row->first;
            of.at[d] = to->at[d] + b->first;
        }
        of.low[d] = row->bounds.low[d] - shift;
        of.high[d] = row->bounds.high[d] - shift;
    }
    job->each(b, row, &of);
}

/* A run of points of `from`, in cuts. */
static void pair_run(struct block *b, const struct row *whole, size_t first, size_t last)
{
    const struct points_cpu *from = b->job->from;
    for (size_t cut = first, end; cut < last; cut = end) {
        struct row row = *whole;
        end = last - cut < PAIR_RUN ? last : cut + PAIR_RUN;
        row.first = cut;
        row.run = (struct pair_run){.count = end - cut,
                                    .scale = from->scale ? from->scale + cut : NULL,
                                    .value = b->job->value ? b->job->value + cut : NULL};
        if (watch_pace(b->pace, (end - cut) * (b->last - b->first + 4)))
            return;
        pair_row(b, &row);
    }
}

/* Whether pairs with points of an image are left out, because those of the opposite one are found. */
static bool left_out(const struct pair_job *job, const long image[3])
{
    return job->once && (image[2] != 0 ? image[2] < 0 : image[1] != 0 ? image[1] < 0 : image[0] < 0);
}

/* The row (y, z) of bins of `from` that may contain partners of the block. */
static void pair_rows(struct block *b, long y, long z)
{
    const struct points_cpu *from = b->job->from;
    const struct bounds *at = &b->bounds;
    const long yz[3] = {0, y, z};
    struct row row = {.image = {0, image_of(y, from->bins[1]), image_of(z, from->bins[2])}};
    double rest = b->job->reach * b->job->reach;
    for (int d = 1; d < 3; d++) {
        row_bounds(from, d, yz[d], &row.bounds);
        double away = gap(at->low[d], at->high[d], row.bounds.low[d], row.bounds.high[d]);
        rest -= away * away;
    }
    if (rest < 0)
        return;
    const double half = sqrt(rest) * (1 + 1e-6);
    const struct bin_span x = points_cpu_span(from, 0, at->low[0] - half, at->high[0] + half);
    for (long bin = x.from, end; bin <= x.to && !watch_pace(b->pace, COST_ROW); bin = end + 1) {
        row.image[0] = image_of(bin, from->bins[0]);
        end = (row.image[0] + 1) * from->bins[0] - 1;
        end = end < x.to ? end : x.to;
        if (left_out(b->job, row.image))
            continue;
        size_t first, last;
        points_cpu_run(from, bin - row.image[0] * from->bins[0], end - row.image[0] * from->bins[0],
                       y - row.image[1] * from->bins[1], z - row.image[2] * from->bins[2], &first, &last);
        if (b->job->once && !row.image[0] && !row.image[1] && !row.image[2] && first < b->first)
            first = b->first;
        pair_run(b, &row, first, last);
    }
}

static void pair_task(struct block *b)
{
    const struct points_cpu *from = b->job->from;
    const double reach = b->job->reach;
    b->bounds = bounds_of(b->job->to, b->first, b->last);
    const struct bin_span ys = points_cpu_span(from, 1, b->bounds.low[1] - reach, b->bounds.high[1] + reach),
                          zs = points_cpu_span(from, 2, b->bounds.low[2] - reach, b->bounds.high[2] + reach);
    for (long z = zs.from; z <= zs.to; z++)
        for (long y = ys.from; y <= ys.to; y++) {
            if (watch_pace(b->pace, COST_ROW))
                return;
            pair_rows(b, y, z);
        }
}

/* ---- tasks ---- */

static size_t tasks_most(size_t points)
{
    return points + points / PAIR_BLOCK + 1;
}

static int make_tasks(struct pair_job *job)
{
    const struct points_cpu *to = job->to;
    job->task = malloc(tasks_most(to->count) * sizeof *job->task);
    if (!job->task)
        return err_no_memory("pairs of %zu points", to->count);
    for (size_t bin = 0; bin < to->all; bin++)
        for (uint32_t first = to->first[bin], last = to->first[bin + 1]; first < last;) {
            const uint32_t end = last - first < PAIR_BLOCK ? last : first + PAIR_BLOCK;
            job->task[job->tasks++] = (struct task){first, end};
            first = end;
        }
    return 0;
}

static void store_sums(const struct block *b)
{
    const struct pair_job *job = b->job;
    const struct points_cpu *to = job->to;
    for (size_t i = b->first; i < b->last; i++) {
        const double *sums = b->sums[i - b->first];
        for (int d = 0; d < to->box.dim && job->vectors; d++)
            job->vectors[(size_t)d * to->inputs + to->source[i]] = (float)sums[d];
        if (job->scalars)
            job->scalars[to->source[i]] = (float)sums[PAIR_SCALAR];
    }
}

static void run_tasks(const struct pair_job *job, float *room, size_t floats)
{
#pragma omp parallel num_threads(job->to->threads)
    {
        struct watch_pace pace = {job->watch, 0};
        struct block b = {.job = job, .room = room + (size_t)omp_get_thread_num() * floats, .pace = &pace};
#pragma omp for schedule(dynamic, 4)
        for (size_t t = 0; t < job->tasks; t++) {
            if (watch_rc(job->watch))
                continue;
            b.first = job->task[t].first;
            b.last = job->task[t].last;
            if (!job->counts)
                memset(b.sums, 0, sizeof b.sums);
            pair_task(&b);
            if (!job->counts)
                store_sums(&b);
            watch_done(job->watch, b.last - b.first);
        }
    }
}

static int pair_all(struct pair_job *job, bool last)
{
    const struct range_box *box = &job->from->box;
    const size_t threads = (size_t)job->to->threads;
    job->fine = job->to->fine[0] || job->from->fine[0];
    const bool moves = job->fine || box->periodic[0] || box->periodic[1] || box->periodic[2];
    const size_t floats = moves ? ROOM_FLOATS : 0;
    float *room = calloc(threads * floats + 1, sizeof *room);
    if (!room)
        return err_no_memory_bytes(threads * floats * sizeof *room, "pairs of %zu points", job->from->count);
    run_tasks(job, room, floats);
    const int rc = last ? watch_end(job->watch) : watch_rc(job->watch);
    free(room);
    return rc;
}

void pairs_cpu_memory(int threads, size_t inputs, struct range_memory *memory)
{
    const size_t shared = tasks_most(inputs) * sizeof(struct task) + (size_t)threads * ROOM_FLOATS * sizeof(float) +
                          4 * (size_t)POINTS_ROUNDING;
    memory->pairs = shared + (inputs + POINTS_PADDING) * sizeof(float);
    memory->count =
        shared + (size_t)threads * (sizeof(struct pair_counts) + RANGE_EDGES_MOST * PAIR_COPIES * sizeof(uint64_t)) +
        INTERVAL_PLACES_MOST * sizeof(uint16_t) + RANGE_EDGES_MOST * sizeof(double) + 4 * (size_t)POINTS_ROUNDING;
}

/* ---- sums ---- */

static void add_sums(struct block *b, const struct row *row, const struct pair_block *of)
{
    const struct pair_job *job = b->job;
    job->leaf->pairs(&job->laws, job->from->box.dim, of, &row->run, b->sums);
}

static int sum_channel(struct pair_job *job, const float *values, float *sorted, bool last)
{
    const struct points_cpu *from = job->from;
    for (size_t j = 0; j < from->count; j++)
        sorted[j] = values[from->source[j]];
    return pair_all(job, last);
}

int pairs_cpu_sum(const void *to, const void *from, const struct range_pair_sums *sums, int channels,
                  const float *values, const struct listener *listener)
{
    const struct range_law *law = sums->vector_law ? sums->vector_law : sums->scalar_law;
    struct watch watch;
    struct pair_job job = {.to = to, .from = from, .leaf = pencils_best(), .each = add_sums, .watch = &watch};
    float *sorted = calloc(job.from->count + POINTS_PADDING, sizeof *sorted);
    watch_begin(&watch, listener, (size_t)channels * job.to->count);
    job.reach = law->params.reach * (double)job.from->widest;
    job.laws = (struct pair_laws){sums->vector_law, sums->scalar_law};
    job.value = sorted;
    int rc = sorted ? make_tasks(&job) : err_no_memory("sums over pairs of %zu points", job.to->count);
    for (size_t c = 0; c < (size_t)channels && !rc; c++) {
        job.vectors = sums->vector_law ? sums->vectors + c * (size_t)job.to->box.dim * job.to->inputs : NULL;
        job.scalars = sums->scalar_law ? sums->scalars + c * job.to->inputs : NULL;
        rc = sum_channel(&job, values + c * job.from->inputs, sorted, c + 1 == (size_t)channels);
    }
    free(sorted);
    free(job.task);
    return rc;
}

/* ---- counts ---- */

/* A pair whose bin cannot be decided in float32. */
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
        double away = points_cpu_at(from, d, pair->row->first + j) - points_cpu_at(to, d, pair->first + i) +
                      (double)pair->row->image[d] * (from->box.cells[d] * from->box.spacing[d]);
        r2 += away * away;
    }
    const int interval = interval_of(pair->job->edges, pair->job->edge2, r2);
    if (interval >= 0)
        pair->counts[(size_t)interval * PAIR_COPIES]++;
}

static void add_counts(struct block *b, const struct row *row, const struct pair_block *of)
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
    const struct bounds all = bounds_of(p, 0, p->fine[0] ? p->count : 0);
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
        rc = make_tasks(&job);
    if (!rc)
        rc = pair_all(&job, true);
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
