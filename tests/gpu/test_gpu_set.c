/* range_scatter_set() on a GPU replaces every node (gridding/range/sums.h): also those of tiles that no point is near,
 * whether points near tiles are counted, as they are for a listener, or not. Prints TAP; without a GPU, reports
 * everything as skipped. */
#define SUMS_DEVICE DEV_GPU
#include "tests/gpu/gpu_or_skip.h"
#include "tests/unit/sums_fixture.h"

/* Points in a corner of a large open box. */
static struct cloud corner_make(size_t count)
{
    static const struct range_box box = {3, {70, 40, 45}, {0, 0, 0}, {0.5, 0.5, 0.5}, {false, false, false}};
    struct cloud c = cloud_make(&box, count, EVERYWHERE, false, 1);
    uint64_t seed = 5;
    for (size_t i = 0; i < 3 * count; i++)
        c.at[i] = (float)(4 * uniform_next(&seed));
    return c;
}

static int hear(void *context, size_t done, size_t most)
{
    *(int *)context += done <= most;
    return 0;
}

/* Sums of a law on a grid of NaN are those added to a grid of zeros; additions may take subnormal numbers for 0. */
static void set_try(const struct law_case *of, double tolerance, size_t count)
{
    struct cloud c = corner_make(count);
    struct range_law law = law_of(of);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach, &dev);
    float *sums = allocate(c.nodes, sizeof *sums), *set = allocate(c.nodes, sizeof *set);
    float *values = on_device(dev, c.values, c.count);
    size_t empty = 0;
    int calls = 0;
    law.params.tolerance = tolerance;
    scatter(dev, points, &law, &c, sums);
    for (int listens = 0; listens < 2; listens++) {
        const struct listener listener = {&calls, hear};
        for (size_t i = 0; i < c.nodes; i++)
            set[i] = NAN;
        float *grid = on_device(dev, set, c.nodes);
        assert_int_equal(range_scatter_set(points, &law, 1, values, grid, listens ? &listener : NULL), 0);
        off_device(dev, grid, set, c.nodes);
        for (size_t i = 0; i < c.nodes; i++)
            if (!(fabsf(set[i] - sums[i]) < FLT_MIN))
                fail_msg("%s, %zu points, %s: node %zu is %.9g, added to 0 %.9g", of->name, count,
                         listens ? "with a listener" : "nobody listens", i, (double)set[i], (double)sums[i]);
    }
    for (size_t i = 0; i < c.nodes; i++)
        empty += sums[i] == 0;
    assert_true(calls > 0 && empty > c.nodes / 2 && (count == 0) == (empty == c.nodes));
    dev_release(dev, values);
    range_points_free(points);
    dev_free(dev);
    free(sums);
    free(set);
    cloud_free(&c);
}

static void every_node_is_replaced(void **state)
{
    (void)state;
    static const struct law_case *const laws[] = {&potential, &blob, &cube, &within, &force, &shifted};
    for (size_t count = 0; count <= 200; count += 200) {
        for (size_t l = 0; l < sizeof laws / sizeof *laws; l++)
            set_try(laws[l], 0, count);
        set_try(&cube, 5e-4, count);
    }
}

int main(void)
{
    gpu_or_skip();
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_node_is_replaced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
