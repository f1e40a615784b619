/* Weighted sums of rows against sums in long double, for every instruction set that this CPU has. */
#include "gridding/base/rows.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { CASES = 300, ROWS_MOST = 40, WIDTH_MOST = 300 };

static const struct rows_leaf *leaves[3];
static int leaves_count;

static int setup(void **state)
{
    (void)state;
    const struct rows_leaf *best = rows_best();
    leaves[leaves_count++] = &rows_leaf_sse2;
    if (best != &rows_leaf_sse2)
        leaves[leaves_count++] = &rows_leaf_avx2;
    if (best == &rows_leaf_avx512)
        leaves[leaves_count++] = best;
    return 0;
}

/* A case's sizes and, as doubles that are floats, its numbers; `first`: the rows begin unaligned. */
struct problem {
    size_t count, n, stride, first, size;
    double *x[2], a[2][ROWS_MOST];
};

static void problem_create(struct problem *p, uint64_t *seed)
{
    *p = (struct problem){.count = (size_t)(uniform_next(seed) * ROWS_MOST),
                          .n = (size_t)(uniform_next(seed) * WIDTH_MOST),
                          .first = (size_t)(uniform_next(seed) * 8)};
    p->stride = p->n + (size_t)(uniform_next(seed) * 5);
    p->size = p->first + (p->count + 1) * p->stride;
    for (int k = 0; k < 2; k++) {
        p->x[k] = allocate(p->size + 1, sizeof *p->x[k]);
        for (size_t i = 0; i < p->size; i++)
            p->x[k][i] = (double)(float)(uniform_next(seed) - 0.5);
        for (size_t t = 0; t < p->count; t++)
            p->a[k][t] = (double)(float)(uniform_next(seed) - 0.5);
    }
}

static void problem_free(struct problem *p)
{
    free(p->x[1]);
    free(p->x[0]);
}

/* The k-th part of the i-th sum; where `real`, that of x[0] alone. */
static long double exact(const struct problem *p, int k, size_t i, bool real)
{
    long double sum = 0;
    for (size_t t = 0; t < p->count; t++) {
        const size_t at = p->first + t * p->stride + i;
        sum += (long double)p->a[0][t] * (long double)p->x[k][at];
        if (!real)
            sum += (k == 0 ? -1 : 1) * (long double)p->a[1][t] * (long double)p->x[1 - k][at];
    }
    return sum;
}

static float *floats_of(const double *from, size_t n)
{
    float *out = allocate(n + 1, sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)from[i];
    return out;
}

/* y[n] is the sum, and what follows is untouched. */
static void floats_check(const struct rows_leaf *leaf, const struct problem *p, bool real)
{
    float *x[2] = {floats_of(p->x[0], p->size), floats_of(p->x[1], p->size)};
    float *a[2] = {floats_of(p->a[0], p->count), floats_of(p->a[1], p->count)}, y[2][WIDTH_MOST + 1];
    const struct rows_floats rows = {p->count, p->stride, x[0] + p->first, x[1] + p->first};
    const struct rows_reals reals = {p->count, p->stride, x[0] + p->first};
    y[0][p->n] = y[1][p->n] = 77;
    if (real)
        leaf->reals(&reals, a[0], p->n, y[0]);
    else
        leaf->floats(&rows, a[0], a[1], p->n, y[0], y[1]);
    for (int k = 0; k < (real ? 1 : 2); k++) {
        for (size_t i = 0; i < p->n; i++)
            assert_true(fabsl((long double)y[k][i] - exact(p, k, i, real)) <= 1e-7L * (1 + (long double)p->count));
        assert_true(y[k][p->n] == 77);
    }
    for (int k = 0; k < 2; k++) {
        free(a[k]);
        free(x[k]);
    }
}

static void doubles_check(const struct rows_leaf *leaf, const struct problem *p)
{
    double y[2][WIDTH_MOST + 1];
    const struct rows_doubles rows = {p->count, p->stride, p->x[0] + p->first, p->x[1] + p->first};
    y[0][p->n] = y[1][p->n] = 77;
    leaf->doubles(&rows, p->a[0], p->a[1], p->n, y[0], y[1]);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < p->n; i++)
            assert_true(fabsl((long double)y[k][i] - exact(p, k, i, false)) <= 2e-16L * (1 + (long double)p->count));
        assert_true(y[k][p->n] == 77);
    }
}

static void test_sums(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int i = 0; i < CASES; i++) {
        struct problem p;
        problem_create(&p, &seed);
        for (int l = 0; l < leaves_count; l++) {
            floats_check(leaves[l], &p, false);
            floats_check(leaves[l], &p, true);
            doubles_check(leaves[l], &p);
        }
        problem_free(&p);
    }
}

/* An instruction set that this CPU has not is not tested: told, not passed. */
static void test_every_instruction_set(void **state)
{
    (void)state;
    if (leaves_count < 3) {
        printf("this CPU has %s\n", leaves_count == 1 ? "neither AVX2 nor AVX-512" : "no AVX-512");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_every_instruction_set),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
