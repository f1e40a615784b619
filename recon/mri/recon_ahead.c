#include "recon/mri/recon_ahead.h"
#include "recon/mri/recon_made.h"
#include "recon/mri/recon_parts.h"
#include "recon/mri/series_window.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"
#include "recon/scan/scan_live.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_SHARE = 16, /* the copy of a scan may take such a part of the memory that can be had */
    FEED_MOST = 64   /* parts of an image are added ahead as long as the scan has at most so many times their readouts:
                      * each time, the heads of all that have arrived are sorted */
};

static const double MEMORY_SECONDS = 0.1;

/* The readouts of image data that have come of one (phase, contrast, set, slice). */
struct group {
    uint16_t idx[SCAN_PLACES];
    uint64_t count;
};

struct recon_ahead {
    struct recon_begun begun; /* first: recon_begun_of() */
    struct scan_live *live;
    double memory_at;        /* when the host's memory was asked for, which takes longer than a look at what has come */
    uint64_t looked;         /* readouts that were looked at */
    uint64_t last;           /* the newest of image data; UINT64_MAX: none */
    int repetition;          /* the newest; -1: none */
    bool disorder;           /* repetitions come in no order */
    struct frames_run run;   /* the image that arrives .. */
    struct frames_run *runs; /* .. and complete ones, whose readouts came one after the other */
    size_t runs_count, runs_room;
    void *groups;       /* struct group, by tsearch() */
    struct group *turn; /* of the newest readout; NULL: none */
    bool news;          /* an image may have become complete */
    size_t images;      /* of the newest job on a beginning */
    uint64_t windows;   /* images of a series in complete windows, of the same */
};

int recon_ahead_create(void **out, int memory)
{
    struct recon_ahead *ahead = calloc(1, sizeof *ahead);
    if (!ahead) {
        close(memory);
        return err_no_memory("a scan that arrives");
    }
    ahead->repetition = -1;
    ahead->last = UINT64_MAX;
    int rc = scan_live_open(&ahead->live, memory);
    if (rc == 0)
        *out = ahead;
    else
        free(ahead);
    return rc;
}

void recon_ahead_free(void *of)
{
    struct recon_ahead *ahead = of;
    if (!ahead)
        return;
    scan_live_free(ahead->live);
    recon_made_free(ahead->begun.made);
    recon_feed_free(&ahead->begun.feed);
    recon_seen_free(&ahead->begun.seen);
    free(ahead->runs);
    tdestroy(ahead->groups, free);
    free(ahead);
}

static int64_t value_of(const struct job_request *request, enum recon_param param)
{
    return request->values->value[param].integer;
}

static bool of_series(const struct job_request *request)
{
    return value_of(request, RECON_METHOD) >= RECON_METHOD_TEMPORAL_TV;
}

/* Images are computed ahead where each depends on its own readouts alone, or on those of its window. */
static bool is_served(const struct job_request *request)
{
    return value_of(request, RECON_RESULTS_WANTED) == 1 << RECON_RESULT_IMAGE &&
           (!of_series(request) || value_of(request, RECON_WINDOW_FRAMES) > 0);
}

/* ---- images that arrive ---- */

static bool same_place(const struct scan_readout *a, const struct scan_readout *b)
{
    bool same = true;
    for (int i = 0; i < SCAN_PLACES; i++)
        same = same && a->idx[scan_place_index[i]] == b->idx[scan_place_index[i]];
    return same;
}

static int group_compare(const void *a, const void *b)
{
    return memcmp(((const struct group *)a)->idx, ((const struct group *)b)->idx, sizeof((const struct group *)a)->idx);
}

/* Count a readout of a group. */
static int group_count(struct recon_ahead *ahead, const struct scan_readout *r)
{
    struct group wanted = {.count = 0};
    for (int i = 0; i < SCAN_PLACES; i++)
        wanted.idx[i] = r->idx[scan_place_index[i]];
    struct group *const *found = tfind(&wanted, &ahead->groups, group_compare);
    struct group *group = found ? *found : malloc(sizeof *group);
    if (!found && group) {
        *group = wanted;
        if (!tsearch(group, &ahead->groups, group_compare)) {
            free(group);
            group = NULL;
        }
    }
    if (!group)
        return err_no_memory("the slices of a stream");
    group->count++;
    ahead->turn = group;
    return 0;
}

