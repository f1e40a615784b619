#include "recon/mri/frames.h"

#include "gridding/base/err.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int flag;
    const char *name;
} reasons[FRAMES_REASONS] = {
    [FRAMES_NOISE] = {SCAN_NOISE, "noise"},
    [FRAMES_CALIBRATION] = {SCAN_PARALLEL_CALIBRATION, "calibration"},
    [FRAMES_NAVIGATION] = {SCAN_NAVIGATION, "navigation"},
    [FRAMES_PHASECORR] = {SCAN_PHASECORR, "phase_correction"},
    [FRAMES_HPFEEDBACK] = {SCAN_HPFEEDBACK, "hp_feedback"},
    [FRAMES_DUMMY] = {SCAN_DUMMY, "dummy"},
    [FRAMES_RTFEEDBACK] = {SCAN_RTFEEDBACK, "rt_feedback"},
    [FRAMES_PHASE_STAB_REFERENCE] = {SCAN_PHASE_STAB_REFERENCE, "phase_stabilisation_reference"},
    [FRAMES_PHASE_STAB] = {SCAN_PHASE_STAB, "phase_stabilisation"},
};

static bool flagged(uint64_t flags, int flag)
{
    return flags >> (flag - 1) & 1;
}

const char *frames_ignored_name(enum frames_ignored reason)
{
    return reasons[reason].name;
}

/* Reversed readouts (SCAN_REVERSE) are used unchanged: the trajectory gives the place of every stored sample, so the
 * order of acquisition does not matter. Flag 21 (calibration and imaging) marks image data; flag 20 does not. */
int frames_ignore(uint64_t flags)
{
    uint64_t any = 0;
    for (int i = 0; i < FRAMES_REASONS; i++)
        any |= UINT64_C(1) << (reasons[i].flag - 1);
    for (int i = flags & any ? 0 : FRAMES_REASONS; i < FRAMES_REASONS; i++)
        if (flagged(flags, reasons[i].flag) &&
            !(i == FRAMES_CALIBRATION && flagged(flags, SCAN_CALIBRATION_AND_IMAGING)))
            return i;
    return -1;
}

/* The counters that distinguish images, most significant first. */
static const enum scan_index key[] = {SCAN_REPETITION, SCAN_PHASE, SCAN_CONTRAST, SCAN_SET, SCAN_AVERAGE, SCAN_SLICE};

struct sorting {
    const struct scan_readout *readouts;
    bool separate_averages, divided; /* divided: repetitions and averages are one series */
};

static bool tells_apart(const struct sorting *sorting, enum scan_index index)
{
    if (sorting->divided && index == SCAN_REPETITION)
        return false;
    return index != SCAN_AVERAGE || (sorting->separate_averages && !sorting->divided);
}

static int key_compare(const struct sorting *sorting, uint32_t a, uint32_t b)
{
    const uint16_t *ia = sorting->readouts[a].idx, *ib = sorting->readouts[b].idx;
    int differ = 0; /* mostly nothing does: readouts of an image come one after the other */
    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        differ |= ia[key[i]] ^ ib[key[i]];
    if (!differ)
        return 0;
    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        if (ia[key[i]] != ib[key[i]] && tells_apart(sorting, key[i]))
            return ia[key[i]] < ib[key[i]] ? -1 : 1;
    return 0;
}

static int sort_compare(const void *pa, const void *pb, void *context)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    int order = key_compare(context, a, b);
    return order ? order : (a > b) - (a < b);
}

/* The encoding space to reconstruct, or -1 if no readout is image data. */
static int encoding_pick(const struct scan *scan)
{
    int first = -1;
    for (uint64_t i = 0; i < scan->header->readouts; i++) {
        const struct scan_readout *readout = &scan->readouts[i];
        if (frames_ignore(readout->flags) >= 0)
            continue;
        if (readout->traj_dims > 0)
            return readout->encoding;
        if (first < 0)
            first = readout->encoding;
    }
    return first;
}

