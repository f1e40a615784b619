#include "gridding/base/dev_gpu.cuh"

int gpu_check(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return 0;
    return err_set(ERR_DEVICE,
                   "%s failed on the GPU: %s. Retry the job; if it fails again, look at the driver's log (dmesg).",
                   what, cudaGetErrorString(status));
}

int gpu_enter(const struct gpu *gpu)
{
    return gpu_check(cudaSetDevice(gpu->index), "Selecting the device");
}

int gpu_available(struct gpu *gpu, size_t *available, size_t *total)
{
    size_t free_bytes = 0;
    uint64_t reserved = 0, used = 0;
    int rc = gpu_check(cudaMemGetInfo(&free_bytes, total), "Asking for free memory");
    if (!rc)
        rc = gpu_check(cudaMemPoolGetAttribute(gpu->pool, cudaMemPoolAttrReservedMemCurrent, &reserved),
                       "Asking for pooled memory");
    if (!rc)
        rc = gpu_check(cudaMemPoolGetAttribute(gpu->pool, cudaMemPoolAttrUsedMemCurrent, &used),
                       "Asking for used memory");
    if (!rc)
        *available = free_bytes + (size_t)(reserved - used);
    return rc;
}

int gpu_alloc(struct gpu *gpu, size_t bytes, void **out, const char *what)
{
    void *memory = NULL;
    if (bytes == 0) {
        *out = NULL;
        return 0;
    }
    cudaError_t status = cudaMallocFromPoolAsync(&memory, bytes, gpu->pool, gpu->stream);
    if (status == cudaErrorMemoryAllocation) {
        /* The pool may have enough memory in blocks of the wrong size: return them to the driver and try again. */
        cudaGetLastError();
        int rc = gpu_finish(gpu, what);
        if (!rc)
            rc = gpu_check(cudaMemPoolTrimTo(gpu->pool, 0), "Returning pooled memory");
        if (rc)
            return rc;
        status = cudaMallocFromPoolAsync(&memory, bytes, gpu->pool, gpu->stream);
    }
    if (status == cudaErrorMemoryAllocation) {
        size_t available = 0, total = 0;
        cudaGetLastError();
        if (gpu_available(gpu, &available, &total))
            available = 0;
        return err_set_bytes(
            ERR_GPU_OOM, (int64_t)bytes, (int64_t)available,
            "%s needs %.1f MB of device memory and %.1f MB are free. Use a smaller batch, or wait until other "
            "work on this GPU has ended.",
            what, (double)bytes / 1e6, (double)available / 1e6);
    }
    int rc = gpu_check(status, what);
    if (!rc)
        *out = memory;
    return rc;
}

void gpu_release(struct gpu *gpu, void *memory)
{
    /* A failure here is sticky, and is reported by the next call. */
    if (memory)
        (void)cudaFreeAsync(memory, gpu->stream);
}

int gpu_finish(struct gpu *gpu, const char *what)
{
    return gpu_check(cudaStreamSynchronize(gpu->stream), what);
}
