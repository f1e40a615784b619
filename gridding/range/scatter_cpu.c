/* scatter_cpu.c: sums of points to the nodes of a grid on the CPU.
 *
 * The grid is cut into tiles, and each is summed from the bins within reach, in one order. A tile with many points near
 * is cut into parts of PART points; threads sum parts into memory of their own, which is added to the grid in the order
 * of the parts. No two threads write the same node, and the bits do not depend on their number. Up to FLUSH points are
 * summed separately in float32 before they are added, so that the error of dense bins grows slowly. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/range/sums_cpu.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH = 1024, PART = 8 * FLUSH, TILE_X = PENCIL_NODES, SLOTS_MOST = 1024 };

/* About as many nodes of an axis as a point reaches, and few enough for a cache. */
static void choose_tiles(struct sums_job *job)
{
    const struct range_box *box = &job->points->box;
    for (int d = 0; d < 3; d++) {
        int most = d == 0 ? TILE_X : box->dim == 2 ? 64 : job->reach < 8 * box->spacing[1] ? 8 : 12;
        job->tiles[d] = (box->cells[d] + most - 1) / most;
        job->tile[d] = (box->cells[d] + job->tiles[d] - 1) / job->tiles[d];
    }
}

static size_t tile_count(const struct sums_job *job)
{
    return (size_t)job->tiles[0] * (size_t)job->tiles[1] * (size_t)job->tiles[2];
}

/* Size of a tile with this number of channels, floats. */
static size_t tile_floats(const struct sums_job *job, size_t channels)
{
    return channels * (size_t)job->tile[0] * (size_t)job->tile[1] * (size_t)job->tile[2] + PENCIL_LANES;
}

/* A tile's memory in its own layout. */
static struct pencil_block tile_block(const struct sums_job *job, size_t number, float *cells)
{
    const int *tile = job->tile, *most = job->points->box.cells;
    const int place[3] = {(int)(number % (size_t)job->tiles[0]),
                          (int)(number / (size_t)job->tiles[0] % (size_t)job->tiles[1]),
                          (int)(number / ((size_t)job->tiles[0] * (size_t)job->tiles[1]))};
    struct pencil_block b = {.cells = cells,
                             .row = (size_t)tile[0],
                             .plane = (size_t)tile[0] * (size_t)tile[1],
                             .channel = (size_t)tile[0] * (size_t)tile[1] * (size_t)tile[2]};
    for (int d = 0; d < 3; d++) {
        b.low[d] = place[d] * tile[d];
        b.high[d] = b.low[d] + tile[d] < most[d] ? b.low[d] + tile[d] : most[d];
    }
    return b;
}

/* The same nodes, in the layout of the grid. */
static struct pencil_block grid_block(const struct sums_job *job, const struct pencil_block *tile)
{
    const int *cells = job->points->box.cells;
    struct pencil_block b = *tile;
    b.row = (size_t)cells[0];
    b.plane = (size_t)cells[0] * (size_t)cells[1];
    b.channel = job->nodes;
    b.cells = job->grid + (size_t)b.low[2] * b.plane + (size_t)b.low[1] * b.row + (size_t)b.low[0];
    return b;
}

/* Add row (y, z) of a channel of `from`, and clear it in `from`. */
static void move_row(const struct pencil_block *from, const struct pencil_block *to, int c, int y, int z)
{
    const size_t row = (size_t)(y - from->low[1]), plane = (size_t)(z - from->low[2]), channel = (size_t)c;
    float *source = from->cells + channel * from->channel + plane * from->plane + row * from->row;
    float *target = to->cells + channel * to->channel + plane * to->plane + row * to->row;
    for (int x = 0; x < from->high[0] - from->low[0]; x++) {
        target[x] += source[x];
        source[x] = 0;
    }
}

static void flush(const struct sums_job *job, const struct pencil_block *from, const struct pencil_block *to)
{
    for (int c = 0; c < job->law.channels; c++)
        for (int z = from->low[2]; z < from->high[2]; z++)
            for (int y = from->low[1]; y < from->high[1]; y++)
                move_row(from, to, c, y, z);
}

