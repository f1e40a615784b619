#include "recon/blob/blob.h"

/* Relative to the law's value at the point, which is exp(-B) in the density: a few roundings of float32, in which the
 * law is evaluated. The parameters' ranges ensure that even the steepest law (B = -8, eps = 1e-6) meets it, with a
 * polynomial of degree 17. */
static const double law_error = 1e-6;

/* exp(B r^2 / R^2) at t = 1 - (r / r_max)^2; for the cube, along each axis. */
static double term(const void *of, double t)
{
    const struct blob_law *law = of;
    const double reach = blob_reach(law->blobbiness, law->eps);
    return exp(law->blobbiness * reach * reach * (1 - t));
}

int blob_law_make(struct blob_law *law)
{
    const struct range_law_params params = {
        .form = law->truncation == BLOB_CUBE ? RANGE_SEPARABLE : RANGE_RADIAL,
        .reach = blob_reach(law->blobbiness, law->eps),
        .error = law_error,
        .tolerance = law->tolerance,
    };
    law->value = (float)exp(-law->blobbiness);
    return range_law_make(&law->law, &params, term, law);
}
