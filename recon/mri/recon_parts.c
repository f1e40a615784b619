#include "recon/mri/recon_parts.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "recon/mri/plan_cache.h"
#include "recon/mri/recon_gridder.h"
#include "recon/mri/recon_seen.h"

#include <stdlib.h>
#include <string.h>

static const size_t cpu_bytes_most = (size_t)1
                                     << 30; /* of sums; not a share of the free memory, because the bits depend on it */
enum { GPU_SHARE = 8 };                     /* samples may use 1 / GPU_SHARE of a GPU's free memory */

int recon_parts_divide(const size_t *offsets, size_t count, size_t ends[PARTS_MOST + 1])
{
    int parts = 0;
    ends[0] = 0;
    while (parts < PARTS_MOST - 1 && offsets[count] - offsets[ends[parts]] >= PARTS_LEAST) {
        const size_t half = offsets[ends[parts]] + (offsets[count] - offsets[ends[parts]]) / 2;
        const size_t end = recon_offset_find(offsets, ends[parts] + 1, count, half);
        if (end >= count)
            break;
        ends[++parts] = end;
    }
    ends[++parts] = count;
    return parts;
}

/* ---- samples of a part ---- */

/* Gather all coils of a part where the device reads them: coils share the threads. */
static int part_gather(struct recon_job *job, const struct frame *part, const size_t *own, struct nufft_parts *parts)
{
    int bad = part->coils;
#pragma omp parallel for schedule(dynamic) reduction(min    \
                                                     : bad) \
    num_threads(recon_threads(job, part->samples *(size_t)part->coils))
    for (int c = 0; c < part->coils; c++)
        if (recon_coil_gather(job, part, own, c, dev_direct(job->dev, nufft_parts_data(parts, c))) != 0)
            bad = c < bad ? c : bad;
    /* Once more for its sentence, which another thread has. */
    return bad == part->coils
               ? 0
               : recon_coil_gather(job, part, own, bad, dev_direct(job->dev, nufft_parts_data(parts, bad)));
}

/* Gather part `p` of the frame into the memory for nufft_parts_add(). offsets: the whole frame's. */
static int part_upload(struct recon_job *job, const struct frame *frame, const size_t *offsets, const size_t *ends,
                       int p, struct nufft_parts *parts, struct c32 *staging)
{
    struct frame part;
    size_t *own;
    int rc = recon_frame_cut(frame, offsets, ends[p], ends[p + 1], &part, &own);
    if (rc != 0)
        return rc;
    const bool direct = dev_direct(job->dev, nufft_parts_data(parts, 0)) != NULL;
    rc = direct ? part_gather(job, &part, own, parts) : 0;
    for (int c = 0; c < frame->coils && rc == 0 && !direct; c++) {
        struct c32 *there = nufft_parts_data(parts, c);
        rc = recon_coil_gather(job, &part, own, c, staging);
        if (rc == 0)
            rc = dev_upload_begin(job->dev, there, staging, part.samples * sizeof *staging);
    }
    free(own);
    return rc;
}

/* ---- ahead ---- */

void recon_feed_free(struct recon_feed *feed)
{
    free(feed->readouts);
    free(feed->mix);
    free(feed->coil_lives);
    *feed = (struct recon_feed){.off = true};
}

void recon_feed_restart(struct recon_feed *feed)
{
    recon_feed_free(feed);
    feed->off = false;
}

size_t recon_feed_due(const struct dev *dev, struct recon_cache *cache, const struct recon_feed *feed)
{
    size_t ends[PARTS_MOST + 1], count;
    const struct plan_parts *parts = plan_cache_parts(cache);
    const size_t *offsets = plan_cache_offsets(cache, &count);
    if (!parts || !parts->of || !offsets)
        return SIZE_MAX;
    const int all = recon_parts_divide(offsets, count, ends);
    const int next = feed->turn == parts->turn && feed->turn ? nufft_parts_added(parts->of) : 0;
    /* A GPU's last part is complete when CLOSE is due. Its transfer takes less time than a look of its own, in the
     * middle of which CLOSE would come. */
    const int most = dev_is_gpu(dev) ? all - 1 : all;
    return next < most ? ends[next + 1] : SIZE_MAX;
}

