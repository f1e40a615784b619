/* fft.h: transforms along one axis of device memory. A device's threads, memory and errors are as in dev.h. */
#ifndef MRIRECON_FFT_H
#define MRIRECON_FFT_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

struct fft;

/* Whether the device has transforms of length n: the CPU has any, a GPU products of 2, 3, 5 and 7. */
bool fft_serves(const struct dev *dev, int n);

/* Fails with ERR_NO_DEVICE (fft_serves() is false), ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE. */
int fft_create(struct fft **out, struct dev *dev, int n);
void fft_free(struct fft *fft);

/* values[sets][n][columns], in place: of each set and column the sum over j of value[j] exp(2 pi i j z / n), unscaled,
 * for z from -floor(n / 2) on, in this order. The same bits for any number of threads. A GPU may still compute on
 * return; its later work is ordered after it. Fails with ERR_NO_MEMORY, ERR_DEVICE. */
int fft_centred(struct fft *fft, size_t sets, size_t columns, struct c32 *values);

#ifdef __cplusplus
}
#endif
#endif
