/* The engine on the CPU: every instruction set's loops, and whole sums, against sums in double precision with the
 * kernel's own formula. Bins: test_bins.c. */
#include "gridding/base/err.h"
#include "gridding/range/kernel.h"
#include "gridding/range/points.h"
#include "gridding/range/polynomial.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct box {
    int dim, grid[3], width, tile[3];
};

/* ---- polynomials ---- */

struct powers {
    int degree;
    double c[POLYNOMIAL_DEGREE_MOST + 1];
};

static double value_of_powers(const void *of, double x)
{
    const struct powers *p = of;
    return polynomial_at(p->degree, p->c, x);
}

/* Fitted, a polynomial is itself. Its values are rounded to double precision, and a fit multiplies that by up to the
 * sum of the coefficients of the Chebyshev polynomial of its degree: below (1 + sqrt 2)^n on [-1, 1], (3 + sqrt 8)^n on
 * [0, 1]. The values are at most n + 1. */
static void polynomials_fit_themselves(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int n = 0; n <= POLYNOMIAL_DEGREE_MOST; n++)
        for (int from = -1; from <= 0; from++) {
            struct powers p = {.degree = n};
            double c[POLYNOMIAL_DEGREE_MOST + 1];
            for (int i = 0; i <= n; i++)
                p.c[i] = 2 * uniform_next(&seed) - 1;
            polynomial_fit(value_of_powers, &p, from, 1, n, c);
            const double bound = (n + 1) * 1e-15 * pow(from ? 1 + sqrt(2) : 3 + sqrt(8), n);
            for (int i = 0; i <= n; i++)
                assert_true(fabs(c[i] - p.c[i]) <= bound);
        }
}

/* ---- one run of points against one tile ---- */

/* The kernel's weight at cell `cell` to the right of a point's first cell. */
static double weight_1d(int width, double beta, double fraction, int cell)
{
    double u = (fraction + cell - width / 2.0) * 2 / width;
    return kernel_value(beta, u * u);
}

static double weight_of(int dim, int width, double beta, bool radial, const float fraction[3], const int cell[3])
{
    double product = 1, squares = 0;
    for (int d = 0; d < dim; d++) {
        double u = ((double)fraction[d] + cell[d] - width / 2.0) * 2 / width;
        product *= weight_1d(width, beta, fraction[d], cell[d]);
        squares += u * u;
    }
    /* law.h: the radial kernel ends before its edge, where 2 r / width is 1. */
    return !radial ? product : squares < 1 ? kernel_value(beta, squares) : 0;
}

struct leaf_case {
    const struct points_leaf *leaf;
    int dim, width, lanes;
    bool radial, weighted;
    size_t count;
};

/* A tile of 5 x 4 x 3 first cells and its halo, surrounded by guard values that must not change. */
enum { CELLS_X = 5, CELLS_Y = 4, CELLS_Z = 3, GUARD = 64 };

struct bench {
    struct leaf_case c;
    double beta;
    struct range_kernel *law;
    float *tile, *weight;
    double *expected;
    struct range_point *point;
    struct c32 *values, *results;
    struct points_run run;
    int extent[3];
    size_t floats, stride;
};

