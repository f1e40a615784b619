/* dev_gpu.cuh: one GPU as the GPU leaves see it. Only .cu files include this.
 *
 * Every call and every launch is checked; a failure that the driver keeps (a "sticky" one) is reported as ERR_DEVICE
 * from then on, and the process has to end. All work of a device goes through its one stream.
 */
#ifndef MRIRECON_DEV_DEVICE_CUH
#define MRIRECON_DEV_DEVICE_CUH

#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

#include <cuda_runtime.h>

struct gpu {
    int index;
    int multiprocessors;
    size_t shared_most; /* bytes of shared memory one block may have */
    cudaStream_t stream;
    cudaMemPool_t pool;
};

static inline struct gpu *gpu_of(struct dev *dev)
{
    return (struct gpu *)dev->state;
}

/* Make `gpu` the calling thread's current device. */
int gpu_enter(const struct gpu *gpu);

/* 0, or ERR_DEVICE with the sentence "`what`: the driver's words". */
int gpu_check(cudaError_t status, const char *what);

/* The last launch's status. */
static inline int gpu_launched(const char *kernel)
{
    return gpu_check(cudaGetLastError(), kernel);
}

/* Memory of the device's pool, in stream order. Fails with ERR_GPU_OOM (required, available) for `what`. */
int gpu_alloc(struct gpu *gpu, size_t bytes, void **out, const char *what);
void gpu_release(struct gpu *gpu, void *memory);

/* Bytes an allocation can hope for: free on the device, and unused in the pool. */
int gpu_available(struct gpu *gpu, size_t *available, size_t *total);

/* Wait for the stream. */
int gpu_finish(struct gpu *gpu, const char *what);

/* Host to device and back, ordered in the stream; complete on return. */
int gpu_upload(struct gpu *gpu, void *device, const void *host, size_t bytes);
int gpu_download(struct gpu *gpu, void *host, const void *device, size_t bytes);

/* Blocks of `threads` that cover `items`. */
static inline unsigned gpu_blocks(size_t items, unsigned threads)
{
    return (unsigned)((items + threads - 1) / threads);
}

/* A typed gpu_alloc. */
template <class T> static inline int gpu_array(struct gpu *gpu, size_t count, T **out, const char *what)
{
    size_t bytes;
    if (!size_mul(count, sizeof(T), &bytes))
        return err_set(ERR_GPU_OOM, "%s: %zu items are more than any device holds.", what, count);
    return gpu_alloc(gpu, bytes, (void **)out, what);
}

#endif
