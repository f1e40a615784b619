/* dcf_shape.h: readouts taken as spokes or arms, and what part of k-space each of them owns. Inside of the analytic
 * weights (dcf.c); no other file includes this. Host memory; nothing keeps what it is given. */
#ifndef MRIRECON_DCF_SHAPE_H
#define MRIRECON_DCF_SHAPE_H

#include "gridding/traj/traj.h"

#include <math.h>

enum {
    MOST_ZONES = 3,
    DCF_ALONE = 1 << 16 /* samples that one thread is done with before others are woken; a stack has many such planes */
};

/* One readout taken as a line through 0. */
struct spoke {
    double direction[3]; /* unit vector to its farthest sample */
    double low, high;    /* extent along it, low <= 0 < high where there is another side */
    double nearest;      /* smallest |k| */
    double off;          /* largest distance of a sample from the line */
};

/* A place on a spoke or on the circle, to be sorted. */
struct place {
    double at;
    size_t sample;
};

int dcf_place_order(const void *left, const void *right); /* for qsort(): by `at`, then by `sample` */

static inline double norm(int dim, const float *k)
{
    double sum = 0;
    for (int d = 0; d < dim; d++)
        sum += (double)k[d] * k[d];
    return sqrt(sum);
}

/* Lines fitted to k[readouts][samples][dim], to be freed; NULL without memory. */
struct spoke *dcf_spokes(int dim, size_t readouts, size_t samples, const float *k);

/* How k-space is dealt to half-spokes: 2 r is spoke r's farther side, 2 r + 1 its other one. Those of partial echoes
 * reach less far; beyond, the others own what they leave. */
struct sectors {
    int zones;
    double until[MOST_ZONES];    /* radius at which the zone ends */
    double *content[MOST_ZONES]; /* c of each half-spoke (see kink()), 0 where it does not reach */
    double *memory;
};

/* Fill *sectors, whose `memory` is the caller's to free. In 2-D contents are wedges, in 3-D solid angles, alike for
 * all. Returns 1, 0 where directions are too uneven for that or spokes end at too many radii, -1 without memory. */
int dcf_sectors(int dim, size_t readouts, const struct spoke *spokes, struct sectors *sectors);

/* The wedge of each arm of k[readouts][samples][2], by how it is turned against the first. Returns as dcf_sectors(). */
int dcf_arm_wedges(size_t readouts, size_t samples, const float *k, double *wedge);

/* The solid angle of each readout on cones about the z axis: what lies between the neighbouring cones, dealt to the
 * cone's arms by their azimuths. Returns as dcf_sectors(). */
int dcf_cone_shares(size_t readouts, const struct spoke *spokes, double *content);

/* traj_shape_find() and dcf_analytic() but for stacks. */
enum traj_shape dcf_shape(int dim, size_t readouts, size_t samples, const float *k);
int dcf_weights(enum traj_shape shape, int dim, size_t readouts, size_t samples, const float *k, float *weights);

#endif
