/* recon_memory.h: memory of step "images", compared with what is available before any of it is allocated. Only
 * recon/mri/ includes this. */
#ifndef MRIRECON_RECON_MEMORY_H
#define MRIRECON_RECON_MEMORY_H

#include "recon/mri/recon_gridder.h"

/* Check that the step's memory is available, for images of `channels`: a GPU's part on the GPU, the other part on the
 * host. Where a GPU has too little, iterative methods take fewer coils at a time, and other GPUs take no part; the
 * images have the same bits. The plan compares its own memory. Fails with ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE. */
int recon_memory_check(struct gridder *g, size_t channels);

#endif
