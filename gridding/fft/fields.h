/* fields.h: the potential of a density on the nodes of a periodic cube, and its gradient, by Fourier transforms that
 * stay on the device. A device's threads, memory and errors are as in dev.h; the same bits on every run. */
#ifndef MRIRECON_FIELDS_H
#define MRIRECON_FIELDS_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fields;

/* Whether the device has fields of n nodes an axis: a GPU has even products of 2, 3, 5 and 7 from 4 to 2048, a CPU
 * none. */
bool fields_available(const struct dev *dev, int n);

/* The most bytes of the device that fields take, beside their grid. */
size_t fields_bytes(const struct dev *dev, int n);

/* factor[n / 2 + 1][n / 2 + 1][n / 2 + 1]: of the transform of the density that of the potential, at the waves of this
 * many periods in the cube along each axis, over the number of nodes; copied. Fails with ERR_NO_DEVICE
 * (fields_available() is false), ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE. */
int fields_create(struct fields **out, struct dev *dev, int n, const float *factor);
void fields_free(struct fields *fields);

/* grid[4][n][n][n], device memory: reads the density, the first; writes minus the derivative of the potential by x, y
 * and z, in nodes, and the potential. Waves of n / 2 periods are left out. A GPU may still compute on return; its later
 * work is ordered after it. Fails with ERR_DEVICE. */
int fields_run(struct fields *fields, float *grid);

#ifdef __cplusplus
}
#endif
#endif
