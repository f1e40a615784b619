/* cg.c: conjugate gradients, a formula on each line. */
#include "recon/solve/solve_inside.h"

#include "gridding/base/err.h"
#include "gridding/base/vec.h"

#include <math.h>

struct cg {
    struct dev *dev;
    const struct op *op;
    double lambda, rr, first; /* <r, r>, of the current residual and of b */
    struct c32 *x, *r, *p, *q;
};

static int not_positive(int done)
{
    return err_set(ERR_DIVERGED,
                   "The normal operator of iteration %d is not positive: the density weights or the coil maps are not "
                   "what the method can use. method=adjoint shows an image of the same samples.",
                   done + 1);
}

static int iterate(void *of, int done)
{
    struct cg *c = of;
    struct dev *dev = c->dev;
    const size_t n = c->op->domain;
    double pq = 0, before = c->rr;
    int rc = c->op->normal(c->op->of, c->p, c->q); /* q = N p */
    if (rc == 0)
        rc = vec_axpy(dev, n, (float)c->lambda, c->p, c->q); /* q = (N + lambda) p */
    if (rc == 0)
        rc = vec_dot(dev, n, c->p, c->q, &pq);
    if (rc == 0 && !isfinite(pq))
        rc = solve_nonfinite("The conjugate gradient method", done);
    if (rc == 0 && pq <= 0)
        rc = not_positive(done);
    if (rc != 0)
        return rc;
    const double alpha = before / pq;                /* alpha = <r, r> / <p, q> */
    rc = vec_axpy(dev, n, (float)alpha, c->p, c->x); /* x = x + alpha p */
    if (rc == 0)
        rc = vec_axpy(dev, n, (float)-alpha, c->q, c->r); /* r = r - alpha q */
    if (rc == 0)
        rc = vec_dot(dev, n, c->r, c->r, &c->rr);
    if (rc == 0 && !isfinite(c->rr))
        rc = solve_nonfinite("The conjugate gradient method", done);
    const double beta = c->rr / before;                              /* beta = <r, r> / <r, r> before */
    return rc == 0 ? vec_xpay(dev, n, c->r, (float)beta, c->p) : rc; /* p = r + beta p */
}

static double residual(const void *of)
{
    const struct cg *c = of;
    return sqrt(c->rr / c->first);
}

int cg_solve(struct dev *dev, const struct op *op, double lambda, const struct c32 *b, struct c32 *x,
             const struct solve_stop *stop, const struct solve_listener *listener, struct solve_result *result)
{
    struct cg c = {.dev = dev, .op = op, .lambda = lambda, .x = x};
    struct c32 *vector[CG_VECTORS] = {NULL};
    const size_t n = op->domain;
    int rc = solve_vectors(dev, n, CG_VECTORS, vector);
    c.r = vector[0], c.p = vector[1], c.q = vector[2];
    if (rc == 0)
        rc = dev_zero(dev, x, n * sizeof *x); /* x = 0 */
    if (rc == 0)
        rc = vec_copy(dev, n, b, c.r); /* r = b */
    if (rc == 0)
        rc = vec_copy(dev, n, b, c.p); /* p = r */
    if (rc == 0)
        rc = vec_dot(dev, n, b, b, &c.first);
    c.rr = c.first;
    *result = (struct solve_result){.end = SOLVE_ZERO};
    if (rc == 0 && !isfinite(c.rr))
        rc = solve_nonfinite("The conjugate gradient method", 0);
    if (rc == 0 && c.rr > 0)
        rc = solve_iterate(&c, iterate, residual, stop, listener, result);
    dev_release(dev, vector[0]);
    return rc;
}
