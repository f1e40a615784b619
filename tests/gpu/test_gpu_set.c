/* range_scatter_set() on a GPU replaces every node (gridding/range/sums.h): also those of tiles that no point is near,
 * whether points near tiles are counted, as they are for a listener, or not. Points in lists of boxes, and points for
 * which there are no such lists, are summed alike. Prints TAP; without a GPU, reports
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

/* ---- lists of the points of boxes ---- */

/* Points that are spread, the first `crowd` of them in a unit cube at 12. */
static const struct listed_case {
    const char *name;
    struct range_box box;
    size_t count, crowd;
    bool scaled;
} listed_cases[] = {
    {"few points", {3, {96, 80, 64}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 2000, 0, false},
    {"lists of several times 32", {3, {65, 48, 50}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 1800, 0, true},
    /* A list has no room for the crowd, though most boxes have few points: tiles then search for their points, and the
     * grid has been left as it was. */
    {"too many points for lists", {3, {96, 80, 64}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 2000, 400, false},
};

/* Some nodes have the sums, of which terms by tensor cores are rounded to halves (test_gpu_sums). */
static void listed_try(const struct listed_case *l, const struct law_case *of)
{
    const bool tensor = of == &bell_box;
    struct cloud c = cloud_make(&l->box, l->count, EVERYWHERE, l->scaled, 1);
    struct range_law law = law_of(of);
    struct dev *dev;
    uint64_t seed = 6;
    for (size_t i = 0; i < 3 * l->crowd && i < 3 * c.count; i++)
        c.at[i] = (float)(12 + uniform_next(&seed));
    law.params.tolerance = 5e-4;
    struct range_points *points = points_of(&c, 2, law.params.reach, &dev);
    float *grid = allocate(c.nodes, sizeof *grid);
    memset(grid, 0, c.nodes * sizeof *grid);
    scatter(dev, points, &law, &c, grid);
    set_gives(dev, points, &law, &c, grid);
    for (size_t node = 0; node < c.nodes; node += 37) {
        double sum = 0, size = 0;
        for (size_t i = 0; i < c.count; i++) {
            double from[3];
            node_from(&c, node, i, from);
            const double value = over_images(of, &c.box, from, scale_of(&c, i), -1) * (double)c.values[i];
            sum += value;
            size += fabs(value) + (tensor && value != 0 ? 1e-4 : 0);
        }
        if (!(fabs((double)grid[node] - sum) <= (tensor ? 2.1e-3 : 4e-6) * size + 1e-30))
            fail_msg("%s, %s: node %zu is %.9g, expected %.9g", of->name, l->name, node, (double)grid[node], sum);
    }
    free(grid);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

static void listed_points_are_summed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof listed_cases / sizeof *listed_cases; i++) {
        listed_try(&listed_cases[i], &bell_ball);
        listed_try(&listed_cases[i], &bell_box);
    }
}

int main(void)
{
    gpu_or_skip();
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_node_is_replaced),
                                       cmocka_unit_test(listed_points_are_summed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
