/* cutcp_split.h: the potential in two parts, which together take less time than the direct sum where an error is
 * allowed.
 *
 *   g(r) = near(r) + smooth(r)
 *   s(r) = (2 / pi) integral over k from 0 to K of T(k) sin(k r) / k dk,   T(k) = I0(c sqrt(1 - (k / K)^2)) / I0(c)
 *        = (2 / pi I0(c)) integral over x from 0 to K r of sinh(sqrt(c^2 - x^2)) / sqrt(c^2 - x^2) dx
 *   near(r) = (1 - r^2 / rc^2)^2 (1 - s(r)) / r  (thesis),  (1 - s(r)) / r  (taylor2);  0 at r >= a = c / K
 *
 * s rises from 0 to 1 within a, and s(r) / r has no waves beyond K: an Ewald split by a Kaiser-Bessel taper instead of
 * a Gaussian (kernel splitting as in S. Jiang, L. Greengard, arXiv:2308.00292). The near part is a sum of limited
 * range. The smooth part is summed as in particle-mesh methods (Hockney and Eastwood, doi:10.1201/9780367806934):
 * charges are spread on a mesh, whose highest wave number is K, by a Kaiser-Bessel window; the mesh's FFT is multiplied
 * by the transform of smooth() over that of the window; the FFT back gives the values at the lattice points.
 * docs/numerics.md derives the error. Lengths in angstroms, charges in e.
 */
#ifndef MRIRECON_CUTCP_SPLIT_H
#define MRIRECON_CUTCP_SPLIT_H

#include "gridding/base/dev.h"
#include "gridding/base/listener.h"
#include "gridding/range/box.h"
#include "gridding/split/split.h"
#include "recon/cutcp/cutcp_law.h"

/* What is summed. */
struct cutcp_sum {
    enum cutcp_form form;
    double cutoff, tolerance;
    struct range_box lattice; /* origin 0 */
    size_t count;
    double squares; /* sum of the squared charges */
};

struct cutcp_split {
    enum cutcp_form form;
    double cutoff;
    double cell;     /* longest edge of a mesh cell: K = pi / cell */
    double taper;    /* c */
    double radius;   /* a */
    double beta;     /* of the window */
    double reach;    /* of the window along an axis */
    int mesh[3];     /* nodes of the mesh */
    int extended[3]; /* nodes of the lattice, continued over the length of the mesh: open lattices need a margin of rc
                      */
    double length[3];
    double error;     /* expected: root mean square over the lattice */
    double law_error; /* of near(), e/A at most for one charge; 1e-7 if that is more */
    double gain;      /* expected time of the direct sum over that of the split */
};

/* Choose the parameters that keep the tolerance in the least time. Returns NULL, or why there is no split: a phrase for
 * the report. */
const char *cutcp_split_choose(struct cutcp_split *split, const struct cutcp_sum *sum, bool gpu);

/* s(r) / r. */
double cutcp_split_rise(const struct cutcp_split *split, double r);

/* The law of the near part. Fails as range_law_make(). */
int cutcp_split_near(const struct cutcp_split *split, struct range_law *law);

/* ---- cutcp_waves.c: the transform of the smooth part ---- */

struct cutcp_waves {
    double step; /* radians per angstrom */
    size_t count;
    float *value; /* [count], from 0 on */
};

size_t cutcp_waves_count(const struct cutcp_split *split);

/* Fails with ERR_NO_MEMORY. */
int cutcp_waves_create(struct cutcp_waves *waves, const struct cutcp_split *split);
void cutcp_waves_free(struct cutcp_waves *waves);

/* ---- cutcp_mesh.c ---- */

/* The sum of both parts, over the charges of `sum`; nodes nearer than `exclusion` to one are 0 (0: none). Fails as
 * split_create(). */
int cutcp_parts_create(struct split **out, struct dev *dev, const struct cutcp_split *split,
                       const struct cutcp_sum *sum, double exclusion);

/* The most bytes of the device that it takes. */
int cutcp_parts_memory(struct dev *dev, const struct cutcp_split *split, const struct cutcp_sum *sum, double exclusion,
                       size_t *bytes);

/* As split_refused(). */
const char *cutcp_parts_refused(const struct dev *dev, const struct cutcp_split *split, const struct cutcp_sum *sum,
                                double exclusion);

/* ---- cutcp_measure.c ---- */

/* The root mean square of the differences, in e/A, between the grid and the sum in double precision, at CUTCP_SAMPLES
 * lattice points that depend on the lattice alone. Points so near to a charge that float32 rounds by more than a tenth
 * of the tolerance, or nearer than `exclusion`, are left out. unit: of values and grid, over e and e/A. Fails as the
 * listener. */
enum { CUTCP_SAMPLES = 128 };
int cutcp_measure(const struct cutcp_sum *sum, double unit, double exclusion, const double *at, const float *values,
                  const float *grid, int threads, const struct listener *listener, double *error);

#endif
