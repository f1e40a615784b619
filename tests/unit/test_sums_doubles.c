/* Sums of limited range on the CPU (gridding/range/sums.h): positions given as doubles; vectors and scalars in one
 * pass. */
#include "tests/unit/crowd_fixture.h"

#include <string.h>

/* ---- doubles ---- */

enum { FINE = 400 };

/* Groups of points far from the origin, where float32 has a resolution of 1/16 at best; some across a face. */
static double *fine_points(const struct range_box *box)
{
    double *at = allocate((size_t)3 * FINE, sizeof *at);
    for (size_t i = 0; i < FINE; i++)
        for (int d = 0; d < 3; d++) {
            const double length = box->cells[d] * box->spacing[d], centre = i % 2 ? 0.7123 * length : 0;
            const double place = centre + 4 * pow(uniform(3 * i + (size_t)d), 3) - 1.5;
            at[3 * i + (size_t)d] = box->origin[d] + (place < 0 ? place + length : place);
        }
    return at;
}

static void doubles_keep_their_digits(void **state)
{
    (void)state;
    const struct laws laws = laws_make();
    const struct range_box box = {3, {1000, 1000, 1000}, {-5, 0, 1e5}, {1000, 1000, 1000}, {true, true, true}};
    double *at = fine_points(&box);
    float *values = allocate(FINE, sizeof *values), *vectors = allocate((size_t)3 * FINE, sizeof *vectors),
          *scalars = allocate(FINE, sizeof *scalars);
    for (size_t i = 0; i < FINE; i++)
        values[i] = (float)(0.5 + uniform(900 + i));
    const struct range_points_params params = {.box = box, .reach = reach, .inputs = FINE, .at_double = at};
    const struct range_pair_sums both = {&laws.potential, &laws.force, scalars, vectors};
    const double edge[3] = {0, 0.3, 2};
    uint64_t counts[2] = {0}, wanted[2] = {0};
    struct dev *dev;
    struct range_points *points;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    assert_int_equal(range_pairs(points, points, &both, 1, values, NULL), 0);
    assert_int_equal(range_count(points, points, 3, edge, counts, NULL), 0);
    for (size_t i = 0; i < FINE; i++) {
        double sum[4] = {0}, size = 0, size_scalar = 0;
        for (size_t j = 0; j < FINE; j++) {
            double away[3], r2 = 0;
            for (int d = 0; d < 3; d++) {
                const double difference = at[3 * j + (size_t)d] - at[3 * i + (size_t)d];
                away[d] = difference - 1e6 * rint(difference / 1e6);
                r2 += away[d] * away[d];
            }
            if (i == j || r2 >= reach * reach)
                continue;
            wanted[0] += r2 < edge[1] * edge[1];
            wanted[1] += r2 >= edge[1] * edge[1];
            const double t = 1 - r2 / (reach * reach), s2 = r2 + 0.02 * 0.02, v = (double)values[j];
            const double force = v * (pow(s2, -1.5) - far_force(&reach, t));
            for (int d = 0; d < 3; d++)
                sum[d] += force * away[d];
            sum[3] += v * (pow(s2, -0.5) - far_potential(&reach, t));
            /* float32's part of what is summed, and the fit's of the largest value that it has. */
            size += v * sqrt(r2) * (1e-6 * pow(s2, -1.5) + 1e-5 * far_force(&reach, 1));
            size_scalar += v * (1e-6 * pow(s2, -0.5) + 1e-6 * far_potential(&reach, 1));
        }
        for (size_t d = 0; d < 3; d++)
            assert_true(fabs((double)vectors[d * FINE + i] - sum[d]) <= size);
        assert_true(fabs((double)scalars[i] - sum[3]) <= size_scalar);
    }
    assert_true(wanted[0] > 1000 && counts[0] == wanted[0] && counts[1] == wanted[1]);
    range_points_free(points);
    dev_free(dev);
    free(at);
    free(values);
    free(vectors);
    free(scalars);
}

static void doubles_reach_nodes_exactly(void **state)
{
    (void)state;
    struct range_law law = law_make(RANGE_RADIAL, 0, 0, 1e-6, bell);
    const struct range_box box = {3, {16, 8, 8}, {1e6, 1e6, 1e6}, {0.25, 0.25, 0.25}, {false, false, false}};
    /* At the distance of the reach from node 12, and 2^-30 more and less, which float32 cannot resolve at 1e6. */
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
    assert_true(grid[12] == 0);                                            /* at the reach: not within */
    assert_true(grid[4 * 16 + 12] == 0);                                   /* beyond */
    assert_true(fabsf(grid[4 * 16 * 8 + 12] - 100 * expf(-2.5f)) < 1e-3f); /* within */
    range_points_free(points);
    dev_free(dev);
}

/* ---- vectors and scalars ---- */

static void one_pass_sums_what_two_do(void **state)
{
    (void)state;
    enum { COUNT = 2500 };
    const struct laws laws = laws_make();
    struct range_law other = laws.potential;
    struct scene s = scene_make(PLUMMER, COUNT);
    float *vectors = allocate((size_t)2 * 3 * COUNT, sizeof *vectors),
          *scalars = allocate((size_t)2 * COUNT, sizeof *scalars);
    struct dev *dev;
    struct range_points *points;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    assert_int_equal(range_points_create(&points, dev, &s.params, NULL), 0);
    for (int agree = 0; agree < 2; agree++) {
        other.params.reach = agree ? reach : 1.7;
        const struct range_pair_sums both = {&other, &laws.force, scalars, vectors};
        const struct range_pair_sums first = {.vector_law = &laws.force, .vectors = vectors + (size_t)3 * COUNT},
                                     second = {.scalar_law = &other, .scalars = scalars + COUNT};
        assert_int_equal(range_pairs(points, points, &both, 1, s.values, NULL), 0);
        assert_int_equal(range_pairs(points, points, &first, 1, s.values, NULL), 0);
        assert_int_equal(range_pairs(points, points, &second, 1, s.values, NULL), 0);
        assert_memory_equal(vectors, vectors + (size_t)3 * COUNT, 3 * COUNT * sizeof *vectors);
        assert_memory_equal(scalars, scalars + COUNT, COUNT * sizeof *scalars);
    }
    range_points_free(points);
    dev_free(dev);
    free(vectors);
    free(scalars);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_keep_their_digits),
        cmocka_unit_test(doubles_reach_nodes_exactly),
        cmocka_unit_test(one_pass_sums_what_two_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
