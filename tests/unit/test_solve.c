/* Solvers on small matrices, compared with direct solutions in double precision; how iterations end, are canceled and
 * diverge. */
#include "gridding/base/err.h"
#include "recon/solve/solve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/op_test.h"

enum { N = 40 };

/* Q diag Q' with Q the Householder reflection of v: known eigenvalues, no zero entries. */
struct matrix {
    double value[N];
    double complex v[N];
    int calls;
};

static void matrix_make(struct matrix *m, double least, double largest)
{
    uint64_t seed = 17;
    double square = 0;
    m->calls = 0;
    for (int i = 0; i < N; i++) {
        m->value[i] = least * pow(largest / least, i / (N - 1.0));
        m->v[i] = uniform_next(&seed) - 0.5 + I * (uniform_next(&seed) - 0.5);
        square += creal(conj(m->v[i]) * m->v[i]);
    }
    for (int i = 0; i < N; i++)
        m->v[i] /= sqrt(square);
}

static void reflect(const struct matrix *m, double complex *x)
{
    double complex dot = 0;
    for (int i = 0; i < N; i++)
        dot += conj(m->v[i]) * x[i];
    for (int i = 0; i < N; i++)
        x[i] -= 2 * dot * m->v[i];
}

/* out = Q f(diag) Q' in, where f is 1 / (. + lambda) or the identity. */
static void matrix_apply(const struct matrix *m, bool inverse, double lambda, const struct c32 *in, double complex *out)
{
    for (int i = 0; i < N; i++)
        out[i] = (double)in[i].re + I * (double)in[i].im;
    reflect(m, out);
    for (int i = 0; i < N; i++)
        out[i] *= inverse ? 1 / (m->value[i] + lambda) : m->value[i];
    reflect(m, out);
}

static int normal(void *of, const struct c32 *x, struct c32 *r)
{
    struct matrix *m = of;
    double complex y[N];
    m->calls++;
    matrix_apply(m, false, 0, x, y);
    for (int i = 0; i < N; i++)
        r[i] = (struct c32){(float)creal(y[i]), (float)cimag(y[i])};
    return 0;
}

static struct op op_of(struct matrix *m)
{
    return (struct op){.of = m, .domain = N, .range = N, .normal = normal};
}

static struct dev *open_cpu(void)
{
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    return dev;
}

static double distance(const struct c32 *x, const double complex *y)
{
    double off = 0, all = 0;
    for (int i = 0; i < N; i++) {
        const double complex d = (double)x[i].re + I * (double)x[i].im - y[i];
        off += creal(conj(d) * d);
        all += creal(conj(y[i]) * y[i]);
    }
    return sqrt(off / all);
}

/* With and without lambda; one operator call per iteration. */
static void test_cg_solves(void **state)
{
    (void)state;
    struct dev *dev = open_cpu();
    for (double lambda = 0; lambda < 2; lambda++) {
        struct matrix m;
        struct solve_result result;
        struct c32 x[N], *b = op_test_random(dev, N, 2);
        double complex exact[N];
        matrix_make(&m, 0.1, 10);
        const struct op op = op_of(&m);
        matrix_apply(&m, true, lambda, b, exact);
        const struct solve_stop stop = {.iterations = 100, .tolerance = 1e-6};
        assert_int_equal(cg_solve(dev, &op, lambda, b, x, &stop, NULL, &result), 0);
        assert_int_equal(result.end, SOLVE_TOLERANCE);
        assert_int_equal(m.calls, result.iterations);
        assert_in_range(result.iterations, 5, 60);
        assert_true(result.residual <= 1e-6);
        /* The bound of the residual times the condition number of 100, plus float32 rounding. */
        assert_true(distance(x, exact) < 1e-4);
        dev_release(dev, b);
    }
    dev_free(dev);
}

struct counter {
    int calls, most, stop_at;
};

static int count(void *context, int done, int most)
{
    struct counter *c = context;
    assert_int_equal(done, c->calls);
    c->calls++;
    c->most = most;
    return done == c->stop_at ? err_set(ERR_CANCELED, "The job was canceled.") : 0;
}