static int mix_copy(const struct recon_job *job, int coils, struct c32 **out)
{
    const size_t count = (size_t)coils * (size_t)job->mixed_coils;
    *out = job->mixed_coils ? malloc(count * sizeof **out) : NULL;
    if (!job->mixed_coils)
        return 0;
    if (!*out)
        return err_no_memory("a matrix of coils");
    memcpy(*out, job->mix, count * sizeof **out);
    return 0;
}

static bool mix_is_same(const struct recon_job *job, const struct recon_feed *feed)
{
    const size_t count = (size_t)feed->coils * (size_t)feed->mixed_coils;
    return job->mixed_coils == feed->mixed_coils &&
           (!count || memcmp(job->mix, feed->mix, count * sizeof *job->mix) == 0);
}

/* Whether the added parts are this frame's readouts, with this job's mixing of coils. */
static bool feed_is_of(const struct recon_feed *feed, const struct recon_job *job, const struct frame *frame,
                       const struct plan_parts *parts)
{
    return feed && feed->turn && feed->turn == parts->turn && feed->coils == frame->coils &&
           feed->count <= frame->count && mix_is_same(job, feed) &&
           memcmp(feed->readouts, job->frames->readouts + frame->first, feed->count * sizeof *feed->readouts) == 0;
}

/* ---- the comparison with the plan ---- */

/* Whether the cached plan is for a frame that begins with this one. offsets: the frame's. */
static int beginning_compare(struct recon_job *job, const struct frame *frame, const size_t *offsets, bool *known)
{
    struct gridder g = {.job = job};
    struct plan_key key;
    struct frame part;
    size_t *own;
    const size_t first = recon_compared(job->feed, job, frame);
    int rc = recon_frame_cut(frame, offsets, first, frame->count, &part, &own);
    if (rc != 0)
        return rc;
    float *k = malloc((part.samples * (size_t)job->dim + 1) * sizeof *k);
    float *given = job->has_weights ? malloc((part.samples + 1) * sizeof *given) : NULL;
    if (k && (given || !job->has_weights)) {
        memcpy(g.n, job->out_n, sizeof g.n);
        recon_frame_gather(job, &part, own, k, given);
        gridder_key(&g, frame, &key);
        *known = plan_cache_begins(job->cache, &key, &(struct plan_arrays){k, given, offsets, first});
        job->seen->compared += part.count;
    } else {
        rc = err_no_memory("the beginning of a stream of %zu samples", part.samples);
    }
    free(given);
    free(k);
    free(own);
    return rc;
}

/* ---- adding ---- */

/* Start with this frame. */
static int feed_begin(struct recon_feed *feed, const struct recon_job *job, const struct frame *frame,
                      struct plan_parts *parts)
{
    recon_feed_free(feed);
    feed->coils = frame->coils;
    feed->mixed_coils = job->mixed_coils;
    feed->coil_lives = calloc((size_t)frame->coils, sizeof *feed->coil_lives);
    int rc = feed->coil_lives ? mix_copy(job, frame->coils, &feed->mix) : err_no_memory("a stream's coils");
    if (rc == 0)
        rc = nufft_parts_begin(parts->of);
    feed->off = rc != 0;
    feed->turn = parts->turn = rc == 0 ? plan_cache_turn(job->cache) : 0;
    return rc;
}

