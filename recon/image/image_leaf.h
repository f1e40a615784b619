/* image_leaf.h: functions that the writers of the image formats share. Only recon/image/ includes this. */
#ifndef MRIRECON_IMAGE_LEAF_H
#define MRIRECON_IMAGE_LEAF_H

#include "recon/image/image.h"
#include "recon/image/picture.h"
#include "recon/result_file.h"

/* Write all of `bytes`. Fails with ERR_SPOOL_FULL, ERR_IO. */
static inline int image_put(int fd, const void *bytes, size_t count)
{
    return result_put(fd, bytes, count, "The image");
}

/* Pixels of one channel of one image, and float32s per pixel. */
size_t image_pixels(const struct image_series *series);
size_t image_lanes(const struct image_series *series);

/* The pixels of `channel` of image `index`. */
const float *image_plane(const struct image_series *series, size_t index, size_t channel);

/* Compare everything that distinguishes images except the slice: < 0, 0 or > 0, by repetition, phase, contrast, set,
 * average. */
int image_frame_compare(const struct image_info *a, const struct image_info *b);

/* A direction as a unit vector; a missing one (all zero, as simulated scans have) becomes axis `axis`. */
void image_direction(const float from[3], int axis, double out[3]);

/* The images of a series in order: images[frame * slices + slice] is an index into it, the slices of a frame sorted by
 * their number. If the frames have different slices, each image is a frame of its own. The caller frees `images`. */
struct image_layout {
    size_t frames, slices;
    size_t *images;
};

/* Fails with ERR_NO_MEMORY. */
int image_layout_create(struct image_layout *out, const struct image_series *series);

/* The magnitudes of `count` pixels of the series from number `first` on, or their phases + pi; 0 where one is not
 * finite. */
void image_brightness(const struct image_series *series, size_t first, size_t count, float *restrict out);

/* The brightness to show as black and as white: the 0.5 % and 99.5 % quantiles of all magnitudes, or all phases. Fails
 * with ERR_NO_MEMORY. */
int image_window(const struct image_series *series, float *low, float *high);
/* The same for other quantiles, 0..1; of phases, parts of the whole range. */
int image_window_between(const struct image_series *series, double from, double to, float *low, float *high);
/* The offset that image_brightness() adds to phases. */
float image_phase_offset(void);

/* All of a series in one grey picture, at most 4096 pixels across and down; its pixels are the caller's. Fails with
 * ERR_NO_MEMORY, ERR_INTERNAL (no pixels). */
int image_montage(struct picture *out, const struct image_series *series);

/* The writers, one a format. `fd` is at 0. */
int image_write_h5(const struct image_series *series, int fd);
int image_write_nifti(const struct image_series *series, int fd);
int image_write_png(const struct image_series *series, int fd);
int image_write_npy(const struct image_series *series, int fd);
int image_write_dicom(const struct image_series *series, int fd);
int image_write_dicom_zip(const struct image_series *series, int fd);
int image_write_cfl(const struct image_series *series, int fd);
int image_write_mrd(const struct image_series *series, int fd);

#endif
