/* espirit.h: ESPIRiT's coil maps (Uecker et al. 2014, doi:10.1002/mrm.24751) of images in a device's memory.
 *
 * The formulas are recon/mri/maps_calibration.c's and maps_espirit.c's, which compute on the host; here are devices of
 * their own. The same device gives the same bits on every run. */
#ifndef MRIRECON_ESPIRIT_H
#define MRIRECON_ESPIRIT_H

#include "gridding/base/dev.h"
#include "gridding/base/listener.h"

#ifdef __cplusplus
extern "C" {
#endif

struct espirit_params {
    int coils, n[3];  /* of the images; n[2] = 1 in 2-D */
    int m[3];         /* of the centre of k-space; at most n */
    int width[3];     /* of a kernel, in samples; at most m */
    double threshold; /* of singular values, relative to the largest */
    double crop;      /* pixels whose eigenvalue is smaller have no maps */
};

/* Whether the device computes maps of these sizes. False for the CPU. */
bool espirit_available(const struct dev *dev, const struct espirit_params *params);

/* The device memory, in bytes, that espirit_estimate() uses in addition to images and maps. */
size_t espirit_bytes(const struct dev *dev, const struct espirit_params *params);

/* maps[coils][nz][ny][nx] of images[coils][nz][ny][nx]: device memory, may be the same. *support: the number of pixels
 * with maps. `listener` may be NULL. Fails with ERR_NO_DEVICE (not available), ERR_DATA_NONFINITE, ERR_GPU_OOM,
 * ERR_DEVICE, and the listener's code. */
int espirit_estimate(struct dev *dev, const struct espirit_params *params, const struct c32 *images, struct c32 *maps,
                     const struct listener *listener, size_t *support);

#ifdef __cplusplus
}
#endif
#endif
