/* Density weights by formula. */
#include "tests/unit/dcf_fixture.h"

/* The error allowed for fully sampled data is 0.06. Measured: radial 0.009, golden 0.009, spiral 0.035 (0.028 with 3
 * arms), kooshball 0.040 at these small matrices; scales within 2 %. The weights' sum is a disc's or ball's area, which
 * may miss or exceed half a ring of samples at the edge: 2 / samples per side. */
static void check_analytic(const char *name, struct traj *traj, int n, enum traj_shape expected, double most)
{
    struct scan scan;
    scan_make(&scan, traj, n, false);
    assert_int_equal(traj_shape_find(traj->dim, traj->readouts, traj->samples, traj->k), expected);
    assert_int_equal(dcf_analytic(expected, traj->dim, traj->readouts, traj->samples, traj->k, scan.weights), 0);
    double scale, error = nrmse(&scan, &scale), whole = traj->dim == 2 ? M_PI / 4 : M_PI / 6;
    print_message("%s, N %d, %zu x %zu, analytic: NRMSE %.4f, scale %.4f\n", name, n, traj->readouts, traj->samples,
                  error, scale);
    assert_true(error < most);
    assert_true(fabs(scale - 1) < 0.02);
    assert_true(fabs(area(&scan) - whole) < whole * 2 * traj->dim / (double)traj->samples);
    scan_free(&scan);
}

static void test_analytic(void **state)
{
    (void)state;
    check_analytic("radial", make(TRAJ_RADIAL, 64, 0, 0), 64, TRAJ_SHAPE_RADIAL, 0.02);
    check_analytic("radial", make(TRAJ_RADIAL, 33, 0, 0), 33, TRAJ_SHAPE_RADIAL, 0.03);
    check_analytic("golden", make(TRAJ_GOLDEN, 64, 0, 0), 64, TRAJ_SHAPE_RADIAL, 0.02);
    check_analytic("spiral", make(TRAJ_SPIRAL, 64, 0, 0), 64, TRAJ_SHAPE_SPIRAL, 0.06);
    check_analytic("spiral of 3 arms", make(TRAJ_SPIRAL, 64, 3, 0), 64, TRAJ_SHAPE_SPIRAL, 0.06);
    check_analytic("kooshball", make(TRAJ_KOOSHBALL, 24, 0, 0), 24, TRAJ_SHAPE_RADIAL, 0.06);
    check_analytic("cones", make(TRAJ_CONES, 16, 0, 0), 16, TRAJ_SHAPE_CONES, 0.07);
}

/* `partitions` copies of a 2-D trajectory at these kz, each slightly rotated; readout r of partition p is at index r *
 * partitions + p. */
static struct traj *stacked(const struct traj *plane, size_t partitions, const double *kz)
{
    struct traj *traj = claim(sizeof *traj);
    *traj = (struct traj){.dim = 3, .readouts = plane->readouts * partitions, .samples = plane->samples};
    traj->k = claim(3 * traj->readouts * traj->samples * sizeof *traj->k);
    for (size_t r = 0; r < traj->readouts; r++)
        for (size_t i = 0; i < traj->samples; i++) {
            const float *from = plane->k + 2 * (r / partitions * traj->samples + i);
            float *to = traj->k + 3 * (r * traj->samples + i);
            double turn = 0.3 * (double)(r % partitions);
            to[0] = (float)(cos(turn) * from[0] - sin(turn) * from[1]);
            to[1] = (float)(sin(turn) * from[0] + cos(turn) * from[1]);
            to[2] = (float)kz[r % partitions];
        }
    return traj;
}

/* A stack's weights are those of its plane times the layers' thickness, for any order and spacing of partitions.
 */
