/* Slices of volumes as one picture. */
#include "recon/image/picture.h"
#include "recon/volume/volume_leaf.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PIXELS = 2048, TILE_PIXELS = 160, GAP = 2, GREY_GAP = 56, SAMPLES = 1 << 18 };

/* The arrangement of the slices: one tile each, left to right, then down. */
struct tiles {
    size_t stretch, shrink; /* pixels per node; nodes per pixel; one of them is 1 */
    size_t width, height;   /* of a tile */
    size_t step, shown;     /* every step-th slice */
    size_t columns, rows;
};

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static struct tiles tiles_of(const struct volume *v)
{
    const size_t slices = v->frames * v->size[2], longer = v->size[0] > v->size[1] ? v->size[0] : v->size[1];
    struct tiles t = {.stretch = longer < TILE_PIXELS ? TILE_PIXELS / longer : 1, .shrink = 1};
    if (longer > MOST_PIXELS - GAP)
        t.shrink = ceil_div(longer, MOST_PIXELS - GAP);
    t.width = ceil_div(v->size[0] * t.stretch, t.shrink) + GAP;
    t.height = ceil_div(v->size[1] * t.stretch, t.shrink) + GAP;
    const size_t across = MOST_PIXELS / t.width, down = MOST_PIXELS / t.height;
    t.step = ceil_div(slices, across * down);
    t.shown = ceil_div(slices, t.step);
    /* About as wide as high. */
    t.columns = (size_t)ceil(sqrt((double)t.shown * (double)t.height / (double)t.width));
    t.columns = t.columns < 1 ? 1 : t.columns > across ? across : t.columns;
    t.columns = ceil_div(t.shown, t.columns) > down ? across : t.columns;
    t.columns = t.columns > t.shown ? t.shown : t.columns;
    t.rows = ceil_div(t.shown, t.columns);
    return t;
}

void volume_picture_size(const struct volume *shape, size_t *width, size_t *height)
{
    const struct tiles t = tiles_of(shape);
    *width = t.columns * t.width;
    *height = t.rows * t.height;
}

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The value shown in full colour: the 99 % quantile of the magnitudes of evenly chosen nodes. A maximum would be at a
 * charge, where the potential has a pole, and everything else would be pale. */
static int window_of(const struct volume *v, double *full, bool *negative)
{
    const size_t nodes = volume_nodes(v), step = ceil_div(nodes, SAMPLES), count = ceil_div(nodes, step);
    float *sample = malloc(count * sizeof *sample);
    if (!sample)
        return err_no_memory("the picture's window");
    *negative = false;
    for (size_t i = 0; i < nodes; i++)
        *negative = *negative || v->data[i] < 0;
    for (size_t i = 0; i < count; i++)
        sample[i] = fabsf(v->data[i * step]);
    qsort(sample, count, sizeof *sample, compare);
    *full = (double)sample[(count - 1) * 99 / 100];
    if (!(*full > 0))
        *full = (double)sample[count - 1];
    *full = *full > 0 && isfinite(*full) ? *full : 1;
    free(sample);
    return 0;
}

static void colour_of(float value, double full, bool negative, uint8_t rgb[3])
{
    const double share = fmin(1, fabs((double)value) / full);
    const uint8_t strong = (uint8_t)lrint(255 * share), pale = (uint8_t)(255 - strong);
    if (!negative) {
        rgb[0] = rgb[1] = rgb[2] = strong;
        return;
    }
    rgb[0] = value < 0 ? pale : 255;
    rgb[1] = pale;
    rgb[2] = value < 0 ? 255 : pale;
}

static void tile_draw(const struct volume *v, const struct tiles *t, size_t slice, double full, bool negative,
                      uint8_t *corner, size_t stride)
{
    const float *plane = v->data + slice * v->size[0] * v->size[1];
    for (size_t y = 0; y < t->height - GAP; y++)
        for (size_t x = 0; x < t->width - GAP; x++) {
            /* y upwards, as axes are drawn. */
            const size_t from_y = v->size[1] - 1 - y * t->shrink / t->stretch, from_x = x * t->shrink / t->stretch;
            colour_of(plane[from_y * v->size[0] + from_x], full, negative, corner + y * stride + 3 * x);
        }
}

int volume_write_png(const struct volume *volume, int fd)
{
    const struct tiles t = tiles_of(volume);
    struct picture picture = {.width = t.columns * t.width, .height = t.rows * t.height, .channels = 3};
    const size_t stride = 3 * picture.width;
    double full = 1;
    bool negative = false;
    int rc = window_of(volume, &full, &negative);
    if (rc != 0)
        return rc;
    picture.pixels = malloc(stride * picture.height);
    if (!picture.pixels)
        return err_no_memory("a picture of %zu x %zu pixels", picture.width, picture.height);
    memset(picture.pixels, GREY_GAP, stride * picture.height);
    for (size_t i = 0; i < t.shown; i++)
        tile_draw(volume, &t, i * t.step, full, negative,
                  picture.pixels + i / t.columns * t.height * stride + i % t.columns * t.width * 3, stride);
    rc = picture_write_png(&picture, fd);
    free(picture.pixels);
    return rc;
}