static void bench_open(struct bench *t, const struct leaf_case *c)
{
    *t = (struct bench){.c = *c, .beta = kernel_beta(c->width, 2), .stride = c->count + 3};
    uint64_t seed = 5 + (uint64_t)(c->width * 100 + c->lanes);
    assert_int_equal(range_kernel_create(&t->law, c->width, t->beta, c->radial, 1e-7), 0);
    t->extent[0] = CELLS_X + c->width - 1;
    t->extent[1] = CELLS_Y + c->width - 1;
    t->extent[2] = c->dim == 3 ? CELLS_Z + c->width - 1 : 1;
    int row = t->extent[0] * 2 * c->lanes + LAW_LANES;
    t->floats = (size_t)row * (size_t)t->extent[1] * (size_t)t->extent[2] + LAW_LANES;
    t->tile = allocate(t->floats + 2 * GUARD, sizeof *t->tile);
    t->expected = allocate(t->floats, sizeof *t->expected);
    for (size_t i = 0; i < t->floats + 2 * GUARD; i++)
        t->tile[i] = (float)(uniform_next(&seed) - 0.5);
    t->point = allocate(c->count, sizeof *t->point);
    t->weight = allocate(c->count, sizeof *t->weight);
    t->values = allocate(t->stride * (size_t)c->lanes, sizeof *t->values);
    t->results = allocate(t->stride * (size_t)c->lanes, sizeof *t->results);
    static const int cells[3] = {CELLS_X, CELLS_Y, CELLS_Z};
    for (size_t i = 0; i < c->count; i++) {
        /* Sources in reverse, so that the order of the input differs from that of the bin. */
        t->point[i].source = (uint32_t)(c->count - 1 - i);
        t->weight[i] = (float)(0.3 + uniform_next(&seed));
        for (int d = 0; d < c->dim; d++) {
            t->point[i].cell[d] = (uint16_t)(uniform_next(&seed) * cells[d]);
            t->point[i].fraction[d] = i % 7 == 0 ? (float)(i % 2) : (float)uniform_next(&seed);
        }
    }
    for (size_t i = 0; i < t->stride * (size_t)c->lanes; i++)
        t->values[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
    t->run = (struct points_run){.law = t->law,
                                 .dim = c->dim,
                                 .lanes = c->lanes,
                                 .point = t->point,
                                 .count = c->count,
                                 .weight = c->weighted ? t->weight : NULL,
                                 .tile = {t->tile + GUARD, row, t->extent[1]}};
}

static void bench_close(struct bench *t)
{
    range_kernel_free(t->law);
    free(t->tile);
    free(t->expected);
    free(t->point);
    free(t->weight);
    free(t->values);
    free(t->results);
}

/* Call visit(tile float, weight, point) for every cell that a point touches. */
#define FOR_CELLS(t, i, AT, WEIGHT, BODY)                                                                           \
    for (int z = 0; z < ((t)->c.dim == 3 ? (t)->c.width : 1); z++)                                                  \
        for (int y = 0; y < (t)->c.width; y++)                                                                      \
            for (int x = 0; x < (t)->c.width; x++) {                                                                \
                const struct range_point *p = (t)->point + (i);                                                     \
                size_t AT = (((size_t)(p->cell[2] + z) * (size_t)(t)->extent[1]) + (size_t)(p->cell[1] + y)) *      \
                                (size_t)(t)->run.tile.row +                                                         \
                            (size_t)(p->cell[0] + x) * 2 * (size_t)(t)->c.lanes;                                    \
                double WEIGHT =                                                                                     \
                    weight_of((t)->c.dim, (t)->c.width, (t)->beta, (t)->c.radial, p->fraction, (int[3]){x, y, z}) * \
                    ((t)->c.weighted ? (double)(t)->weight[i] : 1);                                                 \
                BODY                                                                                                \
            }

/* Whether float e of the tile is a cell and not padding. */
static bool is_cell(const struct bench *t, size_t e)
{
    return e < t->floats - LAW_LANES && e % (size_t)t->run.tile.row < (size_t)t->extent[0] * 2 * (size_t)t->c.lanes;
}

/* The polynomials' error is 1e-7 per axis (the kernel is 1 at its centre), that of float32 6e-8 per summand. The radial
 * polynomial, of degree 17 at most and in powers of t, has terms larger than their sum, so its error is larger. */
static double tolerance(const struct leaf_case *c)
{
    return c->radial ? 1e-5 : 1e-6;
}

static void check_scatter(struct bench *t)
{
    for (size_t e = 0; e < t->floats; e++)
        t->expected[e] = (double)t->run.tile.cells[e];
    for (size_t i = 0; i < t->c.count; i++)
        FOR_CELLS(t, i, at, w, {
            for (size_t l = 0; l < (size_t)t->c.lanes; l++) {
                struct c32 v = t->values[l * t->stride + p->source];
                t->expected[at + 2 * l] += w * (double)v.re;
                t->expected[at + 2 * l + 1] += w * (double)v.im;
            }
        })
    float guard[2][GUARD];
    memcpy(guard[0], t->tile, sizeof guard[0]);
    memcpy(guard[1], t->tile + GUARD + t->floats, sizeof guard[1]);
    t->c.leaf->scatter(&t->run, t->values, t->stride);
    double error = 0, norm = 0;
    for (size_t e = 0; e < t->floats; e++)
        if (is_cell(t, e)) {
            double d = (double)t->run.tile.cells[e] - t->expected[e];
            error += d * d;
            norm += t->expected[e] * t->expected[e];
        }
    assert_true(sqrt(error / norm) <= tolerance(&t->c));
    assert_memory_equal(guard[0], t->tile, sizeof guard[0]);
    assert_memory_equal(guard[1], t->tile + GUARD + t->floats, sizeof guard[1]);
}

static void check_gather(struct bench *t)
{
    const struct c32 untouched = {12345, -54321};
    for (size_t i = 0; i < t->stride * (size_t)t->c.lanes; i++)
        t->results[i] = untouched;
    t->c.leaf->gather(&t->run, t->results, t->stride);
    double error = 0, norm = 0;
    for (size_t i = 0; i < t->c.count; i++) {
        double sum[2 * RANGE_LANES_MOST] = {0};
        FOR_CELLS(t, i, at, w, {
            for (size_t e = 0; e < 2 * (size_t)t->c.lanes; e++)
                sum[e] += w * (double)t->run.tile.cells[at + e];
        })
        for (size_t l = 0; l < (size_t)t->c.lanes; l++) {
            struct c32 got = t->results[l * t->stride + t->point[i].source];
            error += pow((double)got.re - sum[2 * l], 2) + pow((double)got.im - sum[2 * l + 1], 2);
            norm += sum[2 * l] * sum[2 * l] + sum[2 * l + 1] * sum[2 * l + 1];
        }
    }
    assert_true(sqrt(error / norm) <= tolerance(&t->c));
    for (size_t l = 0; l < (size_t)t->c.lanes; l++)
        for (size_t i = t->c.count; i < t->stride; i++)
            assert_memory_equal(&t->results[l * t->stride + i], &untouched, sizeof untouched);
}

static void check_leaf(const struct points_leaf *leaf)
{
    static const int lanes[] = {1, 4, 8, 16};
    for (int dim = 2; dim <= 3; dim++)
        for (int width = KERNEL_MIN_WIDTH; width <= KERNEL_MAX_WIDTH; width++)
            for (size_t l = 0; l < sizeof lanes / sizeof *lanes; l++)
                for (int mode = 0; mode < 4; mode++) {
                    /* Counts that are not multiples of a block (16 points), or below one block. */
                    struct leaf_case c = {leaf, dim, width, lanes[l], mode % 2 == 1, mode / 2 == 1, mode == 2 ? 5 : 37};
                    struct bench t;
                    bench_open(&t, &c);
                    check_gather(&t);
                    check_scatter(&t);
                    bench_close(&t);
                }
}

static void leaf_sse2(void **state)
{
    (void)state;
    check_leaf(&points_leaf_sse2);
}

static void leaf_avx2(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        print_message("this CPU has no AVX2\n");
        skip();
    }
    check_leaf(&points_leaf_avx2);
}

