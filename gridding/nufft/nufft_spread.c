/* nufft_spread.c: how samples lie in k-space. */
#include "gridding/nufft/nufft_spread.h"
#include "gridding/range/kernel.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static int box_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The box of k-space, 1 / n long along each axis, that contains sample k; box 0 if k is not finite. */
static uint64_t box_of(const struct nufft_params *p, const float *k)
{
    uint64_t box = 0;
    for (int d = 0; d < p->dim; d++) {
        if (!isfinite(k[d]))
            return 0;
        const double turns = (double)k[d] - floor((double)k[d]);
        box = box * NUFFT_SIZE_MOST + (uint64_t)(turns * p->n[d] + 0.5) % (uint64_t)p->n[d];
    }
    return box;
}

/* Pixels between two samples, whatever their periods; if one is not finite, 0. */
static double apart(const struct nufft_params *p, const float *from, const float *to)
{
    double squares = 0;
    for (int d = 0; d < p->dim; d++) {
        const double step = (double)to[d] - (double)from[d];
        squares += pow((step - rint(step)) * p->n[d], 2);
    }
    return isfinite(squares) ? fmin(SPREAD_APART, sqrt(squares)) : 0;
}

/* In the period around 0. */
static double around(double k)
{
    return k - rint(k);
}

/* The part of k-space in which samples k[] lie, from whether a plane of two axes has some in its corners, beyond a
 * circle: spheres and cylinders of spokes have none. `corners`: bit i: the plane without axis i has some. */
static double filled_by(int dim, unsigned corners)
{
    static const double circle = KERNEL_PI / 4, sphere = KERNEL_PI / 6, two_circles = 2. / 3;
    const int clean = dim == 2 ? !(corners & 4) : !(corners & 1) + !(corners & 2) + !(corners & 4);
    return clean == 0 ? 1 : clean == 1 ? circle : clean == 2 ? two_circles : sphere;
}

/* Only some samples are examined, selected by multiples of the golden ratio, because equal steps might select the same
 * position of every readout. */
struct nufft_spread nufft_spread_of(const struct nufft_params *p, size_t samples, const float *k)
{
    enum { ASKED = 1024, CHANCE = 4 };
    const double beyond = 0.51 * 0.51; /* cycles^2: the edge of a circle may be rounded up */
    uint64_t box[ASKED];
    unsigned corners = 0;
    int most = 0, run = 0;
    double steps = 0;
    for (int i = 0; i < ASKED && samples > 0; i++) {
        const uint64_t place = (uint32_t)((uint32_t)i * 0x9E3779B9u);
        const size_t sample = (size_t)(place * samples >> 32);
        const float *at = k + sample * (size_t)p->dim;
        steps += apart(p, at, sample + 1 < samples ? at + p->dim : at);
        const double x = around(at[0]), y = around(at[1]), z = p->dim == 3 ? around(at[2]) : 0;
        box[i] = box_of(p, at);
        corners |=
            (y * y + z * z > beyond ? 1u : 0) | (x * x + z * z > beyond ? 2u : 0) | (x * x + y * y > beyond ? 4u : 0);
    }
    qsort(box, samples > 0 ? ASKED : 0, sizeof *box, box_compare);
    for (int i = 0; i < ASKED && samples > 0; i++) {
        run = i > 0 && box[i] == box[i - 1] ? run + 1 : 1;
        most = run > most ? run : most;
    }
    const double share = (double)most / ASKED, beyond_chance = (double)(most - CHANCE) / ASKED;
    return (struct nufft_spread){fmin(1, fmax(0, 8 * (share - 1. / 16))), fmax(0, beyond_chance),
                                 filled_by(p->dim, corners), steps / ASKED};
}
