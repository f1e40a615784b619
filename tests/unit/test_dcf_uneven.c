/* Density weights of uneven angles, repeated readouts and partial echoes: the formula against Pipe's iteration. */
#include "tests/unit/dcf_fixture.h"

/* Arms of a spiral of which `enough` sample fully; arm i is rotated to angles[i]. */
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

/* Spokes at the angles, from -`other` to 1 times the half-width of k-space. */
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

/* The formula's error; prints that of Pipe's iteration beside it. */
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
    assert_int_equal(dcf_pipe(dev, 2, scan.n, scan.samples, traj->k, NULL, 30, scan.weights, NULL, NULL), 0);
    dev_free(dev);
    *pipe = nrmse(&scan, &unused);
    print_message("| %s | %zu x %zu | %.3f | %.3f |\n", name, traj->readouts, traj->samples, formula, *pipe);
    scan_free(&scan);
    return formula;
}

/* If the largest gap between neighbours is still fully sampled, uneven scans have the errors of even ones
 * (check_analytic()): below 0.06 for arms, 0.03 for spokes. Pipe's iteration levels the density within its reach in 30
 * steps, and is better only for golden arms, where an arm between unequal neighbours is not in the middle of its
 * wedge. */
static void check_uneven(const char *name, struct traj *traj, int n, enum traj_shape expected, double most)
{
    double pipe, formula = uneven_error(name, traj, n, expected, &pipe);
    assert_true(formula < most && formula < pipe + 0.025);
}

enum { UNEVEN_N = 48, MOST_ANGLES = 404 };

/* angles[i] = step * (i / repeats); from `extra` on, the angle of number `again`. */
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
    print_message("| trajectory, N 48 | readouts x samples | formula | pipe |\n|---|---|---|---|\n");
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
    /* Too few arms to be fully sampled: the same formula applies, and its weights still sum to the disc. */
    double unused;
    uneven_error("7 golden spokes", angled_spokes(n, 7, spread(golden_spoke, 1, all, 0), 1), n, TRAJ_SHAPE_RADIAL,
                 &unused);
    uneven_error("2 spokes", angled_spokes(n, 2, spread(M_PI / 2, 1, all, 0), 1), n, TRAJ_SHAPE_RADIAL, &unused);
}

/* Trajectories without a formula are recognised as such. */
static void test_too_uneven(void **state)
{
    (void)state;
    struct traj *cases[] = {
        angled_spokes(16, 40, spread(M_PI / 40, 1, MOST_ANGLES, 0), 0.5), /* partial echoes of one half-plane */
        angled_spokes(16, 13, spread(M_PI / 40, 1, MOST_ANGLES, 0), 1),   /* a third of the angles */
        angled_spokes(16, 1, spread(0, 1, MOST_ANGLES, 0), 1),            /* a line */
        angled_spokes(16, 9, spread(0, 1, MOST_ANGLES, 0), 1),            /* the same line again and again */
        turned_arms(16, 8, 4, spread(0.1, 1, MOST_ANGLES, 0)),            /* arms on one side only */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(traj_shape_find(2, cases[i]->readouts, cases[i]->samples, cases[i]->k), TRAJ_SHAPE_UNKNOWN);
        traj_free(cases[i]);
    }
    /* An arm that turns the other way is not a rotated copy. */
    struct traj *arms = turned_arms(16, 8, 8, spread(M_PI / 4, 1, MOST_ANGLES, 0));
    for (size_t i = 0; i < arms->samples; i++)
        arms->k[2 * (3 * arms->samples + i)] *= -1;
    assert_int_equal(traj_shape_find(2, 8, arms->samples, arms->k), TRAJ_SHAPE_UNKNOWN);
    traj_free(arms);
}

/* An arm that was acquired three times shares its weight; the others keep theirs. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_too_uneven),
        cmocka_unit_test(test_arms_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