static void test_cg_ends(void **state)
{
    (void)state;
    struct dev *dev = open_cpu();
    struct matrix m;
    struct solve_result result;
    struct counter counter = {.stop_at = 3};
    const struct solve_listener listener = {&counter, count};
    struct c32 x[N], zero[N] = {{0, 0}}, *b = op_test_random(dev, N, 2);
    matrix_make(&m, 0.01, 10);
    const struct op op = op_of(&m);
    struct solve_stop stop = {.iterations = 4};
    assert_int_equal(cg_solve(dev, &op, 0, b, x, &stop, NULL, &result), 0);
    assert_int_equal(result.end, SOLVE_ITERATIONS);
    assert_int_equal(result.iterations, 4);
    assert_true(result.residual > 0);
    /* One iteration is always done before the time limit applies. */
    stop = (struct solve_stop){.iterations = 1000, .seconds = 1e-12};
    assert_int_equal(cg_solve(dev, &op, 0, b, x, &stop, NULL, &result), 0);
    assert_int_equal(result.end, SOLVE_SECONDS);
    assert_int_equal(result.iterations, 1);
    /* The tolerance is compared after each iteration, not with the initial residual, which is 1. */
    stop = (struct solve_stop){.iterations = 1000, .tolerance = 1};
    assert_int_equal(cg_solve(dev, &op, 10, b, x, &stop, NULL, &result), 0);
    assert_int_equal(result.end, SOLVE_TOLERANCE);
    assert_int_equal(result.iterations, 1);
    assert_true(result.residual > 0 && result.residual < 1);
    stop = (struct solve_stop){.iterations = 50};
    assert_int_equal(cg_solve(dev, &op, 0, b, x, &stop, &listener, &result), ERR_CANCELED);
    assert_int_equal(counter.calls, 4);
    assert_int_equal(counter.most, 50);
    memset(x, 1, sizeof x);
    assert_int_equal(cg_solve(dev, &op, 0, zero, x, &stop, NULL, &result), 0);
    assert_int_equal(result.end, SOLVE_ZERO);
    assert_memory_equal(x, zero, sizeof x);
    dev_release(dev, b);
    dev_free(dev);
}

/* NaN in the right-hand side or from the operator, or an operator that is not positive, gives an error, not an
 * image. */
static void test_cg_diverges(void **state)
{
    (void)state;
    struct dev *dev = open_cpu();
    struct matrix m;
    struct solve_result result;
    const struct solve_stop stop = {.iterations = 50};
    struct c32 x[N], *b = op_test_random(dev, N, 2);
    matrix_make(&m, 0.1, 1);
    const struct op op = op_of(&m);
    m.value[3] = NAN;
    assert_int_equal(cg_solve(dev, &op, 0, b, x, &stop, NULL, &result), ERR_DIVERGED);
    assert_non_null(strstr(err_last()->text, "iteration 1"));
    for (int i = 0; i < N; i++)
        m.value[i] = -1;
    assert_int_equal(cg_solve(dev, &op, 0, b, x, &stop, NULL, &result), ERR_DIVERGED);
    assert_non_null(strstr(err_last()->text, "not positive"));
    b[7].im = INFINITY;
    assert_int_equal(cg_solve(dev, &op, 0, b, x, &stop, NULL, &result), ERR_DIVERGED);
    dev_release(dev, b);
    dev_free(dev);
}

/* With a tolerance of 0 the iteration ends before its vectors underflow, which would be a failure. */
static void test_cg_without_tolerance(void **state)
{
    (void)state;
    struct dev *dev = open_cpu();
    struct matrix m;
    struct solve_result result;
    const struct solve_stop stop = {.iterations = 10000};
    struct c32 x[N], *b = op_test_random(dev, N, 2);
    double complex solved[N];
    double error = 0, norm = 0;
    matrix_make(&m, 0.01, 0.02); /* N p underflows before p */
    const struct op op = op_of(&m);
    assert_int_equal(cg_solve(dev, &op, 0, b, x, &stop, NULL, &result), 0);
    assert_int_equal(result.end, SOLVE_TOLERANCE);
    assert_true(result.iterations < 100 && result.residual < 1e-14);
    matrix_apply(&m, true, 0, b, solved);
    for (int i = 0; i < N; i++) {
        error += pow(cabs(solved[i] - ((double)x[i].re + I * (double)x[i].im)), 2);
        norm += pow(cabs(solved[i]), 2);
    }
    /* Float32's rounding, 6e-8, of the few steps that change x. */
    assert_true(sqrt(error / norm) < 1e-6);
    dev_release(dev, b);
    dev_free(dev);
}

/* Frames of several operators, one after the other: [frames][N]. */
struct matrices {
    struct matrix of[4];
    int frames;
    bool running[4]; /* in the last call */
};

static int normal_frames(void *of, const int *running, const struct c32 *x, struct c32 *r)
{
    struct matrices *m = of;
    for (int f = 0; f < m->frames; f++) {
        m->running[f] = running[f] != 0;
        if (running[f])
            assert_int_equal(normal(&m->of[f], x + f * N, r + f * N), 0);
    }
    return 0;
}

/* Frames 1 and 2 end early: by the tolerance, as a multiple of the identity, and by a right side of zeros. */
static void matrices_make(struct matrices *m, struct c32 *b)
{
    m->frames = 4;
    for (int f = 0; f < 4; f++)
        matrix_make(&m->of[f], f == 1 ? 3 : 0.2 * (f + 1), f == 1 ? 3 : 10);
    memset(b + 2 * N, 0, N * sizeof *b);
}

