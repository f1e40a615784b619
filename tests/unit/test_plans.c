/* Plans of the NUFFT on the CPU at random: none errs by more than it expects (nufft_info.expected_error), whatever the
 * samples' places and values and the scale of both.
 *
 *   test_plans [PLANS [SEED]]   40 plans by default; the worst one is told */
#include "gridding/base/err.h"
#include "gridding/nufft/nufft.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>

/* CELL to POINT: all samples in one cell, around the edge or a corner of k-space, in one point; MIXED: half of them. */
enum place { CELL, EDGE, CORNER, POINT, MIXED, UNIFORM, SPOKES, PLACES };
enum values { RANDOM, ONE_SIGN, CORNER_PIXEL, CENTRE_PIXEL, VALUES };

struct plan_case {
    int dim, n[3], width;
    enum nufft_kernel kernel;
    double oversampling, tolerance, scale; /* scale: of the data */
    size_t samples;
    enum place place;
    enum values values;
    uint64_t seed;
};

static const char *const place_name[] = {"cell", "edge", "corner", "point", "mixed", "uniform", "spokes"};
static const char *const values_name[] = {"random", "one sign", "corner pixel", "centre pixel"};

static struct plan_case case_make(uint64_t seed, double most_samples)
{
    static const double scales[] = {1, 1, 1e-35, 1e30};
    struct plan_case c = {.seed = seed, .n = {1, 1, 1}};
    c.dim = 2 + (int)(splitmix(seed) % 2);
    c.kernel = splitmix(seed + 1) % 5 == 0 ? NUFFT_RADIAL : NUFFT_SEPARABLE;
    for (int d = 0; d < c.dim; d++)
        c.n[d] = c.dim == 2 ? 10 + (int)(uniform(seed + 2 + (uint64_t)d) * 54)
                            : 4 + (int)(uniform(seed + 2 + (uint64_t)d) * 20);
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

/* The pixels of an axis that are compared: all of few, else some from edge to edge. */
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

/* Relative to the image or, where its sums cancel by chance, to what they come to in the mean over random places. */
static double adjoint_error(const struct plan_case *c, const float *k, const struct c32 *data, const struct c32 *image)
{
    int line[3][LINES_MOST] = {{0}}, count[3] = {1, 1, 1};
    for (int d = 0; d < c->dim; d++)
        count[d] = lines_of(c, d, line[d]);
    const size_t pixels = (size_t)(count[0] * count[1] * count[2]);
    double complex *sum = allocate(pixels, sizeof *sum);
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

/* The error of a plan over what it expects. */
static double try_plan(struct dev *dev, const struct plan_case *c, struct nufft_info *info, double *error)
{
    float *k = allocate(c->samples * (size_t)c->dim, sizeof *k);
    struct c32 *data = allocate(c->samples, sizeof *data);
    struct c32 *image = allocate((size_t)c->n[0] * (size_t)c->n[1] * (size_t)c->n[2], sizeof *image);
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
                                        .batch = 1};
    struct nufft *plan;
    if (nufft_create(&plan, dev, &params, c->samples, k) != 0)
        fail_msg("%s", err_last()->text);
    nufft_describe(plan, info);
    assert_int_equal(nufft_adjoint(plan, 1, data, image), 0);
    *error = adjoint_error(c, k, data, image);
    nufft_free(plan);
    free(k);
    free(data);
    free(image);
    return *error / info->expected_error;
}

static void tell(const char *what, const struct plan_case *c, const struct nufft_info *info, double error, double ratio)
{
    printf("# %s%.2f of what was expected: error %.3g, %d-D, %d x %d x %d on %d x %d x %d, %s, width %d, oversampling "
           "%.3f, tolerance %.1g, %s, %s, %zu samples, scale %g\n",
           what, ratio, error, c->dim, c->n[0], c->n[1], c->n[2], info->grid[0], info->grid[1], info->grid[2],
           c->kernel == NUFFT_RADIAL ? "radial" : "separable", info->width, info->oversampling, c->tolerance,
           place_name[c->place], values_name[c->values], c->samples, c->scale);
}

static int plans = 40;
static uint64_t first_seed = 4711;

static void no_plan_errs_by_more_than_it_expects(void **state)
{
    (void)state;
    struct dev *dev;
    struct plan_case worst_case = {0};
    struct nufft_info info, worst_info = {0};
    double worst = 0, worst_error = 0, error;
    int beyond = 0;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    for (int i = 0; i < plans; i++) {
        const struct plan_case c = case_make(first_seed + 100 * (uint64_t)i, plans > 100 ? 60000 : 5000);
        const double ratio = try_plan(dev, &c, &info, &error);
        if (!(ratio <= 1)) {
            beyond++;
            tell("", &c, &info, error, ratio);
        }
        if (!(ratio <= worst)) {
            worst = ratio;
            worst_case = c;
            worst_info = info;
            worst_error = error;
        }
    }
    tell("the worst: ", &worst_case, &worst_info, worst_error, worst);
    dev_free(dev);
    if (beyond > 0)
        fail_msg("%d of %d plans err by more than they expect, by up to %.2f times as much", beyond, plans, worst);
}

/* Sums of float32 would err by the number of samples times 2^-25 where all have one sign and one place. */
static void many_samples_in_one_place_do_not_err_more(void **state)
{
    (void)state;
    struct dev *dev;
    struct nufft_info info;
    double error;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    for (int dim = 2; dim <= 3; dim++) {
        const struct plan_case c = {.dim = dim,
                                    .n = {6, 5, dim == 3 ? 4 : 1},
                                    .width = 7,
                                    .oversampling = 2,
                                    .tolerance = dim == 2 ? 1e-5 : 1e-3,
                                    .scale = 1,
                                    .samples = 60000,
                                    .place = POINT,
                                    .values = ONE_SIGN,
                                    .seed = 3};
        const double ratio = try_plan(dev, &c, &info, &error);
        if (!(ratio <= 1)) {
            tell("", &c, &info, error, ratio);
            fail_msg("%.3g is %.2f times what was expected", error, ratio);
        }
    }
    dev_free(dev);
}

int main(int argc, char **argv)
{
    plans = argc > 1 ? atoi(argv[1]) : plans;
    first_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : first_seed;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_plan_errs_by_more_than_it_expects),
        cmocka_unit_test(many_samples_in_one_place_do_not_err_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
