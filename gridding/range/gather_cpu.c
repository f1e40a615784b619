/* gather_cpu.c: sums of the nodes of a grid within reach of each point, on the CPU: point by point. */
#include "gridding/range/sums_cpu.h"

#include <math.h>

/* The nodes of an axis within reach; on a periodic axis, numbering continues through the images. */
struct stretch {
    long from, to;
};

static struct stretch stretch_of(const struct sums_job *job, const struct pencil_point *point, int d)
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

/* The next nodes of an axis, from `at` on, that are in one image and fit in the block; returns their number. */
static long take(const struct sums_job *job, struct stretch s, long at, int d, struct pencil_block *b,
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

static void gather_point(const struct sums_job *job, size_t i, const float *end, float *values, struct watch_pace *pace)
{
    const struct points_cpu *p = job->points;
    const struct pencil_point whole = sums_point_of(job, i, (const long[3]){0, 0, 0});
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
                if (watch_pace(pace, 50 + (size_t)(nx * ny * nz) / 4 * (size_t)job->law.channels))
                    return;
                job->leaf->gather(&job->law, &point, &b);
            }
        }
    }
    for (int c = 0; c < job->law.channels; c++)
        values[(size_t)c * p->inputs + p->source[i]] = point.value[c];
}

static void gather_points(const struct sums_job *job, const float *end, float *values)
{
#pragma omp parallel num_threads(job->points->threads)
    {
        struct watch_pace pace = {job->watch, 0};
#pragma omp for schedule(dynamic, 64)
        for (size_t i = 0; i < job->points->count; i++) {
            if (watch_rc(job->watch))
                continue;
            gather_point(job, i, end, values, &pace);
            watch_done(job->watch, 1);
        }
    }
}

int gather_cpu_sum(const void *state, const struct range_law *law, int channels, const float *grid, float *values,
                   const struct listener *listener)
{
    struct watch watch;
    struct sums_job job = sums_job_of(state, law);
    const size_t groups = ((size_t)channels + PENCIL_CHANNELS - 1) / PENCIL_CHANNELS;
    job.watch = &watch;
    watch_begin(&watch, listener, groups * job.points->count);
    for (int done = 0; done < channels && !watch_rc(&watch); done += job.law.channels) {
        job.law.channels = channels - done < PENCIL_CHANNELS ? channels - done : PENCIL_CHANNELS;
        /* The grid is only read. */
        job.grid = (float *)(uintptr_t)grid + (size_t)done * job.nodes;
        gather_points(&job, grid + (size_t)channels * job.nodes, values + (size_t)done * job.points->inputs);
    }
    return watch_end(&watch);
}
