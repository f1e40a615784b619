/* One plane of values as a picture. */
#include "recon/image/picture.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_PIXELS = 4096, MOST_STRETCH = 16 };

/* The part of an axis of `values` pixels that pixel `at` of `pixels` covers: from..to, in values. */
static void span_of(size_t at, size_t pixels, size_t values, double *from, double *to)
{
    *from = (double)at * (double)values / (double)pixels;
    *to = (double)(at + 1) * (double)values / (double)pixels;
}

/* The share of value `i` that lies in from..to. */
static double share_of(size_t i, double from, double to)
{
    double low = fmax(from, (double)i), high = fmin(to, (double)(i + 1));
    return high > low ? high - low : 0;
}

/* The mean of the values under a pixel. */
static double mean_of(const float *values, size_t width, size_t height, const double x[2], const double y[2])
{
    double sum = 0, weight = 0;
    for (size_t j = (size_t)y[0]; j < height && (double)j < y[1]; j++)
        for (size_t i = (size_t)x[0]; i < width && (double)i < x[1]; i++) {
            double share = share_of(i, x[0], x[1]) * share_of(j, y[0], y[1]);
            sum += share * (double)values[j * width + i];
            weight += share;
        }
    return weight > 0 ? sum / weight : 0;
}

int picture_of_plane(struct picture *out, const float *values, size_t width, size_t height, double ratio, size_t most,
                     const double window[2])
{
    if (!isfinite(ratio) || ratio <= 0 || fabs(ratio - 1) < 0.01)
        ratio = 1;
    ratio = fmin(MOST_STRETCH, fmax(1.0 / MOST_STRETCH, ratio));
    double across = (double)width * fmax(1, ratio), down = (double)height * fmax(1, 1 / ratio);
    double shrink = fmax(1, fmax(across, down) / (double)(most > 0 && most < MOST_PIXELS ? most : MOST_PIXELS));
    struct picture picture = {.width = (size_t)fmax(1, round(across / shrink)),
                              .height = (size_t)fmax(1, round(down / shrink)),
                              .channels = 1};
    picture.pixels = malloc(picture.width * picture.height);
    if (!picture.pixels)
        return err_no_memory("a picture of %zu x %zu", picture.width, picture.height);
    double scale = window[1] > window[0] ? 255 / (window[1] - window[0]) : 0;
    for (size_t j = 0; j < picture.height; j++)
        for (size_t i = 0; i < picture.width; i++) {
            double x[2], y[2];
            span_of(i, picture.width, width, &x[0], &x[1]);
            span_of(j, picture.height, height, &y[0], &y[1]);
            double grey = (mean_of(values, width, height, x, y) - window[0]) * scale;
            picture.pixels[j * picture.width + i] = (uint8_t)(grey <= 0 ? 0 : grey >= 255 ? 255 : grey + 0.5);
        }
    *out = picture;
    return 0;
}
