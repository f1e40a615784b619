/* solve.h: iterative solvers on linear operators (gridding/op.h).
 *
 * Vectors are device memory of the operator's domain, complex float32. Everything runs on the calling thread's device;
 * solvers allocate what solve_..._vectors() states and give it back. Same input, same bits, for any number of threads,
 * unless a time limit ends the iteration.
 */
#ifndef MRIRECON_SOLVE_H
#define MRIRECON_SOLVE_H

#include "gridding/op.h"

/* When an iteration ends: at the first of these. */
struct solve_stop {
    int iterations;   /* the most, >= 1 */
    double tolerance; /* conjugate gradients: |b - (N + lambda) x| / |b|, at least 1e-15; proximal: |x_k - x_(k-1)| /
                         |x_k|, 0: never */
    double seconds;   /* begin no iteration later than this after the first; 0: no limit */
    const char *accuracy; /* conjugate gradients: of N, and what improves it: sentences for the error that N is not
                             positive; NULL: none */
};

enum solve_end { SOLVE_ITERATIONS, SOLVE_TOLERANCE, SOLVE_SECONDS, SOLVE_ZERO /* b = 0, and so is x */ };

struct solve_result {
    int iterations;
    enum solve_end end;
    double residual; /* what `tolerance` is compared with, of the last iteration */
};

/* Called before each iteration with those that are done; a code other than 0 ends the solver with it (cancel). */
struct solve_listener {
    void *context;
    int (*iteration)(void *context, int done, int most);
};

/* Conjugate gradients (Hestenes and Stiefel 1952, doi:10.6028/jres.049.044) on (N + lambda) x = b from x = 0, N being
 * the operator's `normal`: x minimises |A x - y|^2_W + lambda |x|^2 where b = A' W y. Every iteration applies N once.
 * CG_VECTORS vectors of the domain are allocated, and little else. Fails with ERR_DIVERGED (a value that is not finite,
 * or N is not positive), ERR_NO_MEMORY, ERR_DEVICE, and as the listener. */
enum { CG_VECTORS = 3, CG_FRAMES_MOST = 65535 };
int cg_solve(struct dev *dev, const struct op *op, double lambda, const struct c32 *b, struct c32 *x,
             const struct solve_stop *stop, const struct solve_listener *listener, struct solve_result *result);

/* The same of several frames, each with its own lambda, steps and end: b, x: [frames][domain]; lambda, result: host,
 * [frames]. A frame's bits do not depend on the others. Where a frame fails, so does the call; the sentence names it
 * by its number in image, host, [frames], unless that is NULL. A GPU iterates up to a few milliseconds ahead of the
 * answers that it gives: the listener then hears of iterations that are not computed yet, or are not needed any more.
 */
int cg_solve_frames(struct dev *dev, const struct op_frames *op, const double *lambda, const size_t *image,
                    const struct c32 *b, struct c32 *x, const struct solve_stop *stop,
                    const struct solve_listener *listener, struct solve_result *result);

/* x = argmin_u t g(u) + |u - x|^2 / 2, in place: the proximal operator of a function g. `iteration` counts from 0. */
struct prox {
    void *of;
    int (*apply)(void *of, double t, int iteration, struct c32 *x);
};

/* FISTA (Beck and Teboulle 2009, doi:10.1137/080716542) from x = 0: x minimises <x, N x> / 2 - Re <x, b> + g(x). `step`
 * is at most 1 / (largest eigenvalue of N). Momentum is restarted by the gradient's sign (O'Donoghue and Candes 2015,
 * doi:10.1007/s10208-013-9150-3). Every iteration applies N and the proximal operator once. Allocates FISTA_VECTORS.
 * Fails with ERR_DIVERGED (a value that is not finite, or steps that grow) and as cg_solve() and the proximal operator.
 */
enum { FISTA_VECTORS = 3 };
int fista_solve(struct dev *dev, const struct op *op, double step, const struct prox *prox, const struct c32 *b,
                struct c32 *x, const struct solve_stop *stop, const struct solve_listener *listener,
                struct solve_result *result);

/* The largest eigenvalue of N by `iterations` steps of the power method (von Mises and Pollaczek-Geiringer 1929,
 * doi:10.1002/zamm.19290090105) from a fixed pseudo-random vector. It is approached from below. Allocates POWER_VECTORS
 * vectors. Fails as cg_solve(). */
enum { POWER_VECTORS = 2 };
int power_largest(struct dev *dev, const struct op *op, int iterations, const struct solve_listener *listener,
                  double *largest);

#endif
