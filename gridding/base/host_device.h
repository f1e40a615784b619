/* host_device.h: functions that the C compiler and, for the device as well, the CUDA compiler see. */
#ifndef MRIRECON_HOST_DEVICE_H
#define MRIRECON_HOST_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

/* A product of doubles that is rounded before it is added to anything: the same on both. (x86-64 as such has no
 * instruction that joins the two; nvcc would.) */
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
