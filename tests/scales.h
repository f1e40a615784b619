/* scales.h: what the scale of data and images changes in the transforms of a plan. Included by one source file of a
 * program. */
#ifndef MRIRECON_TEST_SCALES_H
#define MRIRECON_TEST_SCALES_H

#include "tests/plans.h"

/* Transforms of one plan whose data, and then images, are those of the first times a power of two. Values are multiples
 * of 2^VALUE_LEAST, so that they, times the smallest power, are float32 numbers. */
struct scales_case {
    int dim, width, batch;
    enum nufft_method method;
    double tolerance;
    int least; /* the smallest power of the images; that of data is SCALE_LEAST */
};
enum { SCALE_LEAST = -122, SCALE_MOST = 98, VALUE_LEAST = -20 };

static float coarse(double value)
{
    return (float)ldexp(rint(ldexp(value, -VALUE_LEAST)), VALUE_LEAST);
}

static float scale_of(const struct scales_case *c, bool forward, int transform)
{
    const int power[] = {0, forward ? c->least : SCALE_LEAST, SCALE_MOST};
    return ldexpf(1, c->batch == 1 ? power[1] : power[transform % 3]);
}

/* The largest difference between a transform and the first, apart from their scales, relative to the largest value. */
static double apart(const struct c32 *one, float scale, const struct c32 *exact, size_t count)
{
    double off = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        const double re = (double)one[i].re / scale, im = (double)one[i].im / scale;
        const double difference = hypot(re - exact[i].re, im - exact[i].im);
        off = difference <= off ? off : difference; /* also if it is not a number */
        most = fmax(most, hypot(exact[i].re, exact[i].im));
    }
    return off / most;
}

/* The largest differences between transforms: worst[0] of the adjoint, worst[1] of the forward transform. */
static int scales_differ(struct dev *dev, struct nufft *plan, const struct scales_case *c, size_t samples,
                         size_t pixels, double worst[2])
{
    int rc = 0;
    worst[0] = worst[1] = 0;
    for (int forward = 0; !rc && forward < 2; forward++) {
        const size_t in = forward ? pixels : samples, out = forward ? samples : pixels, all = (size_t)c->batch;
        struct c32 *exact = plan_memory(in, sizeof *exact), *values = plan_memory(all * in, sizeof *values);
        struct c32 *wanted = plan_memory(out, sizeof *wanted), *results = plan_memory(all * out, sizeof *results);
        for (size_t i = 0; i < in; i++)
            exact[i] = (struct c32){coarse(uniform(2 * i) - 0.4), coarse(uniform(2 * i + 1) - 0.5)};
        for (size_t i = 0; i < all * in; i++) {
            const float scale = scale_of(c, forward, (int)(i / in));
            values[i] = (struct c32){exact[i % in].re * scale, exact[i % in].im * scale};
        }
        rc = plan_run(dev, plan, forward, 1, exact, in, wanted, out);
        if (!rc)
            rc = plan_run(dev, plan, forward, c->batch, values, in, results, out);
        for (int t = 0; !rc && t < c->batch; t++) {
            const double off = apart(results + (size_t)t * out, scale_of(c, forward, t), wanted, out);
            worst[forward] = off <= worst[forward] ? worst[forward] : off;
        }
        free(exact);
        free(values);
        free(wanted);
        free(results);
    }
    return rc;
}

/* Make a plan and compare its transforms. On failure err_last() says why. */
static int scales_try(struct dev *dev, const struct scales_case *c, struct nufft_info *info, double worst[2])
{
    const size_t samples = 9000, dim = (size_t)c->dim;
    const struct nufft_params params = {.dim = c->dim,
                                        .n = {c->dim == 2 ? 40 : 18, c->dim == 2 ? 44 : 20, c->dim == 2 ? 1 : 17},
                                        .tolerance = c->tolerance,
                                        .width = c->width,
                                        .oversampling = 2,
                                        .batch = c->batch,
                                        .method = c->method};
    float *k = plan_memory(samples * dim, sizeof *k);
    for (size_t i = 0; i < samples * dim; i++)
        k[i] = (float)((uniform(77 + i) - 0.5) * (i / dim % 3 ? 0.1 : 1));
    struct nufft *plan = NULL;
    int rc = nufft_create(&plan, dev, &params, samples, k);
    if (!rc) {
        nufft_describe(plan, info);
        rc = scales_differ(dev, plan, c, samples, (size_t)params.n[0] * (size_t)params.n[1] * (size_t)params.n[2],
                           worst);
    }
    nufft_free(plan);
    free(k);
    return rc;
}

/* Scaling by a power of two is exact, but for what is below float32's normal numbers: 2^-149 of 2^-122, in as many sums
 * as an FFT has. */
#define SCALES_APART 2e-6

/* The forward transform may lose these last bits before it rounds the grid to halves, and a value midway between two
 * halves is then rounded to the other one, 2^-10 of it away. The middle cell has less than half of a kernel's weight on
 * each of three axes, so that it has less than an eighth of a sample's sum. The loss is an eighth of the tolerance of
 * 1e-3 for which single halves are chosen. */
#define HALVES_APART 0x1p-13

#endif
