/* Sums of limited range between points and grids on the CPU (gridding/range/sums.h) against sums in double precision:
 * the potential of charges (CutCP), blobs with a radius each; open and periodic edges, cut-offs and bin faces hit
 * exactly, bins from empty to very dense. */
#include "gridding/base/dev_leaf.h"
#include "gridding/range/intervals.h"
#include "tests/unit/pencils_leaves.h"
#include "tests/unit/sums_cases.h"

static void same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    const struct range_box box = {3, {60, 50, 40}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3};
    struct cloud c = cloud_make(&box, 4000, EVERYWHERE, true, 1);
    struct range_law radial = law_of(&blob), inverse = law_of(&force);
    float *first[3] = {NULL};
    size_t count[3] = {c.nodes, c.count, 3 * c.count};
    for (int threads = 1; threads <= 5; threads += 2) {
        struct dev *dev;
        struct range_points *points = points_of(&c, threads, radial.params.reach, &dev);
        float *sums[3];
        for (int s = 0; s < 3; s++)
            sums[s] = calloc(count[s], sizeof *sums[s]);
        assert_int_equal(range_scatter(points, &radial, 1, c.values, sums[0], NULL), 0);
        assert_int_equal(range_gather(points, &radial, 1, sums[0], sums[1], NULL), 0);
        const struct range_pair_sums pairs = {.vector_law = &inverse, .vectors = sums[2]};
        assert_int_equal(range_pairs(points, points, &pairs, 1, c.values, NULL), 0);
        for (int s = 0; s < 3; s++) {
            if (threads > 1) {
                assert_memory_equal(sums[s], first[s], count[s] * sizeof **first);
                free(sums[s]);
            } else {
                first[s] = sums[s];
            }
        }
        range_points_free(points);
        dev_free(dev);
    }
    for (int s = 0; s < 3; s++)
        free(first[s]);
    cloud_free(&c);
}

/* ---- refusals ---- */

static double pole(const void *of, double t)
{
    (void)of;
    return 1 / t;
}

static double corner(const void *of, double t)
{
    (void)of;
    return fabs(t - 0.5);
}

static void refused(int rc, const char *words)
{
    assert_int_equal(rc, ERR_BAD_PARAMETER);
    if (!strstr(err_last()->text, words))
        fail_msg("\"%s\" does not say \"%s\"", err_last()->text, words);
}

static void invalid_sums_are_refused(void **state)
{
    (void)state;
    struct range_law law, separable = law_of(&cube);
    const struct range_law_params good = {RANGE_INVERSE, 2, 0, 0, 1, 1e-6, 0, 0, 0};
    struct range_law_params bad = good;
    bad.reach = NAN;
    refused(range_law_make(&law, &bad, potential_value, NULL), "reach");
    bad = good;
    bad.power = 2;
    refused(range_law_make(&law, &bad, potential_value, NULL), "power 2");
    bad = good;
    bad.soft = bad.spline = 0.1;
    refused(range_law_make(&law, &bad, potential_value, NULL), "spline of radius 0.1");
    refused(range_law_make(&law, &good, pole, NULL), "not finite");
    refused(range_law_make(&law, &good, corner, NULL), "degree 17");
    struct dev *dev;
    struct range_points *points, *other;
    const float at[6] = {0, 1, 2, 3, INFINITY, 1}, scale[2] = {1, 0};
    const struct range_points_params one = {
        .box = {3, {4, 4, 4}, {0, 0, 0}, {1, 1, 1}, OPEN3}, .reach = 1, .inputs = 1, .at = at};
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    assert_true(range_available(dev));
    struct range_points_params of = one;
    of.inputs = 2;
    refused(range_points_create(&points, dev, &of, NULL), "Coordinate 1 of point 1");
    of = one;
    of.scale = scale + 1;
    refused(range_points_create(&points, dev, &of, NULL), "scale of point 0");
    of = one;
    of.reach = 0;
    refused(range_points_create(&points, dev, &of, NULL), "reach");
    of = one;
    of.bin_depth = -2;
    refused(range_points_create(&points, dev, &of, NULL), "depth of -2");
    of = one;
    of.box.dim = 2;
    refused(range_points_create(&points, dev, &of, NULL), "4 cells along axis 2");
    of = one;
    of.box.spacing[1] = 0;
    refused(range_points_create(&points, dev, &of, NULL), "Axis 1");
    of.box.spacing[1] = 2;
    assert_int_equal(range_points_create(&points, dev, &one, NULL), 0);
    assert_int_equal(range_points_create(&other, dev, &of, NULL), 0);
    float sums[64] = {0};
    uint64_t counts[2];
    const double falling[3] = {1, 2, 2};
    refused(range_scatter(points, &separable, 0, at, sums, NULL), "0 channels");
    const struct range_pair_sums none = {.scalars = sums}, axes = {.scalar_law = &separable, .scalars = sums},
                                 radial = {.scalar_law = &law, .scalars = sums};
    refused(range_pairs(points, points, &none, 1, at, NULL), "neither");
    refused(range_pairs(points, points, &axes, 1, at, NULL), "separable");
    refused(range_pairs(points, other, &radial, 1, at, NULL), "one box");
    refused(range_count(points, points, 3, falling, counts, NULL), "Edge 2");
    refused(range_count(points, points, 1, falling, counts, NULL), "1 edges");
    separable.params.reach = 1e9;
    refused(range_scatter(points, &separable, 1, at, sums, NULL), "cells");
    range_points_free(points);
    range_points_free(other);
    dev_free(dev);
}

