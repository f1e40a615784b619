/* method=adjoint: one gridding adjoint of each coil, combined. How images are scaled: recon_images.c. */
#include "recon/mri/recon_gridder.h"

#include "gridding/base/clock.h"
#include "gridding/base/vec.h"

#include <math.h>

/* Pixels of an image that is shown in pieces: of the least; of its first piece, and of the largest: each is larger than
 * the one before, since a transfer of many bytes has more threads. */
enum { PIECES_FROM = 1 << 18, PIECE_FIRST = 1 << 16, PIECE_MOST = 1 << 22, PIECE_GROWTH = 4 };

/* The times of the last adjoint. */
static void times_add(struct gridder *g)
{
    struct nufft_times times;
    nufft_times(g->plan, &times);
    g->times.gpu += times.gpu;
    g->times.cpu += times.cpu;
    g->times.merge += times.merge;
    g->times.hidden += times.hidden;
}

/* Where the squares of all coils are summed, on the device. */
static float *squares_of(const struct gridder *g)
{
    return g->squares ? g->squares : (float *)g->image;
}

/* Single coils from the device into the series, from channel `first` on. */
static int coils_store(struct gridder *g, size_t f, int first, int count)
{
    struct recon_job *job = g->job;
    int rc = 0;
    for (int c = 0; c < count && rc == 0; c++) {
        const struct c32 *from = (const struct c32 *)g->image + (size_t)c * g->pixels;
        rc = dev_download(job->dev, g->coil, from, g->pixels * sizeof *from);
        if (rc == 0)
            gridder_store(g, f, (size_t)(first + c), g->coil);
    }
    return rc;
}

/* Pixels [from, end) of image `f`. */
static int squares_fetch(struct gridder *g, size_t f, size_t from, size_t end)
{
    float *to = g->job->images->data + f * g->pixels;
    int rc = dev_download(g->job->dev, to + from, squares_of(g) + from, (end - from) * sizeof *to);
    if (rc != 0)
        return rc;
#pragma omp parallel for simd schedule(static) num_threads(recon_threads(g->job, end - from))
    for (size_t i = from; i < end; i++)
        to[i] = sqrtf(to[i]);
    return 0;
}

/* A large image that somebody waits for is shown in pieces, as they leave the device; the first one is small. */
static int squares_store(struct gridder *g, size_t f)
{
    const bool pieces = g->pixels > PIECES_FROM && gridder_shows(g, f);
    size_t piece = pieces ? PIECE_FIRST : g->pixels;
    int rc = 0;
    for (size_t from = 0, end; from < g->pixels && rc == 0; from = end) {
        end = g->pixels - from < piece ? g->pixels : from + piece;
        piece = piece < PIECE_MOST ? PIECE_GROWTH * piece : piece;
        rc = squares_fetch(g, f, from, end);
        if (rc == 0 && pieces && end < g->pixels)
            gridder_show_pixels(g, end);
    }
    return rc;
}

int gridder_images(struct gridder *g, const struct frame *frame, int count, const struct c32 *data, struct c32 *images)
{
    if (!g->field)
        return nufft_adjoint(g->plan, count, data, images);
    const struct normal_ask ask = {gridder_ask, g};
    int rc = field_slice(g->field, frame);
    if (rc == 0)
        rc = field_frame(g->field, frame, g->offsets, gridder_k(g), NULL);
    return rc == 0 ? field_adjoint(g->field, g->plan, count, 1, data, images, &ask) : rc;
}

/* As batch_grid(), with a field map, which needs images of single coils in any case. */
static int field_grid(struct gridder *g, const struct frame *frame, int first, int count, const struct c32 *data)
{
    struct recon_job *job = g->job;
    const double start = clock_seconds();
    struct c32 *to = (struct c32 *)g->image + (recon_maps(job) ? (size_t)first * g->pixels : 0);
    int rc = gridder_images(g, frame, count, data, to);
    if (rc == 0 && g->squares)
        rc = vec_squares_add(job->dev, g->pixels, count, to, g->squares);
    recon_report_stage(job, recon_steps[RECON_STEP_GRIDDING].name, clock_seconds() - start);
    return rc;
}

/* The same of a stack whose partitions share a trajectory. */
static int stack_batch(struct gridder *g, const struct frame *frame, int first, int count)
{
    const double start = clock_seconds();
    struct c32 *to = (struct c32 *)g->image + (recon_maps(g->job) ? (size_t)first * g->pixels : 0);
    int rc = stack_grid(g, frame, first, count, recon_squares(g->job) ? squares_of(g) : NULL, to);
    recon_report_stage(g->job, recon_steps[RECON_STEP_GRIDDING].name, clock_seconds() - start);
    return rc;
}

