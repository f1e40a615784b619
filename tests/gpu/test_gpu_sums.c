/* Sums of limited range on a GPU (gridding/range/sums.h): the CPU's cases compared with sums in double precision, and
 * cases of a GPU's own: cubes by tensor cores, in parts too, and values and positions at the ends of what float32 and
 * half precision hold. Prints TAP; without a GPU, reports everything as skipped. */
#define SUMS_DEVICE DEV_GPU
#include "tests/gpu/crowd.h"
#include "tests/gpu/gpu_or_skip.h"
#include "tests/unit/sums_cases.h"

/* ---- cubes by tensor cores ---- */

static const struct grid_case cubes[] = {
    {"cubes, open", &cube, {3, {37, 15, 21}, {-3, 1, 0.25}, {0.5, 0.5, 0.5}, OPEN3}, 60, AROUND, true, 1},
    {"cubes, periodic", &cube, {3, {20, 9, 14}, {0, 0, 0}, {0.5, 0.9, 0.6}, PERIODIC3}, 40, AROUND, true, 1},
    {"cubes, a short axis", &cube, {3, {30, 12, 3}, {5, 5, 5}, {0.4, 0.5, 0.8}, PERIODIC3}, 40, EVERYWHERE, false, 1},
    {"cubes, clustered", &cube, {3, {12, 12, 12}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 3000, CLUSTERED, true, 1},
    {"boxes on cut-offs", &bell_box, {3, {12, 13, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3}, 90, LATTICE, false, 1},
    {"of several tiles", &bell_box, {3, {40, 19, 33}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3}, 150, LATTICE, false, 1},
    {"and open", &bell_box, {3, {67, 30, 17}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 150, LATTICE, false, 1},
    {"a lone box", &bell_box, {3, {40, 40, 40}, {0, 0, 0}, {0.1, 0.1, 0.1}, OPEN3}, 1, CLUSTERED, false, 1},
    {"no box", &bell_box, {3, {12, 13, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 0, EVERYWHERE, false, 1},
};

/* A node's terms are rounded to half precision four times, by at most 2^-11 each; values below 2^-24 of the largest
 * become 0. */
static void cubes_case(const struct grid_case *g)
{
    struct cloud c = cloud_make(&g->box, g->count, g->spread, g->scaled, 1);
    struct range_law law = law_of(g->law);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach, &dev);
    float *grid = calloc(c.nodes, sizeof *grid), *again = calloc(c.nodes, sizeof *again);
    double error = 0, all = 0;
    law.params.tolerance = 5e-4;
    scatter(dev, points, &law, &c, grid);
    scatter(dev, points, &law, &c, again);
    assert_memory_equal(grid, again, c.nodes * sizeof *grid);
    set_gives(dev, points, &law, &c, grid);
    for (size_t node = 0; node < c.nodes; node++) {
        double sum = 0, size = 0, nothing = 0;
        for (size_t i = 0; i < c.count; i++) {
            double from[3];
            node_from(&c, node, i, from);
            const double value = over_images(g->law, &c.box, from, scale_of(&c, i), -1) * (double)c.values[i];
            sum += value;
            size += fabs(value);
            nothing += value != 0 ? 2e-7 : 0;
        }
        if (!(fabs((double)grid[node] - sum) <= 2.1e-3 * size + nothing))
            fail_msg("%s: %.9g, expected %.9g (magnitudes sum to %.3g)", g->name, (double)grid[node], sum, size);
        error += ((double)grid[node] - sum) * ((double)grid[node] - sum);
        all += size * size;
    }
    assert_true(sqrt(error) <= 5e-4 * sqrt(all));
    free(grid);
    free(again);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

static void cubes_by_tensor_cores_to_grids(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof cubes / sizeof *cubes; g++)
        cubes_case(&cubes[g]);
}

/* 400,000 points in one bin, in one part and in many; a NaN value affects the nodes within its reach, and the others
 * are summed in float32. */
static void crowds_of_cubes_in_parts(void **state)
{
    (void)state;
    enum { COUNT = 400000, PROBES = 5 };
    static const int depths[] = {RANGE_DEPTH_NONE, RANGE_DEPTH_AUTO, 300};
    struct cloud c = crowd_make(COUNT, true, 1);
    struct range_law law = law_of(&cube);
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_GPU, 0, 0), 0);
    law.params.tolerance = 5e-4;
    float *grid = calloc(c.nodes, sizeof *grid);
    for (size_t w = 0; w < sizeof depths / sizeof *depths; w++) {
        struct range_points *points = points_with(&c, dev, law.params.reach * 1.5, depths[w], RANGE_SPLIT);
        memset(grid, 0, c.nodes * sizeof *grid);
        scatter(dev, points, &law, &c, grid);
        set_gives(dev, points, &law, &c, grid);
        for (int n = 0; n < PROBES; n++) {
            const size_t node = ((size_t)(12 + n) * 24 + (size_t)(12 - n)) * 24 + (size_t)(10 + n);
            double sum = 0, size = 0;
            for (size_t i = 0; i < COUNT; i++) {
                double from[3];
                node_from(&c, node, i, from);
                const double value = over_images(&cube, &c.box, from, scale_of(&c, i), -1) * (double)c.values[i];
                sum += value;
                size += fabs(value);
            }
            assert_true(fabs((double)grid[node] - sum) <= 1e-4 * size);
        }
        range_points_free(points);
    }
    struct range_points *points = points_with(&c, dev, law.params.reach * 1.5, RANGE_DEPTH_AUTO, RANGE_SPLIT);
    c.values[7] = NAN;
    memset(grid, 0, c.nodes * sizeof *grid);
    scatter(dev, points, &law, &c, grid);
    size_t finite = 0;
    for (size_t i = 0; i < c.nodes; i++)
        finite += isfinite(grid[i]);
    assert_true(finite > 0 && finite < c.nodes);
    set_gives(dev, points, &law, &c, grid);
    range_points_free(points);
    free(grid);
    dev_free(dev);
    cloud_free(&c);
}

/* ---- charges ---- */

/* Charges of either sign, and none: more near a tile than one list of a block holds, in one part and in many, and few
 * of one sign among many of the other. */
static void charges_of_both_signs(void **state)
{
    (void)state;
    enum { COUNT = 20000, PROBES = 60 };
    static const struct law_case *const cases[] = {&potential, &shifted};
    static const int depths[] = {RANGE_DEPTH_NONE, RANGE_DEPTH_AUTO, 700};
    const struct range_box box = {3, {41, 22, 35}, {-1, 0, 2}, {0.5, 0.5, 0.5}, {true, false, true}};
    struct cloud c = cloud_make(&box, COUNT, AROUND, false, 1);
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_GPU, 0, 0), 0);
    float *grid = allocate(c.nodes, sizeof *grid), *again = allocate(c.nodes, sizeof *again);
    for (int few = 0; few < 2; few++) {
        for (size_t i = 0; i < c.count; i++)
            c.values[i] = i % 7 == 0 ? 0.f : copysignf(c.values[i], i % 101 == 1 || (!few && i % 2) ? -1.f : 1.f);
        for (size_t l = 0; l < 2; l++) {
            const struct range_law law = law_of(cases[l]);
            double sum[PROBES] = {0}, size[PROBES] = {0};
            for (size_t n = 0; n < PROBES; n++)
                for (size_t i = 0; i < c.count; i++) {
                    double from[3];
                    node_from(&c, (n * 10007 + 13) % c.nodes, i, from);
                    const double value = over_images(cases[l], &box, from, 1, -1) * (double)c.values[i];
                    sum[n] += value;
                    size[n] += fabs(value) + fit_size(cases[l], (double)c.values[i]) * 0.01;
                }
            for (size_t w = 0; w < sizeof depths / sizeof *depths; w++) {
                struct range_points *points = points_with(&c, dev, law.params.reach, depths[w], RANGE_SPLIT);
                memset(grid, 0, c.nodes * sizeof *grid);
                memset(again, 0, c.nodes * sizeof *again);
                scatter(dev, points, &law, &c, grid);
                scatter(dev, points, &law, &c, again);
                assert_memory_equal(grid, again, c.nodes * sizeof *grid);
                set_gives(dev, points, &law, &c, grid);
                for (size_t n = 0; n < PROBES; n++)
                    close_to("charges", grid[(n * 10007 + 13) % c.nodes], sum[n], size[n]);
                range_points_free(points);
            }
        }
    }
    free(grid);
    free(again);
    dev_free(dev);
    cloud_free(&c);
}

