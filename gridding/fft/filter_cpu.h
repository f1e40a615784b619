/* filter_cpu.h: convolutions of a real field (filter.h) on the CPU. */
#ifndef MRIRECON_FFT_FILTER_CPU_H
#define MRIRECON_FFT_FILTER_CPU_H

#include "gridding/base/listener.h"
#include "gridding/fft/filter.h"

struct filter_cpu;

/* Fails with ERR_NO_MEMORY, ERR_BAD_PARAMETER (other lengths), ERR_NO_DEVICE (built without FFTW). */
int filter_cpu_create(struct filter_cpu **out, const struct filter_shape *shape, int threads);
void filter_cpu_free(struct filter_cpu *filter);
size_t filter_cpu_bytes(const struct filter_shape *shape, int threads);

/* result[kept[2]][kept[1]][kept[0]] = the field[from[2]][from[1]][from[0]], multiplied. Unscaled: a factor of 1 over
 * the number of the field's nodes gives back the field. Waves of half the field's nodes along an axis are left out. The
 * same bits for any number of threads. Fails as the listener (may be NULL). */
int filter_cpu_run(struct filter_cpu *filter, const float *field, const struct filter_factors *factors, float *result,
                   const struct listener *listener);

#endif