static void check_stack(enum traj_kind kind, enum traj_shape shape, enum traj_shape stack_shape)
{
    enum { PARTITIONS = 5 };
    static const double kz[PARTITIONS] = {0.25, -0.5, 0.125, -0.25, 0},
                        thick[PARTITIONS] = {0.125, 0.25, 0.125, 0.25, 0.1875};
    struct traj *plane = make(kind, 24, 0, 0), *stack = stacked(plane, PARTITIONS, kz);
    size_t samples = plane->readouts * plane->samples;
    float *flat = claim(samples * sizeof *flat), *deep = claim(PARTITIONS * samples * sizeof *deep);
    assert_int_equal(dcf_analytic(shape, 2, plane->readouts, plane->samples, plane->k, flat), 0);
    assert_int_equal(traj_shape_find(3, stack->readouts, stack->samples, stack->k), stack_shape);
    assert_int_equal(dcf_analytic(stack_shape, 3, stack->readouts, stack->samples, stack->k, deep), 0);
    for (size_t r = 0; r < stack->readouts; r++)
        for (size_t i = 0; i < stack->samples; i++) {
            double expected = thick[r % PARTITIONS] * flat[r / PARTITIONS * stack->samples + i];
            /* Coordinates are float32 and rotated: an error of 1e-7 of the largest, against steps of 1 / 48. */
            assert_true(fabs(deep[r * stack->samples + i] - expected) < 1e-4 * expected + 1e-9);
        }
    stack->k[2] += 0.01f; /* a sample that leaves its partition */
    assert_int_equal(traj_shape_find(3, stack->readouts, stack->samples, stack->k), TRAJ_SHAPE_UNKNOWN);
    assert_int_equal(dcf_analytic(stack_shape, 3, stack->readouts, stack->samples, stack->k, deep), ERR_DCF_INVALID);
    free(deep);
    free(flat);
    traj_free(stack);
    traj_free(plane);
}

static void test_stacks(void **state)
{
    (void)state;
    check_stack(TRAJ_GOLDEN, TRAJ_SHAPE_RADIAL, TRAJ_SHAPE_STACK_RADIAL);
    check_stack(TRAJ_SPIRAL, TRAJ_SHAPE_SPIRAL, TRAJ_SHAPE_STACK_SPIRAL);
}

/* Every readout replaced by its half-spoke from 0: `wait` samples at k = 0, then steps of 1 / 2N from `first` steps on,
 * the last one within 0.5, where its cell ends; odd readouts go the other way, so that all directions occur.
 */
static struct traj *centre_out(enum traj_kind kind, int n, int readouts, int wait, double first)
{
    int steps = first == 1 ? n - 1 : n;
    struct traj *traj = make(kind, n, readouts, (steps + wait) / 2 * 2); /* even: the first sample is at |k| = 0.5 */
    for (size_t r = 0; r < traj->readouts; r++) {
        float *k = traj->k + r * traj->samples * (size_t)traj->dim;
        float end[3] = {k[0], k[1], traj->dim == 3 ? k[2] : 0};
        for (int i = 0; i < (int)traj->samples; i++)
            for (int d = 0; d < traj->dim; d++)
                k[i * traj->dim + d] =
                    i < wait ? 0 : (float)((r % 2 ? 2 : -2) * end[d] * (i - wait + first) / (2.0 * n));
    }
    return traj;
}

/* Uneven angles, spokes without k = 0, and half-spokes with and without a sample at k = 0. */
static void test_radial_variants(void **state)
{
    (void)state;
    struct traj *traj = make(TRAJ_RADIAL, 48, 120, 96);
    for (size_t m = 0; m < traj->readouts * traj->samples; m++) {
        double angle = M_PI * (double)(m / 96) / 120 + 0.012 * sin((double)(m / 96) * 1.7);
        double at = ((double)(m % 96) - 47.5) / 96;
        traj->k[2 * m] = (float)(at * cos(angle));
        traj->k[2 * m + 1] = (float)(at * sin(angle));
    }
    check_analytic("radial, uneven, k = 0 between samples", traj, 48, TRAJ_SHAPE_RADIAL, 0.03);
    check_analytic("radial from the centre, 1 at k = 0", centre_out(TRAJ_RADIAL, 48, 161, 1, 1), 48, TRAJ_SHAPE_RADIAL,
                   0.03);
    check_analytic("radial from the centre, 5 at k = 0", centre_out(TRAJ_RADIAL, 48, 161, 5, 1), 48, TRAJ_SHAPE_RADIAL,
                   0.03);
    check_analytic("radial from a quarter sample", centre_out(TRAJ_RADIAL, 48, 161, 0, 0.25), 48, TRAJ_SHAPE_RADIAL,
                   0.03);
    check_analytic("kooshball from the centre, 5 at k = 0", centre_out(TRAJ_KOOSHBALL, 24, 1900, 5, 1), 24,
                   TRAJ_SHAPE_RADIAL, 0.06);
}

