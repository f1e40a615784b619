/* Finite differences and wavelets: the operator identities, the formulas, and the same bits for any number of
 * threads. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/sparse/sparse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/op_test.h"

struct shape {
    struct dev *dev;
    int n[SPARSE_AXES], levels[SPARSE_AXES];
    unsigned axes;
};

static size_t pixels(const struct shape *s)
{
    return (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2] * (size_t)s->n[3];
}

static int forward(void *of, const struct c32 *x, struct c32 *y)
{
    struct shape *s = of;
    return sparse_difference(s->dev, s->n, s->axes, x, y);
}

static int adjoint(void *of, const struct c32 *y, struct c32 *x)
{
    struct shape *s = of;
    return sparse_difference_adjoint(s->dev, s->n, s->axes, NULL, 1, y, x);
}

static int wavelet_forward(void *of, const struct c32 *x, struct c32 *y)
{
    struct shape *s = of;
    memcpy(y, x, pixels(s) * sizeof *y);
    return sparse_wavelet(s->dev, s->n, s->levels, y);
}

static int wavelet_adjoint(void *of, const struct c32 *y, struct c32 *x)
{
    struct shape *s = of;
    memcpy(x, y, pixels(s) * sizeof *x);
    return sparse_wavelet_inverse(s->dev, s->n, s->levels, x);
}

static int same(void *of, const struct c32 *x, struct c32 *r)
{
    memcpy(r, x, pixels(of) * sizeof *r);
    return 0;
}

static struct dev *open_cpu(int threads)
{
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
    return dev;
}

/* Along each axis and along several; differences do not wrap from the last element to the first. */
static void test_differences(void **state)
{
    (void)state;
    struct shape s = {.dev = open_cpu(2), .n = {9, 7, 5, 4}};
    for (s.axes = 1; s.axes < 16; s.axes++) {
        const struct op op = {&s, pixels(&s), pixels(&s) * (size_t)__builtin_popcount(s.axes), forward, adjoint, NULL};
        op_test(s.dev, &op, 1e-6, 0);
    }
    const struct c32 x[6] = {{1, 0}, {3, 1}, {10, 0}, {0, 0}, {0, 0}, {5, 0}};
    struct c32 g[12];
    assert_int_equal(sparse_difference(s.dev, (const int[]){3, 2, 1, 1}, 3, x, g), 0);
    assert_true(g[0].re == 2 && g[0].im == 1 && g[1].re == 7 && g[2].re == 0 && g[5].re == 0);
    assert_true(g[6].re == -1 && g[8].re == -5 && g[9].re == 0 && g[11].re == 0);
    dev_free(s.dev);
}

