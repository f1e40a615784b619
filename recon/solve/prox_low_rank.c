#include "recon/solve/prox.h"
#include "recon/solve/solve_inside.h"

#include <math.h>

enum { PORTION = 256 /* blocks between two questions */ };

int prox_low_rank_open(struct prox_low_rank *p, struct dev *dev, const int n[SPARSE_AXES], double lambda, uint64_t seed)
{
    size_t elements = 1;
    *p = (struct prox_low_rank){.dev = dev, .lambda = lambda, .seed = seed};
    for (int d = 0; d < SPARSE_AXES; d++) {
        p->n[d] = n[d];
        elements *= (size_t)n[d];
    }
    for (int d = 0; d < 3; d++)
        p->block[d] = n[2] > 1 ? LOW_RANK_SIDE_3D : d < 2 ? LOW_RANK_SIDE : 1;
    return dev_alloc(dev, elements * sizeof *p->rolled, (void **)&p->rolled);
}

void prox_low_rank_close(struct prox_low_rank *p)
{
    dev_release(p->dev, p->rolled);
    p->rolled = NULL;
}

/* x = R' L R x, R being the shift, L lowering the singular values. */
static int apply(void *of, double t, int iteration, struct c32 *x)
{
    struct prox_low_rank *p = of;
    int shift[SPARSE_AXES] = {0}, back[SPARSE_AXES] = {0};
    double pixels = 1;
    for (int d = 0; d < 3; d++) {
        shift[d] = (int)(solve_random(p->seed, iteration, d) % (unsigned)p->block[d]);
        back[d] = -shift[d];
        pixels *= p->block[d];
    }
    const float weight = (float)(p->lambda * t * (sqrt(pixels) + sqrt(p->n[3])));
    const size_t blocks = sparse_blocks(p->n, p->block);
    int rc = sparse_roll(p->dev, p->n, shift, x, p->rolled);
    for (size_t first = 0; first < blocks && rc == 0; first += PORTION) {
        const size_t count = blocks - first < PORTION ? blocks - first : PORTION;
        rc = p->ask.ask ? p->ask.ask(p->ask.context) : 0;
        if (rc == 0)
            rc = sparse_low_rank(p->dev, p->n, p->block, first, count, weight, p->rolled);
    }
    return rc == 0 ? sparse_roll(p->dev, p->n, back, p->rolled, x) : rc;
}

struct prox prox_low_rank(struct prox_low_rank *p)
{
    return (struct prox){p, apply};
}
