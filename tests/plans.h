/* plans.h: random NUFFT plans on any device, and the error of their images against double sums, for any positions and
 * values of samples and any scale of both. Included by one source file of a program. */
#ifndef MRIRECON_TEST_PLANS_H
#define MRIRECON_TEST_PLANS_H

#include "gridding/nufft/nufft.h"
#include "tests/random.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Zeroed memory; the caller frees it. */
static void *plan_memory(size_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    if (!memory)
        abort();
    return memory;
}

/* CELL to POINT: all samples in one cell, around the edge or a corner of k-space, at one point; MIXED: half of them. */
enum place { CELL, EDGE, CORNER, POINT, MIXED, UNIFORM, SPOKES, PLACES };
enum values { RANDOM, ONE_SIGN, CORNER_PIXEL, CENTRE_PIXEL, VALUES };

struct plan_case {
    int dim, n[3], width;
    enum nufft_kernel kernel;
    enum nufft_method method;              /* 0: chosen by the plan */
    double oversampling, tolerance, scale; /* scale: of the data */
    size_t samples;
    enum place place;
    enum values values;
    uint64_t seed;
};

static const char *const place_name[] = {"cell", "edge", "corner", "point", "mixed", "uniform", "spokes"};
static const char *const values_name[] = {"random", "one sign", "corner pixel", "centre pixel"};

/* At most `most_samples` samples, with data scaled by at least `least_scale`. */
static struct plan_case case_make(uint64_t seed, double most_samples, double least_scale)
{
    const double scales[] = {1, 1, least_scale, 1e30};
    struct plan_case c = {.seed = seed, .n = {1, 1, 1}};
    c.dim = 2 + (int)(splitmix(seed) % 2);
    c.kernel = splitmix(seed + 1) % 5 == 0 ? NUFFT_RADIAL : NUFFT_SEPARABLE;
    for (int d = 0; d < c.dim; d++)
        c.n[d] = c.dim == 2 ? 10 + (int)(uniform(seed + 2 + (uint64_t)d) * 54)
                            : 4 + (int)(uniform(seed + 2 + (uint64_t)d) * 20);
    if (splitmix(seed + 13) % 5 == 0)
        c.n[splitmix(seed + 14) % (uint64_t)c.dim] = 1 + (int)(splitmix(seed + 15) % 8);
    c.method = splitmix(seed + 16) % 3 ? 0 : (enum nufft_method)(splitmix(seed + 17) % (NUFFT_METHOD_BRICK_DENSE + 1));
    c.width = 2 + (int)(splitmix(seed + 5) % 9);
    const double least = c.kernel == NUFFT_RADIAL ? 1.5 : 1.125;
    c.oversampling = splitmix(seed + 6) % 4 ? least + (2 - least) * uniform(seed + 7) : least;
    c.tolerance = pow(10, -1 - 5 * uniform(seed + 8));
    c.scale = scales[splitmix(seed + 9) % 4];
    c.samples = (size_t)(100 * pow(most_samples / 100, uniform(seed + 10)));
    c.place = (enum place)(splitmix(seed + 11) % PLACES);
    c.values = (enum values)(splitmix(seed + 12) % VALUES);
    return c;
}

static double place_of(const struct plan_case *c, size_t m, int d)
{
    const double u = uniform(c->seed + 1000003 * (uint64_t)(d + 1) + 17 * m), cell = 0.5 / c->n[d];
    const double angle = 1.9416 * (double)(m / 64), tilt = 0.7 * (double)(m / 64), radius = (double)(m % 64) / 64 - 0.5;
    const double flat = c->dim == 3 ? cos(tilt) : 1;
    switch (c->place) {
    case CELL:
        return 0.1 + u * cell;
    case EDGE:
        return (d == 0 ? -0.5 : 0.2) + (u - 0.5) * cell;
    case CORNER:
        return -0.5 + (u - 0.5) * cell;
    case POINT:
        return uniform(c->seed + 500 + (uint64_t)d) - 0.5;
    case MIXED:
        return m % 2 ? (u - 0.5) * cell : u - 0.5;
    case SPOKES:
        return radius * (d == 0 ? flat * cos(angle) : d == 1 ? flat * sin(angle) : sin(tilt));
    default:
        return u - 0.5;
    }
}

static struct c32 value_of(const struct plan_case *c, const float *k, size_t m)
{
    double turns = 0;
    switch (c->values) {
    case ONE_SIGN:
        return (struct c32){(float)(0.6 * c->scale), (float)(0.37 * c->scale)};
    case CORNER_PIXEL:
        for (int d = 0; d < c->dim; d++)
            turns += (double)k[m * (size_t)c->dim + (size_t)d] * (c->n[d] / 2);
        return (struct c32){(float)(c->scale * cos(2 * M_PI * turns)), (float)(c->scale * sin(2 * M_PI * turns))};
    case CENTRE_PIXEL:
        return (struct c32){(float)c->scale, 0};
    default:
        return (struct c32){(float)(c->scale * (uniform(c->seed + 5000000 + 2 * m) - 0.5)),
                            (float)(c->scale * (uniform(c->seed + 5000001 + 2 * m) - 0.5))};
    }
}

