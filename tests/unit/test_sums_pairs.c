/* Sums over pairs of points on the CPU (gridding/range/sums.h) against sums in double precision: forces between bodies,
 * pair counts; open and periodic edges, distances on the edge of a bin of counts. */
#include "tests/unit/sums_fixture.h"

/* ---- points and points ---- */

struct pair_case {
    const char *name;
    const struct law_case *law;
    struct range_box box;
    size_t count;
    enum spread spread;
    bool scaled, vectors;
    int channels;
};

static const struct pair_case pair_cases[] = {
    {"forces, periodic", &force, {3, {8, 9, 10}, {0, 0, 0}, {1, 1, 1}, PERIODIC3}, 300, AROUND, false, true, 1},
    {"forces, open", &force, {3, {8, 9, 10}, {-4, 2, 0}, {1, 1, 1}, OPEN3}, 300, AROUND, false, true, 2},
    {"forces, clustered", &force, {3, {40, 40, 40}, {0, 0, 0}, {1, 1, 1}, PERIODIC3}, 600, CLUSTERED, false, true, 1},
    {"forces beyond a distance",
     &beyond,
     {3, {8, 9, 10}, {0, 0, 0}, {1, 1, 1}, PERIODIC3},
     300,
     AROUND,
     false,
     true,
     1},
    {"potentials, one slab periodic",
     &potential,
     {3, {9, 4, 12}, {0, 0, 0}, {1, 1, 0.5}, {true, false, true}},
     200,
     AROUND,
     false,
     false,
     2},
    {"blobs at points", &blob, {3, {12, 9, 12}, {0, 0, 0}, {1, 1, 0.5}, PERIODIC3}, 300, EVERYWHERE, true, false, 1},
    {"2-D", &blob, {2, {20, 31, 1}, {0, 0, 0}, {0.5, 0.5, 1}, PERIODIC3}, 300, EVERYWHERE, true, true, 1},
};

static void pair_oracle(const struct pair_case *p, const struct cloud *c, size_t i, int channel, int axis, double *sum,
                        double *size)
{
    *sum = *size = 0;
    for (size_t j = 0; j < c->count; j++) {
        double from[3] = {0};
        for (int d = 0; d < c->box.dim; d++)
            from[d] =
                (double)c->at[j * (size_t)c->box.dim + (size_t)d] - (double)c->at[i * (size_t)c->box.dim + (size_t)d];
        if (i == j)
            continue; /* no image of a point lies within reach of it here */
        double value = (double)c->values[(size_t)channel * c->count + j];
        double law = over_images(p->law, &c->box, from, scale_of(c, j), axis);
        *sum += law * value;
        if (law != 0)
            *size += fabs(over_images(p->law, &c->box, from, scale_of(c, j), -1) * value) *
                         (axis < 0 ? 1 : fmax(fabs(from[axis]), 0.3)) +
                     fit_size(p->law, value);
    }
}

static void pair_sums(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof pair_cases / sizeof *pair_cases; n++) {
        const struct pair_case *p = &pair_cases[n];
        struct cloud c = cloud_make(&p->box, p->count, p->spread, p->scaled, p->channels);
        struct range_law law = law_of(p->law);
        struct dev *dev;
        struct range_points *points = points_of(&c, 2, law.params.reach, &dev);
        int axes = p->vectors ? c.box.dim : 1;
        float *sums = allocate((size_t)(axes * c.channels) * c.count, sizeof *sums);
        const struct range_pair_sums vectors = {.vector_law = &law, .vectors = sums},
                                     scalars = {.scalar_law = &law, .scalars = sums};
        assert_int_equal(range_pairs(points, points, p->vectors ? &vectors : &scalars, c.channels, c.values, NULL), 0);
        for (size_t i = 0; i < c.count; i += 3)
            for (int channel = 0; channel < c.channels; channel++)
                for (int axis = 0; axis < axes; axis++) {
                    double sum, size;
                    pair_oracle(p, &c, i, channel, p->vectors ? axis : -1, &sum, &size);
                    close_to(p->name, sums[(size_t)(channel * axes + axis) * c.count + i], sum, 10 * size);
                }
        free(sums);
        range_points_free(points);
        dev_free(dev);
        cloud_free(&c);
    }
}

