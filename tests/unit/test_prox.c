/* Proximal operators compared with known results, and FISTA with closed-form solutions; how FISTA ends, is canceled and
 * diverges. */
#include "gridding/base/err.h"
#include "recon/solve/prox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/op_test.h"

static struct dev *dev;

static int device_open(void **state)
{
    (void)state;
    return dev_create(&dev, DEV_CPU, 0, 1);
}

static int device_close(void **state)
{
    (void)state;
    dev_free(dev);
    return 0;
}

/* ---- proximal operators ---- */

/* Two pixels move towards each other by the weight, and meet. The dual starts where the last call ended, so calls on
 * the same image converge although each takes few steps. */
static void test_tv_of_two_pixels(void **state)
{
    (void)state;
    const int n[] = {2, 1, 1, 1};
    struct prox_tv p;
    struct c32 x[2];
    assert_int_equal(prox_tv_open(&p, dev, n, 1, 0.5), 0);
    struct prox prox = prox_tv(&p);
    for (int call = 0; call < 20; call++) {
        x[0] = (struct c32){1, 2};
        x[1] = (struct c32){4, 6}; /* a distance of 5 */
        assert_int_equal(prox.apply(prox.of, 2, call, x), 0);
    }
    assert_true(fabsf(x[0].re - 1.6f) < 1e-4f && fabsf(x[0].im - 2.8f) < 1e-4f);
    assert_true(fabsf(x[1].re - 3.4f) < 1e-4f && fabsf(x[1].im - 5.2f) < 1e-4f);
    assert_int_equal(prox.apply(prox.of, 0, 0, x), 0); /* weight 0: nothing moves */
    assert_true(fabsf(x[0].re - 1.6f) < 1e-4f);
    prox_tv_close(&p);
}

static double objective(const struct c32 *v, const struct c32 *x, const int *n, double w)
{
    double sum = 0;
    for (int r = 0; r < n[0] * n[1]; r++) {
        const int i = r % n[0], j = r / n[0];
        const struct c32 right = i + 1 < n[0] ? x[r + 1] : x[r], down = j + 1 < n[1] ? x[r + n[0]] : x[r];
        sum += (pow(x[r].re - v[r].re, 2) + pow(x[r].im - v[r].im, 2)) / 2 +
               w * sqrt(pow(right.re - x[r].re, 2) + pow(right.im - x[r].im, 2) + pow(down.re - x[r].re, 2) +
                        pow(down.im - x[r].im, 2));
    }
    return sum;
}

/* The result minimises the objective: no small change of a pixel lowers it. A huge weight leaves the mean. */
static void test_tv_is_least(void **state)
{
    (void)state;
    enum { N = 12 * 9 };
    const int n[] = {12, 9, 1, 1};
    struct prox_tv p;
    struct c32 *v = op_test_random(dev, N, 5), x[N];
    assert_int_equal(prox_tv_open(&p, dev, n, 3, 1), 0);
    struct prox prox = prox_tv(&p);
    for (int call = 0; call < 60; call++) {
        memcpy(x, v, sizeof x);
        assert_int_equal(prox.apply(prox.of, 0.1, call, x), 0);
    }
    const double least = objective(v, x, n, 0.1);
    assert_true(least < 0.9 * objective(v, v, n, 0.1));
    for (int r = 0; r < N; r++)
        for (int part = 0; part < 4; part++) {
            struct c32 changed[N];
            memcpy(changed, x, sizeof x);
            *(part & 1 ? &changed[r].re : &changed[r].im) += part & 2 ? 0.01f : -0.01f;
            assert_true(objective(v, changed, n, 0.1) > least - 1e-5); /* float32 and the dual's error */
        }
    struct c32 mean = {0, 0};
    for (int call = 0; call < 300; call++) {
        memcpy(x, v, sizeof x);
        assert_int_equal(prox.apply(prox.of, 100, call, x), 0);
    }
    for (int r = 0; r < N; r++)
        mean = (struct c32){mean.re + v[r].re / N, mean.im + v[r].im / N};
    for (int r = 0; r < N; r++)
        assert_true(fabsf(x[r].re - mean.re) < 0.01f && fabsf(x[r].im - mean.im) < 0.01f);
    prox_tv_close(&p);
    dev_release(dev, v);
}

