/* The picture of a series as PNG. */
#include "recon/image/image_leaf.h"

#include <stdlib.h>

int image_write_png(const struct image_series *series, int fd)
{
    struct picture picture;
    int rc = image_montage(&picture, series);
    if (rc != 0)
        return rc;
    rc = picture_write_png(&picture, fd);
    free(picture.pixels);
    return rc;
}
