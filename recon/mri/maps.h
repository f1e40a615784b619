/* maps.h: coil sensitivity maps, estimated from the coils' images themselves.
 *
 * A coil image is the object times the coil's sensitivity, which is smooth: a few Fourier coefficients around the
 * centre of k-space determine it, and there even an undersampled radial or spiral scan is dense. The images may
 * therefore be the density-compensated adjoint (gridding/nufft.h) of an undersampled scan. Pass images of full size:
 * gridding only the centre of k-space gives worse maps.
 *
 * Maps are scaled so that the sum over coils of |map|^2 is 1 in the support and 0 outside it. The data do not determine
 * their common phase; each method fixes it as described below. */
#ifndef MRIRECON_MAPS_H
#define MRIRECON_MAPS_H

#include "gridding/base/dev.h"

enum maps_method {
    /* Uecker et al. 2014, doi:10.1002/mrm.24751: the eigenvectors of the operator that projects a pixel's coil values
     * onto the signal space of small k-space kernels. Singular values s_i of the calibration matrix are weighted by
     * s_i^2 / (s_i^2 + (threshold s_0)^2), instead of a hard threshold at threshold s_0. The support is the set of
     * pixels whose eigenvalue reaches `crop`. Phase reference: the combination of coils with the most signal has phase
     * 0, which keeps the object's phase; around a zero of that combination the maps' phase winds. */
    MAPS_ESPIRIT,
    /* Walsh et al. 2000, doi:10.1002/(SICI)1522-2594(200005)43:5<682::AID-MRM10>3.0.CO;2-G: the first eigenvector of
     * the coil values' covariance in a box around a pixel, of images limited to the centre of k-space by a Hann window.
     * The support is every pixel with a signal. The phase is as with ESPIRiT. */
    MAPS_WALSH,
    /* Inati et al. 2013, ISMRM 21:2672: the same, in a wider box, with the phase that makes the mean of the combined
     * image over the box positive: the maps take the object's smooth phase. */
    MAPS_INATI
};

struct maps_params {
    enum maps_method method;
    int coils, n[3];  /* of the images; n[2] = 1 in 2-D */
    int calibration;  /* samples along each axis of the used centre of k-space */
    int width;        /* ESPIRiT: of a k-space kernel, in samples; else of the box, in pixels */
    double threshold; /* ESPIRiT, relative to the largest singular value */
    double crop;      /* ESPIRiT, 0..1 */
    /* Called with the progress, 0..1, from the calling thread; a non-zero return stops the work. May be NULL. */
    int (*progress)(void *context, double done);
    void *context;
};

/* The defaults of a method, for images of `coils` coils and size n. */
struct maps_params maps_defaults(enum maps_method method, int coils, const int n[3]);

/* Whether the device itself computes the maps: a GPU ESPIRiT's of at most 32 coils, with the default sizes of centre
 * and kernel or similar ones. Otherwise the host does. */
bool maps_on_device(const struct dev *dev, const struct maps_params *params);

/* The most memory, in bytes, that maps_estimate() uses in addition to images and maps: on the host where that computes
 * them, for a number of threads; and on the device where that does (0 if not). */
size_t maps_bytes(const struct maps_params *params, int threads);
size_t maps_device_bytes(const struct dev *dev, const struct maps_params *params);

/* maps[coils][nz][ny][nx] of images[coils][nz][ny][nx]; both are memory of `dev` and may be the same. If `dev`
 * is a GPU and maps_on_device() is false, images and maps are copied through host memory. *support (may be NULL)
 * receives the share of pixels in the support. The same bits for any number of threads. Fails with ERR_BAD_PARAMETER
 * (sizes), ERR_DATA_NONFINITE, ERR_NO_MEMORY, ERR_DEVICE, ERR_CANCELED. */
int maps_estimate(struct dev *dev, const struct maps_params *params, const struct c32 *images, struct c32 *maps,
                  double *support);

#endif
