/* Density weights as areas of Voronoi cells, compared with layouts whose cells are known. */
#include "tests/random.h"
#include "tests/unit/dcf_fixture.h"

#include "tests/unit/allocate.h"

/* Every point of a square raster has a square cell. An edge cell extends as far outwards as inwards, except at the four
 * corners, where the mirrored neighbour is the diagonal one. */
static void a_raster_has_square_cells(void **state)
{
    (void)state;
    enum { N = 16 };
    float k[N * N][2], weights[N * N];
    for (int i = 0; i < N * N; i++) {
        k[i][0] = (float)(i % N - N / 2) / N;
        k[i][1] = (float)(i / N - N / 2) / N;
    }
    assert_int_equal(dcf_voronoi(N * N, &k[0][0], weights, NULL, NULL), 0);
    for (int i = 0; i < N * N; i++) {
        bool corner = (i % N == 0 || i % N == N - 1) && (i / N == 0 || i / N == N - 1);
        double cell = weights[i] * N * N;
        assert_true(corner ? cell >= 0.99 && cell < 1.51 : fabs(cell - 1) < 1e-4); /* float32 places: 1e-7 of 1 / 16 */
    }
}

/* Hexagons have an area of sqrt(3) / 2 of the squared distance. */
static void a_triangular_lattice_has_hexagons(void **state)
{
    (void)state;
    enum { N = 20 };
    const double step = 0.04, cell = sqrt(3) / 2 * step * step;
    float k[N * N][2], weights[N * N];
    for (int i = 0; i < N * N; i++) {
        k[i][0] = (float)((i % N - N / 2 + (i / N) % 2 * 0.5) * step);
        k[i][1] = (float)((i / N - N / 2) * step * sqrt(3) / 2);
    }
    assert_int_equal(dcf_voronoi(N * N, &k[0][0], weights, NULL, NULL), 0);
    for (int y = 2; y < N - 2; y++)
        for (int x = 2; x < N - 2; x++)
            assert_true(fabs(weights[y * N + x] / cell - 1) < 1e-4);
}

/* Coincident samples: k = 0 of all spokes, and spokes that occur twice. The weights follow the formula: in 2-D, cells
 * of a spoke are parts of its wedge apart from the curved ends, of the square of the angle between spokes / 24; the
 * cell of k = 0 is the polygon within half a step. */
static void radial_cells_follow_the_ramp(void **state)
{
    (void)state;
    enum { SPOKES = 151, SAMPLES = 64 };
    struct traj *traj = make(TRAJ_RADIAL, 64, SPOKES, SAMPLES);
    size_t samples = SPOKES * SAMPLES;
    float *formula = claim(samples * sizeof *formula), *cells = claim(2 * samples * sizeof *cells);
    float *twice = claim(4 * samples * sizeof *twice);
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 2, SPOKES, SAMPLES, traj->k, formula), 0);
    assert_int_equal(dcf_voronoi(samples, traj->k, cells, NULL, NULL), 0);
    double sum = 0;
    for (size_t r = 0; r < SPOKES; r++)
        for (size_t i = 0; i < SAMPLES; i++) {
            double cell = cells[r * SAMPLES + i];
            sum += cell;
            if (i > 1 && i < SAMPLES - 2 && (i < SAMPLES / 2 - 1 || i > SAMPLES / 2 + 1))
                assert_true(fabs(cell / formula[r * SAMPLES + i] - 1) < 2e-3);
        }
    print_message("radial: sum of the cells %.4f, of the disc %.4f\n", sum, M_PI / 4);
    assert_true(fabs(sum - M_PI / 4) < 0.02 * M_PI / 4); /* spokes of 64 samples end half a step short on one side */
    memcpy(twice, traj->k, 2 * samples * sizeof *twice);
    memcpy(twice + 2 * samples, traj->k, 2 * samples * sizeof *twice);
    assert_int_equal(dcf_voronoi(2 * samples, twice, cells, NULL, NULL), 0);
    double both = 0;
    for (size_t m = 0; m < 2 * samples; m++)
        both += cells[m];
    assert_true(fabs(both - sum) < 1e-5 && fabs(cells[5] - cells[samples + 5]) == 0);
    free(twice);
    free(cells);
    free(formula);
    traj_free(traj);
}

/* 12 blades of 13 lines each. */
static struct traj *propeller(int n)
{
    struct traj *traj = make(TRAJ_RADIAL, n, 12 * 13, 0);
    for (size_t m = 0; m < traj->readouts * traj->samples; m++) {
        size_t line = m / traj->samples, i = m % traj->samples;
        double angle = M_PI * (double)(line / 13) / 12, off = ((double)(line % 13) - 6) / n;
        double along = ((double)i - (double)(traj->samples / 2)) / (double)traj->samples;
        traj->k[2 * m] = (float)(cos(angle) * along - sin(angle) * off);
        traj->k[2 * m + 1] = (float)(sin(angle) * along + cos(angle) * off);
    }
    return traj;
}

