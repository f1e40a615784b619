/* The images of the beginning of a scan: which of them are complete, and which have their final place. */
#include "recon/mri/frames.h"

#include <stdlib.h>

static const struct scan_readout *readout_of(const struct frames *frames, const struct scan *scan, size_t f)
{
    return &scan->readouts[frames->readouts[frames->frame[f].first]];
}

/* ---- complete images ---- */

/* Whether each repetition before the newest has all images of the header. */
static bool is_whole(const struct frames *frames, size_t images, const struct frames_begun *begun)
{
    bool whole = begun->ascending;
    size_t f = 0;
    for (; f < frames->count && frames->frame[f].repetition < begun->newest && whole; f++)
        whole = frames->frame[f].repetition == frames->frame[f - f % images].repetition &&
                (f % images > 0 || f == 0 || frames->frame[f].repetition != frames->frame[f - 1].repetition);
    return whole && f % images == 0;
}

static int run_compare(const void *pa, const void *pb)
{
    const struct frames_run *a = pa, *b = pb;
    return (a->first > b->first) - (a->first < b->first);
}

/* Whether the image is a run: no other readout has joined it since. */
static bool is_run(const struct frames *frames, const struct frame *frame, const struct frames_begun *begun)
{
    const struct frames_run wanted = {.first = frames->readouts[frame->first]};
    const struct frames_run *run =
        begun->runs ? bsearch(&wanted, begun->run, begun->runs, sizeof wanted, run_compare) : NULL;
    return run && run->count == frame->count;
}

/* Keep the complete images. Returns how many of them are of whole repetitions. */
static size_t complete_keep(struct frames *frames, size_t images, const struct frames_begun *begun)
{
    const bool whole = is_whole(frames, images, begun);
    size_t kept = 0, of_whole = 0;
    for (size_t f = 0; f < frames->count; f++) {
        const struct frame frame = frames->frame[f];
        const bool before = whole && frame.repetition < begun->newest;
        of_whole += before;
        if (before || is_run(frames, &frame, begun))
            frames->frame[kept++] = frame;
    }
    frames->count = kept;
    return of_whole;
}

/* ---- their places ---- */

/* The place of an image in its repetition by the header's limits. */
static size_t place_in(const struct scan_encoding *e, const struct scan_readout *readout)
{
    size_t place = 0;
    for (int i = 0; i < SCAN_PLACES && e->images > 1; i++)
        place = place * ((size_t)e->most[i] + 1) + readout->idx[scan_place_index[i]];
    return place;
}

/* Images by their counters: those of whole repetitions are in their places; after them, the header tells. */
static size_t placed_count(const struct frames *frames, const struct scan *scan, size_t of_whole)
{
    const struct scan_encoding *e = &scan->encodings[frames->encoding];
    size_t f = 0, before = 0; /* before: images of earlier repetitions */
    for (; f < frames->count; f++) {
        if (f > 0 && frames->frame[f].repetition != frames->frame[f - 1].repetition)
            before += e->images;
        if (f >= of_whole && before + place_in(e, readout_of(frames, scan, f)) != f)
            break;
    }
    return f;
}

/* Images of a division, time by time: those of one time exist if all groups have one, and the first of a group in any
 * case; then the header tells its place. */
static size_t placed_divided(const struct frames *frames, const struct scan *scan)
{
    const struct scan_encoding *e = &scan->encodings[frames->encoding];
    size_t f = 0;
    for (; f < frames->count; f++) {
        const size_t time = frames->frame[f].repetition, last = (time + 1) * frames->groups - 1;
        const bool all = frames->groups >= e->images && f / frames->groups == time && last < frames->count &&
                         frames->frame[last].repetition == time;
        const bool first = time == 0 && e->images > 1 && place_in(e, readout_of(frames, scan, f)) == f;
        if (!all && !first)
            break;
    }
    return f;
}

void frames_complete(struct frames *frames, const struct scan *scan, const struct frames_begun *begun)
{
    if (frames->groups) {
        frames->placed = placed_divided(frames, scan);
        return;
    }
    const size_t of_whole = complete_keep(frames, scan->encodings[frames->encoding].images, begun);
    frames->placed = placed_count(frames, scan, of_whole);
}