/* Iterates over the runs of points of a tile: the contiguous parts of the rows of bins that may contain points within
 * reach, including periodic images. */
struct walk {
    struct bin_span span[3];
    long x, y, z;
};

struct run {
    size_t first, last;
    long image[3];
};

static struct walk walk_begin(const struct sums_job *job, const struct pencil_block *b)
{
    const struct points_cpu *p = job->points;
    struct walk w = {0};
    for (int d = 0; d < 3; d++)
        w.span[d] = points_cpu_span(p, d, p->box.origin[d] + b->low[d] * p->box.spacing[d] - job->reach,
                                    p->box.origin[d] + (b->high[d] - 1) * p->box.spacing[d] + job->reach);
    w.x = w.span[0].from;
    w.y = w.span[1].from;
    w.z = w.span[2].from;
    return w;
}

static bool walk_next(const struct points_cpu *p, struct walk *w, struct run *run)
{
    if (w->x > w->span[0].to) {
        w->x = w->span[0].from;
        if (++w->y > w->span[1].to) {
            w->y = w->span[1].from;
            w->z++;
        }
    }
    if (w->z > w->span[2].to || w->y > w->span[1].to || w->x > w->span[0].to)
        return false;
    run->image[0] = image_of(w->x, p->bins[0]);
    run->image[1] = image_of(w->y, p->bins[1]);
    run->image[2] = image_of(w->z, p->bins[2]);
    const long end = (run->image[0] + 1) * p->bins[0] - 1, to = end < w->span[0].to ? end : w->span[0].to;
    points_cpu_run(p, w->x - run->image[0] * p->bins[0], to - run->image[0] * p->bins[0],
                   w->y - run->image[1] * p->bins[1], w->z - run->image[2] * p->bins[2], &run->first, &run->last);
    w->x = to + 1;
    return true;
}

static bool reaches(const struct sums_job *job, const struct pencil_point *point, const struct pencil_block *b)
{
    const double reach = job->law.law->params.reach * point->scale;
    bool within = true;
    for (int d = 0; d < job->law.dim; d++) {
        double cells = reach / job->law.spacing[d];
        within = within && point->at[d] > b->low[d] - cells && point->at[d] < b->high[d] - 1 + cells;
    }
    return within;
}

/* The state of a sum over some of a tile's points: in `own`, then in `to`. */
struct part {
    const struct sums_job *job;
    struct pencil_block own, to;
    int pending;       /* points in `own` */
    size_t point_cost; /* approximate time per point, ns */
    struct watch_pace pace;
};

static size_t point_cost(const struct sums_job *job)
{
    double nodes = 1;
    for (int d = 0; d < job->law.dim; d++)
        nodes *= fmin(job->tile[d], 2 * job->reach / job->law.spacing[d] + 1);
    return 50 + (size_t)(nodes * job->law.channels / 4);
}

/* Sum the points of a run; false: canceled. */
static bool add_run(struct part *part, const struct run *run)
{
    const struct sums_job *job = part->job;
    const struct points_cpu *p = job->points;
    for (size_t i = run->first; i < run->last; i++) {
        struct pencil_point point = sums_point_of(job, i, run->image);
        const bool reached = reaches(job, &point, &part->own);
        if (watch_pace(&part->pace, reached ? part->point_cost : COST_CANDIDATE))
            return false;
        if (!reached)
            continue;
        for (int c = 0; c < job->law.channels; c++)
            point.value[c] = job->values[(size_t)c * p->inputs + p->source[i]];
        job->leaf->scatter(&job->law, &point, &part->own);
        if (++part->pending == FLUSH) {
            flush(job, &part->own, &part->to);
            part->pending = 0;
        }
    }
    return true;
}

/* Sum the points `from` .. `to` - 1 of a tile. */
static void add_points(struct part *part, size_t from, size_t to)
{
    struct walk walk = walk_begin(part->job, &part->own);
    struct run run;
    size_t before = 0; /* points in earlier runs */
    bool on = true;
    while (on && before < to && walk_next(part->job->points, &walk, &run)) {
        const size_t held = run.last - run.first;
        const struct run cut = {run.first + (from > before ? from - before < held ? from - before : held : 0),
                                to - before < held ? run.first + (to - before) : run.last,
                                {run.image[0], run.image[1], run.image[2]}};
        on = !watch_pace(&part->pace, COST_ROW) && add_run(part, &cut);
        before += held;
    }
    if (part->pending > 0)
        flush(part->job, &part->own, &part->to);
    part->pending = 0;
}