/* Grid the coils from `first` on, which are in data[turn], and upload the next ones meanwhile if there is a second
 * buffer. */
static int batch_grid(struct gridder *g, const struct frame *frame, int first, int turn)
{
    struct recon_job *job = g->job;
    int count = gridder_coils(g, frame, first), next = first + count;
    double start = clock_seconds(), beside = 0;
    struct c32 *to = (struct c32 *)g->image + (recon_maps(job) ? (size_t)first * g->pixels : 0);
    if (g->stack)
        return stack_batch(g, frame, first, count);
    if (g->field)
        return field_grid(g, frame, first, count, g->data[turn]);
    int rc = recon_squares(job) ? nufft_adjoint_squares_begin(g->plan, count, g->data[turn], g->image)
                                : nufft_adjoint_begin(g->plan, count, g->data[turn], to);
    if (rc == 0 && g->data[1] && next < frame->coils) {
        beside = clock_seconds();
        rc = gridder_upload(g, frame, next, gridder_coils(g, frame, next), g->data[!turn]);
        beside = clock_seconds() - beside;
        g->beside += beside;
    }
    int finished = nufft_finish(g->plan);
    rc = rc ? rc : finished;
    if (rc == 0)
        times_add(g);
    recon_report_stage(job, recon_steps[RECON_STEP_GRIDDING].name, clock_seconds() - start);
    return rc;
}

/* Grid the coils of frame `f`; progress runs from `base` over `span`. */
static int coils_grid(struct gridder *g, size_t f, double base, double span)
{
    struct recon_job *job = g->job;
    const struct frame *frame = &job->frames->frame[f];
    int rc = 0;
    for (int first = 0, turn = 0; first < frame->coils && rc == 0; first += g->batch, turn ^= g->data[1] != NULL) {
        rc = gridder_tell(g, base + span * first / frame->coils, first);
        double start = clock_seconds();
        if (rc == 0 && !g->stack && (first == 0 || !g->data[1] || g->field))
            rc = gridder_upload(g, frame, first, gridder_coils(g, frame, first), g->data[turn]);
        if (rc == 0)
            rc = dev_upload_order(job->dev);
        recon_report_stage(job, "upload", clock_seconds() - start);
        if (rc == 0)
            rc = batch_grid(g, frame, first, turn);
        start = clock_seconds();
        if (rc == 0 && !recon_squares(job) && !recon_maps(job))
            rc = coils_store(g, f, first, gridder_coils(g, frame, first));
        recon_report_stage(job, "download", clock_seconds() - start);
    }
    return rc;
}

int adjoint_frame(struct gridder *g, size_t f)
{
    struct recon_job *job = g->job;
    const struct frame *frame = &job->frames->frame[f];
    bool rss = recon_squares(job), maps = recon_maps(job);
    /* A frame that needs its own weights and plan spends part of its time on them. */
    double base = (double)g->coils_done / (double)g->coils, span = frame->coils / (double)g->coils;
    double plan = recon_steps[RECON_STEP_DENSITY].share + recon_steps[RECON_STEP_PLAN].share;
    double before = span * plan / (plan + recon_steps[RECON_STEP_GRIDDING].share);
    int plans = g->plans, rc = gridder_plan(g, f, base, before);
    if (g->plans > plans) {
        base += before;
        span -= before;
    }
    const double combine = maps ? span / 2 : 0;
    span -= combine;
    if (rc == 0 && rss)
        rc = dev_zero(job->dev, squares_of(g), g->pixels * sizeof(float));
    if (rc == 0)
        rc = parts_get(g, frame);
    if (rc == 0)
        rc = g->parts ? parts_grid(g, f, base, span) : coils_grid(g, f, base, span);
    if (rc == 0) {
        struct nufft_info info;
        nufft_describe(g->plan, &info);
        g->overflowed += (double)info.overflowed;
    }
    if (rc == 0 && maps)
        rc = combine_frame(g, f, base + span, combine);
    g->coils_done += frame->coils;
    double start = clock_seconds();
    if (rc == 0 && rss)
        rc = squares_store(g, f);
    recon_report_stage(job, "download", clock_seconds() - start);
    return rc;
}
