/* rows.h: weighted sums of rows of complex numbers, whose real and imaginary parts are separate arrays: the inner loop
 * of small dense matrices and of Fourier series with few terms.
 *
 *   y[i] = sum over rows t of a[t] x[t][i]
 *
 * `reals`: x, a and y are real; real and imaginary parts in one row are weighted alike.
 *
 * in the precision of the type, in an order that depends on the sizes and the kind of CPU alone. y may be none of the
 * others. All memory is the caller's, and the host's; no alignment is required. Any thread. */
#ifndef MRIRECON_ROWS_H
#define MRIRECON_ROWS_H

#include <stddef.h>

/* x: `count` rows, each `stride` numbers after the last. */
struct rows_floats {
    size_t count, stride;
    const float *re, *im;
};
struct rows_reals {
    size_t count, stride;
    const float *x;
};
struct rows_doubles {
    size_t count, stride;
    const double *re, *im;
};

/* One instruction set's; a[count], y[n]. */
struct rows_leaf {
    void (*floats)(const struct rows_floats *x, const float *a_re, const float *a_im, size_t n, float *y_re,
                   float *y_im);
    void (*reals)(const struct rows_reals *x, const float *a, size_t n, float *y);
    void (*doubles)(const struct rows_doubles *x, const double *a_re, const double *a_im, size_t n, double *y_re,
                    double *y_im);
};
extern const struct rows_leaf rows_leaf_sse2, rows_leaf_avx2, rows_leaf_avx512;

/* The fastest that this CPU has. */
const struct rows_leaf *rows_best(void);

#endif
