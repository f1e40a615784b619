/* vec_run.cuh: a thread for each element of a vector on a GPU. Only .cu files include this. */
#ifndef MRIRECON_VEC_RUN_CUH
#define MRIRECON_VEC_RUN_CUH

#include "gridding/base/dev_gpu.cuh"

static const unsigned VEC_THREADS = 256, VEC_BLOCKS_MOST = 1 << 15;

template <class Body> static __global__ void vec_each(size_t n, Body body)
{
    for (size_t i = blockIdx.x * (size_t)VEC_THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * VEC_THREADS)
        body(i);
}

/* body(i) for i = 0 .. n - 1, in the device's stream. Fails with ERR_DEVICE, for `what`. */
template <class Body> static int vec_run(struct dev *dev, size_t n, const char *what, Body body)
{
    struct gpu *gpu = gpu_of(dev);
    const size_t blocks = (n + VEC_THREADS - 1) / VEC_THREADS;
    int rc = gpu_enter(gpu);
    if (rc || n == 0)
        return rc;
    const unsigned launched = blocks < VEC_BLOCKS_MOST ? (unsigned)blocks : VEC_BLOCKS_MOST;
    vec_each<<<launched, VEC_THREADS, 0, gpu->stream>>>(n, body);
    return gpu_launched(what);
}

#endif