static int feed_parts(struct recon_job *job, const struct frame *frame, struct plan_parts *parts, const size_t *offsets)
{
    struct recon_feed *feed = job->feed;
    size_t ends[PARTS_MOST + 1], whole;
    const size_t *planned = plan_cache_offsets(job->cache, &whole);
    const int all = recon_parts_divide(planned, whole, ends);
    struct c32 *staging = malloc(frame->samples * sizeof *staging);
    int rc = staging ? 0 : err_no_memory("%zu samples of a stream", frame->samples);
    job->coil_lives = feed->coil_lives;
    for (int p = nufft_parts_added(parts->of); p < all && ends[p + 1] <= frame->count && rc == 0; p++) {
        rc = recon_tell(job, RECON_STEP_GRIDDING, 0, 0, 0);
        if (rc == 0)
            rc = part_upload(job, frame, offsets, ends, p, parts->of, staging);
        if (rc == 0 && (rc = nufft_parts_add(parts->of)) != 0)
            parts->turn = 0; /* some of the part may be in the sums */
        feed->count = rc == 0 ? ends[p + 1] : feed->count;
    }
    job->coil_lives = NULL;
    free(staging);
    return rc;
}

/* The image that is arriving: of the newest readout, if its readouts came one after the other; NULL: several are. */
static const struct frame *frame_arriving(const struct recon_job *job)
{
    const struct frames *frames = job->frames;
    const struct frame *newest = NULL;
    uint32_t last = 0;
    if (frames->ascends)
        return &frames->frame[frames->count - 1];
    for (size_t f = 0; f < frames->count; f++) {
        const struct frame *frame = &frames->frame[f];
        const uint32_t end = frames->readouts[frame->first + frame->count - 1];
        if (!newest || end > last) {
            newest = frame;
            last = end;
        }
    }
    size_t count = 0; /* readouts since its first */
    for (uint64_t i = newest ? frames->readouts[newest->first] : UINT64_MAX; i < job->scan.header->readouts; i++)
        count += frames_ignore(job->scan.readouts[i].flags) < 0 &&
                 job->scan.readouts[i].encoding == (uint32_t)frames->encoding;
    return newest && count == newest->count ? newest : NULL;
}

/* Add the parts of a frame that may be the plan's. */
static int frame_add(struct recon_job *job, const struct frame *frame, struct plan_parts *parts)
{
    size_t *offsets = malloc((frame->count + 1) * sizeof *offsets);
    bool known = false;
    if (!offsets)
        return err_no_memory("%zu readouts of a stream", frame->count);
    recon_frame_offsets(job, frame, offsets);
    int rc = beginning_compare(job, frame, offsets, &known);
    if (rc == 0 && known && !feed_is_of(job->feed, job, frame, parts))
        rc = feed_begin(job->feed, job, frame, parts);
    if (rc == 0 && known)
        rc = recon_compared_note(job->feed, job, frame);
    if (rc == 0 && known)
        rc = feed_parts(job, frame, parts, offsets);
    job->feed->off = job->feed->off || (rc == 0 && !known);
    free(offsets);
    return rc;
}

int recon_feed_add(struct recon_job *job)
{
    const struct frame *frame = frame_arriving(job);
    job->cache = job->request->cache;
    struct plan_parts *parts = plan_cache_parts(job->cache);
    if (frame && parts && parts->of && parts->coils == frame->coils && !job->scan.field)
        return frame_add(job, frame, parts);
    job->feed->off = true;
    return 0;
}

/* ---- the image ---- */

/* Whether the frame is gridded in parts, decided by conditions that do not change from run to run. On a GPU, parts are
 * used only if they were added ahead. */
static bool in_parts(const struct gridder *g, const struct frame *frame)
{
    const struct recon_job *job = g->job;
    struct nufft_info info;
    size_t available = 0, total = 0;
    if (!job->scan.header->streamed || !recon_squares(job) || g->field || g->stack || frame->samples < PARTS_FROM)
        return false;
    nufft_describe(g->plan, &info);
    const size_t cells = (size_t)info.grid[0] * (size_t)info.grid[1] * (size_t)info.grid[2];
    const size_t coils = (size_t)frame->coils * sizeof(struct c32);
    if (!dev_is_gpu(job->dev))
        return (cells + frame->samples / 2) * coils <= cpu_bytes_most;
    const struct plan_parts *parts = g->kept ? plan_cache_parts(job->cache) : NULL;
    if (!parts || !job->fed)
        return false;
    if (parts->of && parts->coils == frame->coils)
        return true; /* they have their memory; asking for what is free takes a while */
    return dev_memory(job->dev, &available, &total) == 0 && frame->samples * coils <= available / GPU_SHARE;
}

