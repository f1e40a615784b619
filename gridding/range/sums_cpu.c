/* sums_cpu.c: sums of points to grids and of grids to points on the CPU.
 *
 * To a grid: the grid is cut into tiles, and each is summed by one thread from the bins within reach, in one order: no
 * two threads write the same node, and the bits do not depend on their number. Float32 sums of up to FLUSH points are
 * made apart and then added, so that the error of dense bins grows slowly. From a grid: point by point. */
#include "gridding/base/err.h"
#include "gridding/range/pencils.h"
#include "gridding/range/points_cpu.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH = 1024, TILE_X = PENCIL_NODES };

struct job {
    const struct points_cpu *points;
    const struct pencils_leaf *leaf;
    struct pencil_law law;
    double reach; /* of the widest point */
    size_t nodes; /* of a channel */
    const float *values;
    float *grid;
    int tile[3], tiles[3]; /* nodes of a tile, and how many there are */
};

static struct job job_of(const struct points_cpu *p, const struct range_law *law)
{
    struct job job = {.points = p, .leaf = pencils_best(), .reach = law->params.reach * (double)p->widest, .nodes = 1};
    job.law = (struct pencil_law){.law = law, .dim = p->box.dim};
    for (int d = 0; d < 3; d++) {
        job.law.spacing[d] = p->box.spacing[d];
        job.nodes *= (size_t)p->box.cells[d];
    }
    return job;
}

static struct pencil_point point_of(const struct job *job, size_t i, const long image[3])
{
    const struct points_cpu *p = job->points;
    struct pencil_point point = {.scale = p->scale ? (double)p->scale[i] : 1};
    for (int d = 0; d < p->box.dim; d++)
        point.at[d] =
            ((double)p->at[d][i] - p->box.origin[d]) / p->box.spacing[d] + (double)image[d] * (double)p->box.cells[d];
    return point;
}

/* ---- to a grid ---- */

/* About as many nodes of an axis as a point reaches, and few enough for a cache. */
static void choose_tiles(struct job *job)
{
    const struct range_box *box = &job->points->box;
    for (int d = 0; d < 3; d++) {
        int most = d == 0 ? TILE_X : box->dim == 2 ? 64 : job->reach < 8 * box->spacing[1] ? 8 : 12;
        job->tiles[d] = (box->cells[d] + most - 1) / most;
        job->tile[d] = (box->cells[d] + job->tiles[d] - 1) / job->tiles[d];
    }
}

/* Add a tile's sums to the grid, and clear them. */
static void flush(const struct job *job, struct pencil_block *b)
{
    const int *cells = job->points->box.cells;
    for (int c = 0; c < job->law.channels; c++)
        for (int z = b->low[2]; z < b->high[2]; z++)
            for (int y = b->low[1]; y < b->high[1]; y++) {
                float *from = b->cells + (size_t)c * b->channel + (size_t)(z - b->low[2]) * b->plane +
                              (size_t)(y - b->low[1]) * b->row;
                float *to = job->grid + (size_t)c * job->nodes +
                            ((size_t)z * (size_t)cells[1] + (size_t)y) * (size_t)cells[0] + (size_t)b->low[0];
                for (int x = 0; x < b->high[0] - b->low[0]; x++) {
                    to[x] += from[x];
                    from[x] = 0;
                }
            }
}

static bool reaches(const struct job *job, const struct pencil_point *point, const struct pencil_block *b)
{
    const double reach = job->law.law->params.reach * point->scale;
    bool within = true;
    for (int d = 0; d < job->law.dim; d++) {
        double cells = reach / job->law.spacing[d];
        within = within && point->at[d] > b->low[d] - cells && point->at[d] < b->high[d] - 1 + cells;
    }
    return within;
}

