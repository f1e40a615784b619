#include "recon/mri/band.h"

#include <math.h>

/* Of `dims` axes: sum_d (k_d / edge_d)^2. */
static double radius2(const double edge[3], const float *k, int dims)
{
    double sum = 0;
    for (int d = 0; d < dims; d++)
        sum += edge[d] > 0 ? pow((double)k[d] / edge[d], 2) : 0;
    return sum;
}

static int inside(const float *k, int dim)
{
    for (int d = 0; d < dim; d++)
        if (fabsf(k[d]) > 0.5005f)
            return 0;
    return 1;
}

void band_extend(struct band *band, size_t samples, const float *k)
{
    const int dim = band->dim;
    for (size_t m = 0; m < samples; m++)
        for (int d = 0; d < dim && inside(k + m * (size_t)dim, dim); d++)
            band->edge[d] = fmax(band->edge[d], fmin(0.5, fabs((double)k[m * (size_t)dim + (size_t)d])));
}

void band_fit(struct band *band, size_t samples, const float *k)
{
    const double slack = 1.01 * 1.01;
    const int dim = band->dim;
    double all = 0, plane = 0;
    for (size_t m = 0; m < samples; m++)
        if (inside(k + m * (size_t)dim, dim)) {
            all = fmax(all, radius2(band->edge, k + m * (size_t)dim, dim));
            plane = fmax(plane, radius2(band->edge, k + m * (size_t)dim, 2));
        }
    if (all > slack && band->shape == BAND_ELLIPSOID)
        band->shape = dim == 3 ? BAND_CYLINDER : BAND_BOX;
    if (plane > slack)
        band->shape = BAND_BOX;
}

struct band band_find(int dim, size_t samples, const float *k)
{
    struct band band = {.shape = BAND_ELLIPSOID, .dim = dim};
    band_extend(&band, samples, k);
    band_fit(&band, samples, k);
    return band;
}

const char *band_name(const struct band *band)
{
    switch (band->shape) {
    case BAND_ELLIPSOID:
        return band->dim == 2 ? "ellipse" : "ellipsoid";
    case BAND_CYLINDER:
        return "cylinder";
    default:
        return "box";
    }
}

double band_volume(const struct band *band)
{
    return band_kernel(band, (const double[3]){0, 0, 0});
}

/* Over |k| <= edge. */
static double line(double edge, double l)
{
    return l == 0 ? 2 * edge : sin(2 * M_PI * edge * l) / (M_PI * l);
}

/* Over the ellipse of the first two axes. */
static double ellipse(const double edge[3], const double l[3])
{
    const double rho = hypot(edge[0] * l[0], edge[1] * l[1]);
    return edge[0] * edge[1] * (rho < 1e-9 ? M_PI : j1(2 * M_PI * rho) / rho);
}

static double ellipsoid(const double edge[3], const double l[3])
{
    const double rho = hypot(hypot(edge[0] * l[0], edge[1] * l[1]), edge[2] * l[2]), a = 2 * M_PI * rho;
    return edge[0] * edge[1] * edge[2] *
           (rho < 1e-4 ? 4 * M_PI / 3 : (sin(a) - a * cos(a)) / (2 * M_PI * M_PI * rho * rho * rho));
}

double band_kernel(const void *of, const double l[3])
{
    const struct band *band = of;
    if (band->shape == BAND_ELLIPSOID)
        return band->dim == 2 ? ellipse(band->edge, l) : ellipsoid(band->edge, l);
    const double z = band->dim == 3 ? line(band->edge[2], l[2]) : 1;
    return z * (band->shape == BAND_CYLINDER ? ellipse(band->edge, l)
                                             : line(band->edge[0], l[0]) * line(band->edge[1], l[1]));
}
