/* dcf_fixture.h: density weights, measured by their effect: a direct double-precision adjoint of a phantom on each
 * trajectory. Each test program is a single source file that includes this header. */
#ifndef MRIRECON_DCF_FIXTURE_H
#define MRIRECON_DCF_FIXTURE_H

#include "clients/phantom.h"
#include "gridding/base/err.h"
#include "gridding/traj/traj.h"
#include "tests/unit/oracle.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A scan of the Shepp-Logan phantom. */
struct scan {
    struct traj *traj;
    int n[3];
    size_t samples;
    struct c32 *data;
    float *truth, *weights;
};

static inline void *claim(size_t bytes)
{
    void *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

/* Takes ownership of `traj`. */
static inline void scan_make(struct scan *scan, struct traj *traj, int n, bool cylinder)
{
    *scan = (struct scan){.traj = traj, .n = {n, n, traj->dim == 2 ? 1 : n}, .samples = traj->readouts * traj->samples};
    scan->data = claim(scan->samples * sizeof *scan->data);
    scan->weights = claim(scan->samples * sizeof *scan->weights);
    scan->truth = claim((size_t)(n * n * scan->n[2]) * sizeof *scan->truth);
    struct phantom *phantom = NULL;
    assert_int_equal(phantom_create(&phantom, PHANTOM_SHEPP_LOGAN, traj->dim, scan->n, NAN, 1), 0);
    phantom_kspace(phantom, scan->samples, traj->k, scan->samples, scan->data);
    assert_int_equal(phantom_truth(phantom, cylinder, scan->truth), 0);
    phantom_free(phantom);
}

static inline struct traj *make(enum traj_kind kind, int n, int readouts, int samples)
{
    struct traj *traj = NULL;
    struct traj_params params = {.kind = kind, .n = {n, n, n}, .readouts = readouts, .samples = samples};
    assert_int_equal(traj_create(&traj, &params), 0);
    return traj;
}

static inline void scan_free(struct scan *scan)
{
    traj_free(scan->traj);
    free(scan->data);
    free(scan->weights);
    free(scan->truth);
}

enum { DCF_BLOCK = 64, DCF_MOST = 64 }; /* samples of a block; pixels along an axis */

/* A sample's terms of the adjoint are a product: x[i] * y[j] * z[k], exp(2 pi i k . r) by axes, with the weighted datum
 * in z. */
struct dcf_factors {
    double x_re[DCF_MOST], x_im[DCF_MOST];
    double complex y[DCF_MOST], z[DCF_MOST];
};

ORACLE static inline double complex turn(float k, int place)
{
    return cexp(2 * M_PI * I * (double)k * place);
}

ORACLE static inline void factors_make(const struct scan *scan, size_t m, struct dcf_factors *f)
{
    const int *n = scan->n;
    const float *k = scan->traj->k + m * (size_t)scan->traj->dim;
    const double complex datum = scan->weights[m] * (scan->data[m].re + I * scan->data[m].im);
    for (int i = 0; i < n[0]; i++) {
        f->x_re[i] = creal(turn(k[0], i - n[0] / 2));
        f->x_im[i] = cimag(turn(k[0], i - n[0] / 2));
    }
    for (int i = 0; i < n[1]; i++)
        f->y[i] = turn(k[1], i - n[1] / 2);
    for (int i = 0; i < n[2]; i++)
        f->z[i] = datum * (n[2] > 1 ? turn(k[2], i - n[2] / 2) : 1);
}

/* Add a block's contribution to one row of the image. */
ORACLE static inline void row_add(const struct dcf_factors *block, size_t count, int n, int y, int z,
                                  double complex *row)
{
    double sum_re[DCF_MOST] = {0}, sum_im[DCF_MOST] = {0};
    for (size_t m = 0; m < count; m++) {
        const double complex term = block[m].y[y] * block[m].z[z];
        const double re = creal(term), im = cimag(term), *x_re = block[m].x_re, *x_im = block[m].x_im;
#pragma omp simd
        for (int x = 0; x < n; x++) {
            sum_re[x] += re * x_re[x] - im * x_im[x];
            sum_im[x] += re * x_im[x] + im * x_re[x];
        }
    }
    for (int x = 0; x < n; x++)
        row[x] += sum_re[x] + I * sum_im[x];
}

/* image[z][y][x] = sum_m w_m d_m exp(2 pi i k_m . r), r from -floor(n/2) on along each axis. */
static inline void adjoint(const struct scan *scan, double complex *image)
{
    const int n = scan->n[0], rows = scan->n[1] * scan->n[2];
    struct dcf_factors *block = claim(DCF_BLOCK * sizeof *block);
    assert_true(n <= DCF_MOST);
    for (int i = 0; i < rows * n; i++)
        image[i] = 0;
    for (size_t first = 0; first < scan->samples; first += DCF_BLOCK) {
        const size_t count = scan->samples - first < DCF_BLOCK ? scan->samples - first : DCF_BLOCK;
        for (size_t m = 0; m < count; m++)
            factors_make(scan, first + m, &block[m]);
        for (int r = 0; r < rows; r++)
            row_add(block, count, n, r % scan->n[1], r / scan->n[1], image + (size_t)r * (size_t)n);
    }
    free(block);
}

/* Inside the inscribed disc or ball: ||s |image| - truth|| / ||truth|| with the best s, and 1 / s. */
static inline double nrmse(const struct scan *scan, double *scale)
{
    int n = scan->n[0], rows = scan->n[1] * scan->n[2];
    double complex *image = claim((size_t)(rows * n) * sizeof *image);
    adjoint(scan, image);
    double cross = 0, square = 0, truth = 0;
    for (int i = 0; i < rows * n; i++) {
        double x = i % n - n / 2, y = i / n % n - n / 2, z = i / n / n - scan->n[2] / 2;
        if (x * x + y * y + z * z >= n * n / 4.0)
            continue;
        cross += cabs(image[i]) * scan->truth[i];
        square += cabs(image[i]) * cabs(image[i]);
        truth += (double)scan->truth[i] * scan->truth[i];
    }
    free(image);
    *scale = square / cross;
    return sqrt(1 - cross * cross / (square * truth));
}

static inline double area(const struct scan *scan)
{
    double sum = 0;
    for (size_t m = 0; m < scan->samples; m++)
        sum += scan->weights[m];
    return sum;
}

#endif