/* The points of a run, whose images stand `image` boxes on; `pending`: points in the tile since the last flush. */
static void add_run(const struct job *job, struct pencil_block *b, size_t first, size_t last, const long image[3],
                    int *pending)
{
    const struct points_cpu *p = job->points;
    for (size_t i = first; i < last; i++) {
        struct pencil_point point = point_of(job, i, image);
        if (!reaches(job, &point, b))
            continue;
        for (int c = 0; c < job->law.channels; c++)
            point.value[c] = job->values[(size_t)c * p->inputs + p->source[i]];
        job->leaf->scatter(&job->law, &point, b);
        if (++*pending == FLUSH) {
            flush(job, b);
            *pending = 0;
        }
    }
}

/* The row (y, z) of bins, counted through the images: run by run of what is contiguous. */
static void add_row(const struct job *job, struct pencil_block *b, struct bin_span x, long y, long z, int *pending)
{
    const struct points_cpu *p = job->points;
    long image[3] = {0, image_of(y, p->bins[1]), image_of(z, p->bins[2])};
    for (long from = x.from, to; from <= x.to; from = to + 1) {
        image[0] = image_of(from, p->bins[0]);
        to = (image[0] + 1) * p->bins[0] - 1;
        to = to < x.to ? to : x.to;
        size_t first, last;
        points_cpu_run(p, from - image[0] * p->bins[0], to - image[0] * p->bins[0], y - image[1] * p->bins[1],
                       z - image[2] * p->bins[2], &first, &last);
        add_run(job, b, first, last, image, pending);
    }
}

static void sum_tile(const struct job *job, size_t number, float *cells)
{
    const struct points_cpu *p = job->points;
    const int *tile = job->tile;
    int place[3] = {(int)(number % (size_t)job->tiles[0]),
                    (int)(number / (size_t)job->tiles[0] % (size_t)job->tiles[1]),
                    (int)(number / ((size_t)job->tiles[0] * (size_t)job->tiles[1]))};
    struct pencil_block b = {.cells = cells,
                             .row = (size_t)tile[0],
                             .plane = (size_t)tile[0] * (size_t)tile[1],
                             .channel = (size_t)tile[0] * (size_t)tile[1] * (size_t)tile[2]};
    struct bin_span span[3];
    for (int d = 0; d < 3; d++) {
        b.low[d] = place[d] * tile[d];
        b.high[d] = b.low[d] + tile[d] < p->box.cells[d] ? b.low[d] + tile[d] : p->box.cells[d];
        span[d] = points_cpu_span(p, d, p->box.origin[d] + b.low[d] * p->box.spacing[d] - job->reach,
                                  p->box.origin[d] + (b.high[d] - 1) * p->box.spacing[d] + job->reach);
    }
    int pending = 0;
    for (long z = span[2].from; z <= span[2].to; z++)
        for (long y = span[1].from; y <= span[1].to; y++)
            add_row(job, &b, span[0], y, z, &pending);
    if (pending > 0)
        flush(job, &b);
}

int sums_cpu_scatter(const void *state, const struct range_law *law, int channels, const float *values, float *grid)
{
    struct job job = job_of(state, law);
    choose_tiles(&job);
    size_t tiles = (size_t)job.tiles[0] * (size_t)job.tiles[1] * (size_t)job.tiles[2];
    size_t together = channels < PENCIL_CHANNELS ? (size_t)channels : PENCIL_CHANNELS;
    size_t floats = together * (size_t)job.tile[0] * (size_t)job.tile[1] * (size_t)job.tile[2] + PENCIL_LANES;
    int threads = job.points->threads;
    float *cells = calloc((size_t)threads * floats, sizeof *cells);
    if (!cells)
        return err_no_memory_bytes((size_t)threads * floats * sizeof *cells, "the tiles of %d threads", threads);
    for (int done = 0; done < channels; done += job.law.channels) {
        job.law.channels = channels - done < PENCIL_CHANNELS ? channels - done : PENCIL_CHANNELS;
        job.values = values + (size_t)done * job.points->inputs;
        job.grid = grid + (size_t)done * job.nodes;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
        for (size_t t = 0; t < tiles; t++)
            sum_tile(&job, t, cells + (size_t)omp_get_thread_num() * floats);
    }
    free(cells);
    return 0;
}

