/* sense.h: the normal operator of sensitivity encoding (Pruessmann et al. 2001, doi:10.1002/mrm.1241):
 *
 *   r = sum over coils c of conj(S_c) A' W A S_c x
 *
 * S: coil maps; A' W A: the normal operator of one coil (gridding/nufft/normal.h). Only recon/mri/ includes this.
 */
#ifndef MRIRECON_SENSE_H
#define MRIRECON_SENSE_H

#include "gridding/nufft/normal.h"
#include "gridding/op.h"

struct sense {
    struct dev *dev;
    struct normal *normal;
    size_t pixels;
    int coils, batch;
    const struct c32 *maps; /* device: [coils][pixels] */
    struct c32 *scratch;    /* device: [batch][pixels] */
    /* Asked between batches, so that a cancel need not wait for all coils; a code other than 0 ends the call with it.
     * NULL: nobody is asked. */
    int (*ask)(void *context);
    void *context;
};

/* All vectors are images of `pixels` on the device. `normal` and `maps` are the caller's and stay so; `batch` coils are
 * worked off together. Fails as dev_alloc(). */
int sense_open(struct sense *sense, struct dev *dev, struct normal *normal, size_t pixels, int coils, int batch,
               const struct c32 *maps);
void sense_close(struct sense *sense);

/* The operator, valid while `sense` is: `normal` alone is set. */
struct op sense_op(struct sense *sense);

/* x = x + sum over `count` coils from `first` of conj(S_c) images[c]: images[count][pixels] of device memory. */
int sense_combine(struct sense *sense, int first, int count, const struct c32 *images, struct c32 *x);

#endif
