/* The unit of a file's trajectory, analytic trajectories, and their shapes. */
#include "gridding/base/err.h"
#include "gridding/traj/traj.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two samples whose largest |k| per axis are mx, my, mz, as input of traj_unit_find(). */
struct unit_case {
    const char *name;
    int dim, n[3];
    double fov_m[3];
    float m[3];
    enum traj_unit asked, found;
    int code;
};

#define BRAIN 0.24, 0.24, 0.24

static const struct unit_case unit_cases[] = {
    /* The largest |k| of the three published scans (docs/benchmarks.md). */
    {"spiral scan", 2, {260, 360, 1}, {0.26, 0.36, 0.005}, {0.49982354f, 0.49982354f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"cardiac scan", 2, {384, 384, 1}, {0.384, 0.384, 0.006}, {0.5f, 0.49901336f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"lung scan", 3, {64, 64, 64}, {0.4, 0.4, 0.4}, {0.4987f, 0.49869f, 0.49878f}, 0, TRAJ_UNIT_PIXEL, 0},
    /* The same spiral in the units of other tools. */
    {"spiral, grid", 2, {260, 360, 1}, {0.26, 0.36, 0.005}, {129.95f, 179.94f}, 0, TRAJ_UNIT_GRID, 0},
    {"spiral, radians", 2, {260, 360, 1}, {0.65, 0.9, 0.005}, {3.1405f, 3.1405f}, 0, TRAJ_UNIT_RADIANS, 0},
    {"radians of 1 mm: 63 % in 1/cm, too",
     2,
     {260, 360, 1},
     {0.26, 0.36, 0.005},
     {3.1405f, 3.1405f},
     0,
     0,
     ERR_TRAJ_AMBIGUOUS},
    {"spiral, per metre", 2, {260, 360, 1}, {0.26, 0.36, 0.005}, {499.8f, 499.8f}, 0, TRAJ_UNIT_PER_METRE, 0},
    {"spiral, per centimetre", 2, {260, 360, 1}, {0.26, 0.36, 0.005}, {4.998f, 4.998f}, 0, TRAJ_UNIT_PER_CM, 0},
    {"spiral, per millimetre, 1.25 mm", 2, {260, 360, 1}, {0.325, 0.45, 0.005}, {0.4f, 0.4f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"spiral, per millimetre, 3 mm", 2, {64, 64, 1}, {0.192, 0.192, 0.005}, {0.1666f, 0.1666f}, 0, TRAJ_UNIT_PER_MM, 0},
    {"spiral, radians per metre",
     2,
     {260, 360, 1},
     {0.26, 0.36, 0.005},
     {3140.4f, 3140.4f},
     0,
     TRAJ_UNIT_RADIANS_PER_METRE,
     0},
    {"spiral, radians per centimetre",
     2,
     {260, 360, 1},
     {0.26, 0.36, 0.005},
     {31.404f, 31.404f},
     0,
     TRAJ_UNIT_RADIANS_PER_CM,
     0},
    {"2 % beyond the edge", 2, {128, 128, 1}, {BRAIN}, {0.509f, 0.5f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"half of k-space, pixel", 2, {128, 128, 1}, {0.32, 0.32, 0.005}, {0.25f, 0.25f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"half of k-space, radians", 2, {128, 128, 1}, {0.48, 0.48, 0.005}, {1.5f, 1.5f}, 0, TRAJ_UNIT_RADIANS, 0},
    {"stack with few partitions", 3, {128, 128, 16}, {BRAIN}, {64, 64, 3}, 0, TRAJ_UNIT_GRID, 0},
    {"one partition", 3, {128, 128, 1}, {BRAIN}, {0.5f, 0.5f, 0}, 0, TRAJ_UNIT_PIXEL, 0},
    {"field of view unknown", 2, {128, 128, 1}, {0, 0, 0}, {64, 64}, 0, TRAJ_UNIT_GRID, 0},
    /* Two units explain the extent. 128 over 0.24 m: the full extent is 267 in cycles per metre and 64 in cycles per
     * field of view. */
    {"grid or per metre, both partial", 2, {128, 128, 1}, {0.6, 0.6, 0.6}, {50, 50}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"grid left by a little", 2, {128, 128, 1}, {BRAIN}, {70, 70}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"1/cm and rad/mm are 1.6 apart", 2, {256, 256, 1}, {0.24, 0.24, 0.005}, {3.35f, 3.35f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"field of view of 0.9 m", 2, {128, 128, 1}, {0.9, 0.9, 0.9}, {64, 64}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"field of view of 0.93 m, all of it per metre, 7 % beyond the grid",
     2,
     {128, 128, 1},
     {0.93, 0.93, 0.93},
     {68.8f, 68.8f},
     0,
     0,
     ERR_TRAJ_AMBIGUOUS},
    {"half of k-space per metre is all of the grid's",
     2,
     {256, 256, 1},
     {0.5, 0.5, 0.005},
     {128, 128},
     0,
     0,
     ERR_TRAJ_AMBIGUOUS},
    {"kz in partitions, kx and ky per pixel", 3, {128, 128, 16}, {BRAIN}, {0.5f, 0.5f, 8}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    /* Voxels of 1.5 mm: 1/mm is also 67 % in cycles per pixel. Voxels of 0.9375 mm: the edge in cycles per pixel is 94
     * % in 1/mm. */
    {"cardiac spiral per millimetre",
     2,
     {213, 213, 1},
     {0.32, 0.32, 0.006},
     {0.3328f, 0.3328f},
     0,
     0,
     ERR_TRAJ_AMBIGUOUS},
    {"brain in pixel", 2, {256, 256, 1}, {BRAIN}, {0.5f, 0.498f}, 0, TRAJ_UNIT_PIXEL, 0},
    {"brain in pixel, 5 % not covered", 2, {256, 256, 1}, {BRAIN}, {0.475f, 0.475f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"matrix of 8: pi is nearly 4", 2, {8, 8, 1}, {0, 0, 0}, {3.1f, 3.1f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"pixel left by a fifth", 2, {128, 128, 1}, {BRAIN}, {0.6f, 0.6f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"next to nothing covered", 2, {128, 128, 1}, {BRAIN}, {0.05f, 0.05f}, 0, 0, ERR_TRAJ_AMBIGUOUS},
    {"260 x 360 in grid units of the wrong axis",
     2,
     {260, 360, 1},
     {0.26, 0.36, 0.005},
     {180, 180},
     0,
     0,
     ERR_TRAJ_AMBIGUOUS},
    /* No unit explains it. */
    {"beyond everything", 2, {128, 128, 1}, {BRAIN}, {2000, 2000}, 0, 0, ERR_TRAJ_RANGE},
    /* A requested unit is used; only its range is checked. */
    {"asked pixel", 2, {128, 128, 1}, {BRAIN}, {0.05f, 0.02f}, TRAJ_UNIT_PIXEL, TRAJ_UNIT_PIXEL, 0},
    {"asked grid", 2, {128, 128, 1}, {BRAIN}, {50, 50}, TRAJ_UNIT_GRID, TRAJ_UNIT_GRID, 0},
    {"asked per metre", 2, {128, 128, 1}, {BRAIN}, {50, 50}, TRAJ_UNIT_PER_METRE, TRAJ_UNIT_PER_METRE, 0},
    {"asked radians per millimetre",
     2,
     {128, 128, 1},
     {BRAIN},
     {1.6f, 1.6f},
     TRAJ_UNIT_RADIANS_PER_MM,
     TRAJ_UNIT_RADIANS_PER_MM,
     0},
    {"asked radians", 2, {8, 8, 1}, {BRAIN}, {3.1f, 3.1f}, TRAJ_UNIT_RADIANS, TRAJ_UNIT_RADIANS, 0},
    {"asked pixel, 3 % beyond", 2, {128, 128, 1}, {BRAIN}, {0.5f, 0.515f}, TRAJ_UNIT_PIXEL, 0, ERR_TRAJ_RANGE},
    {"asked grid, one axis beyond", 2, {260, 360, 1}, {BRAIN}, {180, 180}, TRAJ_UNIT_GRID, 0, ERR_TRAJ_RANGE},
    {"asked per metre, no field of view",
     2,
     {128, 128, 1},
     {0, 0, 0},
     {50, 50},
     TRAJ_UNIT_PER_METRE,
     0,
     ERR_BAD_PARAMETER},
    /* Not trajectories at all. */
    {"all zero", 2, {128, 128, 1}, {BRAIN}, {0, 0}, 0, 0, ERR_TRAJ_MISSING},
    {"all zero, asked", 2, {128, 128, 1}, {BRAIN}, {0, 0}, TRAJ_UNIT_GRID, 0, ERR_TRAJ_MISSING},
    {"nan", 2, {128, 128, 1}, {BRAIN}, {0.5f, NAN}, 0, 0, ERR_TRAJ_NONFINITE},
    {"inf, asked", 3, {128, 128, 64}, {BRAIN}, {0.5f, 0.5f, INFINITY}, TRAJ_UNIT_PIXEL, 0, ERR_TRAJ_NONFINITE},
};

static void test_units(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof unit_cases / sizeof *unit_cases; i++) {
        const struct unit_case *c = &unit_cases[i];
        /* The column of weights beside the coordinates must not be read. */
        float k[3][4] = {{0, 0, 0, NAN}, {-c->m[0], c->m[1] / 2, 0, 1e9f}, {c->m[0] / 3, c->m[1], -c->m[2], 7}};
        if (c->dim == 2)
            k[1][2] = NAN;
        struct traj_unit_found found = {.unit = TRAJ_UNIT_AUTO};
        int code = traj_unit_find(c->asked, c->dim, c->n, c->fov_m, 3, 4, &k[0][0], &found);
        if (code != c->code || found.unit != c->found)
            fail_msg("%s: code %s, unit %s; %s", c->name, err_name(code), traj_unit_name(found.unit),
                     code != 0 ? err_last()->text : found.reason);
        if (code == 0) {
            assert_non_null(strstr(found.reason, "largest |k|"));
            double metre = 0.5 * c->n[1] / c->fov_m[1];
            const double full[] = {0,
                                   0.5,
                                   c->n[1] / 2.0,
                                   M_PI,
                                   metre,
                                   metre / 100,
                                   metre / 1000,
                                   2 * M_PI * metre,
                                   2 * M_PI * metre / 100,
                                   2 * M_PI * metre / 1000};
            assert_true(fabs(found.scale[1] * full[found.unit] - 0.5) < 1e-12);
            /* A coverage below 90 % is reported. */
            assert_true(found.coverage >= 0.9 || strstr(found.warning, "covers"));
        } else if (code == ERR_TRAJ_AMBIGUOUS) {
            assert_non_null(strstr(err_last()->text, "traj_units="));
        }
    }
}

/* The warning to the user: none if the unit is certain; the rival unit if cycles per pixel were assumed; the possible
 * units if none was chosen. */
static void test_unit_words(void **state)
{
    (void)state;
    struct traj_unit_found found;
    const float pixel[2][2] = {{0.5f, 0}, {0, 0.5f}}, half[2][2] = {{0.25f, 0}, {0, 0.25f}},
                grid[2][2] = {{128}, {0, 128}};
    assert_int_equal(
        traj_unit_find(0, 2, (int[]){256, 256, 1}, (double[]){0.256, 0.256, 0.005}, 2, 2, pixel[0], &found), 0);
    assert_string_equal(found.warning, "");
    assert_non_null(strstr(found.reason, "the same image"));
    assert_int_equal(traj_unit_find(0, 2, (int[]){256, 256, 1}, (double[]){0.24, 0.24, 0.005}, 2, 2, pixel[0], &found),
                     0);
    assert_non_null(strstr(found.warning, "cycles per millimetre it would cover 93.8 %"));
    assert_non_null(strstr(found.warning, "1.07 times as large"));
    assert_non_null(strstr(found.warning, "traj_units=pixel or per_mm"));
    assert_int_equal(
        traj_unit_find(TRAJ_UNIT_PIXEL, 2, (int[]){256, 256, 1}, (double[]){0.24, 0.24, 0.005}, 2, 2, pixel[0], &found),
        0);
    assert_string_equal(found.warning, "");
    assert_int_equal(
        traj_unit_find(TRAJ_UNIT_PIXEL, 2, (int[]){256, 256, 1}, (double[]){0.24, 0.24, 0.005}, 2, 2, half[0], &found),
        0);
    assert_non_null(strstr(found.warning, "covers 50 %"));
    assert_int_equal(traj_unit_find(0, 2, (int[]){256, 256, 1}, (double[]){0.5, 0.5, 0.005}, 2, 2, grid[0], &found),
                     ERR_TRAJ_AMBIGUOUS);
    assert_non_null(strstr(err_last()->text, "100 % in cycles per field of view, 50 % in cycles per metre"));
    assert_non_null(strstr(err_last()->text, "traj_units=grid or per_metre."));
    /* Radians per centimetre differ by 2 % if the field of view is 64 mm: with 32 pixels this moves no pixel by
     * half. */
    const float small[2][2] = {{16, 0}, {0, 16}};
    assert_int_equal(traj_unit_find(0, 2, (int[]){32, 32, 1}, (double[]){0.064, 0.064, 0.005}, 2, 2, small[0], &found),
                     0);
    assert_int_equal(found.unit, TRAJ_UNIT_GRID);
    assert_non_null(strstr(found.warning, "traj_units=grid or radians_per_cm"));
    assert_null(strstr(found.warning, "usual"));
}

static struct traj *make(enum traj_kind kind, int nx, int ny, int nz, int readouts, int samples)
{
    struct traj *traj = NULL;
    struct traj_params params = {.kind = kind, .n = {nx, ny, nz}, .readouts = readouts, .samples = samples};
    assert_int_equal(traj_create(&traj, &params), 0);
    return traj;
}

static double radius(const struct traj *traj, size_t m)
{
    double sum = 0;
    for (int d = 0; d < traj->dim; d++)
        sum += (double)traj->k[m * (size_t)traj->dim + (size_t)d] * traj->k[m * (size_t)traj->dim + (size_t)d];
    return sqrt(sum);
}

static enum traj_shape shape(const struct traj *traj)
{
    return traj_shape_find(traj->dim, traj->readouts, traj->samples, traj->k);
}

/* Sizes, range and centre of every kind. */
static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        enum traj_kind kind;
        const char *name;
        int dim;
        size_t least;  /* readouts that the Nyquist criterion needs at the edge for N = 32: pi N / 2 spokes, pi N^2 / 2
                        * in 3-D */
        size_t centre; /* index of the sample at the centre (of its partition) in each readout */
        enum traj_shape shape;
    } kinds[] = {
        {TRAJ_RADIAL, "radial", 2, 51, 32, TRAJ_SHAPE_RADIAL},
        {TRAJ_GOLDEN, "golden", 2, 51, 32, TRAJ_SHAPE_RADIAL},
        {TRAJ_SPIRAL, "spiral", 2, 4, 0, TRAJ_SHAPE_SPIRAL},
        {TRAJ_STACK_OF_STARS, "stack-of-stars", 3, 51 * 32, 32, TRAJ_SHAPE_STACK_RADIAL},
        {TRAJ_KOOSHBALL, "kooshball", 3, 1609, 32, TRAJ_SHAPE_RADIAL},
        {TRAJ_CONES, "cones", 3, 51, 0, TRAJ_SHAPE_CONES},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        assert_string_equal(traj_kind_name(kinds[i].kind), kinds[i].name);
        struct traj *traj = make(kinds[i].kind, 32, 32, 32, 0, 0);
        assert_int_equal(traj->dim, kinds[i].dim);
        assert_true(traj->readouts >= kinds[i].least && traj->samples >= 32);
        double most = 0;
        for (size_t m = 0; m < traj->readouts * traj->samples; m++) {
            for (int d = 0; d < traj->dim; d++)
                assert_true(fabsf(traj->k[m * (size_t)traj->dim + (size_t)d]) <= 0.5f);
            most = fmax(most, radius(traj, m));
        }
        /* The edge is reached, and exceeded only by a stack's corners (float32 rounding). */
        assert_true(most > 0.49);
        assert_true(most < (kinds[i].kind == TRAJ_STACK_OF_STARS ? 0.71 : 0.5 + 1e-6));
        for (size_t r = 0; r < traj->readouts; r++) {
            size_t m = r * traj->samples + kinds[i].centre;
            double off =
                kinds[i].kind == TRAJ_STACK_OF_STARS ? hypot(traj->k[3 * m], traj->k[3 * m + 1]) : radius(traj, m);
            assert_true(off < 1e-12);
        }
        assert_int_equal(shape(traj), kinds[i].shape);
        traj_free(traj);
    }
    traj_free(NULL);
}

/* Every point in the disc or ball has a sample nearby: no holes. Along a spoke samples are 1/2N apart and at the edge
 * spokes are 1/N apart, so a point between them is at most sqrt(0.5^2 + 0.25^2) / N = 0.56 / N away. The same holds for
 * golden angles, which get more spokes, and spirals, whose turns are closer; in a stack it is sqrt(0.5^2 + 0.56^2) =
 * 0.75. Golden means are less even in 3-D and cones cross each other's direction: measured 0.785 and 0.61. With half as
 * many readouts every one of these is exceeded. */
static void test_cover(void **state)
{
    (void)state;
    static const double reach[] = {0.56, 0.56, 0.56, 0.75, 0.85, 0.7};
    enum { N = 16 };
    for (int kind = TRAJ_RADIAL; kind <= TRAJ_CONES; kind++) {
        struct traj *traj = make((enum traj_kind)kind, N, N, N, 0, 0);
        for (int i = 0; i < (traj->dim == 2 ? 400 : 8000); i++) {
            double at[3] = {(i % 20 - 9.5) / 20, (i / 20 % 20 - 9.5) / 20, traj->dim == 3 ? (i / 400 - 9.5) / 20 : 0};
            double flat = hypot(at[0], at[1]), nearest = 1;
            if ((kind == TRAJ_STACK_OF_STARS ? flat : hypot(flat, at[2])) > 0.46)
                continue;
            for (size_t m = 0; m < traj->readouts * traj->samples; m++) {
                double square = 0;
                for (int d = 0; d < traj->dim; d++) {
                    double off = traj->k[m * (size_t)traj->dim + (size_t)d] - at[d];
                    square += off * off;
                }
                nearest = fmin(nearest, square);
            }
            if (sqrt(nearest) * N > reach[kind])
                fail_msg("%s: no sample within %.2f / N of (%g, %g, %g)", traj_kind_name((enum traj_kind)kind),
                         sqrt(nearest) * N, at[0], at[1], at[2]);
        }
        traj_free(traj);
    }
}

static void test_particulars(void **state)
{
    (void)state;
    struct traj *traj = make(TRAJ_GOLDEN, 64, 48, 1, 7, 10);
    assert_int_equal(traj->readouts, 7);
    assert_int_equal(traj->samples, 10);
    for (size_t r = 0; r + 1 < traj->readouts; r++) {
        const float *a = traj->k + 2 * (r * 10 + 9), *b = traj->k + 2 * ((r + 1) * 10 + 9);
        double turn = atan2((double)a[0] * b[1] - (double)a[1] * b[0], (double)a[0] * b[0] + (double)a[1] * b[1]);
        assert_true(fabs(turn * 180 / M_PI - 111.24611797) < 1e-4); /* float32 coordinates: 1e-7 rad */
    }
    traj_free(traj);

    traj = make(TRAJ_STACK_OF_STARS, 32, 32, 6, 5, 8);
    assert_int_equal(traj->readouts, 30);
    for (size_t r = 0; r < 30; r++)
        for (size_t i = 0; i < 8; i++)
            assert_true(fabs(traj->k[3 * (r * 8 + i) + 2] - ((double)(r / 5) - 3) / 6) < 1e-7);
    traj_free(traj);

    /* A spiral is fully sampled with any number of arms: a single long arm makes at least N / 2 turns. */
    traj = make(TRAJ_SPIRAL, 64, 64, 1, 1, 0);
    double turn = 0;
    for (size_t i = 2; i < traj->samples; i++) {
        const float *a = traj->k + 2 * (i - 1), *b = traj->k + 2 * i;
        turn +=
            atan2((double)a[0] * b[1] - (double)a[1] * b[0], (double)a[0] * b[0] + (double)a[1] * b[1]) / (2 * M_PI);
        assert_true(hypot(b[0] - a[0], b[1] - a[1]) < 1.0 / 64);
    }
    assert_true(turn > 32 && turn < 40);
    traj_free(traj);

    /* Kooshball directions are uniform: each octant contains an eighth of the ends, to 5 %. */
    traj = make(TRAJ_KOOSHBALL, 32, 32, 32, 2000, 4);
    int octants[8] = {0};
    for (size_t r = 0; r < 2000; r++) {
        const float *end = traj->k + 3 * (4 * r);
        octants[(end[0] > 0) + 2 * (end[1] > 0) + 4 * (end[2] > 0)]++;
        octants[(end[0] <= 0) + 2 * (end[1] <= 0) + 4 * (end[2] <= 0)]++;
    }
    for (int o = 0; o < 8; o++)
        assert_in_range(octants[o], 475, 525);
    traj_free(traj);
}

static void test_bad(void **state)
{
    (void)state;
    struct traj *traj = NULL;
    struct traj_params huge = {.kind = TRAJ_KOOSHBALL, .n = {64, 64, 64}, .readouts = 1 << 24, .samples = 1 << 24};
    assert_int_equal(traj_create(&traj, &huge), ERR_BAD_PARAMETER);
    struct traj_params flat = {.kind = TRAJ_STACK_OF_STARS, .n = {64, 64, 0}};
    assert_int_equal(traj_create(&traj, &flat), ERR_BAD_PARAMETER);
    struct traj_params negative = {.kind = TRAJ_RADIAL, .n = {64, 64, 1}, .readouts = -1};
    assert_int_equal(traj_create(&traj, &negative), ERR_BAD_PARAMETER);
    assert_null(traj);
}

/* Trajectories for which the analytic weights would be wrong are not recognised as radial or spiral. */
static void test_shapes(void **state)
{
    (void)state;
    struct traj *traj = make(TRAJ_RADIAL, 64, 64, 1, 40, 60);
    size_t samples = traj->samples;
    assert_int_equal(shape(traj), TRAJ_SHAPE_RADIAL);
    traj->readouts = 13; /* a third of the angles only */
    assert_int_equal(shape(traj), TRAJ_SHAPE_UNKNOWN);
    traj->readouts = 40;
    for (size_t r = 0; r < 40; r++) /* partial echoes: a quarter of the way to the other side */
        for (size_t i = 0; i < samples; i++)
            for (int d = 0; d < 2; d++)
                traj->k[2 * (r * samples + i) + (size_t)d] *= i < 30 ? 0.25f : 1;
    assert_int_equal(shape(traj), TRAJ_SHAPE_UNKNOWN);
    traj_free(traj);

    traj = make(TRAJ_RADIAL, 64, 64, 1, 40, 60);
    for (size_t m = 0; m < 40 * samples; m++)
        traj->k[2 * m] += 0.02f; /* spokes that miss the centre */
    assert_int_equal(shape(traj), TRAJ_SHAPE_UNKNOWN);
    traj_free(traj);

    /* A centre-out kooshball that waits at k = 0, as in the published lung scan, on an anisotropic matrix; then one
     * with its directions crowded towards z. */
    traj = make(TRAJ_KOOSHBALL, 32, 32, 32, 500, 20);
    for (size_t r = 0; r < 500; r++)
        for (size_t i = 0; i < 20; i++) {
            float *k = traj->k + 3 * (r * 20 + i), out = i < 5 ? 0 : ((float)i - 4) / 30, side = r % 2 ? 1 : -1;
            const float *end = traj->k + 3 * (r * 20);
            if (i > 0)
                for (int d = 0; d < 3; d++)
                    k[d] = end[d] * out * side * (d == 2 ? 0.7f : 1);
        }
    for (size_t r = 0; r < 500; r++)
        memset(traj->k + 60 * r, 0, 3 * sizeof(float));
    assert_int_equal(shape(traj), TRAJ_SHAPE_RADIAL);
    for (size_t m = 0; m < 500 * 20; m++) {
        float *k = traj->k + 3 * m, flat = hypotf(k[0], k[1]), r = hypotf(flat, k[2]), z = r > 0 ? k[2] / r : 0;
        float moved = copysignf(sqrtf(sqrtf(fabsf(z))), z), across = flat > 0 ? r * sqrtf(1 - moved * moved) / flat : 0;
        k[0] *= across;
        k[1] *= across;
        k[2] = r * moved;
    }
    assert_int_equal(shape(traj), TRAJ_SHAPE_UNKNOWN);
    traj_free(traj);

    /* Arms of different extent. */
    traj = make(TRAJ_SPIRAL, 64, 64, 1, 6, 0);
    assert_int_equal(shape(traj), TRAJ_SHAPE_SPIRAL);
    for (size_t i = 0; i < 2 * traj->samples; i++)
        traj->k[2 * 3 * traj->samples + i] *= 0.8f;
    assert_int_equal(shape(traj), TRAJ_SHAPE_UNKNOWN);
    traj_free(traj);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),  cmocka_unit_test(test_unit_words),  cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_cover),  cmocka_unit_test(test_particulars), cmocka_unit_test(test_bad),
        cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
