/* vec.h: arithmetic on vectors of device memory, for iterative methods.
 *
 * Vectors are complex float32 of `n` elements. Sums are double and in an order that depends on n alone: the same bits
 * on every run, for any number of threads. A device's threads, memory and errors are as in dev.h; all functions fail
 * with ERR_NO_DEVICE where vec_available() is false, and with ERR_DEVICE.
 */
#ifndef MRIRECON_VEC_H
#define MRIRECON_VEC_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the device has vector arithmetic. The CPU has. */
bool vec_available(const struct dev *dev);

int vec_copy(struct dev *dev, size_t n, const struct c32 *x, struct c32 *y);          /* y = x; may not overlap */
int vec_axpy(struct dev *dev, size_t n, float a, const struct c32 *x, struct c32 *y); /* y = y + a x */
int vec_xpay(struct dev *dev, size_t n, const struct c32 *x, float a, struct c32 *y); /* y = x + a y */
int vec_scale(struct dev *dev, size_t n, float a, struct c32 *x);                     /* x = a x */
int vec_dot(struct dev *dev, size_t n, const struct c32 *x, const struct c32 *y, double *dot); /* Re <x, y> */

/* y[c] = m[c] x for each of `count` maps m[count][n]; y[count][n]. */
int vec_multiply(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y);

/* x = x + sum over c of conj(m[c]) y[c], c ascending. */
int vec_multiply_conj_add(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                          struct c32 *x);

/* x = x max(0, 1 - t / |x|), element by element: the proximal operator of t |x|_1. t >= 0. NaN stays NaN. */
int vec_soft(struct dev *dev, size_t n, float t, struct c32 *x);

#ifdef __cplusplus
}
#endif
#endif
