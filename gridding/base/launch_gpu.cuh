/* launch_gpu.cuh: kernels that start before the end of the kernel before them in the stream, where a GPU can do that
 * (compute capability 9.0): launch overhead and the last, partly idle round of blocks are used. */
#ifndef MRIRECON_LAUNCH_GPU_CUH
#define MRIRECON_LAUNCH_GPU_CUH

#include "gridding/base/dev_gpu.cuh"
#include "gridding/base/host_device.h"

/* Launch a kernel with one argument, `args`, behind the kernel before it: its blocks may start when all blocks of that
 * one have ended or called gpu_let_next_start(). It calls gpu_wait_for_previous(). */
static inline int gpu_launch_behind(const struct gpu *gpu, const void *kernel, dim3 blocks, int threads, size_t shared,
                                    void *args, const char *what)
{
    int major = 0, rc = gpu_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu->index), what);
    if (rc)
        return rc;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared;
    config.stream = gpu->stream;
    config.attrs = &early;
    config.numAttrs = major >= 9;
    return gpu_check(cudaLaunchKernelExC(&config, kernel, &args), what);
}

static __device__ __forceinline__ void gpu_let_next_start()
{
    if constexpr (DEVICE_ARCH >= 900)
        cudaTriggerProgrammaticLaunchCompletion();
}

/* Wait for the end of the kernel that this one was launched behind; what it stored can be read then. */
static __device__ __forceinline__ void gpu_wait_for_previous()
{
    if constexpr (DEVICE_ARCH >= 900)
        cudaGridDependencySynchronize();
}

/* The beginning of a kernel of such a chain that has nothing to do before it reads: the next kernel may be launched as
 * soon as every block of this one has started, but waits for all of this one, so that launch overhead is hidden. */
static __device__ __forceinline__ void gpu_begin_behind()
{
    gpu_let_next_start();
    gpu_wait_for_previous();
}

#endif
