/* law.h: a point's contribution to what lies at a distance r from it: a law of limited range, stated as a plain
 * function in double precision and evaluated as a polynomial in float32. sums.h sums by these laws.
 *
 * t = 1 - (r / reach)^2 falls from 1 at the point to 0 at the reach. Even functions of r, as all laws in use are, are
 * smooth functions of t: Kaiser-Bessel I0(beta sqrt(t)) / I0(beta), a Gaussian exp(-a (1 - t)), a cut-off t^2. So is
 * the long-range part of a split 1 / r, erf(a r) / r, but not erfc(a r).
 */
#ifndef MRIRECON_LAW_H
#define MRIRECON_LAW_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* p is the function of t, fitted. 0 at r >= reach (separable: at |x| >= reach along any axis). */
enum range_form {
    RANGE_SEPARABLE, /* the product of p(1 - (x / reach)^2) over the axes */
    RANGE_RADIAL,    /* p(t) */
    RANGE_INVERSE,   /* p(t) / (r^2 + soft^2)^(power / 2); 0 at r < least and at r = soft = 0 */
    RANGE_SHORT /* 1 / (r^2 + soft^2)^(power / 2) - p(t), likewise: a split's short-range part; p: the long-range one */
};

struct range_law_params {
    enum range_form form;
    double reach; /* > 0; here and below, lengths in one unit with those of the points */
    double least; /* of the last two forms, as what follows: >= 0 */
    double soft;  /* >= 0 */
    int power;    /* 1 (potentials), or 3 (forces, times the vector to the source) */
    double error; /* that p may have, relative to the function's largest value on [0, 1] */
    /* > 0, of the last two forms, with least = soft = 0: below this distance 1 / r^power is that of a mass smoothed by
     * the cubic spline of this radius (J.J. Monaghan, J.C. Lattanzio, Astron. Astrophys. 149, 135, 1985), finite at r =
     * 0, too. */
    double spline;
    /* The allowed l2 error of sums to a grid, relative to the sums of the terms' magnitudes; 0: float32 rounding. From
     * 5e-4 on a GPU may sum a Gaussian cut to cubes (RANGE_SEPARABLE) by tensor cores. On which side of the reach a
     * node lies does not depend on it. */
    double tolerance;
    /* > 0, of RANGE_SHORT with power = 1: times (1 - (r / fall)^2)^2; at least the reach. */
    double fall;
};

enum { RANGE_DEGREE_MOST = 17 };

/* Filled by range_law_create(); a leaf reads it. */
struct range_law {
    struct range_law_params params;
    int degree;
    float c[RANGE_DEGREE_MOST + 1]; /* p(t) = sum_i c[i] s^i, s = 2 t - 1 */
    double error;                   /* reached, before c is rounded to float32 */
    bool exponential;               /* p(t) = peak exp(-rate (1 - t)): a Gaussian of r */
    double rate, peak;
};

/* Fit `value(of, t)`, t in [0, 1], by the polynomial of lowest degree that keeps params->error. Fails with
 * ERR_BAD_PARAMETER: parameters out of range, a value that is not finite, no degree up to RANGE_DEGREE_MOST is enough.
 */
int range_law_make(struct range_law *law, const struct range_law_params *params,
                   double (*value)(const void *of, double t), const void *of);

#ifdef __cplusplus
}
#endif
#endif
