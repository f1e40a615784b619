/* Phantoms: k-space compared with areas, with a raster's double sum and with each other; coils; the true image. */
#include "clients/phantom.h"
#include "gridding/base/err.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct phantom *make(enum phantom_kind kind, int dim, int nx, int ny, int nz, double height, int coils)
{
    struct phantom *phantom = NULL;
    int n[3] = {nx, ny, nz};
    assert_int_equal(phantom_create(&phantom, kind, dim, n, height, coils), 0);
    return phantom;
}

static double complex one(const struct phantom *phantom, double kx, double ky, double kz)
{
    float k[3] = {(float)kx, (float)ky, (float)kz};
    struct c32 data;
    phantom_kspace(phantom, 1, k, 1, &data);
    return data.re + I * data.im;
}

/* The value at k = 0 is the sum of value times area: in 2-D pi a b / 4 of the table's semi-axes, in 3-D pi/6 a b c, in
 * pixels. */
static void test_areas(void **state)
{
    (void)state;
    static const double flat[][3] = {
        {1, 0.69, 0.92},     {-0.8, 0.6624, 0.874}, {-0.2, 0.11, 0.31},  {-0.2, 0.16, 0.41},  {0.1, 0.21, 0.25},
        {0.1, 0.046, 0.046}, {0.1, 0.046, 0.046},   {0.1, 0.046, 0.023}, {0.1, 0.023, 0.023}, {0.1, 0.023, 0.046}};
    static const double depth[] = {0.81, 0.78, 0.22, 0.28, 0.41, 0.05, 0.05, 0.05, 0.02, 0.02};
    double area = 0, volume = 0;
    for (int i = 0; i < 10; i++) {
        area += M_PI / 4 * flat[i][0] * flat[i][1] * flat[i][2];
        volume += M_PI / 6 * flat[i][0] * flat[i][1] * flat[i][2] * depth[i];
    }
    struct phantom *phantom = make(PHANTOM_SHEPP_LOGAN, 2, 96, 64, 1, NAN, 1);
    /* Results are rounded to float32: 6e-8 relative. */
    assert_true(cabs(one(phantom, 0, 0, 0) - area * 96 * 64) < 1e-6 * area * 96 * 64);
    phantom_free(phantom);
    phantom = make(PHANTOM_SHEPP_LOGAN, 3, 32, 48, 20, NAN, 1);
    assert_true(cabs(one(phantom, 0, 0, 0) - volume * 32 * 48 * 20) < 1e-6 * volume * 32 * 48 * 20);
    phantom_free(phantom);
}

/* The direction of rotation, in the classic figure with y upwards: the left ventricle, at x = -0.22 half-widths, leans
 * to the left at its top, so 0.35 half-widths from its middle it is at x = -0.22 -+ 0.35 sin 18 degrees. The
 * ventricles' value is 0, that of the brain 0.2. */
static void test_turn(void **state)
{
    (void)state;
    struct phantom *phantom = make(PHANTOM_SHEPP_LOGAN, 2, 64, 64, 1, NAN, 1);
    assert_true(fabs(phantom_value(phantom, (double[]){-0.112 / 2, -0.333 / 2, 0})) < 1e-12);
    assert_true(fabs(phantom_value(phantom, (double[]){-0.328 / 2, 0.333 / 2, 0})) < 1e-12);
    assert_true(fabs(phantom_value(phantom, (double[]){-0.328 / 2, -0.333 / 2, 0}) - 0.2) < 1e-12);
    phantom_free(phantom);
}

/* The closed forms near 0 agree with their series: no step at the transition (float32 rounding is 6e-8). */
static void test_continuity(void **state)
{
    (void)state;
    for (int dim = 2; dim <= 3; dim++) {
        struct phantom *phantom = make(PHANTOM_ASYMMETRIC, dim, 64, 64, 64, NAN, 1);
        double complex before = one(phantom, 0, 0, 0);
        double scale = cabs(before);
        /* The largest slope is 2 pi 64 |x| max < 2 pi 32 per unit of k. */
        for (double k = 0; k < 2e-3; k += 1e-6) {
            double complex here = one(phantom, k, -0.5 * k, 0.25 * k);
            assert_true(cabs(here - before) < scale * (2 * M_PI * 32 * 1.2e-6 + 2e-7));
            before = here;
        }
        phantom_free(phantom);
    }
}

