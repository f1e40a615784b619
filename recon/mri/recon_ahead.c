#include "recon/mri/recon_ahead.h"
#include "recon/mri/recon_made.h"
#include "recon/mri/recon_parts.h"
#include "recon/mri/series_window.h"

#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"
#include "recon/scan/scan_live.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_SHARE = 16, /* the copy of a scan may take such a part of the memory that can be had */
    FEED_MOST = 16   /* parts of an image are added ahead as long as the scan has at most so many times their readouts:
                      * each time, all that has arrived is looked at */
};

struct recon_ahead {
    struct recon_begun begun; /* first: recon_begun_of() */
    struct scan_live *live;
    uint64_t looked;   /* readouts that were looked at */
    uint64_t boundary; /* readouts up to the newest repetition */
    uint64_t used;     /* readouts of the newest job on a beginning */
    uint64_t windows;  /* images of a series in complete windows, of the same */
    int repetition;    /* the newest; -1: none */
    int64_t pictures;  /* image readouts so far .. */
    int64_t newest;    /* .. and those of the newest repetition */
    bool disorder;     /* repetitions come in no order: nothing is complete before the end */
};

/* ---- what has become complete ---- */

int recon_ahead_create(void **out, int memory)
{
    struct recon_ahead *ahead = calloc(1, sizeof *ahead);
    if (!ahead) {
        close(memory);
        return err_no_memory("a scan that arrives");
    }
    ahead->repetition = -1;
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

/* Follow the repetitions of what has come. */
static void repetitions_look(struct recon_ahead *ahead, const struct scan *scan, uint64_t readouts)
{
    for (; ahead->looked < readouts; ahead->looked++) {
        const struct scan_readout *r = &scan->readouts[ahead->looked];
        const int repetition = r->idx[SCAN_REPETITION];
        if (frames_ignore(r->flags) >= 0)
            continue;
        ahead->disorder = ahead->disorder || repetition < ahead->repetition;
        if (ahead->repetition >= 0 && repetition > ahead->repetition) {
            ahead->boundary = ahead->looked;
            ahead->newest = 0;
        }
        ahead->pictures++;
        ahead->newest++;
        if (repetition > ahead->repetition)
            ahead->repetition = repetition;
    }
}

/* Whether each repetition of the first readouts has all its images, by the header. */
static bool is_whole(const struct recon_ahead *ahead, const struct job_request *request, uint64_t readouts)
{
    const struct scan scan = scan_live_part(ahead->live, readouts);
    struct frames *frames = NULL;
    if (frames_create(&frames, &scan, (int)value_of(request, RECON_ENCODING),
                      value_of(request, RECON_AVERAGES) == RECON_AVERAGES_SEPARATE, NULL) != 0)
        return false;
    const uint32_t images = scan.encodings[frames->encoding].images;
    bool whole = frames->count % images == 0;
    for (size_t f = 0; f < frames->count && whole; f++)
        whole = frames->frame[f].repetition == frames->frame[f - f % images].repetition &&
                (f % images > 0 || f == 0 || frames->frame[f].repetition != frames->frame[f - 1].repetition);
    frames_free(frames);
    return whole;
}

/* The images of complete windows, where a series has the images of the first readouts. */
static uint64_t windows_count(const struct recon_ahead *ahead, const struct job_request *request)
{
    const int64_t each = value_of(request, RECON_FRAME_READOUTS);
    const int64_t images = each > 0 ? ahead->pictures / each : ahead->repetition;
    return images > 0 ? series_complete((size_t)images, (size_t)value_of(request, RECON_WINDOW_FRAMES)) : 0;
}

/* How many of the first readouts make images that more readouts will not change. */
static uint64_t complete_count(const struct recon_ahead *ahead, const struct job_request *request, uint64_t readouts,
                               bool closed)
{
    const int64_t each = value_of(request, RECON_FRAME_READOUTS);
    if (closed)
        return readouts;
    if (value_of(request, RECON_FRAMES) > 0 || request->values->value[RECON_FRAME_WINDOW].real > 1 ||
        (of_series(request) && windows_count(ahead, request) == ahead->windows))
        return 0;
    if (each > 0)
        return ahead->pictures / each > 0 && readouts >= ahead->used + (uint64_t)each ? readouts : 0;
    return !ahead->disorder && ahead->boundary > ahead->used && is_whole(ahead, request, ahead->boundary)
               ? ahead->boundary
               : 0;
}

/* Grid what has come of the image after those that are made. What fails, fails when it is made. */
static int feed_go(struct recon_ahead *ahead, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, uint64_t readouts)
{
    const bool divided = value_of(request, RECON_FRAMES) > 0 || value_of(request, RECON_FRAME_READOUTS) > 0;
    if (value_of(request, RECON_METHOD) != RECON_METHOD_ADJOINT || ahead->begun.feed.off || divided ||
        ahead->boundary != ahead->used || ahead->disorder || value_of(request, RECON_COILS) != RECON_COILS_RSS)
        return 0;
    const size_t due = recon_feed_due(request->cache, &ahead->begun.feed);
    if ((size_t)ahead->newest < due || readouts / FEED_MOST > due)
        return 0;
    const struct scan scan = scan_live_part(ahead->live, readouts);
    int rc = recon_run_feed(&ahead->begun.feed, dev, request, listener, &scan);
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

int recon_ahead_go(void *of, struct dev *dev, const struct job_request *request, const struct job_listener *listener,
                   bool *more, bool *over)
{
    struct recon_ahead *ahead = of;
    uint64_t readouts = 0;
    bool closed = false;
    *over = !is_served(request);
    *more = false;
    int rc = *over ? 0 : scan_live_look(ahead->live, host_memory_available() / MOST_SHARE, &readouts, &closed);
    *more = rc == 0 && readouts > ahead->looked;
    if (rc != 0 || *over || readouts == 0)
        return rc;
    struct scan scan = scan_live_part(ahead->live, readouts);
    repetitions_look(ahead, &scan, readouts);
    *over = coils_wait(request, &scan, readouts);
    if (*over)
        return 0;
    const uint64_t complete = complete_count(ahead, request, readouts, closed);
    if (complete > ahead->used || (closed && !ahead->begun.made)) {
        struct recon_made *made = NULL;
        scan = scan_live_part(ahead->live, complete);
        rc = recon_run_part(&made, dev, request, listener, &scan, !closed, ahead->begun.made, &ahead->begun.feed);
        if (rc == 0) {
            recon_made_free(ahead->begun.made);
            ahead->begun.made = made;
            ahead->used = complete;
            if (!closed)
                recon_feed_restart(&ahead->begun.feed);
            ahead->windows = windows_count(ahead, request);
        }
    } else if (!closed) {
        rc = feed_go(ahead, dev, request, listener, readouts);
    }
    *over = rc == 0 && closed;
    return rc;
}