/* Each frame has its own lambda, steps and end, and the bits that it has alone. */
static void test_cg_frames(void **state)
{
    (void)state;
    struct dev *dev = open_cpu();
    struct matrices m;
    struct solve_result result[4], alone;
    struct c32 x[4 * N], one[N], *b = op_test_random(dev, 4 * N, 5);
    double complex exact[N];
    static const double lambda[4] = {0, 0.5, 1, 2};
    const struct solve_stop stop = {.iterations = 100, .tolerance = 1e-6};
    matrices_make(&m, b);
    const struct op_frames op = {&m, N, 4, 4 * N, normal_frames};
    assert_int_equal(cg_solve_frames(dev, &op, lambda, NULL, b, x, &stop, NULL, result), 0);
    assert_int_equal(result[1].iterations, 1);
    assert_int_equal(result[1].end, SOLVE_TOLERANCE);
    assert_int_equal(result[2].end, SOLVE_ZERO);
    assert_false(m.running[1] || m.running[2]);
    assert_true(result[0].iterations > result[3].iterations);
    for (int f = 0; f < 4; f++) {
        assert_int_equal(m.of[f].calls, result[f].iterations); /* frames that ended are left out */
        const struct op single = op_of(&m.of[f]);
        assert_int_equal(cg_solve(dev, &single, lambda[f], b + f * N, one, &stop, NULL, &alone), 0);
        assert_memory_equal(one, x + f * N, sizeof one);
        assert_int_equal(alone.iterations, result[f].iterations);
        assert_int_equal(alone.end, result[f].end);
        assert_true(memcmp(&alone.residual, &result[f].residual, sizeof alone.residual) == 0);
        matrix_apply(&m.of[f], true, lambda[f], b + f * N, exact);
        assert_true(f == 2 || distance(one, exact) < 1e-4);
    }
    dev_release(dev, b);
    dev_free(dev);
}

/* A frame that fails is named. */
static void test_cg_frames_fail(void **state)
{
    (void)state;
    struct dev *dev = open_cpu();
    struct matrices m;
    struct solve_result result[4];
    struct counter counter = {.stop_at = 2};
    const struct solve_listener listener = {&counter, count};
    struct c32 x[4 * N], *b = op_test_random(dev, 4 * N, 5);
    static const double lambda[4] = {0};
    static const size_t image[4] = {12, 10, 8, 36};
    const struct solve_stop stop = {.iterations = 20}, late = {.iterations = 20, .seconds = 1e-12};
    matrices_make(&m, b);
    const struct op_frames op = {&m, N, 4, 4 * N, normal_frames};
    assert_int_equal(cg_solve_frames(dev, &op, lambda, image, b, x, &stop, &listener, result), ERR_CANCELED);
    assert_int_equal(cg_solve_frames(dev, &op, lambda, image, b, x, &late, NULL, result), 0);
    assert_int_equal(result[0].end, SOLVE_SECONDS);
    assert_int_equal(result[0].iterations, 1);
    for (int i = 0; i < N; i++)
        m.of[1].value[i] = -1;
    assert_int_equal(cg_solve_frames(dev, &op, lambda, image, b, x, &stop, NULL, result), ERR_DIVERGED);
    assert_non_null(strstr(err_last()->text, "iteration 1 of image 10 is not positive"));
    b[3 * N + 7].im = NAN;
    m.of[1].value[0] = NAN; /* an earlier frame, but later */
    assert_int_equal(cg_solve_frames(dev, &op, lambda, image, b, x, &stop, NULL, result), ERR_DIVERGED);
    assert_non_null(strstr(err_last()->text, "not finite in iteration 1 of image 36"));
    assert_int_equal(cg_solve_frames(dev, &op, lambda, NULL, b, x, &stop, NULL, result), ERR_DIVERGED);
    assert_null(strstr(err_last()->text, "image 36"));
    dev_release(dev, b);
    dev_free(dev);
}

/* The estimate is a lower bound, and exact to 1 % after 30 steps if the next eigenvalue is 11 % smaller. */
static void test_power(void **state)
{
    (void)state;
    struct dev *dev = open_cpu();
    struct matrix m;
    double few = 0, largest = 0, zero = 1;
    matrix_make(&m, 0.1, 10);
    const struct op op = op_of(&m);
    assert_int_equal(power_largest(dev, &op, 5, NULL, &few), 0);
    assert_int_equal(power_largest(dev, &op, 30, NULL, &largest), 0);
    assert_int_equal(m.calls, 35);
    assert_true(few < largest && largest <= 10 * (1 + 1e-6) && largest > 9.9);
    memset(m.value, 0, sizeof m.value);
    assert_int_equal(power_largest(dev, &op, 30, NULL, &zero), 0);
    assert_true(zero == 0);
    m.value[0] = NAN;
    assert_int_equal(power_largest(dev, &op, 30, NULL, &zero), ERR_DIVERGED);
    dev_free(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cg_solves),   cmocka_unit_test(test_cg_ends),
        cmocka_unit_test(test_cg_diverges), cmocka_unit_test(test_cg_without_tolerance),
        cmocka_unit_test(test_cg_frames),   cmocka_unit_test(test_cg_frames_fail),
        cmocka_unit_test(test_power),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
