/* filter_cpu.h: convolutions of a real field on the CPU: a periodic field on a mesh is transformed, multiplied by a
 * real, even function of its waves, and transformed back on another mesh of the same box, coarser or finer. */
#ifndef MRIRECON_FFT_FILTER_CPU_H
#define MRIRECON_FFT_FILTER_CPU_H

#include "gridding/base/listener.h"

#include <stdbool.h>
#include <stddef.h>

struct filter_cpu;

struct filter_shape {
    int from[3]; /* nodes of the field along x, y, z: products of 2, 3, 5 and 7, at least 4 */
    int to[3];   /* of the result, likewise */
    int kept[3]; /* of the result, the first of them that are computed */
};

enum { FILTER_WAVES = 16 };

/* The function. Sets factor[i] for wave (wave[0] + i, wave[1], wave[2]), periods in the box, i < FILTER_WAVES; waves
 * are from -from / 2 to from / 2, along x from 0 to from / 2 + FILTER_WAVES. Called by several threads at once. */
struct filter_factors {
    void (*set)(const void *of, const int wave[3], float factor[FILTER_WAVES]);
    const void *of;
};

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