/* ---- every instruction set's loops ---- */

enum { ROW = 40, ROWS = 9, PLANES = 7, RUN = 50 };

/* What one set of loops computes for one problem. */
struct made {
    float grid[ROW * ROWS * PLANES + PENCIL_LANES];
    float gathered;
    double sums[3][PAIR_PARTS];
    uint64_t counts[2 * PAIR_COPIES], doubts;
};

static void count_doubt(void *of, size_t i, size_t j)
{
    (void)i;
    (void)j;
    (*(uint64_t *)of)++;
}

static void make(const struct pencils_leaf *leaf, const struct range_law *law, struct made *made)
{
    static const uint16_t table[4] = {0, 1, INTERVAL_DOUBT, INTERVAL_FAR};
    const struct pencil_law sum = {law, 3, 1, {0.5, 0.6, 0.7}};
    struct pencil_point point = {{17.3, 4.1, 2.9}, {1.5f}, 1.2};
    struct pencil_block block = {made->grid,         made->grid + ROW * ROWS * PLANES, ROW, ROW * ROWS, 0, {0, 0, 0},
                                 {ROW, ROWS, PLANES}};
    float at[3][RUN + PENCIL_LANES] = {{0}}, value[RUN + PENCIL_LANES] = {0};
    uint64_t seed = 9;
    memset(made, 0, sizeof *made);
    leaf->scatter(&sum, &point, &block);
    point.value[0] = 0;
    leaf->gather(&sum, &point, &block);
    made->gathered = point.value[0];
    for (int i = 0; i < RUN; i++) {
        value[i] = (float)uniform_next(&seed);
        for (int d = 0; d < 3; d++)
            at[d][i] = (float)(2 * uniform_next(&seed));
    }
    const struct pair_run run = {.at = {at[0], at[1], at[2]}, .value = value, .count = RUN};
    const struct pair_block of = {
        .at = {at[0] + 5, at[1] + 5, at[2] + 5}, .count = 3, .self = 5, .high = {2, 2, 2}, .reach2 = 100};
    if (law->params.form != RANGE_SEPARABLE)
        leaf->pairs(&(struct pair_laws){law, law}, 3, &of, &run, made->sums);
    /* Distances below 1, up to 2, up to 4 and up to 8. */
    const struct pair_counts to = {{23, 126, 4, 8}, table, made->counts, count_doubt, &made->doubts};
    leaf->count(3, &of, &run, &to);
    /* Which copy of a count a pair is added to follows from the order of pairs, which differs. */
    for (int interval = 0; interval < 2; interval++)
        for (int c = 1; c < PAIR_COPIES; c++) {
            made->counts[interval * PAIR_COPIES] += made->counts[interval * PAIR_COPIES + c];
            made->counts[interval * PAIR_COPIES + c] = 0;
        }
}