/* ---- double sums ---- */

enum { LINES_MOST = 24 };

/* The pixels of an axis that are compared: all if there are few, else some from edge to edge. */
static int lines_of(const struct plan_case *c, int d, int *line)
{
    const int most = c->dim == 2 ? LINES_MOST : 9, n = c->n[d], count = n <= most ? n : most;
    for (int i = 0; i < count; i++)
        line[i] = count == n ? i : (int)((int64_t)i * (n - 1) / (count - 1));
    return count;
}

static double complex turn(double turns)
{
    turns -= floor(turns);
    return cos(2 * M_PI * turns) + I * sin(2 * M_PI * turns);
}

/* The adjoint at the pixels that are compared: sum[z][y][x]. */
static void sum_pixels(const struct plan_case *c, const float *k, const struct c32 *data, const int count[3],
                       int (*line)[LINES_MOST], double complex *sum)
{
    for (size_t m = 0; m < c->samples; m++) {
        double complex axis[3][LINES_MOST] = {{1}, {1}, {1}};
        for (int d = 0; d < c->dim; d++)
            for (int i = 0; i < count[d]; i++)
                axis[d][i] = turn((double)k[m * (size_t)c->dim + (size_t)d] * (line[d][i] - c->n[d] / 2));
        double *to = (double *)sum;
        for (int z = 0; z < count[2]; z++)
            for (int y = 0; y < count[1]; y++) {
                const double complex f =
                    axis[2][z] * axis[1][y] * (data[m].re / c->scale + I * (data[m].im / c->scale));
                for (int x = 0; x < count[0]; x++, to += 2) {
                    to[0] += creal(f) * creal(axis[0][x]) - cimag(f) * cimag(axis[0][x]);
                    to[1] += creal(f) * cimag(axis[0][x]) + cimag(f) * creal(axis[0][x]);
                }
            }
    }
}

/* Relative to the image, or to its expected size over random positions if the sums cancel by chance. */
static double adjoint_error(const struct plan_case *c, const float *k, const struct c32 *data, const struct c32 *image)
{
    int line[3][LINES_MOST] = {{0}}, count[3] = {1, 1, 1};
    for (int d = 0; d < c->dim; d++)
        count[d] = lines_of(c, d, line[d]);
    const size_t pixels = (size_t)(count[0] * count[1] * count[2]);
    double complex *sum = plan_memory(pixels, sizeof *sum);
    double off = 0, all = 0, energy = 0;
    sum_pixels(c, k, data, count, line, sum);
    for (size_t m = 0; m < c->samples; m++)
        energy += pow((double)data[m].re / c->scale, 2) + pow((double)data[m].im / c->scale, 2);
    for (size_t p = 0; p < pixels; p++) {
        const size_t x = (size_t)line[0][p % (size_t)count[0]],
                     y = (size_t)line[1][p / (size_t)count[0] % (size_t)count[1]],
                     z = (size_t)line[2][p / (size_t)count[0] / (size_t)count[1]];
        const struct c32 v = image[(z * (size_t)c->n[1] + y) * (size_t)c->n[0] + x];
        off += pow((double)v.re / c->scale - creal(sum[p]), 2) + pow((double)v.im / c->scale - cimag(sum[p]), 2);
        all += pow(creal(sum[p]), 2) + pow(cimag(sum[p]), 2);
    }
    free(sum);
    return sqrt(off / fmax(all, (double)pixels * energy));
}

/* ---- plans ---- */

/* Make the plan and its image; returns the plan's properties and the image's error. On failure err_last() says why. */
static int plan_try(struct dev *dev, const struct plan_case *c, struct nufft_info *info, double *error)
{
    const size_t pixels = (size_t)c->n[0] * (size_t)c->n[1] * (size_t)c->n[2];
    float *k = plan_memory(c->samples * (size_t)c->dim, sizeof *k);
    struct c32 *data = plan_memory(c->samples, sizeof *data), *image = plan_memory(pixels, sizeof *image);
    for (size_t m = 0; m < c->samples; m++) {
        for (int d = 0; d < c->dim; d++)
            k[m * (size_t)c->dim + (size_t)d] = (float)place_of(c, m, d);
        data[m] = value_of(c, k, m);
    }
    const struct nufft_params params = {.dim = c->dim,
                                        .n = {c->n[0], c->n[1], c->n[2]},
                                        .tolerance = c->tolerance,
                                        .kernel = c->kernel,
                                        .width = c->width,
                                        .oversampling = c->oversampling,
                                        .batch = 1,
                                        .method = c->method};
    struct nufft *plan = NULL;
    void *device_data = NULL, *device_image = NULL;
    int rc = nufft_create(&plan, dev, &params, c->samples, k);
    if (!rc)
        rc = dev_alloc(dev, c->samples * sizeof *data, &device_data);
    if (!rc)
        rc = dev_alloc(dev, pixels * sizeof *image, &device_image);
    if (!rc)
        rc = dev_upload(dev, device_data, data, c->samples * sizeof *data);
    if (!rc)
        rc = nufft_adjoint(plan, 1, device_data, device_image);
    if (!rc)
        rc = dev_download(dev, image, device_image, pixels * sizeof *image);
    if (!rc) {
        nufft_describe(plan, info);
        *error = adjoint_error(c, k, data, image);
    }
    nufft_free(plan);
    dev_release(dev, device_data);
    dev_release(dev, device_image);
    free(k);
    free(data);
    free(image);
    return rc;
}

