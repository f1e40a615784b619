/* blob.h: what the files of recon/blob/ share: places in the kind's tables, and its law.
 *
 * Blinn's density of points with a radius R each (J. F. Blinn, A generalization of algebraic surface drawing,
 * doi:10.1145/357306.357310):
 *
 *   D(r) = sum_i exp(B (|r - r_i|^2 / R_i^2 - 1)),   B < 0
 *
 * An isolated point has D = 1 at its radius. A term is truncated at r_max = R sqrt(1 + ln eps / B), where it equals
 * eps: outside the sphere of that radius, or outside the cube around it. */
#ifndef MRIRECON_BLOB_H
#define MRIRECON_BLOB_H

#include "gridding/range/law.h"
#include "recon/blob/blob_kind.h"

#include <math.h>

enum blob_param {
    BLOB_RESULTS_WANTED,
    BLOB_BLOBBINESS,
    BLOB_ISOVALUE,
    BLOB_SPACING,
    BLOB_PADDING,
    BLOB_RADIUS,
    BLOB_FRAMES,
    BLOB_EPS,
    BLOB_TRUNCATION,
    BLOB_TOLERANCE,
    BLOB_BIN_DEPTH,
    BLOB_OVERFLOW
};
enum { BLOB_PADDING_AUTO = -1 }; /* what its word stands for */
enum blob_frames { BLOB_FRAMES_EACH, BLOB_FRAMES_MEAN, BLOB_FRAMES_FIRST };
enum blob_truncation { BLOB_CUBE, BLOB_SPHERE };
enum blob_step { BLOB_STEP_READ, BLOB_STEP_DENSITY, BLOB_STEP_SURFACE, BLOB_STEP_WRITE, BLOB_STEPS };
enum blob_result { BLOB_VOLUME, BLOB_MESH };

/* A law and its factor: a point's term is value law(r / R). */
struct blob_law {
    double blobbiness, eps, tolerance; /* tolerance: of sums, as of struct range_law_params */
    enum blob_truncation truncation;
    struct range_law law; /* 1 at the point; its reach is r_max / R */
    float value;          /* exp(-B) */
};

/* r_max / R */
static inline double blob_reach(double blobbiness, double eps)
{
    return sqrt(1 + log(eps) / blobbiness);
}

/* Set law->law and law->value from the other members. Fails with ERR_BAD_PARAMETER if the law is too steep for the
 * engine's polynomials.
 */
int blob_law_make(struct blob_law *law);

#endif
