/* The table of writers, in a file of its own: it links all of them. */
#include "recon/image/image_leaf.h"

static int (*const writers[IMAGE_FORMATS])(const struct image_series *series, int fd) = {
    [IMAGE_H5] = image_write_h5,   [IMAGE_NIFTI] = image_write_nifti, [IMAGE_PNG] = image_write_png,
    [IMAGE_NPY] = image_write_npy, [IMAGE_DICOM] = image_write_dicom, [IMAGE_DICOM_ZIP] = image_write_dicom_zip,
    [IMAGE_CFL] = image_write_cfl, [IMAGE_MRD] = image_write_mrd,
};

int image_write(const struct image_series *series, enum image_format format, int fd)
{
    return writers[format](series, fd);
}