/* A midpoint sum over a raster `fine` times finer than the pixels. Its error comes from pixels that an outline cuts,
 * with random signs: value * cell * sqrt(cut cells) with cut cells ~ outline / cell. 2-D, N 32, 16 times: cells of
 * 1/256 pixel^2, outlines of ~200 pixels = 3200 cells: 0.3 * 57 / 256 = 0.07; allowed is five times this. 3-D, N 16, 8
 * times: cells 1/512, surfaces ~800 pixels^2 = 51,000 cells: 0.3 * 226 / 512 = 0.13. The values compared are up to
 * several hundred. */
static void check_raster(enum phantom_kind kind, int dim, int n, int fine, int coils, double tolerance)
{
    struct phantom *phantom = make(kind, dim, n, n, n, NAN, coils);
    static const float k[4][3] = {
        {0.013f, -0.02f, 0.031f}, {0.11f, 0.07f, -0.05f}, {-0.21f, 0.16f, 0.02f}, {0, -0.3f, 0.1f}};
    float packed[12];
    for (int m = 0; m < 4; m++)
        for (int d = 0; d < dim; d++)
            packed[m * dim + d] = k[m][d];
    struct c32 *data = malloc((size_t)coils * 5 * sizeof *data);
    assert_non_null(data);
    phantom_kspace(phantom, 4, packed, 5, data);
    int cells = n * fine, coil = coils - 1;
    double complex sum[4] = {0};
    for (int z = 0; z < (dim == 3 ? cells : 1); z++)
        for (int y = 0; y < cells; y++)
            for (int x = 0; x < cells; x++) {
                double place[3] = {(x + 0.5) / cells - 0.5, (y + 0.5) / cells - 0.5,
                                   dim == 3 ? (z + 0.5) / cells - 0.5 : 0};
                double value = phantom_value(phantom, place), re, im;
                if (value == 0)
                    continue;
                phantom_sensitivity(phantom, coil, place, &re, &im);
                for (int m = 0; m < 4; m++) {
                    double phase = 0;
                    for (int d = 0; d < dim; d++)
                        phase += (double)k[m][d] * n * place[d];
                    sum[m] += value * (re + I * im) * cexp(-2 * M_PI * I * phase);
                }
            }
    double largest = 0;
    for (int m = 0; m < 4; m++) {
        double complex got = data[coil * 5 + m].re + I * data[coil * 5 + m].im;
        largest = fmax(largest, cabs(got));
        if (cabs(got - sum[m] / pow(fine, dim)) > tolerance)
            fail_msg("dim %d sample %d: |difference| %g of %g", dim, m, cabs(got - sum[m] / pow(fine, dim)), cabs(got));
    }
    assert_true(largest > 30 * tolerance);
    free(data);
    phantom_free(phantom);
}

static void test_raster(void **state)
{
    (void)state;
    check_raster(PHANTOM_SHEPP_LOGAN, 2, 32, 16, 1, 0.35);
    check_raster(PHANTOM_ASYMMETRIC, 2, 32, 16, 4, 0.35);
    check_raster(PHANTOM_SHEPP_LOGAN, 3, 16, 8, 1, 0.65);
    check_raster(PHANTOM_ASYMMETRIC, 3, 16, 8, 5, 0.65);
}

/* A cut through the 3-D object equals the object at that height. */
static void test_cut(void **state)
{
    (void)state;
    struct phantom *volume = make(PHANTOM_ASYMMETRIC, 3, 8, 8, 8, NAN, 1);
    struct phantom *cut = make(PHANTOM_ASYMMETRIC, 2, 8, 8, 1, 0.11, 1);
    for (int i = 0; i < 2500; i++) {
        double place[3] = {(i % 50) / 50.0 - 0.495, (i / 50) / 50.0 - 0.497, 0.11};
        assert_true(fabs(phantom_value(volume, place) - phantom_value(cut, place)) < 1e-12);
    }
    phantom_free(volume);
    phantom_free(cut);
}

static void test_coils(void **state)
{
    (void)state;
    for (int dim = 2; dim <= 3; dim++)
        for (int coils = 1; coils <= 12; coils++) {
            struct phantom *phantom = make(PHANTOM_SHEPP_LOGAN, dim, 16, 16, 16, NAN, coils);
            double apart = 0;
            for (int i = 0; i < 100; i++) {
                double place[3] = {i % 10 / 10.0 - 0.45, i / 10 / 10.0 - 0.45, (i * 7 % 10) / 10.0 - 0.45}, re, im,
                       sum = 0, first = 0;
                for (int c = 0; c < coils; c++) {
                    phantom_sensitivity(phantom, c, place, &re, &im);
                    sum += re * re + im * im;
                    first = c == 0 ? hypot(re, im) : first;
                }
                apart = fmax(apart, fabs(first * sqrt(coils) - hypot(re, im) * sqrt(coils)));
                assert_true(fabs(sum - 1) < 1e-12);
            }
            assert_true(coils == 1 || apart > 0.3); /* the coils' images differ */
            phantom_free(phantom);
        }
}

