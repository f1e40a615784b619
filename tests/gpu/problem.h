/* problem.h: test cases of plans on a GPU: their samples and data, and the expected results as double sums. */
#ifndef MRIRECON_GPU_PROBLEM_H
#define MRIRECON_GPU_PROBLEM_H

#include "gridding/nufft/nufft.h"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <complex.h>
#include <string.h>

/* ---- cases ---- */

enum spread { UNIFORM, CENTRE, RADIAL, LINE };

struct test_case {
    const char *name;
    int dim, n[3], batch;
    size_t samples;
    enum spread spread;
    double tolerance;
    enum nufft_kernel kernel;
    int width;                /* with oversampling 2; 0: the plan chooses both */
    enum nufft_method method; /* the requested method; NUFFT_METHOD_CPU: any */
};

static const struct test_case cases[] = {
    {"2-D, 1e-3", 2, {40, 48, 1}, 3, 4000, UNIFORM, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
    {"2-D, 1e-2, dense centre", 2, {36, 36, 1}, 20, 3000, CENTRE, 1e-2, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
    {"2-D, 1e-4, radial", 2, {50, 33, 1}, 1, 3000, RADIAL, 1e-4, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
    {"2-D, 1e-5", 2, {31, 45, 1}, 2, 3000, UNIFORM, 1e-5, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
    {"2-D, many transforms", 2, {24, 24, 1}, 150, 700, RADIAL, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"2-D, tiny and long", 2, {3, 61, 1}, 2, 500, UNIFORM, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_TILES},
    {"2-D, all on a line", 2, {30, 30, 1}, 2, 900, LINE, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
    {"3-D, 1e-3", 3, {20, 22, 18}, 2, 3000, UNIFORM, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"3-D, 1e-2, dense centre", 3, {18, 16, 24}, 1, 9000, CENTRE, 1e-2, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"3-D, 1e-3, radial", 3, {17, 21, 27}, 2, 5000, RADIAL, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"3-D, 1e-4", 3, {20, 16, 14}, 1, 2500, CENTRE, 1e-4, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"3-D, 1e-5, radial", 3, {16, 20, 14}, 1, 2500, RADIAL, 1e-5, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"3-D, 1e-5, dense centre", 3, {18, 17, 19}, 2, 12000, CENTRE, 1e-5, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"3-D, 1e-4, odd sizes, radial", 3, {23, 17, 29}, 2, 6000, RADIAL, 1e-4, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"3-D, 1e-4, on an edge", 3, {20, 24, 16}, 1, 5000, LINE, 1e-4, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU},
    {"3-D, 1e-5, grid smaller than a brick",
     3,
     {6, 5, 40},
     1,
     2000,
     UNIFORM,
     1e-5,
     NUFFT_SEPARABLE,
     0,
     NUFFT_METHOD_BRICK_DENSE},
    {"3-D, dense, width 5", 3, {16, 17, 16}, 1, 40000, CENTRE, 1e-3, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK_DENSE},
    {"3-D, dense, width 6, 1e-3",
     3,
     {16, 17, 16},
     2,
     80000,
     UNIFORM,
     1e-3,
     NUFFT_SEPARABLE,
     6,
     NUFFT_METHOD_BRICK_DENSE},
    {"3-D, dense, width 6", 3, {17, 18, 16}, 1, 52000, RADIAL, 2e-4, NUFFT_SEPARABLE, 6, NUFFT_METHOD_BRICK_DENSE},
    {"3-D, dense, width 7", 3, {16, 16, 17}, 2, 116000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK_DENSE},
    {"3-D, dense, width 8", 3, {16, 16, 16}, 1, 450000, LINE, 1e-5, NUFFT_SEPARABLE, 8, NUFFT_METHOD_BRICK_DENSE},
    {"3-D, width 4, five coils", 3, {27, 25, 30}, 5, 3000, CENTRE, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
    {"3-D, width 5, five coils", 3, {27, 25, 30}, 5, 3000, CENTRE, 1e-3, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
    {"3-D, width 7, three coils", 3, {17, 25, 20}, 3, 3000, RADIAL, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK16},
    {"3-D, width 8", 3, {17, 21, 20}, 2, 3000, UNIFORM, 1e-5, NUFFT_SEPARABLE, 8, NUFFT_METHOD_BRICK16},
    {"3-D, width 4, bins of 3 and 4", 3, {21, 19, 17}, 2, 2000, RADIAL, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
    {"3-D, width 4, few samples", 3, {40, 20, 30}, 3, 40, UNIFORM, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
    {"3-D, width 4, three products", 3, {24, 26, 20}, 2, 3000, CENTRE, 9.8e-4, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
    {"3-D, width 4, one product", 3, {24, 26, 20}, 2, 3000, UNIFORM, 5e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
    {"3-D, width 3", 3, {30, 24, 20}, 3, 3000, RADIAL, 1e-2, NUFFT_SEPARABLE, 3, NUFFT_METHOD_BRICK8},
    {"3-D, thin slab", 3, {40, 36, 8}, 2, 6000, UNIFORM, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
    {"3-D, thin slab, dense centre", 3, {9, 36, 40}, 2, 9000, CENTRE, 9.8e-4, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
    {"3-D, small, width 3, on an edge", 3, {10, 8, 9}, 1, 5000, LINE, 1e-2, NUFFT_SEPARABLE, 3, NUFFT_METHOD_BRICK8},
    {"3-D, thin slab, width 7", 3, {40, 36, 7}, 2, 6000, UNIFORM, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK16},
    {"3-D, thin slab, width 5", 3, {33, 6, 30}, 2, 9000, CENTRE, 1e-3, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
    {"3-D, thin slab, width 8", 3, {7, 40, 36}, 1, 6000, RADIAL, 1e-5, NUFFT_SEPARABLE, 8, NUFFT_METHOD_BRICK16},
    {"3-D, flat, width 6", 3, {33, 30, 4}, 2, 9000, LINE, 1e-3, NUFFT_SEPARABLE, 6, NUFFT_METHOD_BRICK_DENSE},
    {"3-D, flat", 3, {33, 30, 2}, 1, 1000, UNIFORM, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_TILES},
    {"2-D, spherical kernel", 2, {30, 26, 1}, 2, 2000, UNIFORM, 1e-3, NUFFT_RADIAL, 0, NUFFT_METHOD_TILES},
    {"3-D, spherical kernel", 3, {14, 16, 18}, 1, 2000, CENTRE, 1e-3, NUFFT_RADIAL, 0, NUFFT_METHOD_TILES},
    {"2-D, 1e-4, many transforms", 2, {40, 36, 1}, 18, 1500, UNIFORM, 1e-4, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
    {"2-D, 1e-5, many transforms", 2, {36, 43, 1}, 33, 1200, CENTRE, 1e-5, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
};

struct problem {
    struct test_case c;
    size_t pixels;
    float *k, *weights;
    struct c32 *data, *image;               /* inputs */
    double complex *true_image, *true_data; /* expected results of the transforms */
};

static void fill_k(const struct test_case *c, float *k)
{
    for (size_t m = 0; m < c->samples; m++) {
        double direction[3] = {0, 0, 0}, length = 0;
        for (int d = 0; d < c->dim; d++) {
            direction[d] = uniform((m / 40) * 7 + (uint64_t)d) - 0.5;
            length += direction[d] * direction[d];
        }
        for (int d = 0; d < c->dim; d++) {
            uint64_t seed = 1000003 * (uint64_t)(d + 1) + m * 17;
            double u = uniform(seed) - 0.5, v = 0;
            switch (c->spread) {
            case UNIFORM:
                v = u;
                break;
            case CENTRE:
                v = m % 3 ? 0.03 * u : u; /* two thirds lie in a thousandth of the square */
                break;
            case RADIAL:
                v = ((double)(m % 40) - 20) / 40 * direction[d] / sqrt(length); /* every spoke has k = 0, some -0.5 */
                break;
            case LINE:
                v = d == 0 ? -0.5 : u;
                break;
            }
            k[m * (size_t)c->dim + (size_t)d] = (float)v;
        }
    }
}

static void fill_complex(struct c32 *to, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (struct c32){(float)(uniform(seed + 2 * i) - 0.5), (float)(uniform(seed + 2 * i + 1) - 0.3)};
}

/* exp(2 pi i k r) along each axis, x then y then z. */
static void fill_phases(const struct test_case *c, const float *k, double complex *phase)
{
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < c->n[d]; i++)
            *phase++ = cexp(2 * M_PI * I * (d < c->dim ? (double)k[d] * (i - c->n[d] / 2) : 0));
}

static double complex number(struct c32 v)
{
    return (double)v.re + (double)v.im * I;
}

/* Without the infinity handling of C's Annex G. */
static double complex product(double complex a, double complex b)
{
    return creal(a) * creal(b) - cimag(a) * cimag(b) + (creal(a) * cimag(b) + cimag(a) * creal(b)) * I;
}

/* One line of the image (fixed y and z) of one transform: the sum over `count` samples, added in order. */
static void oracle_line(struct problem *p, size_t first, size_t count, const double complex *phase, size_t line,
                        size_t transform, double complex *to)
{
    const struct test_case *c = &p->c;
    const size_t nx = (size_t)c->n[0], y = line % (size_t)c->n[1], z = line / (size_t)c->n[1];
    const struct c32 *in = p->data + transform * c->samples + first;
    for (size_t m = 0; m < count; m++, phase += nx + (size_t)c->n[1] + (size_t)c->n[2]) {
        double complex zy = product(phase[nx + (size_t)c->n[1] + z], phase[nx + y]);
        double complex value = p->weights[first + m] * product(number(in[m]), zy);
        for (size_t x = 0; x < nx; x++)
            to[line * nx + x] += product(value, phase[x]);
    }
}

/* One sample of one transform. */
static double complex oracle_sample(const struct problem *p, const double complex *phase, size_t transform)
{
    const struct test_case *c = &p->c;
    const struct c32 *pixel = p->image + transform * p->pixels;
    const double complex *phase_y = phase + c->n[0], *phase_z = phase_y + c->n[1];
    double complex sum = 0;
    for (int z = 0; z < c->n[2]; z++)
        for (int y = 0; y < c->n[1]; y++) {
            double complex line = 0;
            for (int x = 0; x < c->n[0]; x++, pixel++)
                line += product(number(*pixel), conj(phase[x]));
            sum += product(line, conj(product(phase_z[z], phase_y[y])));
        }
    return sum;
}

/* The double sums, written as in nufft.h. Only the first and last transform of the batch are summed. Threads share
 * lines of the image, or samples; each sum is computed by one thread in a fixed order, so the bits do not depend on the
 * number of threads. */
static void oracle(struct problem *p)
{
    enum { CHUNK = 1024 };
    const struct test_case *c = &p->c;
    const size_t phases = (size_t)(c->n[0] + c->n[1] + c->n[2]), lines = (size_t)c->n[1] * (size_t)c->n[2];
    const size_t which = c->batch > 1 ? 2 : 1, last = (size_t)c->batch - 1;
    double complex *phase = take(CHUNK * phases * sizeof *phase);
    p->true_image = take(2 * p->pixels * sizeof *p->true_image);
    p->true_data = take(2 * c->samples * sizeof *p->true_data);
    for (size_t first = 0; first < c->samples; first += CHUNK) {
        const size_t count = c->samples - first < CHUNK ? c->samples - first : CHUNK;
#pragma omp parallel
        {
#pragma omp for
            for (size_t m = 0; m < count; m++)
                fill_phases(c, p->k + (first + m) * (size_t)c->dim, phase + m * phases);
#pragma omp for nowait
            for (size_t i = 0; i < lines * which; i++)
                oracle_line(p, first, count, phase, i % lines, i < lines ? 0 : last,
                            p->true_image + i / lines * p->pixels);
#pragma omp for
            for (size_t m = 0; m < count; m++)
                for (size_t i = 0; i < which; i++)
                    p->true_data[i * c->samples + first + m] =
                        p->weights[first + m] * oracle_sample(p, phase + m * phases, i ? last : 0);
        }
    }
    if (which == 1) {
        memcpy(p->true_image + p->pixels, p->true_image, p->pixels * sizeof *p->true_image);
        memcpy(p->true_data + c->samples, p->true_data, c->samples * sizeof *p->true_data);
    }
    free(phase);
}

static void problem_make(struct problem *p, const struct test_case *c, bool with_oracle)
{
    memset(p, 0, sizeof *p);
    p->c = *c;
    p->pixels = (size_t)c->n[0] * (size_t)c->n[1] * (size_t)c->n[2];
    p->k = take(c->samples * (size_t)c->dim * sizeof *p->k);
    p->weights = take(c->samples * sizeof *p->weights);
    p->data = take((size_t)c->batch * c->samples * sizeof *p->data);
    p->image = take((size_t)c->batch * p->pixels * sizeof *p->image);
    fill_k(c, p->k);
    for (size_t m = 0; m < c->samples; m++)
        p->weights[m] = (float)(0.2 + uniform(77 + m));
    fill_complex(p->data, (size_t)c->batch * c->samples, 5000000);
    fill_complex(p->image, (size_t)c->batch * p->pixels, 9000000);
    if (with_oracle)
        oracle(p);
}

static void problem_free(struct problem *p)
{
    free(p->k);
    free(p->weights);
    free(p->data);
    free(p->image);
    free(p->true_image);
    free(p->true_data);
}

static inline double distance(const struct c32 *got, const double complex *wanted, size_t count)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        double complex d = got[i].re + got[i].im * I - wanted[i];
        off += creal(d) * creal(d) + cimag(d) * cimag(d);
        all += creal(wanted[i]) * creal(wanted[i]) + cimag(wanted[i]) * cimag(wanted[i]);
    }
    return sqrt(off / all);
}

static inline double distance_between(const struct c32 *a, const struct c32 *b, size_t count)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        double re = (double)a[i].re - b[i].re, im = (double)a[i].im - b[i].im;
        off += re * re + im * im;
        all += (double)b[i].re * b[i].re + (double)b[i].im * b[i].im;
    }
    return sqrt(off / all);
}

static inline double complex dot(const struct c32 *a, const struct c32 *b, size_t count)
{
    double complex s = 0;
    for (size_t i = 0; i < count; i++)
        s += ((double)a[i].re - (double)a[i].im * I) * (b[i].re + b[i].im * I);
    return s;
}

#endif