/* Count the points near each tile; tiles with more than PART are cut. */
struct plan {
    size_t tiles, heavy, slots;
    size_t *candidates; /* [tiles] */
    float *own, *sums;  /* a tile for each thread or slot; sums: for each slot */
};

/* More than threads, so that few wait for the last one. */
static size_t slots_of(int threads)
{
    const size_t slots = 2 * (size_t)threads + 6;
    return slots < SLOTS_MOST ? slots : SLOTS_MOST;
}

static void plan_free(struct plan *plan)
{
    free(plan->candidates);
    free(plan->own);
    free(plan->sums);
}

static size_t parts_of(size_t candidates)
{
    return candidates > PART ? (candidates + PART - 1) / PART : 0;
}

static void count_candidates(const struct sums_job *job, struct plan *plan)
{
#pragma omp parallel num_threads(job->points->threads)
    {
        struct watch_pace pace = {job->watch, 0};
#pragma omp for schedule(dynamic)
        for (size_t t = 0; t < plan->tiles; t++) {
            const struct pencil_block b = tile_block(job, t, NULL);
            struct walk walk = walk_begin(job, &b);
            struct run run;
            while (!watch_pace(&pace, COST_ROW) && walk_next(job->points, &walk, &run))
                plan->candidates[t] += run.last - run.first;
        }
    }
}

static int plan_make(const struct sums_job *job, size_t channels, struct plan *plan)
{
    const size_t floats = tile_floats(job, channels), threads = (size_t)job->points->threads;
    plan->candidates = calloc(plan->tiles, sizeof *plan->candidates);
    if (!plan->candidates)
        return err_no_memory("%zu tiles of a grid", plan->tiles);
    count_candidates(job, plan);
    for (size_t t = 0; t < plan->tiles; t++)
        plan->heavy += parts_of(plan->candidates[t]) > 0;
    plan->slots = plan->heavy > 0 ? slots_of(job->points->threads) : threads;
    plan->own = calloc(plan->slots * floats, sizeof *plan->own);
    if (plan->heavy > 0)
        plan->sums = calloc(plan->slots * floats, sizeof *plan->sums);
    if (!plan->own || (plan->heavy > 0 && !plan->sums))
        return err_no_memory_bytes(2 * plan->slots * floats * sizeof *plan->own, "the tiles of %zu threads", threads);
    return 0;
}

static void sum_light(const struct sums_job *job, const struct plan *plan, size_t floats)
{
#pragma omp parallel num_threads(job->points->threads)
    {
        struct part part = {.job = job, .point_cost = point_cost(job), .pace = {job->watch, 0}};
        float *own = plan->own + (size_t)omp_get_thread_num() * floats;
#pragma omp for schedule(dynamic)
        for (size_t t = 0; t < plan->tiles; t++) {
            if (parts_of(plan->candidates[t]) > 0 || watch_rc(job->watch))
                continue;
            part.own = tile_block(job, t, own);
            part.to = grid_block(job, &part.own);
            add_points(&part, 0, plan->candidates[t]);
            watch_done(job->watch, plan->candidates[t] + 1);
        }
    }
}

/* A part of a heavy tile; and the parts that are summed at the same time, one per slot. */
struct tile_part {
    size_t tile, part;
};
struct window {
    struct tile_part part[SLOTS_MOST];
    size_t count;
};

/* The next parts of heavy tiles, in order, from *at on. */
static void window_fill(struct window *w, const struct plan *plan, struct tile_part *at)
{
    for (w->count = 0; w->count < plan->slots && at->tile < plan->tiles;)
        if (at->part < parts_of(plan->candidates[at->tile]))
            w->part[w->count++] = (struct tile_part){at->tile, at->part++};
        else
            *at = (struct tile_part){at->tile + 1, 0};
}

