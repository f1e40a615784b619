/* dev_gpu.cuh: one GPU, for the GPU leaves. Only .cu files include this.
 *
 * Every call and every launch is checked; a sticky failure is reported as ERR_DEVICE from then on, and the process must
 * end. All work of a device goes through its one stream.
 */
#ifndef MRIRECON_DEV_GPU_CUH
#define MRIRECON_DEV_GPU_CUH

#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

#include <cuda_runtime.h>

struct gpu_stage;

enum { GPU_SUMS = 1024 };

struct gpu {
    int index;
    int multiprocessors;
    size_t shared_most; /* bytes of shared memory per block */
    cudaStream_t stream;
    cudaStream_t uploads; /* stream of uploads concurrent with the work in `stream` */
    cudaEvent_t uploaded; /* the last of these */
    cudaEvent_t reached;  /* for other devices to wait for `stream` */
    cudaMemPool_t pool;
    uint64_t peers; /* bit i: GPU i's access to the pool has been requested */
    struct gpu_stage *stage;
    double *sums; /* [GPU_SUMS]: pinned host memory, written by kernels (vec_gpu.cu) */
};

static inline struct gpu *gpu_of(struct dev *dev)
{
    return (struct gpu *)dev->state;
}

/* Make `gpu` the calling thread's current device. */
int gpu_enter(const struct gpu *gpu);

/* 0, or ERR_DEVICE with the sentence "`what`: the driver's message". */
int gpu_check(cudaError_t status, const char *what);

/* The last launch's status. */
static inline int gpu_launched(const char *kernel)
{
    return gpu_check(cudaGetLastError(), kernel);
}

/* Memory of the device's pool, in stream order. Fails with ERR_GPU_OOM (required, available) for `what`. */
int gpu_alloc(struct gpu *gpu, size_t bytes, void **out, const char *what);
void gpu_release(struct gpu *gpu, void *memory);

/* Bytes available for an allocation: free on the device, and unused in the pool. */
int gpu_available(struct gpu *gpu, size_t *available, size_t *total);

/* Wait for the stream. */
int gpu_finish(struct gpu *gpu, const char *what);

/* Pinned buffers for transfers with at most `threads` threads (stage_gpu.cu). */
int gpu_stage_make(struct gpu_stage **out, int threads);
void gpu_stage_free(struct gpu_stage *stage);

/* Host to device in `stream`, a stream of this device. On return the host's memory has been read and may change; the
 * copy is ordered in the stream. */
int gpu_upload_start(struct gpu *gpu, cudaStream_t stream, void *device, const void *host, size_t bytes);

/* The same of bytes that `fill` writes (dev_fill_begin()). */
void gpu_fill_begin(struct gpu *gpu, cudaStream_t stream, void *device, size_t bytes, const struct dev_fill *fill);
int gpu_fill_end(struct gpu *gpu);

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