static int nothing_left(const struct frames *frames, uint64_t readouts, int asked)
{
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; i < FRAMES_REASONS && used < sizeof list; i++)
        if (frames->ignored[i])
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%zu %s", used ? ", " : "", frames->ignored[i],
                                     reasons[i].name);
    if (frames->elsewhere)
        return err_set(ERR_NO_IMAGE_DATA,
                       "Encoding space %d contains no image data; %zu readouts of image data belong to other encoding "
                       "spaces. Leave out the parameter `encoding` or give another.",
                       asked, frames->elsewhere);
    if (readouts == 0)
        return err_set(ERR_NO_IMAGE_DATA, "The scan contains no acquisitions.");
    return err_set(ERR_NO_IMAGE_DATA, "None of the scan's %llu readouts is image data by its flags (%s).",
                   (unsigned long long)readouts, list);
}

/* Take the readouts that are image data of frames->encoding. */
static int readouts_pick(struct frames *frames, const struct scan *scan)
{
    for (uint64_t i = 0; i < scan->header->readouts; i++) {
        const struct scan_readout *readout = &scan->readouts[i];
        int reason = frames_ignore(readout->flags);
        if (reason >= 0) {
            frames->ignored[reason]++;
        } else if (readout->encoding != frames->encoding) {
            frames->elsewhere++;
        } else if (frames_kept(readout) == 0) {
            return err_set_acquisition(
                ERR_ENCODING_INVALID, readout->acquisition,
                "Acquisition %u keeps none of its %u samples: discard_pre %u and discard_post %u remove them all.",
                readout->acquisition, readout->samples, readout->discard_pre, readout->discard_post);
        } else {
            frames->readouts[frames->used++] = (uint32_t)i;
        }
    }
    return 0;
}

/* Position and directions, which lie together. */
static bool same_place(const struct scan_readout *a, const struct scan_readout *b)
{
    enum { FIRST = offsetof(struct scan_readout, position), END = offsetof(struct scan_readout, table_position) };
    _Static_assert(END - FIRST == 4 * sizeof a->position, "nothing else lies between them");
    return memcmp(a->position, b->position, END - FIRST) == 0;
}

/* The set of a counter's values. */
struct counter {
    uint64_t seen[65536 / 64];
    int values;
};

static void counter_add(struct counter *counter, uint16_t value)
{
    if (counter->seen[value / 64] >> (value % 64) & 1)
        return;
    counter->values++;
    counter->seen[value / 64] |= UINT64_C(1) << (value % 64);
}

/* The counters of one frame's readouts. */
struct tally {
    struct counter averages, partitions;
};

/* Count a frame's next readout, `first` being its first one. False: it has other coils. */
static bool readout_count(struct frame *frame, struct tally *tally, const struct scan_readout *first,
                          const struct scan_readout *readout)
{
    if (readout->coils != first->coils)
        return false;
    frame->samples += frames_kept(readout);
    frame->one_place = frame->one_place && same_place(first, readout);
    counter_add(&tally->averages, readout->idx[SCAN_AVERAGE]);
    counter_add(&tally->partitions, readout->idx[SCAN_STEP2]);
    frame->averages = tally->averages.values;
    frame->partitions = tally->partitions.values;
    return true;
}

/* Fill one frame's numbers from its readouts. */
static int frame_fill(struct frame *frame, const struct frames *frames, const struct scan *scan)
{
    const uint32_t *readouts = frames->readouts + frame->first;
    const struct scan_readout *first = &scan->readouts[readouts[0]];
    struct tally tally = {.averages = {.values = 0}};
    frame->coils = first->coils;
    frame->one_place = true;
    frame->samples = 0;
    for (size_t i = 0; i < frame->count; i++) {
        const struct scan_readout *readout = &scan->readouts[readouts[i]];
        if (!readout_count(frame, &tally, first, readout))
            return err_set_acquisition(ERR_COILS_DIFFER, readout->acquisition,
                                       "Acquisition %u has %u coils, but acquisition %u of the same image has %u.",
                                       readout->acquisition, readout->coils, first->acquisition, first->coils);
    }
    return 0;
}

