/* Density weights, measured by what they are for: a direct double-precision adjoint of a phantom on each trajectory. */
#include "clients/phantom.h"
#include "gridding/base/err.h"
#include "gridding/traj.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A scan of the Shepp-Logan phantom. */
struct scan {
    struct traj *traj;
    int n[3];
    size_t samples;
    struct c32 *data;
    float *truth, *weights;
};

static void *claim(size_t bytes)
{
    void *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

/* Takes `traj`. */
static void scan_make(struct scan *scan, struct traj *traj, int n, bool cylinder)
{
    *scan = (struct scan){.traj = traj, .n = {n, n, traj->dim == 2 ? 1 : n}, .samples = traj->readouts * traj->samples};
    scan->data = claim(scan->samples * sizeof *scan->data);
    scan->weights = claim(scan->samples * sizeof *scan->weights);
    scan->truth = claim((size_t)(n * n * scan->n[2]) * sizeof *scan->truth);
    struct phantom *phantom = NULL;
    assert_int_equal(phantom_create(&phantom, PHANTOM_SHEPP_LOGAN, traj->dim, scan->n, NAN, 1), 0);
    phantom_kspace(phantom, scan->samples, traj->k, scan->samples, scan->data);
    assert_int_equal(phantom_truth(phantom, cylinder, scan->truth), 0);
    phantom_free(phantom);
}

static struct traj *make(enum traj_kind kind, int n, int readouts, int samples)
{
    struct traj *traj = NULL;
    struct traj_params params = {.kind = kind, .n = {n, n, n}, .readouts = readouts, .samples = samples};
    assert_int_equal(traj_create(&traj, &params), 0);
    return traj;
}

static void scan_free(struct scan *scan)
{
    traj_free(scan->traj);
    free(scan->data);
    free(scan->weights);
    free(scan->truth);
}

/* One row of the adjoint's magnitude: |sum_m w_m d_m exp(2 pi i k_m . r)|, r_x = -floor(n/2) .. */
static void adjoint_row(const struct scan *scan, int y, int z, double complex *row)
{
    int dim = scan->traj->dim, n = scan->n[0];
    for (int x = 0; x < n; x++)
        row[x] = 0;
    for (size_t m = 0; m < scan->samples; m++) {
        const float *k = scan->traj->k + m * (size_t)dim;
        double phase = (double)k[0] * -(n / 2) + (double)k[1] * y + (dim == 3 ? (double)k[2] * z : 0);
        double complex term = scan->weights[m] * (scan->data[m].re + I * scan->data[m].im) * cexp(2 * M_PI * I * phase);
        double re = creal(term), im = cimag(term), c = cos(2 * M_PI * k[0]), s = sin(2 * M_PI * k[0]);
        for (int x = 0; x < n; x++) {
            ((double *)row)[2 * x] += re;
            ((double *)row)[2 * x + 1] += im;
            double turned = re * c - im * s;
            im = re * s + im * c;
            re = turned;
        }
    }
}

/* Inside the inscribed disc or ball: ||s |image| - truth|| / ||truth|| with the best s, and 1 / s. */
static double nrmse(const struct scan *scan, double *scale)
{
    int n = scan->n[0], rows = scan->n[1] * scan->n[2];
    double complex *image = claim((size_t)(rows * n) * sizeof *image);
#pragma omp parallel for schedule(dynamic)
    for (int r = 0; r < rows; r++)
        adjoint_row(scan, r % scan->n[1] - scan->n[1] / 2, r / scan->n[1] - scan->n[2] / 2,
                    image + (size_t)r * (size_t)n);
    double cross = 0, square = 0, truth = 0;
    for (int i = 0; i < rows * n; i++) {
        double x = i % n - n / 2, y = i / n % n - n / 2, z = i / n / n - scan->n[2] / 2;
        if (x * x + y * y + z * z >= n * n / 4.0)
            continue;
        cross += cabs(image[i]) * scan->truth[i];
        square += cabs(image[i]) * cabs(image[i]);
        truth += (double)scan->truth[i] * scan->truth[i];
    }
    free(image);
    *scale = square / cross;
    return sqrt(1 - cross * cross / (square * truth));
}

static double area(const struct scan *scan)
{
    double sum = 0;
    for (size_t m = 0; m < scan->samples; m++)
        sum += scan->weights[m];
    return sum;
}

/* What fully sampled data may be in error by: the plan's 0.06. Measured: radial 0.009, golden 0.009, spiral 0.035
 * (0.028 with 3 arms), kooshball 0.040 at these small matrices; scales within 2 %. The weights' sum is a disc's or
 * ball's area, of which half a sample's ring at the edge may be missing or too much: 2 / samples per side of it. */
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
}

