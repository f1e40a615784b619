/* plans.h: random NUFFT plans on any device, and the errors of their adjoint and forward transforms against double
 * sums, for any number of transforms, positions and values of samples, and any scale. Included by one source file of a
 * program. */
#ifndef MRIRECON_TEST_PLANS_H
#define MRIRECON_TEST_PLANS_H

#include "gridding/nufft/nufft.h"
#include "gridding/range/kernel.h"
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

enum { ADJOINT, FORWARD, WAYS };
static const char *const way_name[WAYS] = {"adjoint", "forward"};

/* CELL to POINT: all samples in one cell, around the edge or a corner of k-space, at one point; MIXED: half of them. */
enum place { CELL, EDGE, CORNER, POINT, MIXED, UNIFORM, SPOKES, PLACES };
/* Of samples. The image of a forward transform: random, constant, one pixel in the corner or in the centre. */
enum values { RANDOM, ONE_SIGN, CORNER_PIXEL, CENTRE_PIXEL, VALUES };

struct plan_case {
    int dim, n[3], width, batch, checked; /* checked: the transform whose error is computed */
    enum nufft_kernel kernel;
    enum nufft_method method; /* 0: chosen by the plan, for the purpose */
    enum nufft_purpose purpose;
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
    static const int batches[] = {1, 2, 4, 8, 17};
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
    c.batch = batches[splitmix(seed + 18) % (sizeof batches / sizeof *batches)];
    c.checked = (int)(splitmix(seed + 19) % (uint64_t)c.batch);
    c.purpose = (enum nufft_purpose)(splitmix(seed + 20) % (NUFFT_FOR_BOTH + 1));
    return c;
}

/* Few pixels on a tight grid, all samples at one point and of one sign: the outermost pixels, in which deapodisation
 * amplifies roundings by up to thousands, are much of the image, and roundings are correlated. */
static struct plan_case case_tight(uint64_t seed)
{
    struct plan_case c = {.n = {1, 1, 1},
                          .batch = 1,
                          .tolerance = splitmix(seed) % 2 ? 1e-5 : 1e-3,
                          .scale = 1,
                          .samples = 250 + (size_t)(splitmix(seed + 1) % 2000),
                          .place = POINT,
                          .values = ONE_SIGN,
                          .seed = seed};
    c.dim = 2 + (int)(splitmix(seed + 2) % 2);
    for (int d = 0; d < c.dim; d++)
        c.n[d] = 2 * (2 + (int)(splitmix(seed + 3 + (uint64_t)d) % (c.dim == 2 ? 19 : 9)));
    c.method = splitmix(seed + 6) % 3 ? 0 : NUFFT_METHOD_TILES;
    c.width = 5 + (int)(splitmix(seed + 7) % 6);
    c.oversampling = 1.125 + 0.5 * pow(uniform(seed + 8), 2);
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

static struct c32 random_value(uint64_t seed, double scale)
{
    return (struct c32){(float)(scale * (uniform(seed) - 0.5)), (float)(scale * (uniform(seed + 1) - 0.5))};
}

/* Sample m of a transform. */
static struct c32 value_of(const struct plan_case *c, const float *k, int transform, size_t m)
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
        return random_value(c->seed + 5000000 + 2 * ((size_t)transform * c->samples + m), c->scale);
    }
}

static size_t pixels_of(const struct plan_case *c)
{
    return (size_t)c->n[0] * (size_t)c->n[1] * (size_t)c->n[2];
}

/* Of the forward transform's images: a GPU's forward transform of several 2-D images keeps less of smaller ones
 * (nufft.h), which test_scales() of test_gpu_plans looks at. */
static double image_scale(const struct plan_case *c)
{
    return fmax(c->scale, 1e-33);
}

