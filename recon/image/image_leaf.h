/* image_leaf.h: what the writers of the image formats share. Only recon/image/ include this. */
#ifndef MRIRECON_IMAGE_LEAF_H
#define MRIRECON_IMAGE_LEAF_H

#include "recon/image/image.h"

/* Write all of `bytes`. Fails as image_put_failed(). */
int image_put(int fd, const void *bytes, size_t count);

/* Tell errno value `error` of a failed write: ERR_SPOOL_FULL where no space is left, else ERR_IO. */
int image_put_failed(int error);

/* Pixels of one channel of one image, and float32s per pixel. */
size_t image_pixels(const struct image_series *series);
size_t image_lanes(const struct image_series *series);

/* The pixels of `channel` of image `index`. */
const float *image_plane(const struct image_series *series, size_t index, size_t channel);

/* The writers, one a format. `fd` is at 0. */
int image_write_h5(const struct image_series *series, int fd);
int image_write_nifti(const struct image_series *series, int fd);
int image_write_png(const struct image_series *series, int fd);
int image_write_npy(const struct image_series *series, int fd);

#endif