/* No flip, transposition or rotation by 90 degrees maps the asymmetric object close to itself: difference over norm >
 * 0.25. */
static void check_asymmetric(int dim)
{
    struct phantom *phantom = make(PHANTOM_ASYMMETRIC, dim, 16, 16, 16, NAN, 1);
    static const int orders[6][3] = {{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
    for (int order = 0; order < (dim == 2 ? 2 : 6); order++)
        for (int flips = order == 0 ? 1 : 0; flips < (dim == 2 ? 4 : 8); flips++) {
            double difference = 0, norm = 0;
            for (int i = 0; i < (dim == 2 ? 900 : 27000); i++) {
                double place[3] = {i % 30 / 30.0 - 0.483, i / 30 % 30 / 30.0 - 0.483,
                                   dim == 3 ? i / 900 / 30.0 - 0.483 : 0},
                       other[3];
                for (int d = 0; d < 3; d++)
                    other[d] = flips >> d & 1 ? -place[orders[order][d]] : place[orders[order][d]];
                double a = phantom_value(phantom, place), b = phantom_value(phantom, other);
                difference += (a - b) * (a - b);
                norm += a * a;
            }
            assert_true(sqrt(difference / norm) > 0.25);
        }
    phantom_free(phantom);
}

static void test_asymmetric(void **state)
{
    (void)state;
    check_asymmetric(2);
    check_asymmetric(3);
}

/* The true image against its defining sum at single pixels; a pixel inside is near the object's value: Gibbs' ringing
 * away from edges is below 5 %. */
static void test_truth(void **state)
{
    (void)state;
    int n[3] = {20, 17, 1};
    struct phantom *phantom = make(PHANTOM_ASYMMETRIC, 2, n[0], n[1], 1, NAN, 1);
    float image[20 * 17];
    assert_int_equal(phantom_truth(phantom, false, image), 0);
    for (int i = 0; i < 20 * 17; i += 13) {
        double complex sum = 0;
        /* Positions at half the spacing 1 / N: 40 x 34 of them. */
        for (int ky = -17; ky < 17; ky++)
            for (int kx = -20; kx < 20; kx++)
                if (kx * kx / 1600.0 + ky * ky / 1156.0 < 0.25)
                    sum += one(phantom, kx / 40.0, ky / 34.0, 0) *
                           cexp(2 * M_PI * I * (kx / 40.0 * (i % 20 - 10) + ky / 34.0 * (i / 20 - 8))) / 1360.0;
        /* one() rounds its argument and its result to float32: up to 1360 terms of at most the object's area, 100,
         * times 1e-7, over 1360.
         */
        assert_true(fabs(image[i] - cabs(sum)) < 3e-5);
    }
    phantom_free(phantom);

    phantom = make(PHANTOM_SHEPP_LOGAN, 3, 48, 48, 40, NAN, 1);
    float *volume = malloc(48 * 48 * 40 * sizeof *volume);
    assert_non_null(volume);
    for (int cylinder = 0; cylinder < 2; cylinder++) {
        assert_int_equal(phantom_truth(phantom, cylinder, volume), 0);
        /* At z = 0, (x, y) = (0, -0.3) half-widths the phantom's value is 0.2; x = 0, y = 0.8 half-widths is
         * outside. */
        assert_true(fabs(volume[(20 * 48 + 24 - 14) * 48 + 24] - 0.2) < 0.05);
        assert_true(volume[(20 * 48 + 2) * 48 + 2] < 0.03);
    }
    free(volume);
    phantom_free(phantom);
}

static void test_bad(void **state)
{
    (void)state;
    struct phantom *phantom = NULL;
    assert_int_equal(phantom_create(&phantom, PHANTOM_SHEPP_LOGAN, 2, (int[]){16, 16, 1}, NAN, 0), ERR_BAD_PARAMETER);
    assert_int_equal(phantom_create(&phantom, PHANTOM_SHEPP_LOGAN, 3, (int[]){16, 16, 4096}, NAN, 1),
                     ERR_BAD_PARAMETER);
    assert_null(phantom);
    phantom_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_areas),      cmocka_unit_test(test_turn),  cmocka_unit_test(test_continuity),
        cmocka_unit_test(test_raster),     cmocka_unit_test(test_cut),   cmocka_unit_test(test_coils),
        cmocka_unit_test(test_asymmetric), cmocka_unit_test(test_truth), cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
