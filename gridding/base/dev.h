/* dev.h: a compute device (the CPU, or one GPU): its memory.
 *
 * A struct dev belongs to one thread at a time. Memory of a device is released to the same device. On the CPU, device
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

enum {
    DEV_GPUS_MOST = 64, /* of a machine; further ones are ignored */
    DEV_PARTS_MOST = 8
};

/* Open a device. DEV_GPU opens GPU `index`; DEV_AUTO the first usable GPU, and the CPU if there is none (dev_note() has
 * the reason). `threads`: number of CPU threads, 0 for one per available core. Fails with ERR_NO_DEVICE (DEV_GPU
 * without a usable GPU), ERR_NO_MEMORY, ERR_DEVICE; ERR_INTERNAL if mrirecon-gpu.so exists but is incompatible with the
 * program, also for DEV_AUTO. */
int dev_create(struct dev **out, enum dev_kind kind, int index, int threads);
void dev_free(struct dev *dev);

bool dev_is_gpu(const struct dev *dev);
const char *dev_name(const struct dev *dev); /* "cpu (AVX-512, 2 threads)", "gpu 0 (NVIDIA H200)" */
const char *dev_note(const struct dev *dev); /* why DEV_AUTO chose the CPU; "" otherwise */
int dev_threads(const struct dev *dev);

/* The machine's usable GPUs, `dev` among them if it is one: bit i is GPU i. 0 for DEV_CPU, which does not look for any.
 */
uint64_t dev_gpus(const struct dev *dev);

/* Bytes free and in all. Fails with ERR_DEVICE. */
int dev_memory(struct dev *dev, size_t *available, size_t *total);

/* Uninitialised memory of `bytes` bytes (0 is allowed: *out = NULL). Fails with ERR_NO_MEMORY or ERR_GPU_OOM. */
int dev_alloc(struct dev *dev, size_t bytes, void **out);
void dev_release(struct dev *dev, void *memory); /* NULL is allowed */

/* Between the host's memory and the device's; complete on return. Fails with ERR_DEVICE. */
int dev_upload(struct dev *dev, void *device, const void *host, size_t bytes);
int dev_download(struct dev *dev, void *host, const void *device, size_t bytes);

/* An upload concurrent with the device's work: it may begin at once, so no work in progress may use the memory. On
 * return the host's memory may change; work started after dev_upload_order() sees the bytes. Fail with ERR_DEVICE. */
int dev_upload_begin(struct dev *dev, void *device, const void *host, size_t bytes);
int dev_upload_order(struct dev *dev);

/* The same of bytes that are computed where the device's transfers read them, which saves a copy: `write` writes bytes
 * `first` to first + bytes - 1 of the upload to `out`. Pieces begin at multiples of 64. Before the return, `write` is
 * called once for each piece, by this thread and others of the device at once, and must not use the device itself. It
 * cannot fail: who finds wrong bytes drops the upload. Fails with ERR_DEVICE, perhaps with pieces not asked for. */
struct dev_fill {
    void (*write)(void *of, size_t first, size_t bytes, void *out);
    void *of;
};
int dev_upload_fill(struct dev *dev, void *device, size_t bytes, const struct dev_fill *fill);
/* The same in two: after the beginning, threads of the device write pieces while the caller does other things, until
 * the end, which takes part in what is left. `fill` is copied; what `write` reads, and the device's memory, must stay
 * until the end, also if the upload is not wanted any more. Both are called by the device's thread, which may use the
 * device between them, except for another beginning; other transfers wait for this one, and take part in it. The end
 * tells all failures, those of dev_upload_fill(); without a beginning, or after one of 0 bytes, it does nothing. */
void dev_fill_begin(struct dev *dev, void *device, size_t bytes, const struct dev_fill *fill);
int dev_fill_end(struct dev *dev);

int dev_zero(struct dev *dev, void *device, size_t bytes);

/* Wait for the device's work. Fails with ERR_DEVICE. */
int dev_finish(struct dev *dev);

/* Copy between two devices of the same kind, or within one: after the earlier work of both, and before their later
 * work. Fails with ERR_DEVICE. */
int dev_copy(struct dev *to, void *there, struct dev *from, const void *here, size_t bytes);

/* Add devices of the same kind to `dev`: work that can be divided (recon/mri/sense.h) is shared by all parts; the
 * device itself is part 0. The parts belong to the same thread, and to `dev`, which frees them. dev_join() fails as
 * dev_create(), and with ERR_BAD_PARAMETER for more than DEV_PARTS_MOST parts. */
int dev_join(struct dev *dev, int index);
int dev_parts(const struct dev *dev);
struct dev *dev_part(struct dev *dev, int part);

/* The address at which the host itself may read and write device memory: the CPU's own; NULL for a GPU's. */
void *dev_direct(const struct dev *dev, void *device);

#ifdef __cplusplus
}
#endif
#endif