/* A pixel of a transform's image. */
static struct c32 pixel_of(const struct plan_case *c, int transform, size_t pixel)
{
    const double scale = image_scale(c);
    const size_t centre =
        ((size_t)(c->n[2] / 2) * (size_t)c->n[1] + (size_t)(c->n[1] / 2)) * (size_t)c->n[0] + (size_t)(c->n[0] / 2);
    switch (c->values) {
    case ONE_SIGN:
        return (struct c32){(float)(0.6 * scale), (float)(0.37 * scale)};
    case CORNER_PIXEL:
        return (struct c32){pixel == 0 ? (float)scale : 0, 0};
    case CENTRE_PIXEL:
        return (struct c32){pixel == centre ? (float)scale : 0, 0};
    default:
        return random_value(c->seed + 9000000 + 2 * ((size_t)transform * pixels_of(c) + pixel), scale);
    }
}

/* ---- double sums ---- */

enum { LINES_MOST = 24, AXIS_MOST = 64 };

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

/* The forward transform at sample m, of an image scaled to 1. */
static double complex sum_sample(const struct plan_case *c, const float *k, const struct c32 *image, double scale)
{
    double complex axis[3][AXIS_MOST] = {{1}, {1}, {1}}, sum = 0;
    for (int d = 0; d < c->dim; d++)
        for (int i = 0; i < c->n[d]; i++)
            axis[d][i] = turn(-(double)k[d] * (i - c->n[d] / 2));
    for (int z = 0; z < c->n[2]; z++)
        for (int y = 0; y < c->n[1]; y++) {
            double re = 0, im = 0;
            for (int x = 0; x < c->n[0]; x++, image++) {
                re += image->re / scale * creal(axis[0][x]) - image->im / scale * cimag(axis[0][x]);
                im += image->re / scale * cimag(axis[0][x]) + image->im / scale * creal(axis[0][x]);
            }
            sum += (re + I * im) * (axis[2][z] * axis[1][y]);
        }
    return sum;
}

/* At samples chosen at random; relative to them, or likewise to their expected size. */
static double forward_error(const struct plan_case *c, const float *k, const struct c32 *image, const struct c32 *data)
{
    enum { CHECKED = 500 };
    const double scale = image_scale(c);
    double off = 0, all = 0, energy = 0;
    for (size_t p = 0; p < pixels_of(c); p++)
        energy += pow((double)image[p].re / scale, 2) + pow((double)image[p].im / scale, 2);
    for (int i = 0; i < CHECKED; i++) {
        const size_t m = splitmix(c->seed + 700 + (uint64_t)i) % c->samples;
        const double complex sum = sum_sample(c, k + m * (size_t)c->dim, image, scale);
        off += pow((double)data[m].re / scale - creal(sum), 2) + pow((double)data[m].im / scale - cimag(sum), 2);
        all += pow(creal(sum), 2) + pow(cimag(sum), 2);
    }
    return sqrt(off / fmax(all, CHECKED * energy));
}

/* By how much more than in the mean over an image deapodisation amplifies an error in its corner, in amplitude. */
static double corner_gain(const struct plan_case *c, const struct nufft_info *info)
{
    enum { STEPS = 16 };
    double gain = 1;
    for (int d = 0; d < c->dim && c->kernel == NUFFT_SEPARABLE; d++) {
        double mean = 0;
        for (int i = 0; i < STEPS; i++)
            mean +=
                pow(kernel_transform(info->width, info->beta, 0.5 * c->n[d] * (i + 0.5) / STEPS / info->grid[d]), -2);
        gain /= kernel_transform(info->width, info->beta, (double)(c->n[d] / 2) / info->grid[d]) * sqrt(mean / STEPS);
    }
    return fmax(gain, 1);
}

/* The factor by which a forward transform's error may exceed the estimate, which is its root mean square over positions
 * of samples and over an image's pixels. Samples in one place share one random error, which exceeds three times that
 * with a probability of exp(-9); and of a constant image the few samples around the centre, which are all that is not
 * small. An image that is one pixel in the corner has all of its aliasing there, of which the
 * estimate takes half, and its rounding errors are amplified as there. */
