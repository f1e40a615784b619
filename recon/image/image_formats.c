/* The names of the image formats, separate from their writers: the daemon serves images and links no image library. */
#include "recon/image/image.h"

static const struct file_format formats[] = {
    [IMAGE_H5] = {"h5", "application/x-hdf5"},
    [IMAGE_NIFTI] = {"nii.gz", "application/x-nifti"},
    [IMAGE_PNG] = {"png", "image/png"},
    [IMAGE_NPY] = {"npy", "application/x-npy"},
    [IMAGE_DICOM] = {"dcm", "application/dicom"},
    [IMAGE_DICOM_ZIP] = {"dcm.zip", "application/zip"},
    [IMAGE_CFL] = {"cfl.tar", "application/x-tar"},
    [IMAGE_MRD] = {"mrd", "application/x-ismrmrd"},
    [IMAGE_FORMATS] = {.name = NULL},
};

const struct result_form image_form = {"image", formats, true};

const char *image_format_name(enum image_format format)
{
    return formats[format].name;
}

const char *image_format_media(enum image_format format)
{
    return formats[format].media;
}
