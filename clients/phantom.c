#include "clients/phantom.h"

#include "gridding/base/err.h"

#include <complex.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { MOST_COILS = 1024, MOST_MATRIX = 2048, MOST_PARTS = 16, MOST_SHIFTS = 7 };

/* An ellipsoid of a table: additive intensity, semi-axes and centre in halves of the field of view (-1 .. 1), and the
 * degrees its first axis is turned by from x towards y. */
struct ellipsoid_row {
    double value, axis[3], centre[3], degrees;
};

/* The same in fractions of the field of view. */
struct part {
    double value, axis[3], centre[3], cosine, sine;
    double complex phase[MOST_SHIFTS]; /* exp(2 pi i shift_j . centre) */
};

struct phantom {
    int dim, n[3], coils, parts, shifts;
    struct part part[MOST_PARTS];
    double shift[MOST_SHIFTS][3]; /* cycles per field of view */
    double complex *weight;       /* [coils][shifts] */
};

/* Shepp and Logan, doi:10.1109/TNS.1974.6499235, with the contrast of P. Toft (thesis, DTU 1996, appendix B). */
static const struct ellipsoid_row shepp_logan_2d[] = {
    {1.0, {0.69, 0.92, 1}, {0, 0, 0}, 0},        {-0.8, {0.6624, 0.874, 1}, {0, -0.0184, 0}, 0},
    {-0.2, {0.11, 0.31, 1}, {0.22, 0, 0}, -18},  {-0.2, {0.16, 0.41, 1}, {-0.22, 0, 0}, 18},
    {0.1, {0.21, 0.25, 1}, {0, 0.35, 0}, 0},     {0.1, {0.046, 0.046, 1}, {0, 0.1, 0}, 0},
    {0.1, {0.046, 0.046, 1}, {0, -0.1, 0}, 0},   {0.1, {0.046, 0.023, 1}, {-0.08, -0.605, 0}, 0},
    {0.1, {0.023, 0.023, 1}, {0, -0.606, 0}, 0}, {0.1, {0.023, 0.046, 1}, {0.06, -0.605, 0}, 0},
};

/* Kak and Slaney, doi:10.1137/1.9780898719277, table 3.2 in three dimensions as commonly used, with Toft's contrast. */
static const struct ellipsoid_row shepp_logan_3d[] = {
    {1.0, {0.69, 0.92, 0.81}, {0, 0, 0}, 0},         {-0.8, {0.6624, 0.874, 0.78}, {0, -0.0184, 0}, 0},
    {-0.2, {0.11, 0.31, 0.22}, {0.22, 0, 0}, -18},   {-0.2, {0.16, 0.41, 0.28}, {-0.22, 0, 0}, 18},
    {0.1, {0.21, 0.25, 0.41}, {0, 0.35, -0.15}, 0},  {0.1, {0.046, 0.046, 0.05}, {0, 0.1, 0.25}, 0},
    {0.1, {0.046, 0.046, 0.05}, {0, -0.1, 0.25}, 0}, {0.1, {0.046, 0.023, 0.05}, {-0.08, -0.605, 0}, 0},
    {0.1, {0.023, 0.023, 0.02}, {0, -0.606, 0}, 0},  {0.1, {0.023, 0.046, 0.02}, {0.06, -0.605, 0}, 0},
};

/* Asymmetric: a body off the centre; a bright ball towards +x, a bar towards +y, a small bright spot towards -x -y, a
 * hole towards +z. No two axes, and no two ends of an axis, look alike. */
static const struct ellipsoid_row asymmetric[] = {
    {0.5, {0.8, 0.65, 0.7}, {0.06, -0.04, 0.05}, 12},  {0.5, {0.2, 0.2, 0.3}, {0.45, 0.08, 0.1}, 0},
    {0.3, {0.32, 0.08, 0.4}, {-0.1, 0.4, -0.12}, -20}, {0.7, {0.09, 0.09, 0.2}, {-0.42, -0.28, -0.05}, 0},
    {-0.3, {0.25, 0.15, 0.2}, {0.1, -0.25, 0.3}, 40},
};

