/* vec.h: arithmetic on vectors of device memory, for iterative methods.
 *
 * Vectors are complex float32 of `n` elements. Sums are double and in an order that depends on n alone: the same bits
 * on every run, for any number of threads. A GPU may still compute when a function without a scalar result returns;
 * later work of the device is ordered after it. A device's threads, memory and errors are as in dev.h; all functions
 * fail with ERR_NO_DEVICE if vec_available() is false, and with ERR_DEVICE.
 */
#ifndef MRIRECON_VEC_H
#define MRIRECON_VEC_H

#include "gridding/base/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the device has vector arithmetic. The CPU and GPUs have. */
bool vec_available(const struct dev *dev);

int vec_zero(struct dev *dev, size_t n, struct c32 *x);                               /* x = 0 */
int vec_copy(struct dev *dev, size_t n, const struct c32 *x, struct c32 *y);          /* y = x; may not overlap */
int vec_axpy(struct dev *dev, size_t n, float a, const struct c32 *x, struct c32 *y); /* y = y + a x */
int vec_xpay(struct dev *dev, size_t n, const struct c32 *x, float a, struct c32 *y); /* y = x + a y */
int vec_scale(struct dev *dev, size_t n, float a, struct c32 *x);                     /* x = a x */
int vec_dot(struct dev *dev, size_t n, const struct c32 *x, const struct c32 *y, double *dot); /* Re <x, y> */
int vec_size_sum(struct dev *dev, size_t n, const struct c32 *x, double *sum);                 /* sum of |x_i| */

/* y[c] = m[c] x for each of `count` maps m[count][n]; y[count][n]. */
int vec_multiply(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y);

/* x = x + sum over c of conj(m[c]) y[c], c ascending. */
int vec_multiply_conj_add(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                          struct c32 *x);

/* The same with a single m[n]: y[c] = m x[c], x[c] = x[c] + conj(m) y[c]. */
int vec_multiply_each(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y);
int vec_multiply_conj_add_each(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                               struct c32 *x);

/* y_i = exp(-2 pi i a f_i); f: device memory. */
int vec_wave(struct dev *dev, size_t n, double a, const float *f, struct c32 *y);

/* squares_i = squares_i + sum over c of |x[c]_i|^2, c ascending; squares: device memory. */
int vec_squares_add(struct dev *dev, size_t n, int count, const struct c32 *x, float *squares);

/* x = x max(0, 1 - t / |x|), element by element: the proximal operator of t |x|_1. t >= 0. NaN stays NaN. */
int vec_soft(struct dev *dev, size_t n, float t, struct c32 *x);

#ifdef __cplusplus
}
#endif
#endif