/* The frame's division, and its parts' first samples. */
static int division_of(const struct gridder *g, const struct frame *frame, size_t ends[PARTS_MOST + 1],
                       size_t first[PARTS_MOST + 1])
{
    const int parts = recon_parts_divide(g->offsets, frame->count, ends);
    for (int p = 0; p <= parts; p++)
        first[p] = g->offsets[ends[p]];
    return parts;
}

int parts_get(struct gridder *g, const struct frame *frame)
{
    struct recon_cache *cache = g->job->cache;
    size_t ends[PARTS_MOST + 1], first[PARTS_MOST + 1];
    struct plan_parts *parts = g->kept ? plan_cache_parts(cache) : &g->own_parts;
    const float *weights = g->kept ? plan_cache_weights(cache) : g->weights;
    g->parts = NULL;
    if (!in_parts(g, frame) || (g->kept && !weights))
        return 0;
    const int count = division_of(g, frame, ends, first);
    if (parts->of && parts->coils != frame->coils)
        plan_parts_free(parts);
    if (!parts->of) {
        const double start = clock_seconds();
        int rc = nufft_parts_create(&parts->of, g->plan, frame->coils, count, first, gridder_k(g), weights);
        if (rc == ERR_GPU_OOM)
            return 0;
        if (rc != 0)
            return rc;
        parts->coils = frame->coils;
        recon_report_stage(g->job, recon_steps[RECON_STEP_PLAN].name, clock_seconds() - start);
    }
    if (!dev_is_gpu(g->job->dev) || feed_is_of(g->job->fed, g->job, frame, parts))
        g->parts = parts;
    return 0;
}

/* Use parts that were added ahead; otherwise start with none. */
static int begin(struct gridder *g, const struct frame *frame, int *added)
{
    struct recon_job *job = g->job;
    const bool ahead = feed_is_of(job->fed, job, frame, g->parts);
    int rc = ahead ? 0 : nufft_parts_begin(g->parts->of);
    if (!ahead)
        g->parts->turn = g->kept ? plan_cache_turn(job->cache) : 0;
    for (int c = 0; c < frame->coils && ahead; c++)
        job->coil_lives[c] = job->coil_lives[c] || job->fed->coil_lives[c];
    *added = nufft_parts_added(g->parts->of);
    return rc;
}

int parts_grid(struct gridder *g, size_t f, double base, double span)
{
    struct recon_job *job = g->job;
    const struct frame *frame = &job->frames->frame[f];
    size_t ends[PARTS_MOST + 1], first[PARTS_MOST + 1];
    const int count = division_of(g, frame, ends, first);
    double start = clock_seconds(), uploads = 0;
    int added = 0, rc = begin(g, frame, &added);
    recon_report_number(job, "parts", count);
    recon_report_number(job, "parts_ahead", added);
    for (int p = added; p < count && rc == 0; p++) {
        rc = recon_tell(job, RECON_STEP_GRIDDING, base + span * p / count, g->coils_done, g->coils);
        const double before = clock_seconds();
        if (rc == 0)
            rc = part_upload(job, frame, g->offsets, ends, p, g->parts->of, g->staging);
        uploads += clock_seconds() - before;
        if (rc == 0)
            rc = nufft_parts_add(g->parts->of);
    }
    if (rc == 0)
        rc = nufft_parts_squares(g->parts->of, g->image);
    g->parts->turn = 0; /* the sums are consumed */
    recon_report_stage(job, "upload", uploads);
    recon_report_stage(job, recon_steps[RECON_STEP_GRIDDING].name, clock_seconds() - start - uploads);
    return rc;
}
