/* band.h: the part of k-space that a trajectory covers. Outside it nothing was measured. Only recon/mri/ includes this.
 */
#ifndef MRIRECON_BAND_H
#define MRIRECON_BAND_H

#include <stddef.h>

enum band_shape {
    BAND_ELLIPSOID, /* sum_d (k_d / edge_d)^2 <= 1: radial, spiral, kooshball, cones; in 2-D an ellipse */
    BAND_CYLINDER,  /* an ellipse in x and y, and |k_z| <= edge_z: stacks */
    BAND_BOX        /* |k_d| <= edge_d */
};

struct band {
    enum band_shape shape;
    int dim;
    double edge[3]; /* cycles per pixel, at most 0.5 */
};

/* The smallest band that contains k[samples][dim], except for a hundredth of its radius; samples beyond +-0.5 are
 * ignored. */
struct band band_find(int dim, size_t samples, const float *k);

/* The same of several trajectories: from an ellipsoid without edges, each extends the edges, and then each has the
 * shape fitted, which only grows. */
void band_extend(struct band *band, size_t samples, const float *k);
void band_fit(struct band *band, size_t samples, const float *k);

const char *band_name(const struct band *band); /* "ellipse", "ellipsoid", "cylinder" or "box" */

double band_volume(const struct band *band); /* (cycles per pixel)^dim */

/* The integral of exp(2 pi i k . l) over the band, which is real and even: a convolution with it limits an image to the
 * band. (J1 and spherical Bessel functions: Bracewell, The Fourier Transform and Its Applications, 2000.) */
double band_kernel(const void *band, const double l[3]);

#endif
