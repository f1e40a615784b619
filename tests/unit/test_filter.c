/* Convolutions by Fourier transforms (gridding/fft/filter.h) against sums over all waves in double precision:
 * meshes coarser and finer than the result, even and odd, results of which only a part is kept. */
#include "gridding/base/err.h"
#include "gridding/fft/filter_cpu.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { AXIS_MOST = 19, RADIAL = 9 };

/* Factors without symmetry between axes, whose last waves lie beyond the table of the radial one. */
struct tables {
    float axis[3][AXIS_MOST], radial[RADIAL];
    struct filter_factors factors;
};

static struct tables tables_make(double scale)
{
    struct tables t = {.factors = {.wave = {0.7, 0.9, 1.1}, .count = RADIAL, .step = 0.8}};
    for (int i = 0; i < AXIS_MOST; i++)
        for (int d = 0; d < 3; d++)
            t.axis[d][i] = (float)((d == 0 ? scale : 1) * (1 + 0.1 * i * (d + 1) - 0.02 * i * i));
    for (int i = 0; i < RADIAL; i++)
        t.radial[i] = (float)(1 / (1 + 0.4 * i * i));
    return t;
}

/* Set up what points into the tables. */
static const struct filter_factors *factors_of(struct tables *t)
{
    for (int d = 0; d < 3; d++)
        t->factors.axis[d] = t->axis[d];
    t->factors.radial = t->radial;
    return &t->factors;
}

/* In double precision. */
static double factor_of(const struct tables *t, const int wave[3])
{
    double squares = 0, factor = 1;
    for (int d = 0; d < 3; d++) {
        squares += pow(wave[d] * t->factors.wave[d], 2);
        factor *= (double)t->axis[d][abs(wave[d])];
    }
    if (t->factors.most > 0 && factor > t->factors.most)
        return 0;
    const double place = sqrt(squares) / t->factors.step;
    const int below = place < RADIAL - 2 ? (int)place : RADIAL - 2;
    return factor *
           ((double)t->radial[below] + (place - below) * ((double)t->radial[below + 1] - (double)t->radial[below]));
}

/* exp(sign 2 pi i wave place / n) */
static double complex turn(int wave, int place, int n, int sign)
{
    return cexp(sign * 2 * M_PI * I * wave * place / n);
}

/* The transform of the field for every wave below half the number of nodes, as [z][y][x] of `from`. */
static double complex *waves_of(const int n[3], const float *field)
{
    double complex *waves = allocate((size_t)n[0] * (size_t)n[1] * (size_t)n[2], sizeof *waves);
    for (int k = 0; k < n[0] * n[1] * n[2]; k++)
        for (int i = 0; i < n[0] * n[1] * n[2]; i++)
            waves[k] += (double)field[i] * turn(k % n[0], i % n[0], n[0], -1) *
                        turn(k / n[0] % n[1], i / n[0] % n[1], n[1], -1) *
                        turn(k / n[0] / n[1], i / n[0] / n[1], n[2], -1);
    return waves;
}

static double expected_at(const struct filter_shape *s, const struct tables *t, const double complex *waves,
                          const int place[3])
{
    double complex sum = 0;
    for (int z = 0; z < s->from[2]; z++)
        for (int y = 0; y < s->from[1]; y++)
            for (int x = 0; x < s->from[0]; x++) {
                const int at[3] = {x, y, z};
                int wave[3];
                bool half = false;
                double complex value = waves[(z * s->from[1] + y) * s->from[0] + x];
                for (int d = 0; d < 3; d++) {
                    half = half || 2 * at[d] == s->from[d];
                    wave[d] = 2 * at[d] > s->from[d] ? at[d] - s->from[d] : at[d];
                    value *= turn(wave[d], place[d], s->to[d], 1);
                }
                sum += half ? 0 : factor_of(t, wave) * value;
            }
    assert_true(fabs(cimag(sum)) < 1e-9 * (1 + fabs(creal(sum))));
    return creal(sum);
}

/* most: of the axes' factors, times the nodes; 0: any. */
static void filter_try(const struct filter_shape *s, double most)
{
    const size_t nodes = (size_t)s->from[0] * (size_t)s->from[1] * (size_t)s->from[2];
    const size_t kept = (size_t)s->kept[0] * (size_t)s->kept[1] * (size_t)s->kept[2];
    float *field = allocate(nodes, sizeof *field), *result = allocate(kept, sizeof *result),
          *other = allocate(kept, sizeof *other);
    struct tables tables = tables_make(1.0 / (double)nodes);
    uint64_t seed = nodes;
    tables.factors.most = most / (double)nodes;
    for (size_t i = 0; i < nodes; i++)
        field[i] = (float)uniform_next(&seed);
    double complex *waves = waves_of(s->from, field);
    for (int threads = 1; threads <= 3; threads++) {
        struct filter_cpu *filter;
        assert_int_equal(filter_cpu_create(&filter, s, threads), 0);
        assert_int_equal(filter_cpu_run(filter, field, factors_of(&tables), threads == 1 ? result : other, NULL), 0);
        filter_cpu_free(filter);
        if (threads > 1)
            assert_memory_equal(other, result, kept * sizeof *result);
    }
    for (int i = 0; i < (int)kept; i++) {
        const int place[3] = {i % s->kept[0], i / s->kept[0] % s->kept[1], i / s->kept[0] / s->kept[1]};
        const double expected = expected_at(s, &tables, waves, place);
        if (!(fabs((double)result[i] - expected) < 1e-6))
            fail_msg("node %d: %g, not %g", i, (double)result[i], expected);
    }
    free(field);
    free(result);
    free(other);
    free(waves);
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct filter_shape shapes[] = {
        {{6, 6, 6}, {6, 6, 6}, {6, 6, 6}},    {{6, 5, 8}, {12, 9, 10}, {12, 7, 9}},
        {{12, 9, 10}, {5, 6, 4}, {5, 6, 4}},  {{10, 4, 7}, {4, 12, 7}, {3, 11, 1}},
        {{36, 4, 4}, {40, 4, 4}, {39, 4, 2}}, {{9, 14, 5}, {7, 5, 15}, {7, 1, 14}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int some = 0; some < 2; some++)
            filter_try(&shapes[i], some ? 1.3 : 0);
}

static int stop_late(void *context, size_t done, size_t most)
{
    assert_true(done < most);
    return ++*(int *)context > 4 ? err_set(ERR_CANCELED, "The job was canceled.") : 0;
}

static void test_canceled(void **state)
{
    (void)state;
    const struct filter_shape shape = {{8, 8, 8}, {8, 8, 8}, {8, 8, 8}};
    float field[512] = {1}, result[512];
    struct tables tables = tables_make(1);
    int calls = 0;
    struct filter_cpu *filter;
    assert_int_equal(filter_cpu_create(&filter, &shape, 1), 0);
    assert_int_equal(filter_cpu_run(filter, field, factors_of(&tables), result, &(struct listener){&calls, stop_late}),
                     ERR_CANCELED);
    assert_int_equal(calls, 5);
    filter_cpu_free(filter);
}

static void test_refused(void **state)
{
    (void)state;
    const struct filter_shape shape = {{8, 11, 8}, {8, 8, 8}, {8, 8, 8}};
    struct filter_cpu *filter;
    assert_int_equal(filter_cpu_create(&filter, &shape, 1), ERR_BAD_PARAMETER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_canceled),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