/* Weight 0 leaves the image unchanged and a huge one leaves zeros; in between, the norm falls. The same seed and
 * iteration give the same bits, another iteration another shift. */
static void test_wavelet(void **state)
{
    (void)state;
    enum { N = 64 * 48 };
    const int n[] = {64, 48, 1, 1};
    struct prox_wavelet p;
    struct c32 *v = op_test_random(dev, N, 5), *x = op_test_random(dev, N, 6), *y = op_test_random(dev, N, 7);
    assert_int_equal(wavelet_levels(64), 2);
    assert_int_equal(wavelet_levels(31), 0);
    assert_int_equal(wavelet_levels(4096), WAVELET_LEVELS);
    assert_int_equal(wavelet_multiple(100), 4);
    assert_int_equal(prox_wavelet_open(&p, dev, n, 1, 9), 0);
    struct prox prox = prox_wavelet(&p);
    memcpy(x, v, N * sizeof *x);
    assert_int_equal(prox.apply(prox.of, 0, 3, x), 0);
    assert_true(op_test_distance(dev, N, x, v) < 1e-6);
    memcpy(x, v, N * sizeof *x);
    memcpy(y, v, N * sizeof *x);
    assert_int_equal(prox.apply(prox.of, 0.3, 3, x), 0);
    assert_int_equal(prox.apply(prox.of, 0.3, 3, y), 0);
    assert_memory_equal(x, y, N * sizeof *x);
    const double all = creal(op_test_dot(dev, N, v, v)), left = creal(op_test_dot(dev, N, x, x));
    assert_true(left < 0.5 * all && left > 0.01 * all);
    memcpy(y, v, N * sizeof *x);
    assert_int_equal(prox.apply(prox.of, 0.3, 4, y), 0);
    assert_true(op_test_distance(dev, N, x, y) > 0.01);
    assert_int_equal(prox.apply(prox.of, 1000, 0, x), 0);
    assert_true(creal(op_test_dot(dev, N, x, x)) == 0);
    prox_wavelet_close(&p);
    dev_release(dev, v);
    dev_release(dev, x);
    dev_release(dev, y);
}

/* ---- FISTA ---- */

enum { N = 30 };

struct diagonal {
    float value[N];
    double lambda;
    int calls;
};

static int normal(void *of, const struct c32 *x, struct c32 *r)
{
    struct diagonal *d = of;
    d->calls++;
    for (int i = 0; i < N; i++)
        r[i] = (struct c32){d->value[i] * x[i].re, d->value[i] * x[i].im};
    return 0;
}

static int soft(void *of, double t, int iteration, struct c32 *x)
{
    const double w = ((struct diagonal *)of)->lambda * t;
    (void)iteration;
    for (int i = 0; i < N; i++) {
        const double size = hypot(x[i].re, x[i].im), keep = size > w ? 1 - w / size : 0;
        x[i] = (struct c32){(float)(keep * x[i].re), (float)(keep * x[i].im)};
    }
    return 0;
}

static void diagonal_make(struct diagonal *d, double lambda)
{
    *d = (struct diagonal){.lambda = lambda};
    for (int i = 0; i < N; i++)
        d->value[i] = 0.05f + 0.95f * (float)i / (N - 1);
}

