#include "recon/solve/prox.h"
#include "recon/solve/solve_inside.h"

#include "gridding/base/vec.h"

enum { LEAST = 16 }; /* elements of an axis' coarsest level */

int wavelet_levels(int n)
{
    int levels = 0;
    while (levels < WAVELET_LEVELS && n >> (levels + 1) >= LEAST)
        levels++;
    return levels;
}

int wavelet_multiple(int n)
{
    return 1 << wavelet_levels(n);
}

int prox_wavelet_open(struct prox_wavelet *p, struct dev *dev, const int n[SPARSE_AXES], double lambda, uint64_t seed)
{
    size_t elements = 1;
    *p = (struct prox_wavelet){.dev = dev, .lambda = lambda, .seed = seed};
    for (int d = 0; d < SPARSE_AXES; d++) {
        p->n[d] = n[d];
        p->levels[d] = wavelet_levels(n[d]);
        elements *= (size_t)n[d];
    }
    return dev_alloc(dev, elements * sizeof *p->rolled, (void **)&p->rolled);
}

void prox_wavelet_close(struct prox_wavelet *p)
{
    dev_release(p->dev, p->rolled);
    p->rolled = NULL;
}

/* x = R' W' soft(W R x, lambda t), R being the shift. */
static int apply(void *of, double t, int iteration, struct c32 *x)
{
    struct prox_wavelet *p = of;
    size_t elements = 1;
    int shift[SPARSE_AXES], back[SPARSE_AXES];
    for (int d = 0; d < SPARSE_AXES; d++) {
        shift[d] = (int)(solve_random(p->seed, iteration, d) & ((1u << p->levels[d]) - 1));
        back[d] = -shift[d];
        elements *= (size_t)p->n[d];
    }
    int rc = sparse_roll(p->dev, p->n, shift, x, p->rolled);
    if (rc == 0)
        rc = sparse_wavelet(p->dev, p->n, p->levels, p->rolled);
    if (rc == 0)
        rc = vec_soft(p->dev, elements, (float)(p->lambda * t), p->rolled);
    if (rc == 0)
        rc = sparse_wavelet_inverse(p->dev, p->n, p->levels, p->rolled);
    return rc == 0 ? sparse_roll(p->dev, p->n, back, p->rolled, x) : rc;
}

struct prox prox_wavelet(struct prox_wavelet *p)
{
    return (struct prox){p, apply};
}
