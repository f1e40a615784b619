#include "clients/phantom.h"

#include "gridding/base/err.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_COILS = 1024, MOST_MATRIX = 2048, MOST_PARTS = 16, MOST_SHIFTS = 7 };

/* An ellipsoid: additive intensity, semi-axes, centre, and the angle its first axis is turned from x towards y. In the
 * tables lengths are halves of the field of view (-1 .. 1) and angles degrees; in a phantom, fractions of the field of
 * view and radians. */
struct part {
    double value, axis[3], centre[3], angle;
};

struct phantom {
    int dim, n[3], coils, parts, shifts;
    struct part part[MOST_PARTS];
    double shift[MOST_SHIFTS][3]; /* cycles per field of view */
    double complex *weight;       /* [coils][shifts] */
};

/* Shepp and Logan, doi:10.1109/TNS.1974.6499235, with the contrast of P. Toft (thesis, DTU 1996, appendix B). */
static const struct part shepp_logan_2d[] = {
    {1.0, {0.69, 0.92, 1}, {0, 0, 0}, 0},        {-0.8, {0.6624, 0.874, 1}, {0, -0.0184, 0}, 0},
    {-0.2, {0.11, 0.31, 1}, {0.22, 0, 0}, -18},  {-0.2, {0.16, 0.41, 1}, {-0.22, 0, 0}, 18},
    {0.1, {0.21, 0.25, 1}, {0, 0.35, 0}, 0},     {0.1, {0.046, 0.046, 1}, {0, 0.1, 0}, 0},
    {0.1, {0.046, 0.046, 1}, {0, -0.1, 0}, 0},   {0.1, {0.046, 0.023, 1}, {-0.08, -0.605, 0}, 0},
    {0.1, {0.023, 0.023, 1}, {0, -0.606, 0}, 0}, {0.1, {0.023, 0.046, 1}, {0.06, -0.605, 0}, 0},
};

/* Kak and Slaney, doi:10.1137/1.9780898719277, table 3.2 in three dimensions as commonly used, with Toft's contrast. */
static const struct part shepp_logan_3d[] = {
    {1.0, {0.69, 0.92, 0.81}, {0, 0, 0}, 0},         {-0.8, {0.6624, 0.874, 0.78}, {0, -0.0184, 0}, 0},
    {-0.2, {0.11, 0.31, 0.22}, {0.22, 0, 0}, -18},   {-0.2, {0.16, 0.41, 0.28}, {-0.22, 0, 0}, 18},
    {0.1, {0.21, 0.25, 0.41}, {0, 0.35, -0.15}, 0},  {0.1, {0.046, 0.046, 0.05}, {0, 0.1, 0.25}, 0},
    {0.1, {0.046, 0.046, 0.05}, {0, -0.1, 0.25}, 0}, {0.1, {0.046, 0.023, 0.05}, {-0.08, -0.605, 0}, 0},
    {0.1, {0.023, 0.023, 0.02}, {0, -0.606, 0}, 0},  {0.1, {0.023, 0.046, 0.02}, {0.06, -0.605, 0}, 0},
};

/* A body off the centre; a bright ball towards +x, a bar towards +y, a small bright spot towards -x -y, a hole towards
 * +z: no two axes, and no two ends of an axis, look alike. */
static const struct part asymmetric[] = {
    {0.5, {0.8, 0.65, 0.7}, {0.06, -0.04, 0.05}, 12},  {0.5, {0.2, 0.2, 0.3}, {0.45, 0.08, 0.1}, 0},
    {0.3, {0.32, 0.08, 0.4}, {-0.1, 0.4, -0.12}, -20}, {0.7, {0.09, 0.09, 0.2}, {-0.42, -0.28, -0.05}, 0},
    {-0.3, {0.25, 0.15, 0.2}, {0.1, -0.25, 0.3}, 40},
};

static void add(struct phantom *phantom, const struct part *table, int count, double height)
{
    for (int i = 0; i < count; i++) {
        struct part part = table[i];
        if (phantom->dim == 2 && !isnan(height)) {
            double z = (2 * height - part.centre[2]) / part.axis[2];
            if (fabs(z) >= 1)
                continue;
            part.axis[0] *= sqrt(1 - z * z);
            part.axis[1] *= sqrt(1 - z * z);
        }
        part.angle *= M_PI / 180;
        for (int d = 0; d < 3; d++) {
            part.axis[d] /= 2;
            part.centre[d] /= 2;
        }
        phantom->part[phantom->parts++] = part;
    }
}

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* Coil c's map is sum_j sqrt(share_j / C) exp(2 pi i (shift_j . x + c order_j / C)). The orders differ modulo C, so the
 * columns of this matrix are orthogonal and sum_c |map|^2 = sum_j share_j = 1. */
