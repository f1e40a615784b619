#include "recon/solve/prox.h"

#include "gridding/base/vec.h"

#include <math.h>

static int count_of(unsigned axes)
{
    return __builtin_popcount(axes);
}

int tv_vectors(unsigned axes)
{
    return 3 * count_of(axes) + 1;
}

int prox_tv_open(struct prox_tv *p, struct dev *dev, const int n[SPARSE_AXES], unsigned axes, double lambda)
{
    *p = (struct prox_tv){.dev = dev, .lambda = lambda, .axes = axes, .count = count_of(axes), .pixels = 1};
    for (int d = 0; d < SPARSE_AXES; d++) {
        p->n[d] = n[d];
        p->pixels *= (size_t)n[d];
    }
    const size_t dual = (size_t)p->count * p->pixels;
    int rc = dev_alloc(dev, (3 * dual + p->pixels) * sizeof *p->p, (void **)&p->p);
    if (rc != 0)
        return rc;
    p->r = p->p + dual;
    p->g = p->r + dual;
    p->v = p->g + dual;
    return dev_zero(dev, p->p, dual * sizeof *p->p);
}

void prox_tv_close(struct prox_tv *p)
{
    dev_release(p->dev, p->p);
    p->p = NULL;
}

/* Of the weight w = lambda t: x = v - w D' p, where p maximises the dual under |p| <= 1; |D|^2 <= 4 an axis. */
static int apply(void *of, double t, int iteration, struct c32 *x)
{
    struct prox_tv *p = of;
    const double w = p->lambda * t, c = 1 / (4.0 * p->count * w);
    double momentum = 1;
    (void)iteration;
    if (w <= 0)
        return 0;
    int rc = vec_copy(p->dev, p->pixels, x, p->v);
    if (rc == 0)
        rc = vec_copy(p->dev, (size_t)p->count * p->pixels, p->p, p->r);
    for (int i = 0; i < TV_STEPS && rc == 0; i++) {
        const double next = (1 + sqrt(1 + 4 * momentum * momentum)) / 2;
        rc = p->ask.ask ? p->ask.ask(p->ask.context) : 0;
        if (rc != 0)
            return rc;
        rc = sparse_difference_adjoint(p->dev, p->n, p->axes, p->v, (float)-w, p->r, x); /* x = v - w D' r */
        if (rc == 0)
            rc = sparse_difference(p->dev, p->n, p->axes, x, p->g); /* g = D x */
        if (rc == 0)
            rc =
                sparse_tv_step(p->dev, p->pixels, p->count, (float)c, p->g, (float)((momentum - 1) / next), p->p, p->r);
        momentum = next;
    }
    return rc == 0 ? sparse_difference_adjoint(p->dev, p->n, p->axes, p->v, (float)-w, p->p, x) : rc;
}

struct prox prox_tv(struct prox_tv *p)
{
    return (struct prox){p, apply};
}
