/* phantom.h: objects and coils whose k-space is known exactly.
 *
 * An object is a sum of ellipses (2-D) or ellipsoids (3-D); its Fourier transform is a closed form. It is given in
 * fractions of the field of view, -0.5 .. 0.5 along each axis with 0 at pixel floor(N/2), and so fills any matrix. Coil
 * maps are sums of a few complex exponentials of at most half a cycle across the field of view, so that a coil's
 * k-space is a sum of shifted copies of the object's: exact as well. Over all coils the squared magnitudes of the maps
 * sum to 1 everywhere: a root-sum-of-squares image is the magnitude of the object itself.
 *
 * Scale: data[m] = integral over the field of view, in pixels, of coil(x) object(x) exp(-2 pi i k_m . x): the adjoint
 * with weights that sum to the area of k-space (gridding/traj/traj.h) reproduces the object's values.
 *
 * A phantom is constant after its creation: any number of threads may use it.
 */
#ifndef MRIRECON_PHANTOM_H
#define MRIRECON_PHANTOM_H

#include "gridding/base/num.h"

enum phantom_kind {
    PHANTOM_SHEPP_LOGAN, /* 2-D: Shepp and Logan 1974 with Toft's contrast; 3-D: after Kak and Slaney, the same contrast
                          */
    PHANTOM_ASYMMETRIC   /* no symmetry under any flip, rotation by 90 degrees or transposition */
};

struct phantom;

/* dim 2 or 3, matrix n (x, y, z; n[2] = 1 in 2-D), 1..1024 coils. In 2-D `height` cuts the 3-D object at that z
 * (fraction of the field of view); NAN is the classic 2-D object. Fails with ERR_BAD_PARAMETER, ERR_NO_MEMORY. */
int phantom_create(struct phantom **out, enum phantom_kind kind, int dim, const int n[3], double height, int coils);
/* The same at a phase of its motion, in cycles: its outline stays; the parts inside change in size by up to a quarter,
 * move along y by up to 2.5 % of the field of view, and change in brightness by up to a fifth. At whole cycles the
 * phantom is at rest. */
int phantom_create_moved(struct phantom **out, enum phantom_kind kind, int dim, const int n[3], double height,
                         int coils, double phase);
void phantom_free(struct phantom *phantom);

/* k-space at k[samples][dim] (cycles per pixel): data[coil * coil_stride + m]. */
void phantom_kspace(const struct phantom *phantom, size_t samples, const float *k, size_t coil_stride,
                    struct c32 *data);

/* The object, and a coil's map, at a position in fractions of the field of view. */
double phantom_value(const struct phantom *phantom, const double place[3]);
void phantom_sensitivity(const struct phantom *phantom, int coil, const double place[3], double *re, double *im);

/* The perfect reconstruction of the k-space within an ellipsoid |k| < 0.5: image[z][y][x] (n of the phantom), the
 * magnitude of the band-limited object. `cylinder`: z is limited separately (a stack of stars). Fails with
 * ERR_NO_MEMORY. */
int phantom_truth(const struct phantom *phantom, bool cylinder, float *image);

#endif