/* Print a line: `what`, the error divided by the estimate, and the plan. */
static void plan_tell(const char *what, const struct plan_case *c, const struct nufft_info *info, double error)
{
    printf("# %s%.3f of the estimate: error %.3g, %d-D, %d x %d x %d on %d x %d x %d, %s, %d products, %s, width "
           "%d, oversampling %.3f, tolerance %.1g, %s, %s, %zu samples, scale %g\n",
           what, error / info->expected_error, error, c->dim, c->n[0], c->n[1], c->n[2], info->grid[0], info->grid[1],
           info->grid[2], nufft_method_name(info->method), info->products,
           c->kernel == NUFFT_RADIAL ? "radial" : "separable", info->width, info->oversampling, c->tolerance,
           place_name[c->place], values_name[c->values], c->samples, c->scale);
}

static int ratio_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The distribution of error over estimate, printed so that an estimate that is far too large is noticed. */
static void ratios_tell(double *ratio, int plans)
{
    static const double part[] = {0.05, 0.25, 0.5, 0.75, 0.95};
    qsort(ratio, (size_t)plans, sizeof *ratio, ratio_compare);
    printf("# error divided by its estimate:");
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        printf("%s %.0f %% of plans below %.3f", i ? "," : "", 100 * part[i], ratio[(int)(part[i] * (plans - 1))]);
    printf("\n");
}

/* ---- scales ---- */

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

/* One direction of a plan: values[batch][in] to results[batch][out], on the host. */
static int scales_run(struct dev *dev, struct nufft *plan, bool forward, int batch, const struct c32 *values, size_t in,
                      struct c32 *results, size_t out)
{
    void *from = NULL, *to = NULL;
    int rc = dev_alloc(dev, (size_t)batch * in * sizeof *values, &from);
    if (!rc)
        rc = dev_alloc(dev, (size_t)batch * out * sizeof *results, &to);
    if (!rc)
        rc = dev_upload(dev, from, values, (size_t)batch * in * sizeof *values);
    if (!rc)
        rc = forward ? nufft_forward(plan, batch, from, to) : nufft_adjoint(plan, batch, from, to);
    if (!rc)
        rc = dev_download(dev, results, to, (size_t)batch * out * sizeof *results);
    dev_release(dev, from);
    dev_release(dev, to);
    return rc;
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
        rc = scales_run(dev, plan, forward, 1, exact, in, wanted, out);
        if (!rc)
            rc = scales_run(dev, plan, forward, c->batch, values, in, results, out);
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

struct plan_search {
    int plans;
    uint64_t seed;
    double most_samples, least_scale;
    bool all; /* print every plan, else those that exceed their estimate and the worst */
};

/* Try random plans from a seed on; returns how many exceed their estimate, or -1 if one could not be made. */
static int plans_try(struct dev *dev, const struct plan_search *search, double *worst)
{
    struct plan_case worst_case = {0};
    struct nufft_info info, worst_info = {0};
    double worst_error = 0, error, *ratios = plan_memory((size_t)search->plans, sizeof *ratios);
    int beyond = 0, made = 0;
    *worst = 0;
    for (; made < search->plans; made++) {
        const struct plan_case c =
            case_make(search->seed + 100 * (uint64_t)made, search->most_samples, search->least_scale);
        if (plan_try(dev, &c, &info, &error) != 0)
            break;
        const double ratio = ratios[made] = error / info.expected_error;
        beyond += !(ratio <= 1);
        if (!(ratio <= 1) || search->all)
            plan_tell("", &c, &info, error);
        if (!(ratio <= *worst)) {
            *worst = ratio;
            worst_case = c;
            worst_info = info;
            worst_error = error;
        }
    }
    if (made == search->plans) {
        plan_tell("the worst: ", &worst_case, &worst_info, worst_error);
        ratios_tell(ratios, made);
    }
    free(ratios);
    return made == search->plans ? beyond : -1;
}

#endif