/* Count the readouts of each image. */
static int frames_fill(struct frames *frames, const struct scan *scan, bool divided)
{
    int rc = 0;
    for (size_t i = 0; i < frames->count && rc == 0; i++) {
        struct frame *frame = &frames->frame[i];
        rc = frame_fill(frame, frames, scan);
        if (divided)
            frame->averages = 1; /* its averages are additional readouts, not repetitions */
        else
            frame->repetition = scan->readouts[frames->readouts[frame->first]].idx[SCAN_REPETITION];
    }
    return rc;
}

/* Count the images of readouts in the order of their keys; false: they are not in that order. */
static bool keys_count(struct frames *frames, const struct sorting *sorting)
{
    int order = 0;
    frames->count = 1;
    for (size_t i = 1; i < frames->used && order <= 0; i++) {
        order = key_compare(sorting, frames->readouts[i - 1], frames->readouts[i]);
        frames->count += order != 0;
    }
    return order <= 0;
}

/* Sort, and cut where the key changes. */
static int frames_cut(struct frames *frames, const struct scan *scan, bool separate_averages, bool divided)
{
    struct sorting sorting = {scan->readouts, separate_averages, divided};
    if (!keys_count(frames, &sorting)) {
        qsort_r(frames->readouts, frames->used, sizeof *frames->readouts, sort_compare, &sorting);
        keys_count(frames, &sorting);
    }
    frames->frame = calloc(frames->count, sizeof *frames->frame);
    if (!frames->frame)
        return err_no_memory("a list of %zu images", frames->count);
    struct frame *frame = frames->frame;
    for (size_t i = 1; i < frames->used && frames->count > 1; i++)
        if (key_compare(&sorting, frames->readouts[i - 1], frames->readouts[i]) != 0) {
            frame->count = i - frame->first;
            (++frame)->first = i;
        }
    frame->count = frames->used - frame->first;
    return 0;
}

int frames_create(struct frames **out, const struct scan *scan, int encoding, bool separate_averages,
                  const struct frames_division *division)
{
    const bool divided = division && frames_divided(division);
    if (encoding >= 0 && (uint32_t)encoding >= scan->header->encodings)
        return err_set(ERR_BAD_PARAMETER, "Parameter encoding is %d, but the scan has %u encoding space(s), from 0.",
                       encoding, scan->header->encodings);
    struct frames *frames = calloc(1, sizeof *frames);
    int rc = 0;
    if (frames)
        frames->readouts = malloc((scan->header->readouts + 1) * sizeof *frames->readouts);
    if (!frames || !frames->readouts) {
        rc = err_no_memory("sorting %llu readouts", (unsigned long long)scan->header->readouts);
        goto out;
    }
    frames->encoding = encoding >= 0 ? encoding : encoding_pick(scan);
    rc = readouts_pick(frames, scan);
    if (rc == 0 && frames->used == 0)
        rc = nothing_left(frames, scan->header->readouts, frames->encoding);
    if (rc == 0)
        rc = frames_cut(frames, scan, separate_averages, divided);
    if (rc == 0 && divided)
        rc = frames_divide(frames, scan, division);
    if (rc == 0)
        rc = frames_fill(frames, scan, divided);
    frames->placed = frames->count;
out:
    if (rc == 0)
        *out = frames;
    else
        frames_free(frames);
    return rc;
}

void frames_free(struct frames *frames)
{
    if (!frames)
        return;
    free(frames->readouts);
    free(frames->frame);
    free(frames->kept);
    free(frames);
}

/* ---- a scan that arrives ---- */

struct frames_grown {
    struct frames frames; /* of what has arrived, with room for more */
    size_t room, frames_room;
    uint64_t looked;    /* readouts of the scan */
    struct tally tally; /* of the last image */
    bool off;           /* the next readout belongs elsewhere than at the end, or something is wrong with it */
};

static int grown_create(struct frames_grown **out, int encoding)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_no_memory("sorting a scan that arrives");
    (*out)->frames.encoding = encoding;
    return 0;
}

void frames_grown_free(struct frames_grown *grown)
{
    if (!grown)
        return;
    free(grown->frames.readouts);
    free(grown->frames.frame);
    free(grown->frames.kept);
    free(grown);
}

