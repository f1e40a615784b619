/* The split as a sum in two parts (gridding/split/split.h): its laws, and the factors of its mesh. */
#include "recon/cutcp/cutcp_gauss.h"
#include "recon/cutcp/cutcp_split.h"

#include "gridding/base/err.h"
#include "gridding/range/kernel.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static double window_value(const void *of, double t)
{
    const double beta = *(const double *)of;
    return kernel_bessel_i0(beta * sqrt(t)) / kernel_bessel_i0(beta);
}

/* Integral of the window of an axis times exp(i k x), k in radians per angstrom: kernel_transform() of a width of 1. */
static double window_transform(const struct cutcp_split *s, double k)
{
    const double width = 2 * s->reach;
    return width * kernel_transform(1, s->beta, k * width / (2 * KERNEL_PI));
}

/* Without tables and fitted laws. */
static struct split_params shape_of(const struct cutcp_split *s, const struct cutcp_sum *sum, double exclusion)
{
    struct split_params p = {.lattice = sum->lattice, .exclusion = exclusion, .count = sum->count};
    p.window.params.reach = s->reach;
    p.near.params.reach = s->radius;
    p.factors.count = cutcp_waves_count(s);
    for (int d = 0; d < 3; d++) {
        p.mesh[d] = s->mesh[d];
        p.extended[d] = s->extended[d];
        p.factors.wave[d] = 2 * KERNEL_PI / s->length[d];
    }
    return p;
}

int cutcp_parts_memory(struct dev *dev, const struct cutcp_split *split, const struct cutcp_sum *sum, double exclusion,
                       size_t *bytes)
{
    const struct split_params p = shape_of(split, sum, exclusion);
    return split_memory(dev, &p, bytes);
}

const char *cutcp_parts_refused(const struct dev *dev, const struct cutcp_split *split, const struct cutcp_sum *sum,
                                double exclusion)
{
    const struct split_params p = shape_of(split, sum, exclusion);
    return split_refused(dev, &p);
}

/* Integral of the squared window of an axis. */
static double window_squared(const struct cutcp_split *s)
{
    enum { PANELS = 4 };
    double sum = 0;
    for (int i = 0; i < PANELS * CUTCP_GAUSS_POINTS; i++) {
        const struct cutcp_gauss *g = &cutcp_gauss[i % CUTCP_GAUSS_POINTS];
        const double x = (i / CUTCP_GAUSS_POINTS + g->at) / PANELS;
        sum += g->weight * pow(window_value(&s->beta, 1 - x * x), 2);
    }
    return 2 * s->reach * sum / PANELS;
}

/* The largest product of the axes' factors. Float32 rounds the mesh's values by FLT_EPSILON / 2 of their root mean
 * square, at random, and so all its waves alike; a charge's waves are the window's transform. Where that is smaller,
 * the wave of the potential would be drowned by what is rounded: in the corners of the mesh's waves if the window is
 * wide.
 */
static double axes_most(const struct cutcp_split *s)
{
    double least = FLT_EPSILON / 2; /* times the mesh's nodes */
    for (int d = 0; d < 3; d++)
        least *= s->mesh[d] * sqrt(window_squared(s) * s->length[d] / s->mesh[d]);
    return 1 / least;
}

/* Of an axis, 1 / (nodes times the window's transform). Waves beyond K, which only an axis with cells smaller than the
 * longest has, are left out: the window, as wide along every axis, is 0 at some of them. */
static int axis_create(float **out, const struct cutcp_split *s, int d, double wave)
{
    const int count = s->mesh[d] / 2 + 1;
    *out = malloc((size_t)count * sizeof **out);
    if (!*out)
        return err_no_memory("a mesh");
    for (int i = 0; i < count; i++)
        (*out)[i] =
            i * wave < 1.001 * KERNEL_PI / s->cell ? (float)(1 / (s->mesh[d] * window_transform(s, i * wave))) : 0;
    return 0;
}

int cutcp_parts_create(struct split **out, struct dev *dev, const struct cutcp_split *split,
                       const struct cutcp_sum *sum, double exclusion)
{
    const struct range_law_params window = {.form = RANGE_SEPARABLE, .reach = split->reach, .power = 1, .error = 1e-7};
    struct split_params p = shape_of(split, sum, exclusion);
    struct cutcp_waves waves = {.value = NULL};
    float *axis[3] = {NULL, NULL, NULL};
    int rc = range_law_make(&p.window, &window, window_value, &split->beta);
    if (rc == 0)
        rc = cutcp_split_near(split, &p.near);
    for (int d = 0; d < 3 && rc == 0; d++) {
        rc = axis_create(&axis[d], split, d, p.factors.wave[d]);
        p.factors.axis[d] = axis[d];
    }
    if (rc == 0)
        rc = cutcp_waves_create(&waves, split);
    p.factors.radial = waves.value;
    p.factors.count = waves.count;
    p.factors.step = waves.step;
    p.factors.most = axes_most(split);
    if (rc == 0)
        rc = split_create(out, dev, &p);
    cutcp_waves_free(&waves);
    for (int d = 0; d < 3; d++)
        free(axis[d]);
    return rc;
}
