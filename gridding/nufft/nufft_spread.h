/* nufft_spread.h: how a plan's samples lie in k-space, on which the errors and times of its sums depend. Only nufft.c
 * and tests include this. */
#ifndef MRIRECON_NUFFT_SPREAD_H
#define MRIRECON_NUFFT_SPREAD_H

#include "gridding/nufft/nufft.h"

#define SPREAD_APART 4.

struct nufft_spread {
    double crowded; /* 0 if up to a sixteenth of the samples are in the fullest box of 1 / n of k-space, 1 from three
                       times that on */
    double centre;  /* their share in that box, if that is more than chance explains */
    double filled;  /* the part of k-space that they fill: spokes leave its corners empty */
    double apart;   /* pixels (1 / n) between a sample and the next one, in the mean; at most SPREAD_APART each */
};

/* k[samples][dim], cycles per pixel, of which about a thousand are examined. */
struct nufft_spread nufft_spread_of(const struct nufft_params *p, size_t samples, const float *k);

#endif
