/* rows_sum.h: rows.h's sum of complex rows for one type of number, REAL, in registers of REGISTER bytes; NAME() makes
 * the type's name of it. Only rows_simd.h includes this, once for each type. */
#include "gridding/base/inline.h"
#include "gridding/base/rows.h"

#ifndef REGISTER
#define REGISTER 16
#endif
#ifndef REAL
#define REAL       float
#define NAME(what) what##_floats
#endif

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors stay inside this file */

typedef REAL NAME(vec) __attribute__((vector_size(REGISTER)));
typedef REAL NAME(vec_unaligned) __attribute__((vector_size(REGISTER), aligned(sizeof(REAL)), may_alias));

/* `vectors`, a constant of at most 4, from element `first`: the sums stay in eight of at least 16 registers. */
INLINE void NAME(block)(int vectors, const struct NAME(rows) * x, const REAL *a_re, const REAL *a_im, size_t first,
                        REAL *y_re, REAL *y_im)
{
    enum { LANES = REGISTER / sizeof(REAL) };
    NAME(vec) re[4] = {{0}}, im[4] = {{0}};
    for (size_t t = 0; t < x->count; t++) {
        const REAL a = a_re[t], b = a_im[t], *xr = x->re + t * x->stride + first, *xi = x->im + t * x->stride + first;
        for (int k = 0; k < vectors; k++) {
            const NAME(vec) v = *(const NAME(vec_unaligned) *)(xr + k * LANES);
            const NAME(vec) w = *(const NAME(vec_unaligned) *)(xi + k * LANES);
            re[k] += a * v;
            im[k] += a * w;
            re[k] -= b * w;
            im[k] += b * v;
        }
    }
    for (int k = 0; k < vectors; k++) {
        *(NAME(vec_unaligned) *)(y_re + first + (size_t)(k * LANES)) = re[k];
        *(NAME(vec_unaligned) *)(y_im + first + (size_t)(k * LANES)) = im[k];
    }
}

static void NAME(sum)(const struct NAME(rows) * x, const REAL *a_re, const REAL *a_im, size_t n, REAL *y_re, REAL *y_im)
{
    enum { LANES = REGISTER / sizeof(REAL) };
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        NAME(block)(4, x, a_re, a_im, i, y_re, y_im);
    for (; i + LANES <= n; i += LANES)
        NAME(block)(1, x, a_re, a_im, i, y_re, y_im);
    for (; i < n; i++) {
        REAL re = 0, im = 0;
        for (size_t t = 0; t < x->count; t++) {
            const REAL a = a_re[t], b = a_im[t], v = x->re[t * x->stride + i], w = x->im[t * x->stride + i];
            re += a * v;
            im += a * w;
            re -= b * w;
            im += b * v;
        }
        y_re[i] = re;
        y_im[i] = im;
    }
}