/* ---- from a grid ---- */

/* Nodes of an axis within reach, counted on through the images of a periodic one. */
struct stretch {
    long from, to;
};

static struct stretch stretch_of(const struct job *job, const struct pencil_point *point, int d)
{
    const struct range_box *box = &job->points->box;
    if (d >= box->dim)
        return (struct stretch){0, 0};
    double cells = job->law.law->params.reach * point->scale / box->spacing[d] + 1e-6;
    double from = ceil(point->at[d] - cells), to = floor(point->at[d] + cells);
    if (!box->periodic[d]) {
        from = from > 0 ? from : 0;
        to = to < box->cells[d] - 1 ? to : box->cells[d] - 1;
    }
    return from > to ? (struct stretch){0, -1} : (struct stretch){(long)from, (long)to};
}

/* The block's nodes of an axis: from `at` on as many as are of one image and fit; returns how many. */
static long take(const struct job *job, struct stretch s, long at, int d, struct pencil_block *b,
                 struct pencil_point *point, double whole)
{
    const long cells = job->points->box.cells[d], image = image_of(at, (int)cells), low = at - image * cells;
    long n = s.to - at + 1;
    n = n < cells - low ? n : cells - low;
    n = n < PENCIL_NODES ? n : PENCIL_NODES;
    b->low[d] = (int)low;
    b->high[d] = (int)(low + n);
    point->at[d] = whole - (double)(image * cells);
    return n;
}

static void gather_point(const struct job *job, size_t i, const float *end, float *values)
{
    const struct points_cpu *p = job->points;
    const struct pencil_point whole = point_of(job, i, (const long[3]){0, 0, 0});
    struct pencil_point point = whole;
    struct pencil_block b = {.end = end,
                             .row = (size_t)p->box.cells[0],
                             .plane = (size_t)p->box.cells[0] * (size_t)p->box.cells[1],
                             .channel = job->nodes};
    struct stretch s[3];
    for (int d = 0; d < 3; d++)
        s[d] = stretch_of(job, &whole, d);
    for (long z = s[2].from, nz; z <= s[2].to; z += nz) {
        nz = take(job, s[2], z, 2, &b, &point, whole.at[2]);
        for (long y = s[1].from, ny; y <= s[1].to; y += ny) {
            ny = take(job, s[1], y, 1, &b, &point, whole.at[1]);
            for (long x = s[0].from, nx; x <= s[0].to; x += nx) {
                nx = take(job, s[0], x, 0, &b, &point, whole.at[0]);
                b.cells = job->grid + ((size_t)b.low[2] * (size_t)p->box.cells[1] + (size_t)b.low[1]) * b.row +
                          (size_t)b.low[0];
                job->leaf->gather(&job->law, &point, &b);
            }
        }
    }
    for (int c = 0; c < job->law.channels; c++)
        values[(size_t)c * p->inputs + p->source[i]] = point.value[c];
}

int sums_cpu_gather(const void *state, const struct range_law *law, int channels, const float *grid, float *values)
{
    struct job job = job_of(state, law);
    for (int done = 0; done < channels; done += job.law.channels) {
        job.law.channels = channels - done < PENCIL_CHANNELS ? channels - done : PENCIL_CHANNELS;
        /* The grid is only read. */
        job.grid = (float *)(uintptr_t)grid + (size_t)done * job.nodes;
#pragma omp parallel for schedule(dynamic, 64) num_threads(job.points->threads)
        for (size_t i = 0; i < job.points->count; i++)
            gather_point(&job, i, grid + (size_t)channels * job.nodes, values + (size_t)done * job.points->inputs);
    }
    return 0;
}
