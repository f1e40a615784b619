/* host_device.h: functions that the C compiler and, for the device as well, the CUDA compiler see. */
#ifndef MRIRECON_HOST_DEVICE_H
#define MRIRECON_HOST_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#endif
