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

/* Fill one frame's numbers from its readouts. */
static int frame_fill(struct frame *frame, const struct frames *frames, const struct scan *scan)
{
    const uint32_t *readouts = frames->readouts + frame->first;
    const struct scan_readout *first = &scan->readouts[readouts[0]];
    struct counter averages = {.values = 0}, partitions = {.values = 0};
    frame->coils = first->coils;
    frame->one_place = true;
    frame->samples = 0;
    for (size_t i = 0; i < frame->count; i++) {
        const struct scan_readout *readout = &scan->readouts[readouts[i]];
        if (readout->coils != first->coils)
            return err_set_acquisition(ERR_COILS_DIFFER, readout->acquisition,
                                       "Acquisition %u has %u coils, but acquisition %u of the same image has %u.",
                                       readout->acquisition, readout->coils, first->acquisition, first->coils);
        frame->samples += frames_kept(readout);
        frame->one_place = frame->one_place && same_place(first, readout);
        counter_add(&averages, readout->idx[SCAN_AVERAGE]);
        counter_add(&partitions, readout->idx[SCAN_STEP2]);
    }
    frame->averages = averages.values;
    frame->partitions = partitions.values;
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
    free(frames);
}
