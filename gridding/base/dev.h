/* dev.h: a compute device (the CPU, or one GPU): its memory.
 *
 * A struct dev belongs to one thread at a time. Memory of a device is given back to the same device. On the CPU, device
 * memory is ordinary memory, aligned to 64 bytes; code outside *_cpu.c must not rely on that.
 */
#ifndef MRIRECON_DEV_H
#define MRIRECON_DEV_H

#include "gridding/base/num.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dev;

enum dev_kind { DEV_AUTO, DEV_CPU, DEV_GPU };

enum { DEV_GPUS_MOST = 64 }; /* of a machine, that are looked at */

/* Open a device. DEV_GPU takes GPU `index`; DEV_AUTO the first GPU that can be used, and the CPU if there is none
 * (dev_note says why). `threads` is the number of CPU threads to use, 0 for one per available core.
 * Fails with ERR_NO_DEVICE (DEV_GPU asked for, none usable), ERR_NO_MEMORY, ERR_DEVICE; with ERR_INTERNAL if a
 * mrirecon-gpu.so is beside the program but does not fit it, also for DEV_AUTO. */
int dev_create(struct dev **out, enum dev_kind kind, int index, int threads);
void dev_free(struct dev *dev);

bool dev_is_gpu(const struct dev *dev);
const char *dev_name(const struct dev *dev); /* "cpu (AVX-512, 2 threads)", "gpu 0 (NVIDIA H200)" */
const char *dev_note(const struct dev *dev); /* why DEV_AUTO took the CPU; "" otherwise */
int dev_threads(const struct dev *dev);

/* The machine's usable GPUs, `dev` among them if it is one: bit i is GPU i. 0 for DEV_CPU, which looks for none. */
uint64_t dev_gpus(const struct dev *dev);

/* Bytes free and in all. Fails with ERR_DEVICE. */
int dev_memory(struct dev *dev, size_t *available, size_t *total);

/* Uninitialised memory of `bytes` bytes (0 is allowed: *out = NULL). Fails with ERR_NO_MEMORY or ERR_GPU_OOM. */
int dev_alloc(struct dev *dev, size_t bytes, void **out);
void dev_release(struct dev *dev, void *memory); /* NULL is allowed */

/* Between the host's memory and the device's; complete on return. Fails with ERR_DEVICE. */
int dev_upload(struct dev *dev, void *device, const void *host, size_t bytes);
int dev_download(struct dev *dev, void *host, const void *device, size_t bytes);

/* An upload beside the work that the device has: it may begin at once, so nothing under way may touch the memory. On
 * return the host's may change; what is asked of the device after dev_upload_order() finds the bytes there. Fail with
 * ERR_DEVICE. */
int dev_upload_begin(struct dev *dev, void *device, const void *host, size_t bytes);
int dev_upload_order(struct dev *dev);

int dev_zero(struct dev *dev, void *device, size_t bytes);

/* The address at which the host itself may read and write device memory: the CPU's own; NULL for a GPU's. */
void *dev_direct(const struct dev *dev, void *device);

#ifdef __cplusplus
}
#endif
#endif