/* Every readout replaced by its half-spoke from 0: `wait` samples at k = 0, then steps of 1 / 2N from `first` steps on,
 * the last one within 0.5 so that its cell ends there; odd readouts go the other way, so that all directions are there.
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

/* Uneven angles, spokes without k = 0, half-spokes from it with and without a sample there. */
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

/* ---- uneven angles, repeats, partial echoes: what pipe finds by iteration, the formula must know ---- */

/* Arms of a spiral that samples fully with `enough` of them, arm i turned to angles[i]. */
static struct traj *turned_arms(int n, int enough, int arms, const double *angles)
{
    struct traj *one = make(TRAJ_SPIRAL, n, enough, 0), *traj = make(TRAJ_SPIRAL, n, arms, (int)one->samples);
    for (size_t m = 0; m < traj->readouts * traj->samples; m++) {
        double angle = angles[m / traj->samples];
        const float *k = one->k + 2 * (m % traj->samples);
        traj->k[2 * m] = (float)(k[0] * cos(angle) - k[1] * sin(angle));
        traj->k[2 * m + 1] = (float)(k[0] * sin(angle) + k[1] * cos(angle));
    }
    traj_free(one);
    return traj;
}

/* Spokes at the angles, from -`other` to 1 half k-spaces. */
static struct traj *angled_spokes(int n, int spokes, const double *angles, double other)
{
    int before = (int)(other * n), samples = before + n;
    struct traj *traj = make(TRAJ_RADIAL, n, spokes, samples);
    for (int r = 0; r < spokes; r++)
        for (int i = 0; i < samples; i++) {
            double at = (double)(i - before) / (2.0 * n);
            traj->k[2 * (r * samples + i)] = (float)(at * cos(angles[r]));
            traj->k[2 * (r * samples + i) + 1] = (float)(at * sin(angles[r]));
        }
    return traj;
}

/* The formula's error, and pipe's beside it. */
static double uneven_error(const char *name, struct traj *traj, int n, enum traj_shape expected, double *pipe)
{
    struct scan scan;
    struct dev *dev = NULL;
    double scale, unused;
    scan_make(&scan, traj, n, false);
    assert_int_equal(traj_shape_find(2, traj->readouts, traj->samples, traj->k), expected);
    assert_int_equal(dcf_analytic(expected, 2, traj->readouts, traj->samples, traj->k, scan.weights), 0);
    double formula = nrmse(&scan, &scale);
    assert_true(fabs(area(&scan) - M_PI / 4) < M_PI / 4 * 4 / (double)traj->samples); /* as in check_analytic() */
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    assert_int_equal(dcf_pipe(dev, 2, scan.n, scan.samples, traj->k, 30, scan.weights, NULL, NULL), 0);
    dev_free(dev);
    *pipe = nrmse(&scan, &unused);
    print_message("| %s | %zu x %zu | %.3f | %.3f |\n", name, traj->readouts, traj->samples, formula, *pipe);
    scan_free(&scan);
    return formula;
}

/* Where the largest gap between neighbours is still sampled fully, uneven scans have the errors of even ones
 * (check_analytic()): below 0.06 for arms, 0.03 for spokes. Pipe's iteration levels what it can reach in 30 steps, and
 * is the better one for golden arms alone: a wedge between unequal neighbours has its arm off its middle. */
static void check_uneven(const char *name, struct traj *traj, int n, enum traj_shape expected, double most)
{
    double pipe, formula = uneven_error(name, traj, n, expected, &pipe);
    assert_true(formula < most && formula < pipe + 0.025);
}

enum { UNEVEN_N = 64, MOST_ANGLES = 404 };

/* angles[i] = step * (i / repeats), from `extra` on the angle of number `again`. */
static const double *spread(double step, int repeats, int extra, int again)
{
    static double angles[MOST_ANGLES];
    for (int i = 0; i < MOST_ANGLES; i++)
        angles[i] = step * (i < extra ? i / repeats : again);
    return angles;
}