static int add_coils(struct phantom *phantom)
{
    static const int order[MOST_SHIFTS] = {0, 1, -1, 2, -2, 3, -3};
    int most = 1 + 2 * phantom->dim, coils = phantom->coils;
    phantom->shifts = coils < most ? coils : most;
    phantom->weight = malloc((size_t)(coils * phantom->shifts) * sizeof *phantom->weight);
    if (phantom->weight == NULL)
        return err_set(ERR_NO_MEMORY, "No memory for %d coils.", coils);
    double shares = 0.5 + 0.25 * (phantom->shifts - 1);
    for (int j = 0; j < phantom->shifts; j++) {
        if (j > 0)
            phantom->shift[j][(j - 1) / 2] = j % 2 == 1 ? 0.5 : -0.5;
        double size = sqrt((j == 0 ? 0.5 : 0.25) / shares / coils);
        for (int c = 0; c < coils; c++)
            phantom->weight[c * phantom->shifts + j] = size * cexp(2 * M_PI * I * c * order[j] / coils + I * c);
    }
    return 0;
}

int phantom_create(struct phantom **out, enum phantom_kind kind, int dim, const int n[3], double height, int coils)
{
    if (coils < 1 || coils > MOST_COILS)
        return err_set(ERR_BAD_PARAMETER, "A phantom can be seen by 1 to %d coils, not %d.", MOST_COILS, coils);
    for (int d = 0; d < 3; d++)
        if (n[d] < 1 || n[d] > MOST_MATRIX)
            return err_set(ERR_BAD_PARAMETER, "A phantom's matrix has 1 to %d pixels along %c, not %d.", MOST_MATRIX,
                           "xyz"[d], n[d]);
    struct phantom *phantom = calloc(1, sizeof *phantom);
    if (phantom == NULL)
        return err_set(ERR_NO_MEMORY, "No memory for a phantom.");
    *phantom = (struct phantom){.dim = dim, .n = {n[0], n[1], dim == 3 ? n[2] : 1}, .coils = coils};
    if (kind == PHANTOM_ASYMMETRIC)
        add(phantom, asymmetric, COUNT(asymmetric), isnan(height) ? 0 : height);
    else if (dim == 2 && isnan(height))
        add(phantom, shepp_logan_2d, COUNT(shepp_logan_2d), height);
    else
        add(phantom, shepp_logan_3d, COUNT(shepp_logan_3d), height);
    int code = add_coils(phantom);
    if (code != 0) {
        phantom_free(phantom);
        return code;
    }
    *out = phantom;
    return 0;
}

void phantom_free(struct phantom *phantom)
{
    if (phantom == NULL)
        return;
    free(phantom->weight);
    free(phantom);
}

/* ---- closed forms ---- */

/* The transform of the unit disc, J1(2 pi q) / q, and of the unit ball, (sin u - u cos u) / (2 pi^2 q^3), u = 2 pi q;
 * near 0 by their series, whose next terms are below 1e-15 there. */
static double disc(double q)
{
    double u = 2 * M_PI * q;
    return u < 1e-4 ? M_PI * (1 - u * u / 8) : j1(u) / q;
}

static double ball(double q)
{
    double u = 2 * M_PI * q, u2 = u * u;
    if (u < 0.05)
        return 4.0 / 3.0 * M_PI * (1 - u2 / 10 * (1 - u2 / 28 * (1 - u2 / 54)));
    return 4 * M_PI * (sin(u) - u * cos(u)) / (u2 * u);
}

/* The transform of part p at k (cycles per field of view) without its centre's phase. */
static double part_kspace(int dim, const struct part *p, const double k[3])
{
    double c = cos(p->angle), s = sin(p->angle);
    double u = p->axis[0] * (c * k[0] + s * k[1]), v = p->axis[1] * (c * k[1] - s * k[0]), w = p->axis[2] * k[2];
    if (dim == 2)
        return p->value * p->axis[0] * p->axis[1] * disc(sqrt(u * u + v * v));
    return p->value * p->axis[0] * p->axis[1] * p->axis[2] * ball(sqrt(u * u + v * v + w * w));
}

/* The object's transform at k - shift_j for every shift, in pixels. */
static void spectra(const struct phantom *phantom, const double k[3], int shifts, double complex spectrum[MOST_SHIFTS])
{
    double pixels = (double)phantom->n[0] * phantom->n[1] * phantom->n[2];
    for (int j = 0; j < shifts; j++)
        spectrum[j] = 0;
    for (int i = 0; i < phantom->parts; i++) {
        const struct part *p = &phantom->part[i];
        for (int j = 0; j < shifts; j++) {
            double at[3] = {k[0] - phantom->shift[j][0], k[1] - phantom->shift[j][1], k[2] - phantom->shift[j][2]};
            double phase = at[0] * p->centre[0] + at[1] * p->centre[1];
            if (phantom->dim == 3)
                phase += at[2] * p->centre[2];
            spectrum[j] += pixels * part_kspace(phantom->dim, p, at) * cexp(-2 * M_PI * I * phase);
        }
    }
}