static void leaf_avx512(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw")) {
        print_message("this CPU has no AVX-512\n");
        skip();
    }
    check_leaf(&points_leaf_avx512);
}

/* ---- whole sums ---- */

struct sum_case {
    struct box box;
    int lanes;
    bool radial, weighted, heavy;
    size_t count;
};

struct sums {
    struct range_bins *bins;
    struct range_kernel *law;
    struct range_cpu *cpu;
    struct c32 *values, *grid, *results;
    float *k, *weight;
    size_t cells, stride;
    double beta;
};

static void sums_open(struct sums *s, const struct sum_case *c, int threads)
{
    uint64_t seed = 77;
    *s = (struct sums){.beta = kernel_beta(c->box.width, 2), .stride = c->count + 1, .cells = 1};
    for (int d = 0; d < c->box.dim; d++)
        s->cells *= (size_t)c->box.grid[d];
    s->k = allocate(c->count * (size_t)c->box.dim, sizeof *s->k);
    /* Heavy: most points lie in one bin, so that its points are divided into parts. */
    for (size_t i = 0; i < c->count * (size_t)c->box.dim; i++)
        s->k[i] = (float)(c->heavy && i % 16 != 0 ? 0.03 + 0.01 * uniform_next(&seed) : uniform_next(&seed) - 0.5);
    s->values = allocate(s->stride * (size_t)c->lanes, sizeof *s->values);
    s->results = allocate(s->stride * (size_t)c->lanes, sizeof *s->results);
    s->grid = allocate(s->cells * (size_t)c->lanes, sizeof *s->grid);
    s->weight = allocate(c->count, sizeof *s->weight);
    for (size_t i = 0; i < s->stride * (size_t)c->lanes; i++)
        s->values[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
    for (size_t i = 0; i < s->cells * (size_t)c->lanes; i++)
        s->grid[i] = (struct c32){(float)(uniform_next(&seed) - 0.4), (float)(uniform_next(&seed) - 0.5)};
    for (size_t i = 0; i < c->count; i++)
        s->weight[i] = (float)(0.2 + uniform_next(&seed));
    const struct box *b = &c->box;
    assert_int_equal(range_bins_create(&s->bins, b->dim, b->grid, b->width, b->tile, c->count, s->k, threads, NULL), 0);
    assert_int_equal(range_kernel_create(&s->law, b->width, s->beta, c->radial, 1e-7), 0);
    assert_int_equal(range_cpu_create(&s->cpu, s->bins, s->law, c->lanes, RANGE_TOGETHER, threads, NULL), 0);
    assert_true(range_cpu_bytes(s->cpu) > 0);
}

static void sums_close(struct sums *s)
{
    range_cpu_free(s->cpu);
    range_kernel_free(s->law);
    range_bins_free(s->bins);
    free(s->values);
    free(s->results);
    free(s->grid);
    free(s->weight);
    free(s->k);
}

/* The cells around sample i in the periodic grid, and their weights; returns their number. */
static size_t reach(const struct sum_case *c, const struct sums *s, size_t i, size_t *cell, double *weight)
{
    const struct box *b = &c->box;
    float fraction[3];
    int first[3] = {0};
    size_t n = 0;
    for (int d = 0; d < b->dim; d++) {
        double left = (double)s->k[i * (size_t)b->dim + (size_t)d] * b->grid[d] - 0.5 * b->width;
        first[d] = (int)ceil(left) + b->grid[d];
        fraction[d] = (float)(ceil(left) - left);
    }
    for (int z = 0; z < (b->dim == 3 ? b->width : 1); z++)
        for (int y = 0; y < b->width; y++)
            for (int x = 0; x < b->width; x++) {
                size_t gz = b->dim == 3 ? (size_t)((first[2] + z) % b->grid[2]) : 0;
                size_t row = gz * (size_t)b->grid[1] + (size_t)((first[1] + y) % b->grid[1]);
                cell[n] = row * (size_t)b->grid[0] + (size_t)((first[0] + x) % b->grid[0]);
                weight[n++] = weight_of(b->dim, b->width, s->beta, c->radial, fraction, (int[3]){x, y, z});
            }
    return n;
}

static void check_sums(const struct sum_case *c, struct sums *s)
{
    const size_t lanes = (size_t)c->lanes;
    size_t cell[KERNEL_MAX_WIDTH * KERNEL_MAX_WIDTH * KERNEL_MAX_WIDTH];
    double weight[sizeof cell / sizeof *cell], error[2] = {0}, norm[2] = {0};
    double *expected = allocate(s->cells * lanes * 2, sizeof *expected);
    float *binned = allocate(c->count, sizeof *binned);
    for (size_t i = 0; i < c->count; i++)
        binned[i] = s->weight[s->bins->point[i].source];
    range_cpu_gather(s->cpu, c->lanes, s->grid, c->weighted ? binned : NULL, s->results, s->stride);
    for (size_t i = 0; i < c->count; i++) {
        size_t n = reach(c, s, i, cell, weight);
        double w = c->weighted ? (double)s->weight[i] : 1;
        for (size_t l = 0; l < lanes; l++) {
            double re = 0, im = 0;
            for (size_t j = 0; j < n; j++) {
                re += w * weight[j] * (double)s->grid[cell[j] * lanes + l].re;
                im += w * weight[j] * (double)s->grid[cell[j] * lanes + l].im;
                expected[(cell[j] * lanes + l) * 2] += w * weight[j] * (double)s->values[l * s->stride + i].re;
                expected[(cell[j] * lanes + l) * 2 + 1] += w * weight[j] * (double)s->values[l * s->stride + i].im;
            }
            struct c32 got = s->results[l * s->stride + i];
            error[0] += pow((double)got.re - re, 2) + pow((double)got.im - im, 2);
            norm[0] += re * re + im * im;
        }
    }
    range_cpu_scatter(s->cpu, c->lanes, s->values, s->stride, c->weighted ? binned : NULL, s->grid);
    for (size_t i = 0; i < s->cells * lanes; i++) {
        error[1] +=
            pow((double)s->grid[i].re - expected[2 * i], 2) + pow((double)s->grid[i].im - expected[2 * i + 1], 2);
        norm[1] += expected[2 * i] * expected[2 * i] + expected[2 * i + 1] * expected[2 * i + 1];
    }
    /* As for a single run; a heavy bin sums tens of thousands of summands of either sign. */
    assert_true(sqrt(error[0] / norm[0]) <= 1e-6);
    assert_true(sqrt(error[1] / norm[1]) <= (c->heavy ? 4e-6 : 1e-6));
    free(expected);
    free(binned);
}

static const struct sum_case sum_cases[] = {
    {{2, {64, 48, 1}, 4, {16, 16, 1}}, 1, false, true, false, 4000},
    {{2, {61, 35, 1}, 5, {16, 16, 1}}, 4, false, false, false, 1500},
    {{2, {48, 48, 1}, 6, {12, 12, 1}}, 8, true, true, false, 700},
    {{2, {40, 40, 1}, 3, {8, 8, 1}}, 1, false, false, true, 40000},
    {{3, {24, 20, 36}, 4, {8, 8, 8}}, 1, false, false, false, 3000},
    {{3, {19, 27, 33}, 7, {8, 8, 8}}, 16, false, true, false, 300},
    {{3, {20, 20, 20}, 5, {8, 8, 8}}, 4, true, false, false, 500},
    {{3, {12, 12, 12}, 10, {8, 8, 8}}, 8, false, true, false, 60},
    {{3, {24, 24, 24}, 2, {8, 8, 8}}, 1, false, true, true, 40000},
};

static void sums_match_double_precision(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sum_cases / sizeof *sum_cases; i++) {
        struct sums s;
        sums_open(&s, &sum_cases[i], 2);
        assert_true(!sum_cases[i].heavy || s.bins->largest > 2 * 8192);
        check_sums(&sum_cases[i], &s);
        sums_close(&s);
    }
}