static double forward_excess(const struct plan_case *c, const struct nufft_info *info)
{
    const bool spread = (c->place == UNIFORM || c->place == SPOKES) && c->values != ONE_SIGN;
    return (spread ? 1 : 3) * (c->values == CORNER_PIXEL ? M_SQRT2 * corner_gain(c, info) : 1);
}

/* ---- plans ---- */

/* One way of a plan: values[batch][in] to results[batch][out], on the host. */
static int plan_run(struct dev *dev, struct nufft *plan, int way, int batch, const struct c32 *values, size_t in,
                    struct c32 *results, size_t out)
{
    void *from = NULL, *to = NULL;
    int rc = dev_alloc(dev, (size_t)batch * in * sizeof *values, &from);
    if (!rc)
        rc = dev_alloc(dev, (size_t)batch * out * sizeof *results, &to);
    if (!rc)
        rc = dev_upload(dev, from, values, (size_t)batch * in * sizeof *values);
    if (!rc)
        rc = way == FORWARD ? nufft_forward(plan, batch, from, to) : nufft_adjoint(plan, batch, from, to);
    if (!rc)
        rc = dev_download(dev, results, to, (size_t)batch * out * sizeof *results);
    dev_release(dev, from);
    dev_release(dev, to);
    return rc;
}

static int plan_make(struct nufft **plan, struct dev *dev, const struct plan_case *c, const float *k)
{
    const struct nufft_params params = {.dim = c->dim,
                                        .n = {c->n[0], c->n[1], c->n[2]},
                                        .tolerance = c->tolerance,
                                        .kernel = c->kernel,
                                        .width = c->width,
                                        .oversampling = c->oversampling,
                                        .batch = c->batch,
                                        .method = c->method,
                                        .purpose = c->purpose};
    return nufft_create(plan, dev, &params, c->samples, k);
}

/* Make the plan and both transforms; returns the plan's properties and the transforms' errors. On failure err_last()
 * says why. */
static int plan_try(struct dev *dev, const struct plan_case *c, struct nufft_info *info, double error[WAYS])
{
    const size_t pixels = pixels_of(c), batch = (size_t)c->batch, samples = c->samples, t = (size_t)c->checked;
    float *k = plan_memory(samples * (size_t)c->dim, sizeof *k);
    struct c32 *data = plan_memory(batch * samples, sizeof *data), *image = plan_memory(batch * pixels, sizeof *image);
    struct c32 *to_data = plan_memory(batch * samples, sizeof *data);
    struct c32 *to_image = plan_memory(batch * pixels, sizeof *image);
    struct nufft *plan = NULL;
    for (size_t i = 0; i < samples * (size_t)c->dim; i++)
        k[i] = (float)place_of(c, i / (size_t)c->dim, (int)(i % (size_t)c->dim));
    for (size_t i = 0; i < batch * samples; i++)
        data[i] = value_of(c, k, (int)(i / samples), i % samples);
    for (size_t i = 0; i < batch * pixels; i++)
        image[i] = pixel_of(c, (int)(i / pixels), i % pixels);
    int rc = plan_make(&plan, dev, c, k);
    if (!rc)
        rc = plan_run(dev, plan, ADJOINT, c->batch, data, samples, to_image, pixels);
    if (!rc)
        rc = plan_run(dev, plan, FORWARD, c->batch, image, pixels, to_data, samples);
    if (!rc) {
        nufft_describe(plan, info);
        error[ADJOINT] = adjoint_error(c, k, data + t * samples, to_image + t * pixels);
        error[FORWARD] = forward_error(c, k, image + t * pixels, to_data + t * samples);
    }
    nufft_free(plan);
    void *held[] = {k, data, image, to_data, to_image};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        free(held[i]);
    return rc;
}

