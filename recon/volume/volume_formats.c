/* The names of the formats of volumes, apart from their writers: the daemon serves volumes and links no writer. */
#include "recon/volume/volume.h"

static const struct file_format formats[] = {
    [VOLUME_NPY] = {"npy", "application/x-npy"}, [VOLUME_DX] = {"dx", "application/x-opendx"},
    [VOLUME_MRC] = {"mrc", "application/x-mrc"}, [VOLUME_PNG] = {"png", "image/png"},
    [VOLUME_FORMATS] = {.name = NULL},
};

const struct result_form volume_form = {"volume", formats, true};