static void same_bits_for_any_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sum_cases / sizeof *sum_cases; i++) {
        const struct sum_case *c = &sum_cases[i];
        struct sums one, more;
        sums_open(&one, c, 1);
        range_cpu_gather(one.cpu, c->lanes, one.grid, NULL, one.results, one.stride);
        range_cpu_scatter(one.cpu, c->lanes, one.values, one.stride, NULL, one.grid);
        sums_open(&more, c, 5);
        range_cpu_gather(more.cpu, c->lanes, more.grid, NULL, more.results, more.stride);
        range_cpu_scatter(more.cpu, c->lanes, more.values, more.stride, NULL, more.grid);
        assert_memory_equal(one.results, more.results, one.stride * (size_t)c->lanes * sizeof *one.results);
        assert_memory_equal(one.grid, more.grid, one.cells * (size_t)c->lanes * sizeof *one.grid);
        sums_close(&one);
        sums_close(&more);
    }
}

static void lanes_offered(void **state)
{
    (void)state;
    static const int expected[] = {1, 1, 1, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16};
    for (int wanted = 1; wanted <= 18; wanted++)
        assert_int_equal(range_cpu_lanes(wanted), expected[wanted - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(polynomials_fit_themselves),
        cmocka_unit_test(leaf_sse2),
        cmocka_unit_test(leaf_avx2),
        cmocka_unit_test(leaf_avx512),
        cmocka_unit_test(sums_match_double_precision),
        cmocka_unit_test(same_bits_for_any_threads),
        cmocka_unit_test(lanes_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