/* W'W = 1 and the operator identities, in 2-D, 3-D, and along axes of different levels. */
static void test_wavelets(void **state)
{
    (void)state;
    const struct shape shapes[] = {
        {.n = {64, 32, 1, 1}, .levels = {2, 1, 0, 0}},
        {.n = {80, 48, 1, 1}, .levels = {4, 3, 0, 0}},
        {.n = {32, 8, 16, 2}, .levels = {2, 0, 3, 1}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape s = shapes[i];
        s.dev = open_cpu(3);
        const struct op op = {&s, pixels(&s), pixels(&s), wavelet_forward, wavelet_adjoint, same};
        op_test(s.dev, &op, 1e-6, 1e-6);
        dev_free(s.dev);
    }
}

/* One level along an axis by the definition, in double: coefficient k is the sum of h[t] x[(2 k + t) mod m]. */
static void wavelet_by_definition(const int *n, int d, const struct c32 *x, double (*y)[2])
{
    static const double low[4] = {0.48296291314453414, 0.83651630373780790, 0.22414386804201339, -0.12940952255126037};
    const size_t all = (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * (size_t)n[3], m = (size_t)n[d];
    size_t stride = 1;
    for (int e = 0; e < d; e++)
        stride *= (size_t)n[e];
    for (size_t i = 0; i < all; i++) {
        const size_t along = i / stride % m, line = i - along * stride, k = along % (m / 2);
        y[i][0] = y[i][1] = 0;
        for (size_t t = 0; t < 4; t++) {
            const struct c32 *from = x + line + (2 * k + t) % m * stride;
            const double f = along < m / 2 ? low[t] : (t % 2 ? -1 : 1) * low[3 - t];
            y[i][0] += f * (double)from->re;
            y[i][1] += f * (double)from->im;
        }
    }
}

/* Each axis of arrays whose axes are shorter than the taps, not a multiple of a vector, and wider than a panel; the
 * inverse gives x again. An element is a sum of 4 products of numbers below 0.5 and weights below 0.84: float32 rounds
 * it by less than 4 x 6e-8. */
static void test_wavelets_by_definition(void **state)
{
    (void)state;
    static const int shapes[][SPARSE_AXES] = {{2, 4, 6, 2}, {38, 2, 4, 6}, {10, 36, 2, 2}, {300, 70, 2, 2}};
    struct dev *dev = open_cpu(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < SPARSE_AXES; d++) {
            const int *n = shapes[i];
            int levels[SPARSE_AXES] = {0};
            levels[d] = 1;
            const size_t all = (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * (size_t)n[3];
            struct c32 *x = op_test_random(dev, all, 11), *y = malloc(all * sizeof *y);
            double(*exact)[2] = malloc(all * sizeof *exact);
            assert_true(y && exact);
            memcpy(y, x, all * sizeof *y);
            wavelet_by_definition(n, d, x, exact);
            assert_int_equal(sparse_wavelet(dev, n, levels, y), 0);
            for (size_t p = 0; p < all; p++)
                assert_true(fabs((double)y[p].re - exact[p][0]) < 2.4e-7 &&
                            fabs((double)y[p].im - exact[p][1]) < 2.4e-7);
            assert_int_equal(sparse_wavelet_inverse(dev, n, levels, y), 0);
            for (size_t p = 0; p < all; p++)
                assert_true(fabsf(y[p].re - x[p].re) < 5e-7f && fabsf(y[p].im - x[p].im) < 5e-7f);
            free(exact);
            free(y);
            dev_release(dev, x);
        }
    dev_free(dev);
}

/* A constant gives a single coefficient of the lowest level; a straight line gives higher coefficients only at the
 * edge. */
static void test_wavelets_have_two_moments(void **state)
{
    (void)state;
    struct dev *dev = open_cpu(1);
    struct c32 x[32];
    const int n[] = {32, 1, 1, 1}, levels[] = {1, 0, 0, 0};
    for (int i = 0; i < 32; i++)
        x[i] = (struct c32){3 + 0.5f * (float)i, 1};
    assert_int_equal(sparse_wavelet(dev, n, levels, x), 0);
    for (int i = 16; i < 31; i++)
        assert_true(fabsf(x[i].re) < 1e-5f && fabsf(x[i].im) < 1e-6f);
    assert_true(fabsf(x[3].im - sqrtf(2)) < 1e-6f);
    assert_true(fabsf(x[31].re) > 1);
    dev_free(dev);
}

static void test_roll(void **state)
{
    (void)state;
    struct dev *dev = open_cpu(2);
    const int n[] = {5, 3, 2, 2}, shift[] = {2, -1, 1, 3}, back[] = {-2, 1, -1, -3};
    struct c32 x[60], y[60], z[60];
    for (int i = 0; i < 60; i++)
        x[i] = (struct c32){(float)i, (float)-i};
    assert_int_equal(sparse_roll(dev, n, shift, x, y), 0);
    /* Position (0, 0, 0, 0) moves to (2, 2, 1, 1). */
    assert_true(y[2 + 5 * (2 + 3 * (1 + 2 * 1))].re == 0);
    assert_int_equal(sparse_roll(dev, n, back, y, z), 0);
    assert_memory_equal(x, z, sizeof x);
    dev_free(dev);
}

static void test_tv_step(void **state)
{
    (void)state;
    struct dev *dev = open_cpu(1);
    const struct c32 g[4] = {{1, 0}, {0.1f, 0}, {0, 2}, {0.2f, 0}}; /* two differences at each of two pixels */
    struct c32 p[4] = {{0, 0}, {0.5f, 0}, {0, 0}, {0, 0}}, r[4] = {{2, 0}, {0.1f, 0}, {0, 2}, {0, 0.1f}};
    assert_int_equal(sparse_tv_step(dev, 2, 2, 2, g, 0.5f, p, r), 0);
    /* Pixel 0: q = (4, 6i), of length sqrt 52; pixel 1: (0.3, 0.4 + 0.1i), which is shorter than 1. */
    assert_true(fabsf(p[0].re - 4 / sqrtf(52)) < 1e-6f && fabsf(p[2].im - 6 / sqrtf(52)) < 1e-6f);
    assert_true(fabsf(p[1].re - 0.3f) < 1e-6f && fabsf(p[3].re - 0.4f) < 1e-6f && fabsf(p[3].im - 0.1f) < 1e-6f);
    assert_true(fabsf(r[0].re - 1.5f * 4 / sqrtf(52)) < 1e-6f && fabsf(r[1].re - (0.3f - 0.5f * 0.2f)) < 1e-6f);
    dev_free(dev);
}

/* Every operator, on an array large enough to be shared by threads. */
static struct c32 *run_all(int threads)
{
    enum { N = 256 * 192 };
    struct dev *dev = open_cpu(threads);
    const int n[] = {256, 192, 1, 1}, levels[] = {2, 2, 0, 0}, shift[] = {5, 7, 0, 0};
    struct c32 *x = op_test_random(dev, N, 3), *g = op_test_random(dev, 2 * N, 4), *p = op_test_random(dev, 2 * N, 5);
    struct c32 *r = op_test_random(dev, 2 * N, 6), *y = malloc(N * sizeof *y);
    assert_non_null(y);
    assert_int_equal(sparse_difference(dev, n, 3, x, g), 0);
    assert_int_equal(sparse_tv_step(dev, N, 2, 0.3f, g, 0.4f, p, r), 0);
    assert_int_equal(sparse_difference_adjoint(dev, n, 3, x, -0.2f, r, x), 0);
    assert_int_equal(sparse_roll(dev, n, shift, x, y), 0);
    assert_int_equal(sparse_wavelet(dev, n, levels, y), 0);
    assert_int_equal(sparse_wavelet_inverse(dev, n, levels, y), 0);
    dev_release(dev, x);
    dev_release(dev, g);
    dev_release(dev, p);
    dev_release(dev, r);
    dev_free(dev);
    return y;
}

static void test_same_bits_for_any_threads(void **state)
{
    (void)state;
    struct c32 *one = run_all(1);
    for (int threads = 2; threads <= 4; threads++) {
        struct c32 *more = run_all(threads);
        assert_memory_equal(one, more, 256 * 192 * sizeof *one);
        free(more);
    }
    free(one);
}

static void test_missing(void **state)
{
    (void)state;
    const struct dev_leaf leaf = {.abi = DEV_LEAF_ABI};
    struct dev dev = {.leaf = &leaf, .name = "gpu 0 (a GPU)"};
    const int n[] = {2, 1, 1, 1};
    struct c32 x[2] = {{0, 0}}, y[2] = {{0, 0}};
    assert_false(sparse_available(&dev));
    assert_int_equal(sparse_difference(&dev, n, 1, x, y), ERR_NO_DEVICE);
    assert_int_equal(sparse_difference_adjoint(&dev, n, 1, NULL, 1, x, y), ERR_NO_DEVICE);
    assert_int_equal(sparse_tv_step(&dev, 2, 1, 1, x, 1, y, y), ERR_NO_DEVICE);
    assert_int_equal(sparse_wavelet(&dev, n, n, x), ERR_NO_DEVICE);
    assert_int_equal(sparse_wavelet_inverse(&dev, n, n, x), ERR_NO_DEVICE);
    assert_int_equal(sparse_roll(&dev, n, n, x, y), ERR_NO_DEVICE);
    assert_int_equal(sparse_low_rank(&dev, n, n, 0, 1, 1, x), ERR_NO_DEVICE);
    assert_non_null(strstr(err_last()->text, "gpu 0 (a GPU)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_wavelets),
        cmocka_unit_test(test_wavelets_by_definition),
        cmocka_unit_test(test_wavelets_have_two_moments),
        cmocka_unit_test(test_roll),
        cmocka_unit_test(test_tv_step),
        cmocka_unit_test(test_same_bits_for_any_threads),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
