/* The normal operator against direct sums in double precision, and against forward and adjoint. */
#include "gridding/base/err.h"
#include "gridding/nufft/normal.h"
#include "tests/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct problem {
    int dim, n[3], batch;
    size_t samples;
    double tolerance;
    bool weighted;
    size_t pixels;
    float *k, *w;
    struct c32 *image;
};

static void problem_make(struct problem *p)
{
    uint64_t seed = 11;
    p->pixels = (size_t)p->n[0] * (size_t)p->n[1] * (size_t)p->n[2];
    p->k = malloc((p->samples + 1) * 3 * sizeof *p->k);
    p->w = malloc((p->samples + 1) * sizeof *p->w);
    p->image = malloc(p->pixels * (size_t)p->batch * sizeof *p->image);
    assert_true(p->k && p->w && p->image);
    for (size_t m = 0; m < p->samples; m++) {
        double centred = m % 4 ? 1 : 0.1; /* a dense centre, as in MRI */
        for (int d = 0; d < p->dim; d++)
            p->k[m * (size_t)p->dim + (size_t)d] = (float)(centred * (uniform_next(&seed) - 0.5));
        p->w[m] = p->weighted ? (float)(0.1 + uniform_next(&seed)) : 1;
    }
    for (size_t i = 0; i < p->pixels * (size_t)p->batch; i++)
        p->image[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
}

static void problem_free(struct problem *p)
{
    free(p->k);
    free(p->w);
    free(p->image);
}

static double phase(const struct problem *p, size_t m, size_t r)
{
    int at[3] = {(int)(r % (size_t)p->n[0]), (int)(r / (size_t)p->n[0] % (size_t)p->n[1]),
                 (int)(r / (size_t)p->n[0] / (size_t)p->n[1])};
    double turns = 0;
    for (int d = 0; d < p->dim; d++)
        turns += (double)p->k[m * (size_t)p->dim + (size_t)d] * (at[d] - p->n[d] / 2);
    return 2 * 3.14159265358979323846 * (turns - floor(turns));
}

/* Relative l2 distance of `got` from the double sums; the largest over the images. */
static double error_of(const struct problem *p, const struct c32 *got)
{
    double worst = 0;
    double *sum = malloc(2 * p->pixels * sizeof *sum);
    assert_non_null(sum);
    for (int b = 0; b < p->batch; b++) {
        const struct c32 *image = p->image + (size_t)b * p->pixels, *result = got + (size_t)b * p->pixels;
        double off = 0, all = 0;
        memset(sum, 0, 2 * p->pixels * sizeof *sum);
        for (size_t m = 0; m < p->samples; m++) {
            double re = 0, im = 0;
            for (size_t r = 0; r < p->pixels; r++) {
                double c = cos(phase(p, m, r)), s = sin(phase(p, m, r));
                re += image[r].re * c + image[r].im * s;
                im += image[r].im * c - image[r].re * s;
            }
            for (size_t r = 0; r < p->pixels; r++) {
                double c = cos(phase(p, m, r)), s = sin(phase(p, m, r));
                sum[2 * r] += p->w[m] * (re * c - im * s);
                sum[2 * r + 1] += p->w[m] * (re * s + im * c);
            }
        }
        for (size_t r = 0; r < p->pixels; r++) {
            off += pow(sum[2 * r] - result[r].re, 2) + pow(sum[2 * r + 1] - result[r].im, 2);
            all += pow(sum[2 * r], 2) + pow(sum[2 * r + 1], 2);
        }
        worst = fmax(worst, sqrt(off / all));
    }
    free(sum);
    return worst;
}

static struct nufft_params params_of(const struct problem *p)
{
    return (struct nufft_params){.dim = p->dim,
                                 .n = {p->n[0], p->n[1], p->n[2]},
                                 .tolerance = p->tolerance,
                                 .batch = p->batch > 2 ? 2 : p->batch};
}

static struct normal *make(struct dev *dev, const struct problem *p)
{
    struct normal *normal = NULL;
    struct nufft_params params = params_of(p);
    if (normal_create(&normal, dev, &params, p->samples, p->k, p->weighted ? p->w : NULL) != 0)
        fail_msg("%s", err_last()->text);
    return normal;
}

static void test_against_sums(void **state)
{
    (void)state;
    struct problem problems[] = {
        {.dim = 2, .n = {20, 17, 1}, .batch = 3, .samples = 150, .tolerance = 1e-3, .weighted = true},
        {.dim = 2, .n = {11, 24, 1}, .batch = 5, .samples = 90, .tolerance = 1e-5},
        {.dim = 2, .n = {1, 9, 1}, .batch = 1, .samples = 30, .tolerance = 1e-3, .weighted = true},
        {.dim = 3, .n = {8, 7, 10}, .batch = 1, .samples = 120, .tolerance = 1e-3, .weighted = true},
        {.dim = 3, .n = {6, 9, 5}, .batch = 3, .samples = 100, .tolerance = 1e-5, .weighted = true},
    };
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        struct problem *p = &problems[i];
        problem_make(p);
        struct normal *normal = make(dev, p);
        struct c32 *result = malloc(p->pixels * (size_t)p->batch * sizeof *result);
        assert_non_null(result);
        assert_int_equal(normal_apply(normal, p->batch, p->image, result), 0);
        double error = error_of(p, result);
        if (!(error <= p->tolerance))
            fail_msg("case %zu: error %g, allowed %g", i, error, p->tolerance);
        struct normal_info info;
        normal_describe(normal, &info);
        for (int d = 0; d < 3; d++)
            assert_true(info.grid[d] >= (d < p->dim ? 2 * p->n[d] : 1));
        assert_true(info.bytes >= (size_t)info.grid[0] * (size_t)info.grid[1] * (size_t)info.grid[2] * 12);
        assert_true(info.expected_error > 0 && info.expected_error <= p->tolerance);
        free(result);
        normal_free(normal);
        problem_free(p);
    }
    dev_free(dev);
}