/* Add parts to the grid: each row by one thread, in the order of the parts. */
static void move_parts(const struct sums_job *job, const struct plan *plan, const struct window *w, size_t floats)
{
    const size_t rows = (size_t)job->tile[1] * (size_t)job->tile[2], all = rows * (size_t)job->law.channels;
#pragma omp parallel for num_threads(job->points->threads) schedule(static)
    for (size_t r = 0; r < all; r++)
        for (size_t s = 0; s < w->count; s++) {
            const struct pencil_block from = tile_block(job, w->part[s].tile, plan->sums + s * floats);
            const struct pencil_block to = grid_block(job, &from);
            const int y = from.low[1] + (int)(r % (size_t)job->tile[1]),
                      z = from.low[2] + (int)(r % rows / (size_t)job->tile[1]);
            if (y < from.high[1] && z < from.high[2])
                move_row(&from, &to, (int)(r / rows), y, z);
        }
}

static void sum_part(const struct sums_job *job, const struct plan *plan, struct tile_part which, size_t slot,
                     size_t floats)
{
    const size_t from = which.part * PART, all = plan->candidates[which.tile],
                 to = all - from < PART ? all : from + PART;
    struct part part = {.job = job, .point_cost = point_cost(job), .pace = {job->watch, 0}};
    part.own = tile_block(job, which.tile, plan->own + slot * floats);
    part.to = tile_block(job, which.tile, plan->sums + slot * floats);
    add_points(&part, from, to);
    watch_done(job->watch, to - from);
}

static void sum_heavy(const struct sums_job *job, const struct plan *plan, size_t floats)
{
    struct tile_part at = {0, 0};
    struct window w;
    for (window_fill(&w, plan, &at); w.count > 0 && !watch_rc(job->watch); window_fill(&w, plan, &at)) {
#pragma omp parallel for num_threads(job->points->threads) schedule(dynamic)
        for (size_t s = 0; s < w.count; s++)
            sum_part(job, plan, w.part[s], s, floats);
        move_parts(job, plan, &w, floats);
    }
}

int scatter_cpu_sum(const void *state, const struct range_law *law, int channels, const float *values, float *grid,
                    const struct listener *listener)
{
    struct watch watch;
    struct sums_job job = sums_job_of(state, law);
    const int together = channels < PENCIL_CHANNELS ? channels : PENCIL_CHANNELS;
    choose_tiles(&job);
    job.watch = &watch;
    watch_begin(&watch, listener, 1);
    struct plan plan = {.tiles = tile_count(&job)};
    int rc = plan_make(&job, (size_t)together, &plan);
    size_t most = plan.tiles;
    for (size_t t = 0; t < plan.tiles && !rc; t++)
        most += plan.candidates[t];
    watch.most = most * (size_t)((channels + together - 1) / together);
    for (int done = 0; done < channels && !rc; done += job.law.channels) {
        job.law.channels = channels - done < together ? channels - done : together;
        job.values = values + (size_t)done * job.points->inputs;
        job.grid = grid + (size_t)done * job.nodes;
        sum_light(&job, &plan, tile_floats(&job, (size_t)together));
        sum_heavy(&job, &plan, tile_floats(&job, (size_t)together));
        rc = watch_rc(&watch);
    }
    if (!rc)
        rc = watch_end(&watch);
    plan_free(&plan);
    return rc;
}

size_t scatter_cpu_memory(int threads, const struct range_points_params *params)
{
    const struct points_cpu box = {.box = params->box};
    size_t most = 0;
    /* Tiles of either size: a law's reach may be smaller than that for which the points were created. */
    for (int i = 0; i < 2; i++) {
        struct sums_job job = {.points = &box, .reach = i == 0 ? params->reach : 0};
        choose_tiles(&job);
        const size_t tiles = tile_count(&job), floats = tile_floats(&job, PENCIL_CHANNELS) * sizeof(float);
        const size_t bytes = tiles * sizeof(size_t) + 2 * slots_of(threads) * floats + 4 * (size_t)POINTS_ROUNDING;
        most = bytes > most ? bytes : most;
    }
    return most;
}
