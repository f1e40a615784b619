/* host_device.h: marks functions for the C compiler and, for host and device, the CUDA compiler. */
#ifndef MRIRECON_HOST_DEVICE_H
#define MRIRECON_HOST_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

/* A product of doubles that is rounded before any addition, so that host and device agree: baseline x86-64 has no fused
 * multiply-add, but nvcc would use one. */
#ifdef __CUDA_ARCH__
#define ROUNDED_PRODUCT(a, b) __dmul_rn(a, b)
#else
#define ROUNDED_PRODUCT(a, b) ((a) * (b))
#endif

/* The compute capability that the code is compiled for, times 100; 0 on the host. */
#ifdef __CUDA_ARCH__
#define DEVICE_ARCH __CUDA_ARCH__
#else
#define DEVICE_ARCH 0
#endif

#endif