static void every_instruction_set_gives_the_same_sums(void **state)
{
    (void)state;
    const struct law_case *laws[] = {&potential, &blob, &cube, &force, &beyond};
    const struct pencils_leaf *leaves[3];
    const int count = pencils_leaves(leaves);
    static struct made first, other;
    for (size_t l = 0; l < sizeof laws / sizeof *laws; l++) {
        const struct range_law law = law_of(laws[l]);
        make(leaves[0], &law, &first);
        assert_true(first.gathered > 0 && first.counts[0] > 0 && first.counts[PAIR_COPIES] > 0 && first.doubts > 0);
        for (int i = 1; i < count; i++) {
            make(leaves[i], &law, &other);
            for (size_t n = 0; n < sizeof first.grid / sizeof *first.grid; n++)
                close_to(laws[l]->name, other.grid[n], (double)first.grid[n], fabs((double)first.grid[n]) + 0.1);
            close_to(laws[l]->name, other.gathered, (double)first.gathered, (double)first.gathered);
            for (int p = 0; p < 3 * PAIR_PARTS; p++)
                close_to(laws[l]->name, (float)other.sums[p / PAIR_PARTS][p % PAIR_PARTS],
                         first.sums[p / PAIR_PARTS][p % PAIR_PARTS],
                         fabs(first.sums[p / PAIR_PARTS][p % PAIR_PARTS]) + 10);
            assert_memory_equal(other.counts, first.counts, sizeof first.counts);
            assert_int_equal(other.doubts, first.doubts);
        }
    }
}

static void a_device_without_sums_reports_it(void **state)
{
    (void)state;
    struct dev_leaf leaf = dev_leaf_cpu;
    leaf.range = NULL;
    struct dev dev = {.leaf = &leaf, .threads = 1, .name = "gpu 0 (bare)"};
    const float at[3] = {1, 1, 1};
    const struct range_points_params params = {
        .box = {3, {4, 4, 4}, {0, 0, 0}, {1, 1, 1}, OPEN3}, .reach = 1, .inputs = 1, .at = at};
    struct range_points *points = NULL;
    struct range_memory memory;
    assert_false(range_available(&dev));
    assert_int_equal(range_memory(&dev, &params, &memory), ERR_NO_DEVICE);
    assert_int_equal(range_points_create(&points, &dev, &params, NULL), ERR_NO_DEVICE);
    assert_non_null(strstr(err_last()->text, "gpu 0 (bare)"));
    assert_null(points);
}

/* Of many points, which threads share, the first invalid one is named. */
static void the_first_invalid_point_is_named(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    struct dev *dev;
    struct range_points *points;
    float *at = allocate(3 * COUNT, sizeof *at), *scale = allocate(COUNT, sizeof *scale);
    for (size_t i = 0; i < COUNT; i++) {
        at[3 * i] = at[3 * i + 1] = at[3 * i + 2] = 1;
        scale[i] = 1;
    }
    const struct range_points_params params = {
        .box = {3, {4, 4, 4}, {0, 0, 0}, {1, 1, 1}, OPEN3}, .reach = 1, .inputs = COUNT, .at = at, .scale = scale};
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 3), 0);
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    range_points_free(points);
    scale[COUNT - 1] = 0;
    refused(range_points_create(&points, dev, &params, NULL), "scale of point 99999");
    at[3 * 80000 + 1] = 0x1.1p30f;
    refused(range_points_create(&points, dev, &params, NULL), "Coordinate 1 of point 80000");
    at[3 * 20000 + 2] = NAN;
    refused(range_points_create(&points, dev, &params, NULL), "Coordinate 2 of point 20000");
    free(at);
    free(scale);
    dev_free(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_to_grids),
        cmocka_unit_test(grids_to_points_are_the_transpose),
        cmocka_unit_test(nodes_beyond_reach_have_no_effect),
        cmocka_unit_test(same_bits_for_any_number_of_threads),
        cmocka_unit_test(exclusion_is_a_law),
        cmocka_unit_test(parts_sum_to_the_whole),
        cmocka_unit_test(invalid_sums_are_refused),
        cmocka_unit_test(the_first_invalid_point_is_named),
        cmocka_unit_test(every_instruction_set_gives_the_same_sums),
        cmocka_unit_test(a_device_without_sums_reports_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
