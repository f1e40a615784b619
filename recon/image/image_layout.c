/* Finds the images of a series that are slices of one frame: a frame is the object at one moment, all slices of it. */
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void image_direction(const float from[3], int axis, double out[3])
{
    double square = 0;
    for (int i = 0; i < 3; i++) {
        out[i] = (double)from[i];
        square += out[i] * out[i];
    }
    double length = sqrt(square);
    for (int i = 0; i < 3; i++)
        out[i] = isfinite(length) && length > 0 ? out[i] / length : (double)(i == axis);
}

static int by_uint16(uint16_t a, uint16_t b)
{
    return (a > b) - (a < b);
}

const char *image_counter_name(enum image_counter counter)
{
    static const char *const names[IMAGE_COUNTERS] = {"repetition", "phase", "contrast", "set", "average"};
    return names[counter];
}

static void counters_of(const struct image_info *info, uint16_t out[IMAGE_COUNTERS])
{
    out[IMAGE_REPETITION] = info->repetition;
    out[IMAGE_PHASE] = info->phase;
    out[IMAGE_CONTRAST] = info->contrast;
    out[IMAGE_SET] = info->set;
    out[IMAGE_AVERAGE] = info->average;
}

int image_frame_compare(const struct image_info *a, const struct image_info *b)
{
    uint16_t of_a[IMAGE_COUNTERS], of_b[IMAGE_COUNTERS];
    int order = 0;
    counters_of(a, of_a);
    counters_of(b, of_b);
    for (int i = 0; i < IMAGE_COUNTERS && order == 0; i++)
        order = by_uint16(of_a[i], of_b[i]);
    return order;
}

static int layout_order(const void *pa, const void *pb, void *context)
{
    const struct image_series *series = context;
    size_t ia = *(const size_t *)pa, ib = *(const size_t *)pb;
    const struct image_info *a = &series->info[ia], *b = &series->info[ib];
    int order = image_frame_compare(a, b);
    order = order ? order : by_uint16(a->slice, b->slice);
    return order ? order : (ia > ib) - (ia < ib);
}

/* Whether each run of `slices` images belongs to one frame, with the slices of the first. */
static bool layout_is_regular(const struct image_layout *layout, const struct image_series *series, size_t slices)
{
    for (size_t i = 0; i < series->count; i++) {
        const struct image_info *info = &series->info[layout->images[i]];
        const struct image_info *frame = &series->info[layout->images[i - i % slices]];
        if (image_frame_compare(frame, info) != 0 || info->slice != series->info[layout->images[i % slices]].slice)
            return false;
    }
    return series->count % slices == 0;
}

int image_layout_create(struct image_layout *out, const struct image_series *series)
{
    struct image_layout layout = {.frames = series->count, .slices = 1};
    layout.images = calloc(series->count ? series->count : 1, sizeof *layout.images);
    if (!layout.images)
        return err_no_memory("sorting %zu images", series->count);
    for (size_t i = 0; i < series->count; i++)
        layout.images[i] = i;
    qsort_r(layout.images, series->count, sizeof *layout.images, layout_order, (void *)(uintptr_t)series);
    size_t slices = series->count > 0;
    while (slices > 0 && slices < series->count &&
           image_frame_compare(&series->info[layout.images[0]], &series->info[layout.images[slices]]) == 0)
        slices++;
    if (slices > 1 && layout_is_regular(&layout, series, slices)) {
        layout.slices = slices;
        layout.frames = series->count / slices;
    }
    *out = layout;
    return 0;
}

/* The number of different values of a counter. */
static size_t values_count(const struct image_frames *frames, int counter)
{
    uint64_t seen[(UINT16_MAX + 1) / 64] = {0};
    size_t values = 0;
    for (size_t f = 0; f < frames->count; f++) {
        const uint16_t value = frames->counters[f][counter];
        values += !(seen[value / 64] >> value % 64 & 1);
        seen[value / 64] |= UINT64_C(1) << value % 64;
    }
    return values;
}

