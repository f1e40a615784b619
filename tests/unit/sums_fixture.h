/* sums_fixture.h: laws of limited range, boxes of points, and the bound of a sum's error, for the tests of
 * gridding/range/sums.h. */
#ifndef MRIRECON_TESTS_SUMS_FIXTURE_H
#define MRIRECON_TESTS_SUMS_FIXTURE_H

#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifndef SUMS_DEVICE
#define SUMS_DEVICE DEV_CPU /* the device whose sums are tested */
#endif

/* laws, each a plain function */

static inline double potential_value(const void *of, double t)
{
    (void)of;
    return t * t; /* (1 - r^2 / rc^2)^2, over r */
}

/* 1 / r less this is 0 at the reach of 3.1, as its first two derivatives are. */
static inline double shifted_value(const void *of, double t)
{
    (void)of;
    return (1 + t / 2 + 3 * t * t / 8) / 3.1;
}

/* Blinn's exp(B (r^2 / R^2 - 1)), up to u = r / R = *of, B = -2.5. */
static inline double blob_value(const void *of, double t)
{
    double u = *(const double *)of;
    return exp(-2.5 * (u * u * (1 - t) - 1));
}

static inline double blob_axis(const void *of, double t)
{
    double u = *(const double *)of;
    return exp(-2.5 * u * u * (1 - t));
}

static inline double one_value(const void *of, double t)
{
    (void)of;
    (void)t;
    return 1;
}

/* A Gaussian that is far from 0 where it is cut off. */
static inline double bell_value(const void *of, double t)
{
    (void)of;
    return exp(-0.5 * (1 - t));
}

/* P3M's forces are r (erfc(u) + 2 u / sqrt(pi) exp(-u^2)) / r^3, u = r / 2 r_s, reach 6 r_s = 2.4: 1 / r^3 less this.
 */
static inline double force_value(const void *of, double t)
{
    (void)of;
    const double root = 1.1283791670955126, a = 1.25; /* 2 / sqrt(pi), 1 / 2 r_s */
    double r = 2.4 * sqrt(1 - t), u = a * r, v = u * u;
    if (u < 0.2)
        return root * 2 / 3 * a * a * a * (1 - v * (3.0 / 5 - v * (3.0 / 14 - v * (1.0 / 18 - v / 88))));
    return (erf(u) - root * u * exp(-v)) / (r * r * r);
}

static const double blob_reach = 2.17; /* sqrt(1 + ln 1e-4 / -2.5), rounded up */

struct law_case {
    const char *name;
    struct range_law_params params;
    double (*value)(const void *of, double t);
};

static const struct law_case potential = {"potential", {RANGE_INVERSE, 3.1, 0, 0, 1, 1e-6, 0, 0, 0}, potential_value};
static const struct law_case shifted = {"shifted", {RANGE_SHORT, 3.1, 0, 0, 1, 1e-6, 0, 0, 0}, shifted_value};
static const struct law_case blob = {"blob", {RANGE_RADIAL, 2.17, 0, 0, 0, 1e-6, 0, 0, 0}, blob_value};
static const struct law_case cube = {"blob cut to a cube", {RANGE_SEPARABLE, 2.17, 0, 0, 0, 1e-6, 0, 0, 0}, blob_axis};
static const struct law_case within = {"count within reach", {RANGE_RADIAL, 1.5, 0, 0, 0, 1e-9, 0, 0, 0}, one_value};
static const struct law_case bell_ball = {"ball", {RANGE_RADIAL, 1.5, 0, 0, 0, 1e-9, 0, 0, 0}, bell_value};
static const struct law_case bell_box = {"box", {RANGE_SEPARABLE, 1.5, 0, 0, 0, 1e-9, 0, 0, 0}, bell_value};
static const struct law_case force = {"force", {RANGE_SHORT, 2.4, 0, 0.05, 3, 1e-5, 0, 0, 0}, force_value};
static const struct law_case beyond = {"force beyond", {RANGE_SHORT, 2.4, 0.7, 0, 3, 1e-5, 0, 0, 0}, force_value};

static inline struct range_law law_of(const struct law_case *c)
{
    struct range_law law;
    assert_int_equal(range_law_make(&law, &c->params, c->value, &blob_reach), 0);
    assert_true(law.error <= c->params.error);
    return law;
}