/* Print a line: `what`, the error divided by the estimate, and the plan. */
static void plan_tell(const char *what, const struct plan_case *c, const struct nufft_info *info, int way, double error)
{
    printf("# %s%.3f of the estimate: %s, error %.3g, %d transforms, %d-D, %d x %d x %d on %d x %d x %d, %s, %d "
           "products, %s, width %d, oversampling %.3f, tolerance %.1g, %s, %s, %zu samples, scale %g\n",
           what, error / info->expected_error, way_name[way], error, c->batch, c->dim, c->n[0], c->n[1], c->n[2],
           info->grid[0], info->grid[1], info->grid[2], nufft_method_name(info->method), info->products,
           c->kernel == NUFFT_RADIAL ? "radial" : "separable", info->width, info->oversampling, c->tolerance,
           place_name[c->place], values_name[c->values], c->samples, c->scale);
}

static int ratio_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The distribution of error over estimate, printed so that an estimate that is far too large is noticed. */
static void ratios_tell(int way, double *ratio, int plans)
{
    static const double part[] = {0.05, 0.25, 0.5, 0.75, 0.95};
    qsort(ratio, (size_t)plans, sizeof *ratio, ratio_compare);
    printf("# %s, error divided by its estimate:", way_name[way]);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        printf("%s %.0f %% of plans below %.3f", i ? "," : "", 100 * part[i], ratio[(int)(part[i] * (plans - 1))]);
    printf("\n");
}

/* ---- many plans ---- */

struct plan_search {
    int plans;
    uint64_t seed;
    double most_samples, least_scale;
    bool all;   /* print every plan, else those that exceed their estimate and the worst */
    bool tight; /* plans of case_tight() */
};

/* The plan with the largest ratio of one way. */
struct plan_worst {
    double ratio, error;
    struct plan_case c;
    struct nufft_info info;
};

/* Try random plans from a seed on; returns how many exceed their estimate, or -1 if one could not be made. worst: the
 * largest ratios of error and estimate; the forward transform's are divided by forward_excess(). */
static int plans_try(struct dev *dev, const struct plan_search *search, double worst[WAYS])
{
    struct plan_worst of[WAYS] = {{.ratio = 0}, {.ratio = 0}};
    double *ratios[WAYS];
    int beyond = 0, made = 0;
    for (int way = 0; way < WAYS; way++)
        ratios[way] = plan_memory((size_t)search->plans, sizeof **ratios);
    for (; made < search->plans; made++) {
        const uint64_t seed = search->seed + 100 * (uint64_t)made;
        const struct plan_case c =
            search->tight ? case_tight(seed) : case_make(seed, search->most_samples, search->least_scale);
        struct nufft_info info;
        double error[WAYS];
        if (plan_try(dev, &c, &info, error) != 0)
            break;
        bool within = true;
        for (int way = 0; way < WAYS; way++) {
            const double bound = info.expected_error * (way == FORWARD ? forward_excess(&c, &info) : 1);
            /* A plan for adjoints expects nothing of forward transforms whose grid is rounded. */
            const bool judged = way == ADJOINT || c.purpose != NUFFT_FOR_ADJOINT || info.products != 1;
            const double ratio = judged ? error[way] / bound : 0;
            ratios[way][made] = ratio;
            within = within && ratio <= 1;
            if (!(ratio <= 1) || search->all)
                plan_tell("", &c, &info, way, error[way]);
            if (!(ratio <= of[way].ratio))
                of[way] = (struct plan_worst){ratio, error[way], c, info};
        }
        beyond += !within;
    }
    for (int way = 0; way < WAYS; way++) {
        if (made == search->plans) {
            plan_tell("the worst: ", &of[way].c, &of[way].info, way, of[way].error);
            ratios_tell(way, ratios[way], made);
        }
        worst[way] = of[way].ratio;
        free(ratios[way]);
    }
    return made == search->plans ? beyond : -1;
}

#endif
