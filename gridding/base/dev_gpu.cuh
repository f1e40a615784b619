/* dev_gpu.cuh: one GPU as the GPU leaves see it. Only .cu files include this.
 *
 * Every call and every launch is checked; a failure that the driver keeps (a "sticky" one) is reported as ERR_DEVICE
 * from then on, and the process has to end. All work of a device goes through its one stream.
 */
#ifndef MRIRECON_DEV_GPU_CUH
#define MRIRECON_DEV_GPU_CUH

#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

#include <cuda_runtime.h>

struct gpu_stage;

struct gpu {
    int index;
    int multiprocessors;
    size_t shared_most; /* bytes of shared memory one block may have */
    cudaStream_t stream;
    cudaStream_t uploads; /* for those beside the work in `stream` */
    cudaEvent_t uploaded; /* the last of these */
    cudaMemPool_t pool;
    struct gpu_stage *stage;
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

/* Pinned buffers for transfers with at most `threads` threads (stage_gpu.cu). */
int gpu_stage_make(struct gpu_stage **out, int threads);
void gpu_stage_free(struct gpu_stage *stage);

/* Host to device in `stream`, a stream of this device. On return the host's memory has been read and may change; the
 * device's holds the bytes once the stream has come that far. */
int gpu_upload_start(struct gpu *gpu, cudaStream_t stream, void *device, const void *host, size_t bytes);

/* Host to device and back, ordered in the device's stream; complete on return. */
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
