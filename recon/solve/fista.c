/* fista.c: proximal gradients with momentum, a formula on each line. */
#include "recon/solve/solve_inside.h"

#include "gridding/base/err.h"
#include "gridding/base/vec.h"

#include <math.h>

struct fista {
    struct dev *dev;
    const struct op *op;
    const struct prox *prox;
    const struct c32 *b;
    double step, t, change, size, first; /* |x_k - x_(k-1)|, |x_k|, and the first change */
    struct c32 *x, *next, *z, *g;        /* x_(k-1), x_k, the point of the gradient, the gradient */
};

enum { GROWTH = 100 }; /* times the first change: no step of a convergent iteration is as long */

static int not_convergent(int done)
{
    return err_set(ERR_DIVERGED,
                   "The proximal gradient method diverged in iteration %d: its steps grow. The density weights or the "
                   "coil maps are not what the method can use. method=adjoint shows an image of the same samples.",
                   done + 1);
}

/* next = prox(z - step (N z - b)) */
static int descend(struct fista *f, int done)
{
    struct dev *dev = f->dev;
    const size_t n = f->op->domain;
    int rc = f->op->normal(f->op->of, f->z, f->g); /* g = N z */
    if (rc == 0)
        rc = vec_copy(dev, n, f->z, f->next); /* next = z */
    if (rc == 0)
        rc = vec_axpy(dev, n, (float)-f->step, f->g, f->next); /* next = z - step N z */
    if (rc == 0)
        rc = vec_axpy(dev, n, (float)f->step, f->b, f->next); /* next = z - step (N z - b) */
    return rc == 0 ? f->prox->apply(f->prox->of, f->step, done, f->next) : rc;
}

static int iterate(void *of, int done)
{
    struct fista *f = of;
    struct dev *dev = f->dev;
    const size_t n = f->op->domain;
    double moved = 0, kept = 0, square = 0;
    int rc = descend(f, done);
    if (rc == 0)
        rc = vec_axpy(dev, n, -1, f->next, f->z); /* z - x_k */
    if (rc == 0)
        rc = vec_dot(dev, n, f->z, f->next, &moved);
    if (rc == 0)
        rc = vec_dot(dev, n, f->z, f->x, &kept);
    if (rc == 0)
        rc = vec_xpay(dev, n, f->next, -1, f->x); /* x_k - x_(k-1) */
    if (rc == 0)
        rc = vec_dot(dev, n, f->x, f->x, &square);
    f->change = sqrt(square);
    if (rc == 0)
        rc = vec_dot(dev, n, f->next, f->next, &square);
    f->size = sqrt(square);
    if (rc == 0 && !isfinite(f->change + f->size))
        rc = solve_nonfinite("The proximal gradient method", done, "");
    f->first = done == 0 ? f->size : f->first;
    if (rc == 0 && done > 0 && f->change > GROWTH * f->first)
        rc = not_convergent(done);
    if (rc == 0)
        rc = vec_copy(dev, n, f->next, f->z);
    /* Momentum begins anew where it points uphill: <z - x_k, x_k - x_(k-1)> > 0. */
    f->t = moved - kept > 0 ? 1 : f->t;
    const double t = (1 + sqrt(1 + 4 * f->t * f->t)) / 2, momentum = (f->t - 1) / t;
    f->t = t;
    if (rc == 0)
        rc = vec_axpy(dev, n, (float)momentum, f->x, f->z); /* z = x_k + (t_k - 1) / t_(k+1) (x_k - x_(k-1)) */
    return rc == 0 ? vec_copy(dev, n, f->next, f->x) : rc;
}

static double residual(const void *of)
{
    const struct fista *f = of;
    return f->size > 0 ? f->change / f->size : 0;
}

int fista_solve(struct dev *dev, const struct op *op, double step, const struct prox *prox, const struct c32 *b,
                struct c32 *x, const struct solve_stop *stop, const struct solve_listener *listener,
                struct solve_result *result)
{
    struct fista f = {.dev = dev, .op = op, .prox = prox, .b = b, .step = step, .t = 1, .x = x};
    struct c32 *vector[FISTA_VECTORS] = {NULL};
    double square = 0;
    const size_t n = op->domain;
    int rc = solve_vectors(dev, n, FISTA_VECTORS, vector);
    f.next = vector[0], f.z = vector[1], f.g = vector[2];
    if (rc == 0)
        rc = dev_zero(dev, x, n * sizeof *x); /* x_0 = 0 */
    if (rc == 0)
        rc = dev_zero(dev, f.z, n * sizeof *x);
    if (rc == 0)
        rc = vec_dot(dev, n, b, b, &square);
    *result = (struct solve_result){.end = SOLVE_ZERO};
    if (rc == 0 && !isfinite(square))
        rc = solve_nonfinite("The proximal gradient method", 0, "");
    if (rc == 0 && square > 0)
        rc = solve_iterate(&f, iterate, residual, stop, listener, result);
    dev_release(dev, vector[0]);
    return rc;
}