/* Compared with Pipe-Menon. Cell areas give the neighbourhood of k = 0 too much weight, which shows in the scale.
 * Measured: golden 0.123, scale 1.037 (pipe 0.145, 0.959); spiral 0.057, 1.041 (0.048, 0.995); propeller 0.058, 1.008
 * (0.058, 1.003). */
static void images_are_close_to_the_truth(void **state)
{
    (void)state;
    enum { N = 48 };
    struct {
        const char *name;
        struct traj *traj;
        double most;
    } cases[] = {{"golden, 34 spokes", make(TRAJ_GOLDEN, N, 34, 0), 0.14},
                 {"spiral", make(TRAJ_SPIRAL, N, 0, 0), 0.07},
                 {"propeller, 12 blades", propeller(N), 0.07}};
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 0), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scan scan;
        double scale[2], error[2];
        scan_make(&scan, cases[i].traj, N, false);
        assert_int_equal(dcf_voronoi(scan.samples, scan.traj->k, scan.weights, NULL, NULL), 0);
        error[0] = nrmse(&scan, &scale[0]);
        assert_int_equal(dcf_pipe(dev, 2, scan.n, scan.samples, scan.traj->k, NULL, 30, scan.weights, NULL, NULL), 0);
        error[1] = nrmse(&scan, &scale[1]);
        print_message("%s (%zu): Voronoi %.3f, scale %.3f; pipe %.3f, scale %.3f\n", cases[i].name, scan.samples,
                      error[0], scale[0], error[1], scale[1]);
        assert_true(error[0] < cases[i].most && fabs(scale[0] - 1) < 0.05);
        scan_free(&scan);
    }
    dev_free(dev);
}

static void trajectories_without_cells_are_refused(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    float k[COUNT][2], weights[COUNT];
    for (int i = 0; i < COUNT; i++)
        k[i][0] = k[i][1] = (float)i / COUNT - 0.5f;
    assert_int_equal(dcf_voronoi(COUNT, &k[0][0], weights, NULL, NULL), ERR_DCF_INVALID);
    assert_non_null(strstr(err_last()->text, "one line"));
    memset(k, 0, sizeof k);
    assert_int_equal(dcf_voronoi(COUNT, &k[0][0], weights, NULL, NULL), ERR_DCF_INVALID);
    assert_int_equal(dcf_voronoi(1, &k[0][0], weights, NULL, NULL), ERR_DCF_INVALID);
    k[3][1] = NAN;
    assert_int_equal(dcf_voronoi(COUNT, &k[0][0], weights, NULL, NULL), ERR_TRAJ_NONFINITE);
    k[3][1] = INFINITY;
    assert_int_equal(dcf_voronoi(COUNT, &k[0][0], weights, NULL, NULL), ERR_TRAJ_NONFINITE);
}

struct asked {
    int calls, stop_at; /* 0: never */
};

static int stop(void *context)
{
    struct asked *asked = context;
    return ++asked->calls == asked->stop_at ? err_set(ERR_CANCELED, "Enough.") : 0;
}

/* The listener is called throughout both diagrams, and a cancel takes effect at once; the weights do not depend on it,
 * and a canceled call does not affect the next. */
static void weights_can_be_canceled(void **state)
{
    (void)state;
    enum { MANY = 30000 };
    float *k = allocate(2 * MANY, sizeof *k), *weights = allocate(MANY, sizeof *k), *again = allocate(MANY, sizeof *k);
    struct asked all = {0, 0};
    uint64_t seed = 3;
    for (int i = 0; i < 2 * MANY; i++)
        k[i] = (float)(uniform_next(&seed) - 0.5);
    assert_int_equal(dcf_voronoi(MANY, k, weights, stop, &all), 0);
    assert_in_range(all.calls, 40, 10000);
    for (int at = 1; at < all.calls; at = 2 * at + 1) {
        struct asked asked = {0, at};
        assert_int_equal(dcf_voronoi(MANY, k, again, stop, &asked), ERR_CANCELED);
        assert_int_equal(asked.calls, at);
        assert_string_equal(err_last()->text, "Enough.");
    }
    assert_int_equal(dcf_voronoi(MANY, k, again, NULL, NULL), 0);
    assert_memory_equal(weights, again, MANY * sizeof *k);
    free(k);
    free(weights);
    free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_can_be_canceled),           cmocka_unit_test(a_raster_has_square_cells),
        cmocka_unit_test(a_triangular_lattice_has_hexagons), cmocka_unit_test(radial_cells_follow_the_ramp),
        cmocka_unit_test(images_are_close_to_the_truth),     cmocka_unit_test(trajectories_without_cells_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