/* ---- spheres of any values ---- */

/* Sums of values times a power of two are the sums times it, also close to the ends of float32's range; a value that is
 * not finite affects the nodes within its reach and no others. */
static void spheres_of_any_values(void **state)
{
    (void)state;
    static const int powers[] = {-90, -20, 20, 110};
    const struct range_box box = {3, {40, 21, 19}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3};
    struct cloud c = cloud_make(&box, 200, EVERYWHERE, true, 1);
    const struct range_law law = law_of(&bell_ball);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach * 1.5, &dev);
    float *grid = allocate(c.nodes, sizeof *grid), *other = allocate(c.nodes, sizeof *other);
    memset(grid, 0, c.nodes * sizeof *grid);
    scatter(dev, points, &law, &c, grid);
    for (size_t w = 0; w < sizeof powers / sizeof *powers; w++) {
        for (size_t i = 0; i < c.count; i++)
            c.values[i] = ldexpf(c.values[i], powers[w]);
        memset(other, 0, c.nodes * sizeof *other);
        scatter(dev, points, &law, &c, other);
        for (size_t i = 0; i < c.nodes; i++)
            assert_true(other[i] == ldexpf(grid[i], powers[w]));
        for (size_t i = 0; i < c.count; i++)
            c.values[i] = ldexpf(c.values[i], -powers[w]);
    }
    for (int bad = 0; bad < 2; bad++) {
        c.values[7] = bad ? NAN : -INFINITY;
        memset(other, 0, c.nodes * sizeof *other);
        scatter(dev, points, &law, &c, other);
        set_gives(dev, points, &law, &c, other);
        for (size_t i = 0; i < c.nodes; i++) {
            double from[3];
            node_from(&c, i, 7, from);
            const bool reached = exact(&bell_ball, from, scale_of(&c, 7)) > 0;
            assert_true(isfinite(other[i]) == !reached);
        }
    }
    free(grid);
    free(other);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

