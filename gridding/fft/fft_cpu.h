/* fft_cpu.h: FFTs of one axis on the CPU. Only fft_cpu.c uses FFTW. */
#ifndef MRIRECON_FFT_CPU_H
#define MRIRECON_FFT_CPU_H

#include "gridding/base/num.h"

struct fft_cpu;

/* A transform of length n along the first axis of values[n][columns], in place: sum over j of value[j] exp(sign 2 pi i
 * j m / n), sign +1 or -1, unscaled. Only one thread of the process may plan at a time. Fails with ERR_NO_MEMORY,
 * ERR_NO_DEVICE (built without FFTW). */
int fft_cpu_create(struct fft_cpu **out, int n, int columns, int sign);
void fft_cpu_free(struct fft_cpu *fft);

/* May be called by several threads at once, on different values (aligned to 16 bytes). */
void fft_cpu_run(const struct fft_cpu *fft, struct c32 *values);

/* A transform of n real values, as the first n / 2 + 1 waves (sign -1), or back (sign +1), likewise. */
int fft_cpu_real_create(struct fft_cpu **out, int n, int sign);
void fft_cpu_real_forth(const struct fft_cpu *fft, float *values, struct c32 *waves);
void fft_cpu_real_back(const struct fft_cpu *fft, struct c32 *waves, float *values); /* overwrites the waves */

#endif