/* Whether the image whose last readout is `last`, of ahead->run, is complete when readout `next` of another begins. */
static bool run_is_complete(const struct recon_ahead *ahead, const struct scan *scan, const struct scan_readout *last,
                            const struct scan_readout *next)
{
    const uint32_t views = scan->encodings[last->encoding].views;
    return last->flags >> (SCAN_LAST_IN_SLICE - 1) & 1 || (views > 1 && ahead->run.count >= views) ||
           (same_place(next, last) && next->idx[SCAN_REPETITION] > last->idx[SCAN_REPETITION]);
}

static int run_keep(struct recon_ahead *ahead)
{
    if (ahead->runs_count == ahead->runs_room) {
        const size_t room = ahead->runs_room ? 2 * ahead->runs_room : 64;
        struct frames_run *grown = realloc(ahead->runs, room * sizeof *grown);
        if (!grown)
            return err_no_memory("%zu images of a stream", room);
        ahead->runs = grown;
        ahead->runs_room = room;
    }
    ahead->runs[ahead->runs_count++] = ahead->run;
    ahead->news = true;
    return 0;
}

/* Follow the images by their counters. */
static int run_follow(struct recon_ahead *ahead, const struct scan *scan, const struct scan_readout *r)
{
    const struct scan_readout *last = ahead->last < UINT64_MAX ? &scan->readouts[ahead->last] : NULL;
    const int repetition = r->idx[SCAN_REPETITION];
    int rc = 0;
    ahead->disorder = ahead->disorder || repetition < ahead->repetition;
    ahead->news = ahead->news || (ahead->repetition >= 0 && repetition > ahead->repetition);
    ahead->repetition = repetition > ahead->repetition ? repetition : ahead->repetition;
    if (last && last->idx[SCAN_REPETITION] == repetition && same_place(r, last)) {
        ahead->run.count++;
        return 0;
    }
    if (last && run_is_complete(ahead, scan, last, r))
        rc = run_keep(ahead);
    ahead->run = (struct frames_run){.first = (uint32_t)ahead->looked, .count = 1};
    return rc;
}

/* Follow the images of what has come, and look at its trajectory, of which nothing should be left to look at at CLOSE.
 * Fails with ERR_NO_MEMORY. */
static int images_look(struct recon_ahead *ahead, const struct job_request *request, const struct scan *scan,
                       uint64_t readouts)
{
    const uint64_t each = (uint64_t)value_of(request, RECON_FRAME_READOUTS);
    int rc = recon_seen_grow(&ahead->begun.seen, readouts);
    for (; ahead->looked < readouts && rc == 0; ahead->looked++) {
        const struct scan_readout *r = &scan->readouts[ahead->looked];
        if (frames_ignore(r->flags) >= 0)
            continue;
        recon_seen_look(&ahead->begun.seen, scan, ahead->looked);
        rc = run_follow(ahead, scan, r);
        if (rc == 0)
            rc = group_count(ahead, r);
        if (rc == 0 && each > 0 && ahead->turn->count % each == 0)
            ahead->news = true;
        ahead->last = ahead->looked;
    }
    return rc;
}

/* ---- what has become complete ---- */

/* The images of complete windows, where a series has these images. */
static uint64_t windows_count(const struct job_request *request, const struct frames *frames, uint32_t each_time)
{
    const size_t images = frames->count / (frames->groups ? frames->groups : each_time);
    return images > 0 ? series_complete(images, (size_t)value_of(request, RECON_WINDOW_FRAMES)) : 0;
}

/* Whether images are complete that the newest job has not made. *images, *windows: with them. */
static bool has_more(struct recon_ahead *ahead, const struct job_request *request, const struct scan *scan,
                     const struct frames_begun *begun, size_t *images, uint64_t *windows)
{
    struct frames *frames = NULL;
    if (recon_frames(&frames, request, scan, begun, false, &ahead->begun.seen.grown) != 0)
        return false;
    *images = frames->count;
    *windows = of_series(request) ? windows_count(request, frames, scan->encodings[frames->encoding].images) : 0;
    const bool more =
        of_series(request) ? *windows > ahead->windows && frames->placed == frames->count : *images > ahead->images;
    frames_free(frames);
    return more;
}

/* Images wait for the end if all readouts are divided, or if later ones belong to them, too. */
static bool is_of_all(const struct job_request *request)
{
    return value_of(request, RECON_FRAMES) > 0 || request->values->value[RECON_FRAME_WINDOW].real > 1;
}