/* The exact value of a law at a distance. */
static inline double exact(const struct law_case *c, const double away[3], double scale)
{
    const struct range_law_params *p = &c->params;
    double r2 = 0, product = 1;
    for (int d = 0; d < 3; d++) {
        double x = away[d] / scale;
        r2 += x * x;
        if (p->form == RANGE_SEPARABLE) {
            if (fabs(x) >= p->reach)
                return 0;
            product *= c->value(&blob_reach, 1 - x * x / (p->reach * p->reach));
        }
    }
    if (p->form == RANGE_SEPARABLE)
        return product;
    if (r2 >= p->reach * p->reach)
        return 0;
    double value = c->value(&blob_reach, 1 - r2 / (p->reach * p->reach));
    if (p->form == RANGE_RADIAL)
        return value;
    double softened = r2 + p->soft * p->soft;
    if (softened == 0 || r2 < p->least * p->least)
        return 0;
    double root = pow(softened, -p->power / 2.0);
    return p->form == RANGE_SHORT ? root - value : root * value;
}

/* ---- boxes of points ---- */

struct cloud {
    struct range_box box;
    size_t count, nodes;
    float *at, *scale, *values; /* values: [channels][count] */
    int channels;
};

enum spread { EVERYWHERE, AROUND, CLUSTERED, LATTICE };

static inline float coordinate(const struct range_box *b, int d, enum spread spread, uint64_t *seed)
{
    double length = b->cells[d] * b->spacing[d], u = uniform_next(seed);
    if (spread == AROUND) /* points of an open axis also lie beside the grid */
        u = 1.4 * u - 0.2;
    if (spread == CLUSTERED)
        u = 0.45 + 0.02 * u;
    double place = b->origin[d] + u * length;
    return (float)(spread == LATTICE ? b->origin[d] + rint(u * length / 0.5) * 0.5 : place);
}

static inline struct cloud cloud_make(const struct range_box *box, size_t count, enum spread spread, bool scaled,
                                      int channels)
{
    const char *limit = getenv("MRIRECON_TEST_POINTS"); /* for tools that slow a GPU down (tests/gpu/sanitize.py) */
    count = limit && count > (size_t)atoi(limit) ? (size_t)atoi(limit) : count;
    uint64_t seed = 77 + count;
    struct cloud c = {.box = *box, .count = count, .nodes = 1, .channels = channels};
    c.at = allocate(3 * count + 1, sizeof *c.at);
    c.scale = scaled ? allocate(count + 1, sizeof *c.scale) : NULL;
    c.values = allocate((size_t)channels * count + 1, sizeof *c.values);
    for (size_t i = 0; i < count; i++) {
        for (int d = 0; d < box->dim; d++)
            c.at[i * (size_t)box->dim + (size_t)d] = coordinate(box, d, spread, &seed);
        if (scaled)
            c.scale[i] = (float)(0.6 + 0.9 * uniform_next(&seed));
    }
    for (size_t i = 0; i < (size_t)channels * count; i++)
        c.values[i] = (float)(uniform_next(&seed) - 0.3);
    for (int d = 0; d < 3; d++)
        c.nodes *= (size_t)box->cells[d];
    return c;
}

static inline void cloud_free(struct cloud *c)
{
    free(c->at);
    free(c->scale);
    free(c->values);
}

static inline double scale_of(const struct cloud *c, size_t i)
{
    return c->scale ? (double)c->scale[i] : 1;
}

/* The images along one axis of `from` that lie less than `reach` from `at`; returns their number and stores their
 * positions in `to`. */
static inline int images_of(const struct range_box *b, int d, double from, double reach, double to[16])
{
    int count = 0, most = d < b->dim && b->periodic[d] ? 5 : 0;
    for (int image = -most; image <= most; image++) {
        double place = from + image * (b->cells[d] * b->spacing[d]);
        if (fabs(place) < reach || d >= b->dim)
            to[count++] = place;
    }
    return count;
}

/* The law summed over the periodic images of a point at `from`, times the distance along an axis if one is given. */
static inline double over_images(const struct law_case *law, const struct range_box *b, const double from[3],
                                 double scale, int axis)
{
    double sum = 0, place[3][16];
    int count[3];
    for (int d = 0; d < 3; d++)
        count[d] = images_of(b, d, from[d], law->params.reach * scale, place[d]);
    for (int z = 0; z < count[2]; z++)
        for (int y = 0; y < count[1]; y++)
            for (int x = 0; x < count[0]; x++) {
                const double away[3] = {place[0][x], place[1][y], place[2][z]};
                double value = exact(law, away, scale);
                sum += axis < 0 ? value : value * away[axis];
            }
    return sum;
}

static inline struct range_points *points_of(const struct cloud *c, int threads, double reach, struct dev **dev)
{
    struct range_points *points;
    assert_int_equal(dev_create(dev, SUMS_DEVICE, 0, threads), 0);
    const struct range_points_params params = {
        .box = c->box, .reach = reach, .inputs = c->count, .at = c->at, .scale = c->scale};
    assert_int_equal(range_points_create(&points, *dev, &params, NULL), 0);
    return points;
}