static void test_uneven(void **state)
{
    (void)state;
    const int n = UNEVEN_N, all = MOST_ANGLES;
    const double golden = M_PI * (3 - sqrt(5)), golden_spoke = M_PI * (sqrt(5) - 1) / 2, eighth = M_PI / 4;
    print_message("| trajectory, N 64 | readouts x samples | formula | pipe |\n|---|---|---|---|\n");
    check_uneven("32 golden arms", turned_arms(n, 16, 32, spread(golden, 1, all, 0)), n, TRAJ_SHAPE_SPIRAL, 0.06);
    check_uneven("21 golden arms", turned_arms(n, 8, 21, spread(golden, 1, all, 0)), n, TRAJ_SHAPE_SPIRAL, 0.06);
    check_uneven("8 arms, one twice", turned_arms(n, 8, 9, spread(eighth, 1, 8, 3)), n, TRAJ_SHAPE_SPIRAL, 0.06);
    check_uneven("8 arms, one 9 times", turned_arms(n, 8, 16, spread(eighth, 1, 8, 3)), n, TRAJ_SHAPE_SPIRAL, 0.06);
    static const struct {
        const char *name;
        double other;
    } echoes[] = {{"golden, echo of 60 %", 0.2}, {"golden, echo of 75 %", 0.5}, {"golden, echo of 95 %", 0.9}};
    for (size_t e = 0; e < sizeof echoes / sizeof *echoes; e++)
        check_uneven(echoes[e].name, angled_spokes(n, 233, spread(golden_spoke, 1, all, 0), echoes[e].other), n,
                     TRAJ_SHAPE_RADIAL, 0.03);
    check_uneven("101 spokes, each 4 times", angled_spokes(n, 404, spread(M_PI / 101, 4, all, 0), 1), n,
                 TRAJ_SHAPE_RADIAL, 0.03);
    check_uneven("101 spokes, one 20 times more", angled_spokes(n, 121, spread(M_PI / 101, 1, 101, 50), 1), n,
                 TRAJ_SHAPE_RADIAL, 0.03);
    /* Too few to sample anything fully: the same formula, whose weights still sum to the disc. */
    double unused;
    uneven_error("7 golden spokes", angled_spokes(n, 7, spread(golden_spoke, 1, all, 0), 1), n, TRAJ_SHAPE_RADIAL,
                 &unused);
    uneven_error("2 spokes", angled_spokes(n, 2, spread(M_PI / 2, 1, all, 0), 1), n, TRAJ_SHAPE_RADIAL, &unused);
}

/* What has no formula is told from what has. */
static void test_too_uneven(void **state)
{
    (void)state;
    struct traj *cases[] = {
        angled_spokes(16, 40, spread(M_PI / 40, 1, MOST_ANGLES, 0), 0.5), /* partial echoes of one half-plane */
        angled_spokes(16, 13, spread(M_PI / 40, 1, MOST_ANGLES, 0), 1),   /* a third of the angles */
        angled_spokes(16, 1, spread(0, 1, MOST_ANGLES, 0), 1),            /* a line */
        angled_spokes(16, 9, spread(0, 1, MOST_ANGLES, 0), 1),            /* the same line again and again */
        turned_arms(16, 8, 4, spread(0.1, 1, MOST_ANGLES, 0)),            /* arms of one side */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(traj_shape_find(2, cases[i]->readouts, cases[i]->samples, cases[i]->k), TRAJ_SHAPE_UNKNOWN);
        traj_free(cases[i]);
    }
    /* An arm that turns the other way is no turned copy. */
    struct traj *arms = turned_arms(16, 8, 8, spread(M_PI / 4, 1, MOST_ANGLES, 0));
    for (size_t i = 0; i < arms->samples; i++)
        arms->k[2 * (3 * arms->samples + i)] *= -1;
    assert_int_equal(traj_shape_find(2, 8, arms->samples, arms->k), TRAJ_SHAPE_UNKNOWN);
    traj_free(arms);
}

/* Samples of a readout on one place share; spokes on one place share; weights cover the same area as without. */
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

/* An arm that was taken three times shares its weight, the others keep theirs. */
static void test_arms_share(void **state)
{
    (void)state;
    struct traj *once = turned_arms(16, 8, 8, spread(M_PI / 4, 1, 8, 5));
    struct traj *more = turned_arms(16, 8, 10, spread(M_PI / 4, 1, 8, 5));
    size_t samples = once->samples;
    float *a = claim(8 * samples * sizeof *a), *b = claim(10 * samples * sizeof *b);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_SPIRAL, 2, 8, samples, once->k, a), 0);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_SPIRAL, 2, 10, samples, more->k, b), 0);
    for (size_t r = 0; r < 10; r++)
        for (size_t i = 0; i < samples; i++) {
            size_t single = r < 8 ? r : 5;
            double shared = (single == 5 ? 3 : 1) * (double)b[r * samples + i], own = a[single * samples + i];
            assert_true(fabs(shared - own) <= 1e-5 * own); /* wedges from float32 coordinates */
        }
    free(a);
    free(b);
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
        cmocka_unit_test(test_analytic),   cmocka_unit_test(test_radial_variants),
        cmocka_unit_test(test_sharing),    cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_too_uneven), cmocka_unit_test(test_arms_share),
        cmocka_unit_test(test_ellipsoid),  cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