static void count_oracle(const struct cloud *a, const struct cloud *b, int edges, const double *edge, uint64_t *counts)
{
    const size_t dim = (size_t)a->box.dim;
    for (size_t i = 0; i < a->count; i++)
        for (size_t j = 0; j < b->count; j++) {
            double place[3][16];
            int count[3];
            for (size_t d = 0; d < 3; d++)
                count[d] =
                    images_of(&a->box, (int)d, d < dim ? (double)b->at[j * dim + d] - (double)a->at[i * dim + d] : 0,
                              edge[edges - 1], place[d]);
            for (int z = 0; z < count[2]; z++)
                for (int y = 0; y < count[1]; y++)
                    for (int x = 0; x < count[0]; x++) {
                        const double away[3] = {place[0][x], place[1][y], place[2][z]};
                        double r2 = away[0] * away[0] + away[1] * away[1] + away[2] * away[2];
                        bool itself = a == b && i == j && r2 == 0;
                        for (int e = 0; e < edges - 1 && !itself; e++)
                            counts[e] += r2 >= edge[e] * edge[e] && r2 < edge[e + 1] * edge[e + 1];
                    }
        }
}

/* Whole numbers, equal to those of double precision: on a lattice half of all distances are edges. */
static void pair_counts(void **state)
{
    (void)state;
    static const struct {
        struct range_box box;
        size_t count;
        enum spread spread;
        int edges;
        double edge[8];
    } cases[] = {
        {{3, {6, 7, 8}, {0, 0, 0}, {1, 1, 1}, PERIODIC3}, 200, LATTICE, 6, {0, 0.5, 1, 1.5, 2, 2.5}},
        {{3, {6, 7, 8}, {0, 0, 0}, {1, 1, 1}, OPEN3}, 300, LATTICE, 5, {0.5, 1, 1.4142135623730951, 2, 3}},
        {{3, {6, 7, 8}, {9, -3, 0}, {1, 1, 1}, {true, false, true}}, 300, EVERYWHERE, 4, {0, 1e-3, 1, 3.3}},
        {{3, {60, 60, 60}, {0, 0, 0}, {1, 1, 1}, PERIODIC3}, 500, CLUSTERED, 4, {0.01, 0.2, 0.4, 0.9}},
        {{2, {10, 10, 1}, {0, 0, 0}, {1, 1, 1}, PERIODIC3}, 300, EVERYWHERE, 3, {0, 2, 7}},
        {{1, {100, 1, 1}, {0, 0, 0}, {0.1, 1, 1}, {false}}, 200, LATTICE, 3, {0, 0.5, 2}},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        struct cloud a = cloud_make(&cases[n].box, cases[n].count, cases[n].spread, false, 1),
                     b = cloud_make(&cases[n].box, cases[n].count + 31, cases[n].spread, false, 1);
        struct dev *dev, *other;
        double reach = cases[n].edge[cases[n].edges - 1];
        struct range_points *points = points_of(&a, 2, reach, &dev), *more = points_of(&b, 2, reach / 3, &other);
        for (int both = 0; both < 2; both++) {
            uint64_t counts[8] = {0}, wanted[8] = {0};
            assert_int_equal(range_count(points, both ? more : points, cases[n].edges, cases[n].edge, counts, NULL), 0);
            count_oracle(&a, both ? &b : &a, cases[n].edges, cases[n].edge, wanted);
            for (int e = 0; e < cases[n].edges - 1; e++)
                if (counts[e] != wanted[e])
                    fail_msg("case %zu, interval %d: %ju pairs where %ju are", n, e, (uintmax_t)counts[e],
                             (uintmax_t)wanted[e]);
        }
        range_points_free(points);
        range_points_free(more);
        dev_free(dev);
        dev_free(other);
        cloud_free(&a);
        cloud_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_sums),
        cmocka_unit_test(pair_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