int image_frames_find(struct image_frames *out, const struct image_series *series)
{
    struct image_layout layout;
    struct image_frames frames = {.grid = true};
    int rc = image_layout_create(&layout, series);
    if (rc != 0)
        return rc;
    frames.count = layout.frames;
    frames.counters = calloc(frames.count + 1, sizeof *frames.counters);
    if (!frames.counters) {
        free(layout.images);
        return err_no_memory("the counters of %zu images", frames.count);
    }
    for (size_t f = 0; f < frames.count; f++) {
        counters_of(&series->info[layout.images[f * layout.slices]], frames.counters[f]);
        /* In order, so that equal ones are neighbours. */
        if (f > 0 && memcmp(frames.counters[f], frames.counters[f - 1], sizeof *frames.counters) == 0)
            frames.grid = false;
    }
    free(layout.images);
    size_t combinations = 1;
    for (int i = 0; i < IMAGE_COUNTERS; i++) {
        frames.size[i] = values_count(&frames, i);
        combinations *= combinations <= frames.count ? frames.size[i] : 1;
    }
    frames.grid = frames.grid && combinations == frames.count;
    *out = frames;
    return 0;
}

/* ---- brightness ---- */

#define PI 3.14159265f

enum {
    WINDOW_BINS = 1 << 15, /* upper halves of floats that are not negative */
    BLOCK = 1024           /* values at a time */
};

static inline float finite_or_0(float value)
{
    return fabsf(value) <= FLT_MAX ? value : 0;
}

void image_brightness(const struct image_series *series, size_t first, size_t count, float *restrict out)
{
    const float *restrict p = series->data + (series->complex_valued ? 2 * first : first);
    if (series->complex_valued)
        for (size_t i = 0; i < count; i++)
            out[i] = finite_or_0(hypotf(p[2 * i], p[2 * i + 1]));
    else if (series->phases)
        for (size_t i = 0; i < count; i++)
            out[i] = finite_or_0(p[i] + PI);
    else
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            out[i] = finite_or_0(fabsf(p[i]));
}

/* Positive floats order as their bits do; the upper 16 bits make a histogram whose bins are 0.8 % wide whatever the
 * range of the values. */
int image_window(const struct image_series *series, float *low, float *high)
{
    if (!series->phases)
        return image_window_between(series, 0.005, 0.995, low, high);
    *low = 0;
    *high = 2 * PI;
    return 0;
}

float image_phase_offset(void)
{
    return PI;
}

int image_window_between(const struct image_series *series, double from, double to, float *low, float *high)
{
    size_t pixels = series->count * series->channels * image_pixels(series);
    if (series->phases) {
        *low = 2 * PI * (float)from;
        *high = 2 * PI * (float)to;
        return 0;
    }
    uint64_t *histogram = calloc(WINDOW_BINS, sizeof *histogram);
    if (!histogram)
        return err_no_memory("the image's histogram");
    for (size_t first = 0; first < pixels && result_goes_on(first); first += BLOCK) {
        const size_t count = pixels - first < BLOCK ? pixels - first : BLOCK;
        float values[BLOCK];
        uint32_t bits[BLOCK];
        image_brightness(series, first, count, values);
        memcpy(bits, values, count * sizeof *bits);
        for (size_t i = 0; i < count; i++)
            histogram[bits[i] >> 16]++;
    }
    double below = 0, edges[2] = {from * (double)pixels, fmin(to * (double)pixels, (double)pixels - 0.5)};
    float *found[2] = {low, high};
    int next = 0;
    for (uint32_t bin = 0; bin < WINDOW_BINS && next < 2; bin++) {
        below += (double)histogram[bin];
        while (next < 2 && below > edges[next]) {
            /* The window's lower edge is its bin's lower edge, its upper edge the bin's upper. */
            uint32_t bits = (bin + (uint32_t)next) << 16;
            memcpy(found[next++], &bits, sizeof bits);
        }
    }
    free(histogram);
    return 0;
}
