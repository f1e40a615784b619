/* pairs_cpu.c: sums over pairs of points on the CPU, and the pass over pairs of pair_counts_cpu.c.
 *
 * The points of a bin, PAIR_BLOCK at a time, are a task of one thread: they are summed over the rows of bins within
 * reach. A row's points between two bins are one contiguous run, processed in cuts of PAIR_RUN points. Rows, and bins
 * of a row, that the sphere around the block does not touch are skipped. For sums, the runs' points within reach of the
 * box around the block are packed into one list, because runs are a few vectors long and most of their points too far;
 * for counts, rows that the sphere around a point does not touch are skipped. The sums of a task do not depend on its
 * thread. Counts among the points of one set need each pair once:
 * with the points after the first, and in images of which the opposite ones are left out. */
#include "gridding/range/pairs_cpu.h"

#include "gridding/base/err.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

struct pair_bounds pair_bounds_of(const struct points_cpu *p, size_t first, size_t last)
{
    struct pair_bounds b = {{0}, {0}};
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
static void row_bounds(const struct points_cpu *p, int d, long bin, struct pair_bounds *b)
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
static void pair_row(struct pair_state *b, struct pair_cut *row)
{
    const struct pair_job *job = b->job;
    const struct points_cpu *to = job->to, *from = job->from;
    const bool itself = to == from && !row->image[0] && !row->image[1] && !row->image[2];
    const bool moved = job->fine || b->crosses || row->image[0] || row->image[1] || row->image[2];
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
static void pair_run(struct pair_state *b, const struct pair_cut *whole, size_t first, size_t last)
{
    const struct points_cpu *from = b->job->from;
    for (size_t cut = first, end; cut < last; cut = end) {
        struct pair_cut row = *whole;
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
static void pair_rows(struct pair_state *b, long y, long z)
{
    const struct points_cpu *from = b->job->from;
    const struct pair_bounds *at = &b->bounds;
    const long yz[3] = {0, y, z};
    struct pair_cut row = {.image = {0, image_of(y, from->bins[1]), image_of(z, from->bins[2])}};
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

/* ---- points near a block ---- */

/* Whether the span of bins within reach along axis d leaves the box. */
static bool leaves(const struct pair_state *b, int d)
{
    const struct points_cpu *from = b->job->from;
    const double reach = b->job->reach;
    const struct bin_span span = points_cpu_span(from, d, b->bounds.low[d] - reach, b->bounds.high[d] + reach);
    return span.from < 0 || span.to >= from->bins[d];
}

/* Before a block's rows. All of them have the same coordinates: of the box, or relative to the block (pair_row()). */
static void near_begin(struct pair_state *b)
{
    const double reach = b->job->reach;
    b->crosses = leaves(b, 0) || leaves(b, 1) || leaves(b, 2);
    b->near.count = 0;
    b->near.reach2 = (float)(reach * reach * (1 + 1e-5));
    b->of.count = 0;
    b->of.self = SIZE_MAX / 2;
    for (int d = 0; d < b->job->to->box.dim; d++) {
        const double low = b->bounds.low[d], high = b->bounds.high[d];
        const double shift = b->job->fine || b->crosses ? low : 0;
        /* Of float32 coordinates within reach. */
        const double rounding = 3e-7 * (fabs(low - shift) + fabs(high - shift) + reach);
        b->near.low[d] = (float)(low - shift - rounding);
        b->near.high[d] = (float)(high - shift + rounding);
    }
}

static void near_end(struct pair_state *b)
{
    const struct pair_job *job = b->job;
    const struct pair_near *near = &b->near;
    struct pair_run run = {.scale = job->from->scale ? near->scale : NULL, .value = near->value, .count = near->count};
    for (int d = 0; d < job->to->box.dim; d++) {
        run.at[d] = near->at[d];
        run.rest[d] = b->of.rest[d] ? near->rest[d] : NULL;
    }
    if (run.count)
        job->leaf->pairs(&job->laws, job->to->box.dim, &b->of, &run, b->sums);
    b->near.count = 0;
    b->of.self = SIZE_MAX / 2;
}

/* The part of a run from `first` on, of `count` points. */
static void near_part(struct pair_state *b, const struct pair_run *run, size_t first, size_t count)
{
    struct pair_run part = *run;
    part.count = count;
    part.value += first;
    part.scale = run->scale ? run->scale + first : NULL;
    for (int d = 0; d < b->job->from->box.dim; d++) {
        part.at[d] += first;
        part.rest[d] = run->rest[d] ? run->rest[d] + first : NULL;
    }
    b->job->leaf->near(b->job->from->box.dim, &part, &b->near);
}

/* List the points of a row that are within reach of the box around the block. The block's own points all are: in the
 * list, too, they follow each other. */
static void add_sums(struct pair_state *b, const struct pair_cut *row, const struct pair_block *of)
{
    const size_t count = row->run.count, self = of->self, before = self < count ? self : 0;
    if (b->near.count + count > PAIR_RUN)
        near_end(b);
    const size_t own = b->of.self;
    b->of = *of;
    b->of.reach2 = INFINITY;
    b->of.self = own;
    near_part(b, &row->run, 0, before);
    if (self < count)
        b->of.self = b->near.count;
    else if (0 - self < of->count) /* the block began in the cut before */
        b->of.self = b->near.count + self;
    near_part(b, &row->run, before, count - before);
}

static void pair_task(struct pair_state *b)
{
    const struct points_cpu *from = b->job->from;
    const double reach = b->job->reach;
    b->bounds = pair_bounds_of(b->job->to, b->first, b->last);
    if (!b->job->counts)
        near_begin(b);
    const struct bin_span ys = points_cpu_span(from, 1, b->bounds.low[1] - reach, b->bounds.high[1] + reach),
                          zs = points_cpu_span(from, 2, b->bounds.low[2] - reach, b->bounds.high[2] + reach);
    for (long z = zs.from; z <= zs.to; z++)
        for (long y = ys.from; y <= ys.to; y++) {
            if (watch_pace(b->pace, COST_ROW))
                return;
            pair_rows(b, y, z);
        }
    if (!b->job->counts)
        near_end(b);
}

/* ---- tasks ---- */

static size_t tasks_most(size_t points)
{
    return points + points / PAIR_BLOCK + 1;
}

int pairs_cpu_tasks(struct pair_job *job)
{
    const struct points_cpu *to = job->to;
    job->task = malloc(tasks_most(to->count) * sizeof *job->task);
    if (!job->task)
        return err_no_memory("pairs of %zu points", to->count);
    for (size_t bin = 0; bin < to->all; bin++)
        for (uint32_t first = to->first[bin], last = to->first[bin + 1]; first < last;) {
            const uint32_t end = last - first < PAIR_BLOCK ? last : first + PAIR_BLOCK;
            job->task[job->tasks++] = (struct pair_share){first, end};
            first = end;
        }
    return 0;
}

static void store_sums(const struct pair_state *b)
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
        float *own = room + (size_t)omp_get_thread_num() * floats,
              *columns = own + (job->counts ? 0 : floats - NEAR_FLOATS);
        struct pair_state b = {.job = job, .room = own, .pace = &pace};
        if (!job->counts)
            b.near = (struct pair_near){
                .at = {columns, columns + NEAR_COLUMN, columns + 2 * NEAR_COLUMN},
                .rest = {columns + 3 * NEAR_COLUMN, columns + 4 * NEAR_COLUMN, columns + 5 * NEAR_COLUMN},
                .scale = columns + 6 * NEAR_COLUMN,
                .value = columns + 7 * NEAR_COLUMN};
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

int pairs_cpu_all(struct pair_job *job, bool last)
{
    const struct range_box *box = &job->from->box;
    const size_t threads = (size_t)job->to->threads;
    job->fine = job->to->fine[0] || job->from->fine[0];
    const bool moves = job->fine || box->periodic[0] || box->periodic[1] || box->periodic[2];
    const size_t floats = (moves ? ROOM_FLOATS : 0) + (job->counts ? 0 : NEAR_FLOATS);
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
    const size_t shared = tasks_most(inputs) * sizeof(struct pair_share) +
                          (size_t)threads * ROOM_FLOATS * sizeof(float) + 4 * (size_t)POINTS_ROUNDING;
    memory->pairs = shared + (inputs + POINTS_PADDING + (size_t)threads * NEAR_FLOATS) * sizeof(float);
    memory->count =
        shared + (size_t)threads * (sizeof(struct pair_counts) + RANGE_EDGES_MOST * PAIR_COPIES * sizeof(uint64_t)) +
        INTERVAL_PLACES_MOST * sizeof(uint16_t) + RANGE_EDGES_MOST * sizeof(double) + 4 * (size_t)POINTS_ROUNDING;
}

/* ---- sums ---- */

static int sum_channel(struct pair_job *job, const float *values, float *sorted, bool last)
{
    const struct points_cpu *from = job->from;
    for (size_t j = 0; j < from->count; j++)
        sorted[j] = values[from->source[j]];
    return pairs_cpu_all(job, last);
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
    int rc = sorted ? pairs_cpu_tasks(&job) : err_no_memory("sums over pairs of %zu points", job.to->count);
    for (size_t c = 0; c < (size_t)channels && !rc; c++) {
        job.vectors = sums->vector_law ? sums->vectors + c * (size_t)job.to->box.dim * job.to->inputs : NULL;
        job.scalars = sums->scalar_law ? sums->scalars + c * job.to->inputs : NULL;
        rc = sum_channel(&job, values + c * job.from->inputs, sorted, c + 1 == (size_t)channels);
    }
    free(sorted);
    free(job.task);
    return rc;
}
