/* pairs_cases.h: sums over pairs of points and counts of distances (gridding/range/sums.h) against sums in double
 * precision, on the device that the program names by SUMS_DEVICE: forces between bodies, open and periodic edges,
 * distances on the edge of an interval, positions given as doubles, vectors and scalars in one pass. */
#ifndef MRIRECON_TESTS_PAIRS_CASES_H
#define MRIRECON_TESTS_PAIRS_CASES_H

#include "tests/unit/sums_fixture.h"
#include "tests/unit/crowd_fixture.h"

/* Sums of host values to host arrays: vectors[channels][dim][count], scalars[channels][count]; either may be NULL. */
static inline void sum_pairs(struct dev *dev, const struct range_points *to, const struct range_points *from,
                             const struct range_pair_sums *wanted, int dim, int channels, size_t count_to,
                             size_t count_from, const float *values)
{
    const size_t scalars = wanted->scalar_law ? (size_t)channels * count_to : 0,
                 vectors = wanted->vector_law ? (size_t)(channels * dim) * count_to : 0;
    struct range_pair_sums sums = *wanted;
    float *own = on_device(dev, values, (size_t)channels * count_from);
    sums.scalars = scalars ? on_device(dev, wanted->scalars, scalars) : NULL;
    sums.vectors = vectors ? on_device(dev, wanted->vectors, vectors) : NULL;
    assert_int_equal(range_pairs(to, from, &sums, channels, own, NULL), 0);
    if (scalars)
        off_device(dev, sums.scalars, wanted->scalars, scalars);
    if (vectors)
        off_device(dev, sums.vectors, wanted->vectors, vectors);
    dev_release(dev, own);
}

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
            continue; /* no image of a point is within reach of itself here */
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
        sum_pairs(dev, points, points, p->vectors ? &vectors : &scalars, c.box.dim, c.channels, c.count, c.count,
                  c.values);
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

/* Counts are whole numbers and must equal those of double precision; on a lattice, half of all distances are interval
 * edges. */
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
        {{2, {4, 3, 1}, {0, 0, 0}, {1, 1, 1}, PERIODIC3}, 60, EVERYWHERE, 4, {0, 1, 3.5, 7}}, /* images of itself */
        {{1, {100, 1, 1}, {0, 0, 0}, {0.1, 1, 1}, {false}}, 200, LATTICE, 3, {0, 0.5, 2}},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        struct cloud a = cloud_make(&cases[n].box, cases[n].count, cases[n].spread, false, 1),
                     b = cloud_make(&cases[n].box, cases[n].count + 31, cases[n].spread, false, 1);
        struct dev *dev;
        const double most = cases[n].edge[cases[n].edges - 1];
        struct range_points *points = points_of(&a, 2, most, &dev), *more;
        const struct range_points_params others = {.box = b.box, .reach = most / 3, .inputs = b.count, .at = b.at};
        assert_int_equal(range_points_create(&more, dev, &others, NULL), 0);
        for (int both = 0; both < 2; both++) {
            uint64_t counts[8] = {0}, wanted[8] = {0};
            assert_int_equal(range_count(points, both ? more : points, cases[n].edges, cases[n].edge, counts, NULL), 0);
            count_oracle(&a, both ? &b : &a, cases[n].edges, cases[n].edge, wanted);
            for (int e = 0; e < cases[n].edges - 1; e++)
                if (counts[e] != wanted[e])
                    fail_msg("case %zu, interval %d: %ju pairs, expected %ju", n, e, (uintmax_t)counts[e],
                             (uintmax_t)wanted[e]);
        }
        range_points_free(points);
        range_points_free(more);
        dev_free(dev);
        cloud_free(&a);
        cloud_free(&b);
    }
}

/* ---- doubles ---- */

enum { FINE = 400 };

/* Groups of points far from the origin, where float32 resolves 1/16 at best; some lie across a periodic face. */
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
    assert_int_equal(dev_create(&dev, SUMS_DEVICE, 0, 2), 0);
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    sum_pairs(dev, points, points, &both, 3, 1, FINE, FINE, values);
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
            const double pull = v * (pow(s2, -1.5) - far_force(&reach, t));
            for (int d = 0; d < 3; d++)
                sum[d] += pull * away[d];
            sum[3] += v * (pow(s2, -0.5) - far_potential(&reach, t));
            /* The term's float32 rounding, plus the fit's error relative to its largest value. */
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

/* Half of the points in a small part of the box. */
static struct cloud crowd_make(size_t count)
{
    static const struct range_box box = {3, {24, 24, 24}, {0, 0, 0}, {0.5, 0.5, 0.5}, {true, true, false}};
    struct cloud c = cloud_make(&box, count, EVERYWHERE, false, 1);
    for (size_t i = 0; i < 3 * count; i += i % 3 == 2 ? 4 : 1)
        c.at[i] = 6 + 0.05f * (c.at[i] - 6);
    return c;
}

/* A GPU sums vectors alone in a different order than vectors with scalars, so the two differ by the float32 rounding of
 * the sums. */
static void same_sums(const float *a, const float *b, size_t count)
{
    double largest = 0;
    if (SUMS_DEVICE == DEV_CPU)
        assert_memory_equal(a, b, count * sizeof *a);
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)b[i]));
    for (size_t i = 0; i < count; i++)
        assert_true(fabs((double)a[i] - (double)b[i]) <= 4e-6 * largest);
}

static void one_pass_equals_two(void **state)
{
    (void)state;
    enum { COUNT = 2500 };
    const struct laws laws = laws_make();
    struct range_law other = laws.potential;
    struct cloud c = crowd_make(COUNT);
    float *vectors = allocate((size_t)2 * 3 * COUNT, sizeof *vectors),
          *scalars = allocate((size_t)2 * COUNT, sizeof *scalars);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, reach, &dev);
    for (int agree = 0; agree < 2; agree++) {
        other.params.reach = agree ? reach : 1.7;
        const struct range_pair_sums both = {&other, &laws.force, scalars, vectors};
        const struct range_pair_sums first = {.vector_law = &laws.force, .vectors = vectors + (size_t)3 * COUNT},
                                     second = {.scalar_law = &other, .scalars = scalars + COUNT};
        sum_pairs(dev, points, points, &both, 3, 1, COUNT, COUNT, c.values);
        sum_pairs(dev, points, points, &first, 3, 1, COUNT, COUNT, c.values);
        sum_pairs(dev, points, points, &second, 3, 1, COUNT, COUNT, c.values);
        same_sums(vectors, vectors + (size_t)3 * COUNT, (size_t)3 * COUNT);
        same_sums(scalars, scalars + COUNT, COUNT);
    }
    range_points_free(points);
    dev_free(dev);
    free(vectors);
    free(scalars);
    cloud_free(&c);
}

#endif
