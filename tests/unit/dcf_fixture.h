/* dcf_fixture.h: density weights, measured by their effect: a direct double-precision adjoint of a phantom on each
 * trajectory. Each test program is one file, which includes these as its own. */
#ifndef MRIRECON_DCF_FIXTURE_H
#define MRIRECON_DCF_FIXTURE_H

#include "clients/phantom.h"
#include "gridding/base/err.h"
#include "gridding/traj/traj.h"

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

/* Takes `traj`. */
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

/* One row of the adjoint's magnitude: |sum_m w_m d_m exp(2 pi i k_m . r)|, r_x = -floor(n/2) .. */
static inline void adjoint_row(const struct scan *scan, int y, int z, double complex *row)
{
    int dim = scan->traj->dim, n = scan->n[0];
    for (int x = 0; x < n; x++)
        row[x] = 0;
    for (size_t m = 0; m < scan->samples; m++) {
        const float *k = scan->traj->k + m * (size_t)dim;
        double phase = (double)k[0] * -(n / 2) + (double)k[1] * y + (dim == 3 ? (double)k[2] * z : 0);
        double complex term = scan->weights[m] * (scan->data[m].re + I * scan->data[m].im) * cexp(2 * M_PI * I * phase);
        double re = creal(term), im = cimag(term), c = cos(2 * M_PI * k[0]), s = sin(2 * M_PI * k[0]);
        for (int x = 0; x < n; x++) {
            ((double *)row)[2 * x] += re;
            ((double *)row)[2 * x + 1] += im;
            double turned = re * c - im * s;
            im = re * s + im * c;
            re = turned;
        }
    }
}

/* Inside the inscribed disc or ball: ||s |image| - truth|| / ||truth|| with the best s, and 1 / s. */
static inline double nrmse(const struct scan *scan, double *scale)
{
    int n = scan->n[0], rows = scan->n[1] * scan->n[2];
    double complex *image = claim((size_t)(rows * n) * sizeof *image);
#pragma omp parallel for schedule(dynamic)
    for (int r = 0; r < rows; r++)
        adjoint_row(scan, r % scan->n[1] - scan->n[1] / 2, r / scan->n[1] - scan->n[2] / 2,
                    image + (size_t)r * (size_t)n);
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
