/* image_head.h: ISMRMRD's header of an image, as files (image_h5.c) and streams (image_mrd.c) have it. Only
 * recon/image/ includes this. */
#ifndef MRIRECON_IMAGE_HEAD_H
#define MRIRECON_IMAGE_HEAD_H

#include "recon/image/image.h"

#include <ismrmrd/ismrmrd.h>

/* The attributes of every image, an ismrmrdMeta document. */
extern const char image_attributes[];

/* That the header's 16-bit numbers can tell the size of the series and of its images. Fails with ERR_LIMIT. */
int image_head_check(const struct image_series *series);

/* The header of image `index`. */
void image_head_fill(ISMRMRD_ImageHeader *head, const struct image_series *series, size_t index);
/* What it says of an image. */
void image_head_read(struct image_info *info, const ISMRMRD_ImageHeader *head);

#endif
