/* The names of the volume formats, separate from their writers, which the daemon does not link. */
#include "recon/volume/volume.h"

static const struct file_format formats[] = {
    [VOLUME_NPY] = {"npy", "application/x-npy"}, [VOLUME_DX] = {"dx", "application/x-opendx"},
    [VOLUME_MRC] = {"mrc", "application/x-mrc"}, [VOLUME_PNG] = {"png", "image/png"},
    [VOLUME_FORMATS] = {.name = NULL},
};

const struct result_form volume_form = {"volume", formats, true};
