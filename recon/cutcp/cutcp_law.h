/* cutcp_law.h: the cutoff Coulombic potential.
 *
 *   V(r) = sum_i q_i g(|r - r_i|),  0 at |r - r_i| >= rc
 *   thesis:   g(r) = (1 - r^2 / rc^2)^2 / r
 *   taylor2:  g(r) = 1 / r - (15/8 - 5/4 r^2 / rc^2 + 3/8 r^4 / rc^4) / rc
 *
 * The first is the shifted potential of Parboil's benchmark cutcp (Stratton et al., IMPACT-12-01); both fall to 0 at
 * the cutoff with their first derivative. The second is the short-range part of multilevel summation with the C^2
 * Taylor softening of 1 / r (Hardy et al., doi:10.1016/j.parco.2008.12.005), as VMD computes it: the long-range part
 * is what it leaves out. Functions of t = 1 - r^2 / rc^2, as gridding/range/law.h takes them.
 */
#ifndef MRIRECON_CUTCP_LAW_H
#define MRIRECON_CUTCP_LAW_H

#include "gridding/range/law.h"

/* kT/e at 298 K of e/A, the Coulomb constant of VMD: e^2 / (4 pi eps0 k T A). */
#define CUTCP_KT_PER_E 560.47254

enum cutcp_form { CUTCP_THESIS, CUTCP_TAYLOR2 };

/* The law, to be multiplied by 1 / r. */
static inline double cutcp_thesis(const void *of, double t)
{
    (void)of;
    return t * t;
}

/* The smooth part, to be subtracted from 1 / r; *of: the cutoff. */
static inline double cutcp_taylor2(const void *of, double t)
{
    return (1 + t / 2 + 3 * t * t / 8) / *(const double *)of;
}

static inline int cutcp_law_make(struct range_law *law, enum cutcp_form form, double cutoff)
{
    /* An error far below the rounding of float32 sums. */
    const struct range_law_params params = {
        .form = form == CUTCP_THESIS ? RANGE_INVERSE : RANGE_SHORT, .reach = cutoff, .power = 1, .error = 1e-9};
    return range_law_make(law, &params, form == CUTCP_THESIS ? cutcp_thesis : cutcp_taylor2, &cutoff);
}

#endif
