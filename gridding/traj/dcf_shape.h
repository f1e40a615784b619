/* dcf_shape.h: readouts as spokes or arms, and the part of k-space that each owns. Inside of the analytic weights
 * (dcf.c); no other file includes this. Host memory; no argument is kept. */
#ifndef MRIRECON_DCF_SHAPE_H
#define MRIRECON_DCF_SHAPE_H

#include "gridding/traj/traj.h"

#include <math.h>

enum {
    MOST_ZONES = 3,
    DCF_ALONE = 1 << 16 /* samples that one thread computes alone; a stack has many such planes */
};

/* One readout, approximated by a line through 0. */
struct spoke {
    double direction[3]; /* unit vector to its farthest sample */
    double low, high;    /* extent along it, low <= 0 < high if there is another side */
    double nearest;      /* smallest |k| */
    double off;          /* largest distance of a sample from the line */
};

/* A place on a spoke or on the circle, to be sorted. */
struct dcf_place {
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

/* How k-space is divided among half-spokes: 2 r is spoke r's farther side, 2 r + 1 its other side. The shorter sides of
 * partial echoes reach less far; beyond their ends, k-space belongs to the others. */
struct sectors {
    int zones;
    double until[MOST_ZONES];    /* radius at which the zone ends */
    double *content[MOST_ZONES]; /* c of each half-spoke (see kink()), 0 where it does not reach */
    double *memory;
};

/* Fill *sectors, whose `memory` the caller frees. In 2-D contents are wedges, in 3-D solid angles, the same for all.
 * Returns 1; 0 if the directions are too uneven or spokes end at too many radii; -1 without memory. */
int dcf_sectors(int dim, size_t readouts, const struct spoke *spokes, struct sectors *sectors);

/* The wedge of each arm of k[readouts][samples][2], from its rotation against the first. Returns as dcf_sectors(). */
int dcf_arm_wedges(size_t readouts, size_t samples, const float *k, double *wedge);

/* The solid angle of each readout on cones about the z axis: the space between the neighbouring cones, divided among
 * the cone's arms by their azimuths. Returns as dcf_sectors(). */
int dcf_cone_shares(size_t readouts, const struct spoke *spokes, double *content);

/* traj_shape_find() and dcf_analytic(), except for stacks. */
enum traj_shape dcf_shape(int dim, size_t readouts, size_t samples, const float *k);
int dcf_weights(enum traj_shape shape, int dim, size_t readouts, size_t samples, const float *k, float *weights);

#endif