/* Room for one more readout, and one more image. */
static bool grown_make_room(struct frames_grown *grown)
{
    enum { READOUTS_FIRST = 1024, FRAMES_FIRST = 16 };
    struct frames *frames = &grown->frames;
    if (frames->used == grown->room) {
        const size_t room = grown->room ? 2 * grown->room : READOUTS_FIRST;
        uint32_t *readouts = realloc(frames->readouts, room * sizeof *readouts);
        frames->readouts = readouts ? readouts : frames->readouts;
        uint32_t *kept = realloc(frames->kept, room * sizeof *kept);
        frames->kept = kept ? kept : frames->kept;
        if (!readouts || !kept)
            return false;
        grown->room = room;
    }
    if (frames->count == grown->frames_room) {
        const size_t room = grown->frames_room ? 2 * grown->frames_room : FRAMES_FIRST;
        struct frame *more = realloc(frames->frame, room * sizeof *more);
        if (!more)
            return false;
        frames->frame = more;
        grown->frames_room = room;
    }
    return true;
}

/* Append a readout of image data. False: it does not belong at the end. */
static bool readout_append(struct frames_grown *grown, const struct sorting *sorting, uint32_t i)
{
    struct frames *frames = &grown->frames;
    const struct scan_readout *readout = &sorting->readouts[i];
    const size_t kept = frames_kept(readout);
    const int order = frames->used > 0 ? key_compare(sorting, frames->readouts[frames->used - 1], i) : -1;
    if (kept == 0 || order > 0 || !grown_make_room(grown))
        return false;
    if (order < 0) {
        frames->frame[frames->count++] = (struct frame){.first = frames->used,
                                                        .repetition = readout->idx[SCAN_REPETITION],
                                                        .coils = readout->coils,
                                                        .one_place = true};
        memset(&grown->tally, 0, sizeof grown->tally);
    }
    struct frame *frame = &frames->frame[frames->count - 1];
    frames->readouts[frames->used] = i;
    frames->kept[frames->used++] = (uint32_t)kept;
    frame->count++;
    return readout_count(frame, &grown->tally, &sorting->readouts[frames->readouts[frame->first]], readout);
}

/* Look at the readouts that have come. */
static void readouts_follow(struct frames_grown *grown, const struct scan *scan, bool separate_averages)
{
    const struct sorting sorting = {scan->readouts, separate_averages, false};
    struct frames *frames = &grown->frames;
    for (; grown->looked < scan->header->readouts && !grown->off; grown->looked++) {
        const struct scan_readout *readout = &scan->readouts[grown->looked];
        const int reason = frames_ignore(readout->flags);
        if (reason >= 0)
            frames->ignored[reason]++;
        else if (readout->encoding != frames->encoding)
            frames->elsewhere++;
        else
            grown->off = !readout_append(grown, &sorting, (uint32_t)grown->looked);
    }
}

static void *copy(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    return to ? memcpy(to, from, bytes) : NULL;
}

static int frames_copy(struct frames **out, const struct frames *from)
{
    struct frames *to = malloc(sizeof *to);
    if (!to)
        return err_no_memory("the images of a scan that arrives");
    *to = *from;
    to->readouts = copy(from->readouts, from->used * sizeof *to->readouts);
    to->frame = copy(from->frame, from->count * sizeof *to->frame);
    to->kept = copy(from->kept, from->used * sizeof *to->kept);
    to->placed = from->count;
    to->ascends = true;
    if (to->readouts && to->frame && to->kept) {
        *out = to;
        return 0;
    }
    frames_free(to);
    return err_no_memory("the %zu readouts of a scan that arrives", from->used);
}

int frames_follow(struct frames **out, struct frames_grown **grown, const struct scan *scan, int encoding,
                  bool separate_averages)
{
    const int picked = encoding >= 0 ? encoding : encoding_pick(scan);
    int rc = *grown || picked < 0 ? 0 : grown_create(grown, picked);
    if (rc != 0)
        return rc;
    struct frames_grown *g = *grown;
    if (g && g->frames.encoding == picked)
        readouts_follow(g, scan, separate_averages);
    return g && g->frames.encoding == picked && g->frames.used > 0 && !g->off
               ? frames_copy(out, &g->frames)
               : frames_create(out, scan, encoding, separate_averages, NULL);
}