/* For a diagonal N, the solution is soft(b, lambda) / N. */
static void test_fista_solves(void **state)
{
    (void)state;
    for (double lambda = 0; lambda < 0.5; lambda += 0.2) {
        struct diagonal d;
        struct solve_result result;
        struct c32 *b = op_test_random(dev, N, 2), x[N], exact[N];
        diagonal_make(&d, lambda);
        const struct op op = {.of = &d, .domain = N, .range = N, .normal = normal};
        const struct prox prox = {&d, soft};
        const struct solve_stop stop = {.iterations = 1000, .tolerance = 1e-7};
        assert_int_equal(fista_solve(dev, &op, 1, &prox, b, x, &stop, NULL, &result), 0);
        assert_int_equal(result.end, SOLVE_TOLERANCE);
        assert_int_equal(d.calls, result.iterations);
        /* Gradient descent without momentum would need 300 iterations for this (0.95^n). */
        assert_in_range(result.iterations, 10, 200);
        memcpy(exact, b, sizeof exact);
        soft(&d, 1, 0, exact);
        for (int i = 0; i < N; i++)
            exact[i] = (struct c32){exact[i].re / d.value[i], exact[i].im / d.value[i]};
        assert_true(op_test_distance(dev, N, x, exact) < 1e-4);
        dev_release(dev, b);
    }
}

static int count(void *context, int done, int most)
{
    (void)most;
    return ++*(int *)context > 3 ? err_set(ERR_CANCELED, "Canceled in iteration %d.", done) : 0;
}

static void test_fista_ends(void **state)
{
    (void)state;
    struct diagonal d;
    struct solve_result result;
    int calls = 0;
    struct c32 *b = op_test_random(dev, N, 2), x[N], zero[N] = {{0, 0}};
    diagonal_make(&d, 0);
    const struct op op = {.of = &d, .domain = N, .range = N, .normal = normal};
    const struct prox prox = {&d, soft};
    const struct solve_listener listener = {&calls, count};
    struct solve_stop stop = {.iterations = 7};
    assert_int_equal(fista_solve(dev, &op, 1, &prox, b, x, &stop, NULL, &result), 0);
    assert_int_equal(result.end, SOLVE_ITERATIONS);
    assert_int_equal(result.iterations, 7);
    stop.seconds = 1e-12;
    assert_int_equal(fista_solve(dev, &op, 1, &prox, b, x, &stop, NULL, &result), 0);
    assert_int_equal(result.end, SOLVE_SECONDS);
    assert_int_equal(result.iterations, 1);
    stop.seconds = 0;
    assert_int_equal(fista_solve(dev, &op, 1, &prox, b, x, &stop, &listener, &result), ERR_CANCELED);
    assert_int_equal(calls, 4);
    assert_int_equal(fista_solve(dev, &op, 1, &prox, zero, x, &stop, NULL, &result), 0);
    assert_int_equal(result.end, SOLVE_ZERO);
    assert_memory_equal(x, zero, sizeof zero);
    dev_release(dev, b);
}

/* With too long a step the image grows, and NaN spreads: both end with an error. */
static void test_fista_diverges(void **state)
{
    (void)state;
    struct diagonal d;
    struct solve_result result;
    struct c32 *b = op_test_random(dev, N, 2), x[N];
    diagonal_make(&d, 0);
    const struct op op = {.of = &d, .domain = N, .range = N, .normal = normal};
    const struct prox prox = {&d, soft};
    const struct solve_stop stop = {.iterations = 1000};
    assert_int_equal(fista_solve(dev, &op, 3, &prox, b, x, &stop, NULL, &result), ERR_DIVERGED);
    assert_non_null(strstr(err_last()->text, "diverged"));
    d.value[4] = NAN;
    assert_int_equal(fista_solve(dev, &op, 1, &prox, b, x, &stop, NULL, &result), ERR_DIVERGED);
    assert_non_null(strstr(err_last()->text, "not finite"));
    b[3].re = NAN;
    assert_int_equal(fista_solve(dev, &op, 1, &prox, b, x, &stop, NULL, &result), ERR_DIVERGED);
    dev_release(dev, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tv_of_two_pixels), cmocka_unit_test(test_tv_is_least),
        cmocka_unit_test(test_wavelet),          cmocka_unit_test(test_fista_solves),
        cmocka_unit_test(test_fista_ends),       cmocka_unit_test(test_fista_diverges),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