/* Each point's reach ends next to a node, before or behind it by 1e-8 to 1e-5 of the reach, which float32 cannot tell:
 * the node counts if it is within in double precision. */
static void reaches_that_end_next_to_nodes(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    const struct range_box box = {3, {60, 50, 40}, {0, 0, 0}, {0.2, 0.2, 0.2}, OPEN3};
    struct cloud c = cloud_make(&box, COUNT, EVERYWHERE, true, 1);
    const struct range_law law = law_of(&bell_ball);
    size_t *node = allocate(COUNT, sizeof *node);
    uint64_t seed = 21;
    for (size_t i = 0; i < c.count; i++) {
        double from[3], r = 0;
        while (r < 0.6 || r > 2.2) {
            node[i] = (size_t)(uniform_next(&seed) * (double)c.nodes);
            node_from(&c, node[i], i, from);
            r = sqrt(from[0] * from[0] + from[1] * from[1] + from[2] * from[2]);
        }
        const double off = pow(10, -8 + 3 * uniform_next(&seed)) * (uniform_next(&seed) < 0.5 ? -1 : 1);
        c.scale[i] = (float)(r * (1 + off) / law.params.reach);
    }
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach * 1.5, &dev);
    float *grid = allocate(c.nodes, sizeof *grid);
    memset(grid, 0, c.nodes * sizeof *grid);
    scatter(dev, points, &law, &c, grid);
    for (size_t n = 0; n < c.count; n++) {
        double sum = 0, size = 0;
        for (size_t i = 0; i < c.count; i++) {
            double from[3];
            node_from(&c, node[n], i, from);
            const double value = exact(&bell_ball, from, scale_of(&c, i)) * (double)c.values[i];
            sum += value;
            size += fabs(value);
        }
        close_to("next to a node", grid[node[n]], sum, size + 1e-3);
    }
    free(node);
    free(grid);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

/* ---- positions as doubles ---- */

/* In a box that begins at 1e6, float32 positions would be multiples of 1/16. */
static void positions_given_as_doubles_keep_their_digits(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    const struct range_box box = {3, {20, 20, 20}, {1e6, -1e6, 0}, {0.5, 0.5, 0.5}, {true, false, true}};
    const struct range_law law = law_of(&blob);
    struct cloud c = {.box = box, .count = COUNT, .nodes = 8000, .channels = 1};
    double at[3 * COUNT];
    float values[COUNT];
    uint64_t seed = 12;
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t d = 0; d < 3; d++)
            at[3 * i + d] = box.origin[d] + 10 * uniform_next(&seed);
        values[i] = (float)(uniform_next(&seed) - 0.3);
    }
    c.values = values;
    const struct range_points_params params = {.box = box, .reach = law.params.reach, .inputs = COUNT, .at_double = at};
    struct dev *dev;
    struct range_points *points;
    float *grid = calloc(c.nodes, sizeof *grid);
    assert_int_equal(dev_create(&dev, DEV_GPU, 0, 0), 0);
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    scatter(dev, points, &law, &c, grid);
    for (size_t node = 0; node < c.nodes; node++) {
        double sum = 0, size = 0;
        const size_t place[3] = {node % 20, node / 20 % 20, node / 400};
        for (size_t i = 0; i < COUNT; i++) {
            double from[3];
            for (size_t d = 0; d < 3; d++)
                from[d] = box.origin[d] + (double)place[d] * 0.5 - at[3 * i + d];
            const double value = over_images(&blob, &box, from, 1, -1) * (double)values[i];
            sum += value;
            size += fabs(value) + fit_size(&blob, (double)values[i]);
        }
        close_to("doubles", grid[node], sum, size);
    }
    free(grid);
    range_points_free(points);
    dev_free(dev);
}

/* test_gpu_sums [PATTERN]: runs the tests whose names match; under a sanitizer all of them take long. */
int main(int argc, char **argv)
{
    gpu_or_skip();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_to_grids),
        cmocka_unit_test(grids_to_points_are_the_transpose),
        cmocka_unit_test(nodes_beyond_reach_have_no_effect),
        cmocka_unit_test(exclusion_is_a_law),
        cmocka_unit_test(parts_sum_to_the_whole),
        cmocka_unit_test(cubes_by_tensor_cores_to_grids),
        cmocka_unit_test(crowds_of_cubes_in_parts),
        cmocka_unit_test(charges_of_both_signs),
        cmocka_unit_test(spheres_of_any_values),
        cmocka_unit_test(reaches_that_end_next_to_nodes),
        cmocka_unit_test(positions_given_as_doubles_keep_their_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