/* Readouts of the image that arrives. */
static uint64_t arriving_count(const struct recon_ahead *ahead, const struct job_request *request)
{
    const uint64_t each = (uint64_t)value_of(request, RECON_FRAME_READOUTS);
    return each > 0 && ahead->turn ? ahead->turn->count % each : ahead->run.count;
}

/* Grid what has come of the image after those that are made. What fails, fails when it is made. */
static int feed_go(struct recon_ahead *ahead, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, uint64_t readouts)
{
    if (value_of(request, RECON_METHOD) != RECON_METHOD_ADJOINT || ahead->begun.feed.off || is_of_all(request) ||
        value_of(request, RECON_COILS) != RECON_COILS_RSS)
        return 0;
    const size_t due = recon_feed_due(dev, request->cache, &ahead->begun.feed);
    if (arriving_count(ahead, request) < due || readouts / FEED_MOST > due)
        return 0;
    const struct scan scan = scan_live_part(ahead->live, readouts);
    int rc = recon_run_feed(&ahead->begun, dev, request, listener, &scan);
    if (rc != 0 && rc != ERR_CANCELED)
        recon_feed_free(&ahead->begun.feed);
    return rc == ERR_DEVICE || rc == ERR_CANCELED ? rc : 0;
}

/* Virtual coils follow from the first window of a series, else from all readouts: then no image is final while more
 * come. */
static bool coils_wait(const struct job_request *request, const struct scan *scan, uint64_t readouts)
{
    return !of_series(request) && recon_compresses(request->values, scan->readouts[readouts - 1].coils);
}

/* Compute the images that are complete; `begun` NULL: all. */
static int part_go(struct recon_ahead *ahead, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, const struct scan *scan, const struct frames_begun *begun)
{
    struct recon_made *made = NULL;
    int rc = recon_run_part(&made, dev, request, listener, scan, begun, &ahead->begun);
    if (rc != 0)
        return rc;
    recon_made_free(ahead->begun.made);
    ahead->begun.made = made;
    if (begun)
        recon_feed_restart(&ahead->begun.feed);
    return 0;
}

/* Bytes that the copy of the scan may take. */
static uint64_t memory_most(struct recon_ahead *ahead)
{
    const double now = clock_seconds();
    if (now >= ahead->memory_at + MEMORY_SECONDS) {
        ahead->begun.host_memory = host_memory_available();
        ahead->memory_at = now;
    }
    return ahead->begun.host_memory / MOST_SHARE;
}

int recon_ahead_go(void *of, struct dev *dev, const struct job_request *request, const struct job_listener *listener,
                   bool *more, bool *over)
{
    struct recon_ahead *ahead = of;
    uint64_t readouts = 0, windows = 0;
    size_t images = 0;
    bool closed = false;
    *over = !is_served(request);
    *more = false;
    int rc = *over ? 0 : scan_live_look(ahead->live, memory_most(ahead), &readouts, &closed);
    *more = rc == 0 && readouts > ahead->looked;
    if (rc != 0 || *over || readouts == 0)
        return rc;
    const struct scan scan = scan_live_part(ahead->live, readouts);
    rc = images_look(ahead, request, &scan, readouts);
    *over = rc != 0 || coils_wait(request, &scan, readouts);
    if (*over)
        return rc;
    const bool repetitions = of_series(request) || value_of(request, RECON_AVERAGES) == RECON_AVERAGES_SEPARATE;
    const struct frames_begun begun = {.ascending = !ahead->disorder,
                                       .newest = ahead->repetition,
                                       .run = ahead->runs,
                                       .runs = repetitions ? 0 : ahead->runs_count};
    if (closed) {
        rc = part_go(ahead, dev, request, listener, &scan, NULL);
    } else if (ahead->news && !is_of_all(request) && has_more(ahead, request, &scan, &begun, &images, &windows)) {
        rc = part_go(ahead, dev, request, listener, &scan, &begun);
        ahead->images = rc == 0 ? images : ahead->images;
        ahead->windows = rc == 0 ? windows : ahead->windows;
        ahead->news = rc != 0;
    } else {
        ahead->news = false;
        rc = feed_go(ahead, dev, request, listener, readouts);
    }
    *over = rc == 0 && closed;
    return rc;
}
