/* The names of the image formats, apart from their writers: the daemon serves images and links no image library. */
#include "recon/image/image.h"

#include <strings.h>

static const struct {
    const char *name, *media;
} formats[IMAGE_FORMATS] = {
    [IMAGE_H5] = {"h5", "application/x-hdf5"},
    [IMAGE_NIFTI] = {"nii.gz", "application/x-nifti"},
    [IMAGE_PNG] = {"png", "image/png"},
    [IMAGE_NPY] = {"npy", "application/x-npy"},
};

const char *image_format_name(enum image_format format)
{
    return formats[format].name;
}

const char *image_format_media(enum image_format format)
{
    return formats[format].media;
}

int image_format_find(const char *name)
{
    for (int i = 0; i < IMAGE_FORMATS; i++)
        if (strcasecmp(formats[i].name, name) == 0 || strcasecmp(formats[i].media, name) == 0)
            return i;
    return -1;
}
