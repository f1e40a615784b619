/* nufft_fixture.h: problems for NUFFTs on the CPU, and their direct sums in double precision. Include it after the
 * standard headers that cmocka needs. */
#ifndef MRIRECON_NUFFT_FIXTURE_H
#define MRIRECON_NUFFT_FIXTURE_H

#include "gridding/base/err.h"
#include "gridding/nufft/nufft.h"
#include "gridding/range/kernel.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"
#include "tests/unit/oracle.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum spread { UNIFORM, RADIAL, ONE_PLACE, EDGES };

static inline float *make_k(int dim, size_t samples, enum spread spread)
{
    float *k = malloc((samples + 1) * (size_t)dim * sizeof *k);
    uint64_t state = 7 + (uint64_t)spread;
    assert_non_null(k);
    for (size_t m = 0; m < samples; m++)
        for (int d = 0; d < dim; d++) {
            static const float edges[] = {-0.5f, 0.5f, 0, 0.25f, -0.25f, 0.4999999f, -0.4999999f};
            double r = uniform_next(&state) - 0.5;
            if (spread == RADIAL)
                r = m % 16 == 0 ? 0 : r * r * r * 4;
            if (spread == ONE_PLACE)
                r = 0.123 + 0.004 * r;
            k[m * (size_t)dim + (size_t)d] = spread == EDGES ? edges[(m * 3 + (size_t)d * 5 + m / 7) % 7] : (float)r;
        }
    return k;
}

static inline struct c32 *make_values(size_t count, uint64_t seed)
{
    struct c32 *v = malloc((count + 1) * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < count; i++)
        v[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
    return v;
}

static inline float *make_weights(size_t count)
{
    uint64_t seed = 99;
    float *w = malloc((count + 1) * sizeof *w);
    assert_non_null(w);
    for (size_t i = 0; i < count; i++)
        w[i] = (float)(0.2 + uniform_next(&seed));
    return w;
}

struct problem {
    int dim, n[3], batch;
    size_t samples;
    enum spread spread;
    enum nufft_kernel kernel;
    double tolerance;
    int width;
    double oversampling;
    int threads;
};

static inline struct nufft *make_plan(struct dev *dev, const struct problem *p, const float *k)
{
    struct nufft *plan = NULL;
    struct nufft_params params = {.dim = p->dim,
                                  .n = {p->n[0], p->n[1], p->n[2]},
                                  .tolerance = p->tolerance,
                                  .kernel = p->kernel,
                                  .width = p->width,
                                  .oversampling = p->oversampling,
                                  .batch = p->batch};
    if (nufft_create(&plan, dev, &params, p->samples, k) != 0)
        fail_msg("%s", err_last()->text);
    return plan;
}

static inline size_t pixels_of(const struct problem *p)
{
    return (size_t)p->n[0] * (size_t)p->n[1] * (size_t)p->n[2];
}

/* exp(2 pi i k x) of a sample for each pixel x along each axis, one axis after the other: a pixel's factor of the sums
 * is the product of one of each. [samples][n[0] + n[1] + n[2]]; the caller frees it. */
ORACLE static inline double complex *make_turns(const struct problem *p, const float *k)
{
    double complex *turns = allocate(p->samples * (size_t)(p->n[0] + p->n[1] + p->n[2]), sizeof *turns), *to = turns;
    for (size_t m = 0; m < p->samples; m++)
        for (int d = 0; d < 3; d++)
            for (int x = 0; x < p->n[d]; x++) {
                const double turn = d < p->dim ? (double)k[m * (size_t)p->dim + (size_t)d] * (x - p->n[d] / 2) : 0;
                *to++ = cexp(2 * KERNEL_PI * I * (turn - floor(turn)));
            }
    return turns;
}

ORACLE static inline double complex turn_at(const struct problem *p, const double complex *turns, size_t m, size_t r)
{
    const size_t x = (size_t)p->n[0], y = (size_t)p->n[1];
    const double complex *of = turns + m * (x + y + (size_t)p->n[2]);
    return of[r % x] * of[x + r / x % y] * of[x + y + r / x / y];
}

/* Relative l2 distance of got from sum_m w_m data_m exp(+i phase) at every pixel. */
ORACLE static inline double adjoint_error(const struct problem *p, const float *k, const float *w,
                                          const struct c32 *data, const struct c32 *got)
{
    double off = 0, all = 0;
    double complex *turns = make_turns(p, k);
    for (size_t r = 0; r < pixels_of(p); r++) {
        double complex sum = 0;
        for (size_t m = 0; m < p->samples; m++)
            sum += (w ? w[m] : 1) * (data[m].re + I * data[m].im) * turn_at(p, turns, m, r);
        off += pow(creal(sum) - got[r].re, 2) + pow(cimag(sum) - got[r].im, 2);
        all += pow(creal(sum), 2) + pow(cimag(sum), 2);
    }
    free(turns);
    return sqrt(off / all);
}

ORACLE static inline double forward_error(const struct problem *p, const float *k, const float *w,
                                          const struct c32 *image, const struct c32 *got)
{
    double off = 0, all = 0;
    double complex *turns = make_turns(p, k);
    for (size_t m = 0; m < p->samples; m++) {
        double complex sum = 0;
        for (size_t r = 0; r < pixels_of(p); r++)
            sum += (w ? w[m] : 1) * (image[r].re + I * image[r].im) * conj(turn_at(p, turns, m, r));
        off += pow(creal(sum) - got[m].re, 2) + pow(cimag(sum) - got[m].im, 2);
        all += pow(creal(sum), 2) + pow(cimag(sum), 2);
    }
    free(turns);
    return sqrt(off / all);
}

static inline double dot_re(size_t n, const struct c32 *a, const struct c32 *b)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i].re * b[i].re + (double)a[i].im * b[i].im;
    return sum;
}

#endif
