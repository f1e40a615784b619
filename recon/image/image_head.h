/* image_head.h: ISMRMRD's header of an image, as files (image_h5.c) and streams (image_mrd.c) have it. Only
 * recon/image/ includes this. */
#ifndef MRIRECON_IMAGE_HEAD_H
#define MRIRECON_IMAGE_HEAD_H

#include "recon/image/image.h"

#include <ismrmrd/ismrmrd.h>

/* The attributes of every image, an ismrmrdMeta document. */
extern const char image_attributes[];

/* Check that the header's 16-bit numbers can hold the sizes of the series and of its images. Fails with ERR_LIMIT. */
int image_head_check(const struct image_series *series);

/* The header of image `index`. */
void image_head_fill(ISMRMRD_ImageHeader *head, const struct image_series *series, size_t index);
/* The image's position and counters, from its header. */
void image_head_read(struct image_info *info, const ISMRMRD_ImageHeader *head);

#endif