/* An ellipsoid inside the outline, at `swing` -1 .. 1 of its motion. */
static struct ellipsoid_row moved(const struct ellipsoid_row *row, double swing)
{
    struct ellipsoid_row out = *row;
    out.value *= 1 - 0.2 * swing;
    out.centre[1] += 0.05 * swing;
    for (int d = 0; d < 3; d++)
        out.axis[d] *= 1 + 0.25 * swing;
    return out;
}

/* The first `still` of the table do not move. */
static void ellipsoids_add(struct phantom *phantom, const struct ellipsoid_row *table, int count, int still,
                           double height, double swing)
{
    for (int i = 0; i < count; i++) {
        const struct ellipsoid_row place = i < still ? table[i] : moved(&table[i], swing), *row = &place;
        double radius = 1; /* of a cut, to the full radius */
        if (phantom->dim == 2 && !isnan(height)) {
            double z = (2 * height - row->centre[2]) / row->axis[2];
            if (fabs(z) >= 1)
                continue;
            radius = sqrt(1 - z * z);
        }
        struct part part = {.value = row->value,
                            .axis = {radius * row->axis[0] / 2, radius * row->axis[1] / 2, row->axis[2] / 2},
                            .centre = {row->centre[0] / 2, row->centre[1] / 2, row->centre[2] / 2},
                            .cosine = cos(row->degrees * M_PI / 180),
                            .sine = sin(row->degrees * M_PI / 180)};
        for (int j = 0; j < phantom->shifts; j++) {
            const double *shift = phantom->shift[j];
            part.phase[j] = cexp(2 * M_PI * I *
                                 (shift[0] * part.centre[0] + shift[1] * part.centre[1] + shift[2] * part.centre[2]));
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
    if (!phantom->weight)
        return err_no_memory("%d coils", coils);
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
    return phantom_create_moved(out, kind, dim, n, height, coils, 0);
}

int phantom_create_moved(struct phantom **out, enum phantom_kind kind, int dim, const int n[3], double height,
                         int coils, double phase)
{
    const double swing = phase == floor(phase) ? 0 : sin(2 * M_PI * phase);
    if (coils < 1 || coils > MOST_COILS)
        return err_set(ERR_BAD_PARAMETER, "A phantom can have 1 to %d coils, not %d.", MOST_COILS, coils);
    for (int d = 0; d < 3; d++)
        if (n[d] < 1 || n[d] > MOST_MATRIX)
            return err_set(ERR_BAD_PARAMETER, "A phantom's matrix has 1 to %d pixels along %c, not %d.", MOST_MATRIX,
                           "xyz"[d], n[d]);
    struct phantom *phantom = calloc(1, sizeof *phantom);
    if (!phantom)
        return err_no_memory("a phantom");
    *phantom = (struct phantom){.dim = dim, .n = {n[0], n[1], dim == 3 ? n[2] : 1}, .coils = coils};
    int rc = add_coils(phantom);
    if (rc != 0) {
        phantom_free(phantom);
        return rc;
    }
    if (kind == PHANTOM_ASYMMETRIC)
        ellipsoids_add(phantom, asymmetric, COUNT(asymmetric), 1, isnan(height) ? 0 : height, swing);
    else if (dim == 2 && isnan(height))
        ellipsoids_add(phantom, shepp_logan_2d, COUNT(shepp_logan_2d), 2, height, swing);
    else
        ellipsoids_add(phantom, shepp_logan_3d, COUNT(shepp_logan_3d), 2, height, swing);
    *out = phantom;
    return 0;
}

void phantom_free(struct phantom *phantom)
{
    if (!phantom)
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
    double c = p->cosine, s = p->sine;
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
        double place = k[0] * p->centre[0] + k[1] * p->centre[1];
        if (phantom->dim == 3)
            place += k[2] * p->centre[2];
        double complex phase = pixels * cexp(-2 * M_PI * I * place);
        for (int j = 0; j < shifts; j++) {
            const double *shift = phantom->shift[j];
            double at[3] = {k[0] - shift[0], k[1] - shift[1], k[2] - shift[2]};
            spectrum[j] += part_kspace(phantom->dim, p, at) * phase * p->phase[j];
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
        double c = p->cosine, s = p->sine;
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

/* The object's spectrum is taken at half the spacing that the field of view needs, so that ringing does not wrap
 * around: per axis 2n places j = -n .. n-1 at k = j / 2n (one place along an axis of one pixel). */
static int places(int n)
{
    return n > 1 ? 2 * n : 1;
}

/* out[r * stride], r = 0..n-1 = sum over the axis' places of in[place * stride] exp(2 pi i j (r - floor(n/2)) / 2n) /
 * 2n. */
static void transform(int n, const double complex *turn, const double complex *in, size_t stride, double complex *out)
{
    int count = places(n);
    for (int r = 0; r < n; r++) {
        int delta = (r - n / 2 + count) % count, step = (int)((int64_t)delta * (count - count / 2) % count);
        double re = 0, im = 0; /* written out: complex multiplication in C checks for NaN first */
        for (int j = 0; j < count; j++) {
            double a = creal(in[(size_t)j * stride]), b = cimag(in[(size_t)j * stride]);
            double c = creal(turn[step]), s = cimag(turn[step]);
            re += a * c - b * s;
            im += a * s + b * c;
            step = step + delta < count ? step + delta : step + delta - count;
        }
        out[(size_t)r * stride] = (re + I * im) / count;
    }
}

static double complex *turns(int n)
{
    double complex *turn = malloc((size_t)places(n) * sizeof *turn);
    for (int i = 0; turn && i < places(n); i++)
        turn[i] = cexp(2 * M_PI * I * i / places(n));
    return turn;
}

/* Line (ky, kz) of the spectrum, transformed along x. `line` has room for places(n[0]). */
static void truth_line(const struct phantom *phantom, bool cylinder, const double complex *turn, double ky, double kz,
                       double complex *line, double complex *out)
{
    const int *n = phantom->n;
    double z = cylinder ? 0 : kz;
    bool inside = fabs(kz) < 0.5;
    for (int i = 0; i < places(n[0]); i++) {
        double kx = (double)(i - places(n[0]) / 2) / places(n[0]);
        line[i] = 0;
        if (inside && kx * kx + ky * ky + z * z < 0.25)
            spectra(phantom, (double[]){kx * n[0], ky * n[1], kz * n[2]}, 1, &line[i]);
    }
    transform(n[0], turn, line, 1, out);
}

int phantom_truth(const struct phantom *phantom, bool cylinder, float *image)
{
    const int *n = phantom->n;
    size_t row = (size_t)n[0], plane = row * (size_t)n[1], threads = (size_t)omp_get_max_threads();
    int lines = places(n[1]), planes = places(n[2]), rc = 0;
    size_t longest = (size_t)places(n[0]);
    double complex *turn[3] = {turns(n[0]), turns(n[1]), turns(n[2])};
    double complex *scratch = malloc(threads * longest * sizeof *scratch);
    double complex *slab = malloc((size_t)lines * row * sizeof *slab);
    double complex *stack = malloc((size_t)(planes + n[2]) * plane * sizeof *stack);
    if (!turn[0] || !turn[1] || !turn[2] || !scratch || !slab || !stack) {
        rc = err_no_memory("the true image of %d x %d x %d pixels", n[0], n[1], n[2]);
        goto out;
    }
    for (int p = 0; p < planes; p++) {
        double kz = (double)(p - planes / 2) / planes;
#pragma omp parallel for schedule(dynamic)
        for (int l = 0; l < lines; l++)
            truth_line(phantom, cylinder, turn[0], (double)(l - lines / 2) / lines, kz,
                       scratch + (size_t)omp_get_thread_num() * longest, slab + (size_t)l * row);
#pragma omp parallel for schedule(static)
        for (size_t x = 0; x < row; x++)
            transform(n[1], turn[1], slab + x, row, stack + (size_t)p * plane + x);
    }
    /* The result is behind its source in memory. */
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < plane; i++)
        transform(n[2], turn[2], stack + i, plane, stack + (size_t)planes * plane + i);
    for (size_t i = 0; i < plane * (size_t)n[2]; i++)
        image[i] = (float)cabs(stack[(size_t)planes * plane + i]);
out:
    free(stack);
    free(slab);
    free(scratch);
    for (int d = 0; d < 3; d++)
        free(turn[d]);
    return rc;
}
