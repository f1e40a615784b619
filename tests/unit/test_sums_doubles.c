/* Sums of limited range on the CPU (gridding/range/sums.h): positions given as doubles reach nodes exactly. Their pairs
 * are in test_sums_pairs.c. */
#include "tests/unit/crowd_fixture.h"

static void doubles_reach_nodes_exactly(void **state)
{
    (void)state;
    struct range_law law = law_make(RANGE_RADIAL, 0, 0, 1e-6, bell);
    const struct range_box box = {3, {16, 8, 8}, {1e6, 1e6, 1e6}, {0.25, 0.25, 0.25}, {false, false, false}};
    /* Exactly at the reach from node 12, and 2^-30 further and nearer, which float32 cannot resolve at 1e6. */
    const double at[9] = {1e6 + 1, 1e6,    1e6, 1e6 + 1 - ldexp(1, -30), 1e6 + 1, 1e6, 1e6 + 1 + ldexp(1, -30),
                          1e6,     1e6 + 1};
    const float values[3] = {1, 10, 100};
    float grid[16 * 8 * 8] = {0};
    const struct range_points_params params = {.box = box, .reach = reach, .inputs = 3, .at_double = at};
    struct dev *dev;
    struct range_points *points;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    assert_int_equal(range_scatter(points, &law, 1, values, grid, NULL), 0);
    assert_true(grid[12] == 0);                                            /* at the reach: outside */
    assert_true(grid[4 * 16 + 12] == 0);                                   /* beyond it: outside */
    assert_true(fabsf(grid[4 * 16 * 8 + 12] - 100 * expf(-2.5f)) < 1e-3f); /* nearer: inside */
    range_points_free(points);
    dev_free(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_reach_nodes_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