/* Device memory with a copy of `from`. */
static inline float *on_device(struct dev *dev, const float *from, size_t count)
{
    void *memory = NULL;
    assert_int_equal(dev_alloc(dev, count * sizeof *from, &memory), 0);
    assert_int_equal(dev_upload(dev, memory, from, count * sizeof *from), 0);
    return memory;
}

static inline void off_device(struct dev *dev, float *memory, float *to, size_t count)
{
    assert_int_equal(dev_download(dev, to, memory, count * sizeof *to), 0);
    dev_release(dev, memory);
}

/* Scatter the cloud's values to grid[channels][nodes], or gather the grid to values[channels][count]. */
static inline void scatter(struct dev *dev, const struct range_points *points, const struct range_law *law,
                           const struct cloud *c, float *grid)
{
    const size_t all = (size_t)c->channels * c->nodes;
    float *values = on_device(dev, c->values, (size_t)c->channels * c->count), *sums = on_device(dev, grid, all);
    assert_int_equal(range_scatter(points, law, c->channels, values, sums, NULL), 0);
    off_device(dev, sums, grid, all);
    dev_release(dev, values);
}

/* What range_scatter_set() leaves of a grid that is full is `grid`, the sums on a grid of zeros; additions may take
 * subnormal numbers for 0. range_scatter() then adds the sums once more. */
static inline void set_gives(struct dev *dev, const struct range_points *points, const struct range_law *law,
                             const struct cloud *c, const float *grid)
{
    const size_t all = (size_t)c->channels * c->nodes;
    float *set = allocate(all, sizeof *set);
    for (size_t i = 0; i < all; i++)
        set[i] = 1e30f;
    float *values = on_device(dev, c->values, (size_t)c->channels * c->count), *sums = on_device(dev, set, all);
    assert_int_equal(range_scatter_set(points, law, c->channels, values, sums, NULL), 0);
    assert_int_equal(dev_download(dev, set, sums, all * sizeof *set), 0);
    for (size_t i = 0; i < all; i++)
        if (!(grid[i] == set[i] || fabsf(grid[i] - set[i]) < FLT_MIN || (isnan(grid[i]) && isnan(set[i]))))
            fail_msg("node %zu: %.9g, added to 0 %.9g", i, (double)set[i], (double)grid[i]);
    assert_int_equal(range_scatter(points, law, c->channels, values, sums, NULL), 0);
    off_device(dev, sums, set, all);
    double off = 0, size = 0;
    for (size_t i = 0; i < all; i++) {
        off += isfinite(grid[i]) ? fabs((double)set[i] - 2 * (double)grid[i]) : 0;
        size += isfinite(grid[i]) ? fabs((double)grid[i]) : 0;
    }
    assert_true(off <= 1e-3 * size);
    dev_release(dev, values);
    free(set);
}

static inline void gather(struct dev *dev, const struct range_points *points, const struct range_law *law,
                          const struct cloud *c, const float *grid, float *to)
{
    const size_t all = (size_t)c->channels * c->count;
    float *nodes = on_device(dev, grid, (size_t)c->channels * c->nodes), *values = on_device(dev, to, all);
    assert_int_equal(range_gather(points, law, c->channels, nodes, values, NULL), 0);
    off_device(dev, values, to, all);
    dev_release(dev, nodes);
}

static inline void node_from(const struct cloud *c, size_t node, size_t i, double from[3])
{
    const size_t place[3] = {node % (size_t)c->box.cells[0], node / (size_t)c->box.cells[0] % (size_t)c->box.cells[1],
                             node / (size_t)c->box.cells[0] / (size_t)c->box.cells[1]};
    for (int d = 0; d < 3; d++)
        from[d] = d < c->box.dim ? c->box.origin[d] + (double)place[d] * c->box.spacing[d] -
                                       (double)c->at[i * (size_t)c->box.dim + (size_t)d]
                                 : 0;
}

/* The edges of a box. */
#define OPEN3               \
    {                       \
        false, false, false \
    }
#define PERIODIC3        \
    {                    \
        true, true, true \
    }

/* Each sum must be as close to the exact one as float32 and the fit allow. `size` is the sum of the terms' magnitudes
 * and of the fit's possible errors. */
static inline void close_to(const char *name, float sum, double exact_sum, double size)
{
    if (!(fabs((double)sum - exact_sum) <= 4e-6 * size + 1e-30))
        fail_msg("%s: %.9g, expected %.9g (magnitudes sum to %.3g)", name, (double)sum, exact_sum, size);
}

/* The error of a law's fit, in units of its largest nearby value: 1 / r at a distance of one spacing. */
static inline double fit_size(const struct law_case *c, double value)
{
    return fabs(value) * (c->params.error / 4e-6) * (c->params.form == RANGE_INVERSE ? 20 : exp(2.5));
}

#endif
