/* Vector arithmetic compared with the formula in double precision, and the same bits for any number of threads. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "tests/random.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N = 70001, COILS = 3 }; /* more than a single thread processes */

struct vectors {
    struct c32 x[N], y[N], m[COILS * N], ym[COILS * N];
    double dot;
};

static void fill(struct c32 *v, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        v[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
}

static struct vectors *vectors_make(void)
{
    struct vectors *v = malloc(sizeof *v);
    assert_non_null(v);
    fill(v->x, N, 1);
    fill(v->y, N, 2);
    fill(v->m, COILS * N, 3);
    fill(v->ym, COILS * N, 4);
    return v;
}

/* Every function once, each on the result of the previous one. */
static struct vectors *vectors_run(int threads)
{
    struct vectors *v = vectors_make();
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
    assert_true(vec_available(dev));
    assert_int_equal(vec_axpy(dev, N, 0.5f, v->x, v->y), 0);
    assert_int_equal(vec_xpay(dev, N, v->x, -2, v->y), 0);
    assert_int_equal(vec_scale(dev, N, 3, v->y), 0);
    assert_int_equal(vec_multiply(dev, N, COILS, v->m, v->x, v->ym), 0);
    assert_int_equal(vec_multiply_conj_add(dev, N, COILS, v->m, v->ym, v->y), 0);
    assert_int_equal(vec_soft(dev, N, 0.4f, v->x), 0);
    assert_int_equal(vec_dot(dev, N, v->x, v->y, &v->dot), 0);
    assert_int_equal(vec_copy(dev, N, v->y, v->ym), 0);
    dev_free(dev);
    return v;
}

static double complex of(struct c32 v)
{
    return (double)v.re + I * (double)v.im;
}

static void test_formulas(void **state)
{
    (void)state;
    struct vectors *was = vectors_make(), *is = vectors_run(1);
    double dot = 0;
    for (size_t i = 0; i < N; i++) {
        const double complex x = of(was->x[i]);
        double complex y = 3 * (x - 2 * (of(was->y[i]) + 0.5 * x));
        for (size_t c = 0; c < COILS; c++)
            y += conj(of(was->m[c * N + i])) * of(was->m[c * N + i]) * x;
        const double complex soft = cabs(x) <= 0.4 ? 0 : x * (1 - 0.4 / cabs(x));
        /* A few float32 roundings of numbers up to 10. */
        assert_true(cabs(of(is->y[i]) - y) < 5e-6);
        assert_true(cabs(of(is->x[i]) - soft) < 5e-7);
        dot += creal(conj(of(is->x[i])) * of(is->y[i]));
    }
    assert_true(fabs(is->dot - dot) <= 1e-12 * N);
    assert_memory_equal(is->ym, is->y, N * sizeof *is->y);
    free(was);
    free(is);
}

static void test_same_bits_for_any_threads(void **state)
{
    (void)state;
    struct vectors *one = vectors_run(1);
    for (int threads = 2; threads <= 5; threads++) {
        struct vectors *more = vectors_run(threads);
        assert_memory_equal(one, more, sizeof *one);
        free(more);
    }
    free(one);
}

/* The dot product of many small numbers keeps the digits that a float32 sum would lose. */
static void test_dot_is_double(void **state)
{
    (void)state;
    struct vectors *v = vectors_make();
    struct dev *dev = NULL;
    double dot = 0;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    for (size_t i = 0; i < N; i++)
        v->x[i] = (struct c32){i ? 1e-4f : 1, 0};
    assert_int_equal(vec_dot(dev, N, v->x, v->x, &dot), 0);
    const double small = (double)1e-4f * (double)1e-4f;
    assert_true(fabs(dot - (1 + (N - 1) * small)) < 1e-12);
    dev_free(dev);
    free(v);
}

static void test_edges(void **state)
{
    (void)state;
    struct dev *dev = NULL;
    struct c32 x[3] = {{0, 0}, {NAN, 1}, {3, 4}}, y[3] = {{1, 1}, {1, 1}, {1, 1}};
    double dot = 5;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    assert_int_equal(vec_soft(dev, 3, 0, x), 0);
    assert_true(x[0].re == 0 && isnan(x[1].im) && x[2].re == 3);
    assert_int_equal(vec_dot(dev, 3, x, y, &dot), 0);
    assert_true(isnan(dot));
    assert_int_equal(vec_dot(dev, 0, x, y, &dot), 0);
    assert_true(dot == 0);
    dev_free(dev);
}

/* A device without vector arithmetic refuses every function with an error that says so. */
static void test_missing(void **state)
{
    (void)state;
    const struct dev_leaf leaf = {.abi = DEV_LEAF_ABI};
    struct dev dev = {.leaf = &leaf, .name = "gpu 0 (a GPU)"};
    struct c32 x[1] = {{0, 0}}, y[1] = {{0, 0}};
    double dot;
    assert_false(vec_available(&dev));
    assert_int_equal(vec_copy(&dev, 1, x, y), ERR_NO_DEVICE);
    assert_int_equal(vec_axpy(&dev, 1, 1, x, y), ERR_NO_DEVICE);
    assert_int_equal(vec_xpay(&dev, 1, x, 1, y), ERR_NO_DEVICE);
    assert_int_equal(vec_scale(&dev, 1, 1, x), ERR_NO_DEVICE);
    assert_int_equal(vec_dot(&dev, 1, x, y, &dot), ERR_NO_DEVICE);
    assert_int_equal(vec_multiply(&dev, 1, 1, x, x, y), ERR_NO_DEVICE);
    assert_int_equal(vec_multiply_conj_add(&dev, 1, 1, x, x, y), ERR_NO_DEVICE);
    assert_int_equal(vec_soft(&dev, 1, 1, x), ERR_NO_DEVICE);
    assert_non_null(strstr(err_last()->text, "gpu 0 (a GPU)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formulas),      cmocka_unit_test(test_same_bits_for_any_threads),
        cmocka_unit_test(test_dot_is_double), cmocka_unit_test(test_edges),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
