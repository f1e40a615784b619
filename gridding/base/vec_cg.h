/* vec_cg.h: the vector arithmetic of conjugate gradients (Hestenes and Stiefel 1952, doi:10.6028/jres.049.044) on
 * several frames at once, each with its own numbers and its own end. The numbers stay in the device's memory, so that
 * an iteration needs no answer from a GPU:
 *
 *   begin:  x = 0;  r = p = b;  rr = first = <b, b>
 *   step:   q = q + lambda p, where q is N p before;  alpha = rr / <p, q>;  x = x + alpha p;  r = r - alpha q
 *           beta = <r, r> / rr;  rr = <r, r>;  p = r + beta p
 *
 * A frame that has ended is not touched again. A frame's bits do not depend on the number of frames, nor on the others.
 * Device, threads and errors: as in vec.h.
 */
#ifndef MRIRECON_VEC_CG_H
#define MRIRECON_VEC_CG_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

enum vec_cg_state {
    VEC_CG_RUNNING,
    VEC_CG_TOLERANCE,   /* sqrt(rr / first) <= tolerance */
    VEC_CG_ZERO,        /* b = 0, and so is x */
    VEC_CG_NONFINITE,   /* b, <p, q> or <r, r> is not finite: x is of no use */
    VEC_CG_NOT_POSITIVE /* <p, q> <= 0: x is that of the iterations before */
};

struct vec_cg_frame {
    double lambda; /* set by the caller */
    double first, rr, beta;
    int iterations; /* completed */
    int state;      /* enum vec_cg_state */
};

enum { VEC_CG_PARTS = 1024 }; /* of a sum, at most */

/* All pointers are device memory, of `frames` vectors each: [frames][n], [frames]. */
struct vec_cg {
    size_t n;
    int frames;
    double tolerance;
    struct c32 *x, *r, *p, *q;
    struct vec_cg_frame *frame;
    int *running; /* 1: running; 0: ended */
    double *part; /* [2][frames][VEC_CG_PARTS]: work space */
};

int vec_cg_begin(struct dev *dev, const struct vec_cg *cg, const struct c32 *b); /* b: [frames][n], may be cg->q */
int vec_cg_step(struct dev *dev, const struct vec_cg *cg);

#ifdef __cplusplus
}
#endif
#endif