static double complex_dot(const struct c32 *a, const struct c32 *b, size_t count, double *im)
{
    double re = 0;
    *im = 0;
    for (size_t i = 0; i < count; i++) {
        re += (double)a[i].re * b[i].re + (double)a[i].im * b[i].im;
        *im += (double)a[i].re * b[i].im - (double)a[i].im * b[i].re;
    }
    return re;
}

/* <N a, b> = <a, N b>, <a, N a> >= 0, also in place, and the same bits with any number of threads. */
static void test_hermitian_and_repeatable(void **state)
{
    (void)state;
    struct problem p = {.dim = 3, .n = {12, 10, 9}, .batch = 2, .samples = 500, .tolerance = 1e-3, .weighted = true};
    struct c32 *first = NULL;
    problem_make(&p);
    size_t count = p.pixels * 2;
    for (int threads = 1; threads <= 3; threads++) {
        struct dev *dev = NULL;
        assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
        struct normal *normal = make(dev, &p);
        struct c32 *result = malloc(count * sizeof *result);
        assert_non_null(result);
        memcpy(result, p.image, count * sizeof *result);
        assert_int_equal(normal_apply(normal, 2, result, result), 0);
        const struct c32 *a = p.image, *b = p.image + p.pixels, *na = result, *nb = result + p.pixels;
        double im1, im2, im3, re1 = complex_dot(na, b, p.pixels, &im1), re2 = complex_dot(a, nb, p.pixels, &im2);
        double size = sqrt(complex_dot(na, na, p.pixels, &im3) * complex_dot(b, b, p.pixels, &im3));
        assert_true(hypot(re1 - re2, im1 - im2) <= 1e-6 * size);
        assert_true(complex_dot(a, na, p.pixels, &im3) > 0);
        assert_true(fabs(im3) <= 1e-6 * size);
        if (first == NULL)
            first = result;
        else {
            assert_memory_equal(first, result, count * sizeof *result);
            free(result);
        }
        normal_free(normal);
        dev_free(dev);
    }
    free(first);
    problem_free(&p);
}

static void test_bad_input(void **state)
{
    (void)state;
    struct dev *dev = NULL;
    struct normal *normal = NULL;
    const float k[2] = {0, 0}, nowhere[2] = {0, NAN};
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    struct nufft_params good = {.dim = 2, .n = {8, 8, 1}, .tolerance = 1e-3, .batch = 1}, bad = good;
    bad.n[1] = NUFFT_SIZE_MOST / 2 + 1;
    assert_int_equal(normal_create(&normal, dev, &bad, 1, k, NULL), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "1024"));
    bad = good;
    bad.batch = 0;
    assert_int_equal(normal_create(&normal, dev, &bad, 1, k, NULL), ERR_BAD_PARAMETER);
    bad = good;
    bad.dim = 4;
    assert_int_equal(normal_create(&normal, dev, &bad, 1, k, NULL), ERR_BAD_PARAMETER);
    assert_int_equal(normal_create(&normal, dev, &good, 1, nowhere, NULL), ERR_TRAJ_NONFINITE);
    assert_null(normal);
    dev_free(dev);
}

/* Operators of the same size can share one set of grids: after exchanging kernels, one gives the other's result, bit
 * for bit. */
static void test_kernels_are_exchanged(void **state)
{
    (void)state;
    enum { N = 15, SAMPLES = 40 };
    struct dev *dev = NULL;
    struct normal *normal[2] = {NULL, NULL};
    float k[2][2 * SAMPLES];
    struct c32 image[N * N], own[N * N], lent[N * N];
    uint64_t seed = 5;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    const struct nufft_params params = {.dim = 2, .n = {N, N, 1}, .tolerance = 1e-3, .batch = 1};
    for (int i = 0; i < N * N; i++)
        image[i] = (struct c32){(float)uniform_next(&seed), (float)uniform_next(&seed)};
    for (int o = 0; o < 2; o++) {
        for (int i = 0; i < 2 * SAMPLES; i++)
            k[o][i] = (float)(uniform_next(&seed) - 0.5);
        assert_int_equal(normal_create(&normal[o], dev, &params, SAMPLES, k[o], NULL), 0);
    }
    struct c32 *kernel = NULL;
    const size_t elements = normal_kernel_elements(normal[0]);
    assert_int_equal(dev_alloc(dev, elements * sizeof *kernel, (void **)&kernel), 0);
    assert_int_equal(normal_kernel_keep(normal[1], kernel), 0);
    assert_int_equal(normal_apply(normal[1], 1, image, own), 0);
    assert_int_equal(normal_apply(normal[0], 1, image, lent), 0);
    assert_memory_not_equal(own, lent, sizeof own);
    assert_int_equal(normal_kernel_use(normal[0], kernel), 0);
    assert_int_equal(normal_apply(normal[0], 1, image, lent), 0);
    assert_memory_equal(own, lent, sizeof own);
    dev_release(dev, kernel);
    normal_free(normal[0]);
    normal_free(normal[1]);
    dev_free(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_sums),
        cmocka_unit_test(test_hermitian_and_repeatable),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_kernels_are_exchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
