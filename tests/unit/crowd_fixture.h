/* crowd_fixture.h: crowded points, and laws to sum them by, for the stress tests of gridding/range/sums.h. Each test
 * program is a single source file that includes this header. */
#ifndef MRIRECON_CROWD_FIXTURE_H
#define MRIRECON_CROWD_FIXTURE_H

#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <math.h>

/* exp(-2.5 (r / reach)^2), and the long-range part, by erf, of the force and potential of 1 / r, with 6 r_s = reach =
 * *of. */
static inline double bell(const void *of, double t)
{
    (void)of;
    return exp(-2.5 * (1 - t));
}

static const double reach = 2;

static inline double far_force(const void *of, double t)
{
    const double root = 1.1283791670955126, a = 3 / *(const double *)of, r = *(const double *)of * sqrt(1 - t);
    const double u = a * r, v = u * u;
    if (u < 0.2)
        return root * 2 / 3 * a * a * a * (1 - v * (3.0 / 5 - v * (3.0 / 14 - v * (1.0 / 18 - v / 88))));
    return (erf(u) - root * u * exp(-v)) / (r * r * r);
}

static inline double far_potential(const void *of, double t)
{
    const double root = 1.1283791670955126, a = 3 / *(const double *)of, u = 3 * sqrt(1 - t);
    return u < 1e-4 ? root * a : erf(u) / u * a;
}

static inline struct range_law law_make(enum range_form form, int power, double soft, double error,
                                        double (*value)(const void *of, double t))
{
    struct range_law law;
    const struct range_law_params params = {.form = form, .reach = reach, .soft = soft, .power = power, .error = error};
    assert_int_equal(range_law_make(&law, &params, value, &reach), 0);
    return law;
}

struct laws {
    struct range_law bell, force, potential;
};

static inline struct laws laws_make(void)
{
    return (struct laws){law_make(RANGE_RADIAL, 0, 0, 1e-6, bell), law_make(RANGE_SHORT, 3, 0.02, 1e-5, far_force),
                         law_make(RANGE_SHORT, 1, 0.02, 1e-6, far_potential)};
}

enum crowd { ONE_BIN, PLUMMER, CROWDS };

/* A crowd in a box of 12^3. */
struct scene {
    struct range_points_params params;
    float *at, *values;
};

static inline struct scene scene_make(enum crowd crowd, size_t count)
{
    struct scene s = {.at = allocate(3 * count, sizeof *s.at), .values = allocate(count, sizeof *s.values)};
    for (size_t i = 0; i < count; i++) {
        /* Plummer's sphere (1911): radius a (u^(-2/3) - 1)^(-1/2), a = 0.3, within the box. */
        const double u = uniform(7 * i), z = 2 * uniform(7 * i + 1) - 1, phi = 6.283185307179586 * uniform(7 * i + 2);
        const double r = fmin(5, 0.3 / sqrt(pow(u, -2.0 / 3) - 1)), flat = sqrt(1 - z * z);
        const double place[CROWDS][3] = {
            {6.05 + 0.4 * u, 6.05 + 0.4 * uniform(7 * i + 3), 6.05 + 0.4 * uniform(7 * i + 4)},
            {6 + r * flat * cos(phi), 6 + r * flat * sin(phi), 6 + r * z}};
        for (int d = 0; d < 3; d++)
            s.at[3 * i + (size_t)d] = (float)place[crowd][d];
        s.values[i] = (float)(uniform(7 * i + 5) - 0.2);
    }
    s.params = (struct range_points_params){
        .box = {3, {24, 24, 24}, {0, 0, 0}, {0.5, 0.5, 0.5}, {true, true, false}},
        .reach = reach,
        .inputs = count,
        .at = s.at,
    };
    return s;
}

static inline void scene_free(struct scene *s)
{
    free(s->at);
    free(s->values);
}

enum { NODES = 24 * 24 * 24 };

#endif
