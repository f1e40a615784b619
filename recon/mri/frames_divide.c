/* Divides a series in time: golden-angle views, of which any number of consecutive ones covers k-space evenly, become
 * the requested number of images. */
#include "recon/mri/frames.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IMAGES = 65535 /* a counter of the result has 16 bits */ };

struct dividing {
    const struct scan *scan;
    const struct frames *frames;
    const struct frames_division *division;
    size_t images;
};

static uint32_t time_of(const struct dividing *d, const struct frame *group, size_t i)
{
    return d->scan->readouts[d->frames->readouts[group->first + i]].time_stamp;
}

/* Check that a group's time stamps do not descend, and compute its duration. */
static int times_check(const struct dividing *d, const struct frame *group)
{
    for (size_t i = 1; i < group->count; i++)
        if (time_of(d, group, i) < time_of(d, group, i - 1)) {
            const uint32_t at = d->scan->readouts[d->frames->readouts[group->first + i]].acquisition;
            return err_set_acquisition(
                ERR_ENCODING_INVALID, at,
                "Acquisition %u has time stamp %u, and the one before it %u: frame_by=time needs "
                "times that ascend. Pass frame_by=count.",
                at, time_of(d, group, i), time_of(d, group, i - 1));
        }
    if (time_of(d, group, group->count - 1) == time_of(d, group, 0))
        return err_set(ERR_ENCODING_INVALID,
                       "All readouts have time stamp %u: the scan does not tell when they were acquired, which "
                       "frame_by=time needs. Pass frame_by=count.",
                       time_of(d, group, 0));
    return 0;
}

/* The number of images of a group. */
static int images_count(const struct dividing *d, const struct frame *group, size_t *images)
{
    const size_t asked = (size_t)d->division->images, each = (size_t)d->division->readouts;
    *images = asked ? asked : group->count / each;
    if (*images < 1 || *images > group->count)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter %s is %zu, and the scan has %zu readouts for the images of a slice: each image needs "
                       "one at least.",
                       asked ? "frames" : "frame_readouts", asked ? asked : each, group->count);
    if (*images > MOST_IMAGES)
        return err_set(ERR_BAD_PARAMETER,
                       "The series would have %zu images, and a result counts %d. Pass a larger frame_readouts.",
                       *images, MOST_IMAGES);
    return 0;
}

/* Readouts [*first, *end) of image `i`: equally many each. Windows that would begin before the first readout, or end
 * after the last, are moved. */
static void span_by_count(const struct dividing *d, size_t count, size_t i, size_t *first, size_t *end)
{
    const size_t each = (size_t)d->division->readouts;
    const size_t from = each ? i * each : i * count / d->images, to = each ? from + each : (i + 1) * count / d->images;
    const double wide = floor((double)(to - from) * d->division->window + 0.5);
    const size_t width = wide < (double)count ? (size_t)wide : count, more = width - (to - from);
    *first = from > more / 2 ? from - more / 2 : 0;
    *first = *first + width > count ? count - width : *first;
    *end = *first + width;
}

/* The same of intervals of equal duration; the last ends with the last readout. */
static void span_by_time(const struct dividing *d, const struct frame *group, size_t i, size_t *first, size_t *end)
{
    const double begin = time_of(d, group, 0), last = time_of(d, group, group->count - 1);
    const double all = (last - begin) * (double)group->count / (double)(group->count - 1);
    const double each = all / (double)d->images, wide = fmin(all, each * d->division->window);
    const double from = fmin(fmax(0, (double)i * each - (wide - each) / 2), all - wide) + begin;
    const bool to_the_end = from + wide >= begin + all * (1 - 1e-9);
    for (*first = 0; *first < group->count && time_of(d, group, *first) < from; ++*first) {
    }
    for (*end = *first; *end < group->count && (to_the_end || time_of(d, group, *end) < from + wide); ++*end) {
    }
}

static int image_cut(const struct dividing *d, const struct frame *group, size_t i, struct frame *out)
{
    size_t first = 0, end = 0;
    if (d->division->by_time)
        span_by_time(d, group, i, &first, &end);
    else
        span_by_count(d, group->count, i, &first, &end);
    *out = (struct frame){.first = group->first + first, .count = end - first, .repetition = (uint16_t)i};
    if (end == first)
        return err_set(ERR_BAD_PARAMETER,
                       "Image %zu of %zu would hold no readout: nothing was acquired in its time. Pass fewer frames, a "
                       "larger frame_window, or frame_by=count.",
                       i, d->images);
    return 0;
}

/* Remove the readouts that follow a group's last image. */
static void left_over_drop(struct frames *frames, size_t groups, const struct frame *group, struct frame *images,
                           size_t count)
{
    size_t used = 0;
    for (size_t g = 0; g < groups; g++) {
        size_t end = 0;
        for (size_t i = 0; i < count; i++) {
            struct frame *image = &images[i * groups + g];
            const size_t last = image->first + image->count - group[g].first;
            end = last > end ? last : end;
            image->first = image->first - group[g].first + used;
        }
        memmove(frames->readouts + used, frames->readouts + group[g].first, end * sizeof *frames->readouts);
        used += end;
    }
    frames->left_over = frames->used - used;
    frames->used = used;
}

/* The images of a beginning: all that a group has, whatever the others have. */
static int beginning_divide(struct frames *frames, const struct frames_division *division)
{
    const size_t groups = frames->count, each = (size_t)division->readouts, more = division->arriving ? each - 1 : 0;
    size_t count = 0, most = 0;
    for (size_t g = 0; g < groups; g++) {
        const size_t images = (frames->frame[g].count + more) / each;
        count += images;
        most = images > most ? images : most;
    }
    if (most > MOST_IMAGES)
        return err_set(ERR_BAD_PARAMETER, "The series has more than %d images.", MOST_IMAGES);
    struct frame *image = calloc(count + 1, sizeof *image);
    if (!image)
        return err_no_memory("a list of %zu images", count);
    frames->groups = groups;
    frames->count = 0;
    for (size_t i = 0; i < most; i++)
        for (size_t g = 0; g < groups; g++) {
            const struct frame *group = &frames->frame[g];
            const size_t first = i * each, left = first < group->count ? group->count - first : 0;
            if (left + more >= each)
                image[frames->count++] = (struct frame){
                    .first = group->first + first, .count = left < each ? left : each, .repetition = (uint16_t)i};
        }
    free(frames->frame);
    frames->frame = image;
    return 0;
}

int frames_divide(struct frames *frames, const struct scan *scan, const struct frames_division *division)
{
    struct dividing d = {scan, frames, division, SIZE_MAX};
    const size_t groups = frames->count;
    int rc = 0;
    if (division->begun)
        return beginning_divide(frames, division);
    for (size_t g = 0; g < groups && rc == 0; g++) {
        size_t images = 0;
        rc = images_count(&d, &frames->frame[g], &images);
        if (rc == 0 && division->by_time)
            rc = times_check(&d, &frames->frame[g]);
        d.images = images < d.images ? images : d.images;
    }
    if (rc != 0)
        return rc;
    struct frame *images = calloc(d.images * groups, sizeof *images);
    if (!images)
        return err_no_memory("a list of %zu images", d.images * groups);
    for (size_t i = 0; i < d.images * groups && rc == 0; i++)
        rc = image_cut(&d, &frames->frame[i % groups], i / groups, &images[i]);
    if (rc == 0) {
        left_over_drop(frames, groups, frames->frame, images, d.images);
        free(frames->frame);
        frames->frame = images;
        frames->count = d.images * groups;
        frames->groups = groups;
    } else {
        free(images);
    }
    return rc;
}