/* ---- uneven angles, repeats, partial echoes ---- */

/* Samples of a readout at the same position share its weight, as do spokes at the same angle; the weights cover the
 * same area as without repeats. */
static void test_sharing(void **state)
{
    (void)state;
    struct traj *once = centre_out(TRAJ_RADIAL, 16, 31, 1, 1), *more = centre_out(TRAJ_RADIAL, 16, 31, 5, 1);
    float a[31 * 16], b[31 * 20], twice[2 * 31 * 16], pair[2 * 2 * 31 * 16];
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 2, 31, 16, once->k, a), 0);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 2, 31, 20, more->k, b), 0);
    memcpy(pair, once->k, sizeof pair / 2);
    memcpy(pair + 2 * 31 * 16, once->k, sizeof pair / 2);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 2, 62, 16, pair, twice), 0);
    for (size_t r = 0; r < 31; r++) {
        for (size_t i = 0; i < 5; i++) {
            assert_true(b[r * 20 + i] > 0);
            assert_true(fabs(5 * b[r * 20 + i] - a[r * 16]) < 1e-6 * a[r * 16]);
        }
        for (size_t i = 0; i < 16; i++) {
            assert_true(i == 0 || fabs(b[r * 20 + i + 4] - a[r * 16 + i]) < 1e-6 * a[r * 16 + i]);
            assert_true(fabs(2 * twice[r * 16 + i] - a[r * 16 + i]) < 1e-6 * a[r * 16 + i]);
            assert_true(fabs(2 * twice[(31 + r) * 16 + i] - a[r * 16 + i]) < 1e-6 * a[r * 16 + i]);
        }
    }
    traj_free(once);
    traj_free(more);
}

/* An ellipsoid of spokes, as a cubic field of view with flat voxels gives: the weights are the sphere's times the
 * volume's ratio. */
static void test_ellipsoid(void **state)
{
    (void)state;
    struct traj *traj = make(TRAJ_KOOSHBALL, 16, 400, 0);
    size_t samples = traj->readouts * traj->samples;
    float *round = claim(samples * sizeof *round), *flat = claim(samples * sizeof *flat);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 3, traj->readouts, traj->samples, traj->k, round), 0);
    for (size_t m = 0; m < samples; m++)
        traj->k[3 * m + 2] *= 0.4f;
    assert_int_equal(traj_shape_find(3, traj->readouts, traj->samples, traj->k), TRAJ_SHAPE_RADIAL);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 3, traj->readouts, traj->samples, traj->k, flat), 0);
    for (size_t m = 0; m < samples; m++) /* float32 coordinates and weights, cubed: 1e-6 */
        assert_true(fabs(flat[m] - 0.4 * round[m]) <= 1e-5 * round[m]);
    free(round);
    free(flat);
    traj_free(traj);
}

static void test_bad(void **state)
{
    (void)state;
    struct traj *traj = make(TRAJ_CONES, 8, 20, 10);
    float weights[200];
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_UNKNOWN, 3, 20, 10, traj->k, weights), ERR_DCF_INVALID);
    assert_non_null(strstr(err_last()->text, "dcf=pipe"));
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_SPIRAL, 3, 20, 10, traj->k, weights), ERR_DCF_INVALID);
    memset(traj->k, 0, 600 * sizeof *traj->k);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 3, 20, 10, traj->k, weights), ERR_DCF_INVALID);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 2, 20, 10, traj->k, weights), ERR_DCF_INVALID);
    traj_free(traj);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_analytic), cmocka_unit_test(test_radial_variants),
        cmocka_unit_test(test_sharing),  cmocka_unit_test(test_ellipsoid),
        cmocka_unit_test(test_bad),      cmocka_unit_test(test_stacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