void phantom_kspace(const struct phantom *phantom, size_t samples, const float *k, size_t coil_stride, struct c32 *data)
{
#pragma omp parallel for schedule(static)
    for (size_t m = 0; m < samples; m++) {
        double at[3] = {0};
        for (int d = 0; d < phantom->dim; d++)
            at[d] = (double)k[m * (size_t)phantom->dim + (size_t)d] * phantom->n[d];
        double complex spectrum[MOST_SHIFTS];
        spectra(phantom, at, phantom->shifts, spectrum);
        for (int c = 0; c < phantom->coils; c++) {
            const double complex *weight = phantom->weight + c * phantom->shifts;
            double complex sum = 0;
            for (int j = 0; j < phantom->shifts; j++)
                sum += weight[j] * spectrum[j];
            data[(size_t)c * coil_stride + m] = (struct c32){(float)creal(sum), (float)cimag(sum)};
        }
    }
}

double phantom_value(const struct phantom *phantom, const double place[3])
{
    double value = 0;
    for (int i = 0; i < phantom->parts; i++) {
        const struct part *p = &phantom->part[i];
        double x = place[0] - p->centre[0], y = place[1] - p->centre[1];
        double z = phantom->dim == 3 ? (place[2] - p->centre[2]) / p->axis[2] : 0;
        double c = cos(p->angle), s = sin(p->angle);
        double u = (c * x + s * y) / p->axis[0], v = (c * y - s * x) / p->axis[1];
        if (u * u + v * v + z * z < 1)
            value += p->value;
    }
    return value;
}

void phantom_sensitivity(const struct phantom *phantom, int coil, const double place[3], double *re, double *im)
{
    double complex sum = 0;
    for (int j = 0; j < phantom->shifts; j++) {
        double phase = 0;
        for (int d = 0; d < phantom->dim; d++)
            phase += phantom->shift[j][d] * place[d];
        sum += phantom->weight[coil * phantom->shifts + j] * cexp(2 * M_PI * I * phase);
    }
    *re = creal(sum);
    *im = cimag(sum);
}

/* ---- truth ---- */

/* values[count][n][inner] along its middle axis: sum over j = -floor(n/2) .. of values[j] exp(2 pi i j r / n) / n. */
static int transform(size_t count, int n, size_t inner, double complex *values)
{
    double complex *turn = malloc((size_t)n * sizeof *turn);
    if (turn == NULL)
        return ERR_NO_MEMORY;
    for (int i = 0; i < n; i++)
        turn[i] = cexp(2 * M_PI * I * i / n) / n;
    int failed = 0;
#pragma omp parallel reduction(| : failed)
    {
        double complex *line = malloc((size_t)n * sizeof *line);
        failed = line == NULL;
#pragma omp for schedule(static)
        for (size_t l = 0; l < count * inner; l++) {
            double complex *first = values + l / inner * (size_t)n * inner + l % inner;
            for (int r = 0; r < n && line != NULL; r++) {
                int delta = (r - n / 2 + n) % n, step = (int)((int64_t)delta * (n - n / 2) % n);
                line[r] = 0;
                for (int j = 0; j < n; j++) {
                    line[r] += first[(size_t)j * inner] * turn[step];
                    step = step + delta < n ? step + delta : step + delta - n;
                }
            }
            for (int r = 0; r < n && line != NULL; r++)
                first[(size_t)r * inner] = line[r];
        }
        free(line);
    }
    free(turn);
    return failed ? ERR_NO_MEMORY : 0;
}

int phantom_truth(const struct phantom *phantom, bool cylinder, float *image)
{
    const int *n = phantom->n;
    size_t pixels = (size_t)n[0] * (size_t)n[1] * (size_t)n[2];
    double complex *values = malloc(pixels * sizeof *values);
    int code = values == NULL ? ERR_NO_MEMORY : 0;
    if (code == 0) {
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < pixels; i++) {
            size_t row = i / (size_t)n[0];
            double k[3] = {(double)(i % (size_t)n[0]) - n[0] / 2, (double)(row % (size_t)n[1]) - n[1] / 2,
                           (double)(row / (size_t)n[1]) - n[2] / 2};
            double x = k[0] / n[0], y = k[1] / n[1], z = cylinder ? 0 : k[2] / n[2];
            values[i] = 0;
            if (x * x + y * y + z * z < 0.25)
                spectra(phantom, k, 1, &values[i]);
        }
        code = transform(1, n[2], (size_t)n[0] * (size_t)n[1], values);
        code = code != 0 ? code : transform((size_t)n[2], n[1], (size_t)n[0], values);
        code = code != 0 ? code : transform((size_t)n[1] * (size_t)n[2], n[0], 1, values);
    }
    if (code != 0)
        err_set(code, "No memory for the true image of %zu pixels.", pixels);
    for (size_t i = 0; i < pixels && code == 0; i++)
        image[i] = (float)cabs(values[i]);
    free(values);
    return code;
}
