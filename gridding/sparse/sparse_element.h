/* sparse_element.h: the formulas of sparse.h for one element, for every kind of device. Only sparse_cpu.c and
 * sparse_gpu.cu include this. */
#ifndef MRIRECON_SPARSE_ELEMENT_H
#define MRIRECON_SPARSE_ELEMENT_H

#include "gridding/base/host_device.h"
#include "gridding/base/num.h"

#include <math.h>

/* next - here; 0 at an axis' last pixel */
HOST_DEVICE static inline struct c32 element_difference(bool last, struct c32 here, struct c32 next)
{
    const struct c32 difference = {last ? 0 : next.re - here.re, last ? 0 : next.im - here.im};
    return difference;
}

/* x + more before + less here: an axis' part of x + a D' g. more = a, or 0 at its first pixel; less = -a, or 0 at its
 * last. */
HOST_DEVICE static inline struct c32 element_difference_adjoint(struct c32 x, float more, struct c32 before, float less,
                                                                struct c32 here)
{
    const struct c32 sum = {x.re + more * before.re + less * here.re, x.im + more * before.im + less * here.im};
    return sum;
}

/* sparse_tv_step() of pixel i */
HOST_DEVICE static inline void element_tv_step(size_t i, size_t pixels, int count, float c, const struct c32 *g,
                                               float m, struct c32 *p, struct c32 *r)
{
    float square = 0;
    for (size_t j = i; j < (size_t)count * pixels; j += pixels) {
        r[j].re += c * g[j].re;
        r[j].im += c * g[j].im;
        square += r[j].re * r[j].re + r[j].im * r[j].im;
    }
    const float keep = square > 1 ? 1 / sqrtf(square) : 1;
    for (size_t j = i; j < (size_t)count * pixels; j += pixels) {
        const struct c32 q = {keep * r[j].re, keep * r[j].im};
        r[j].re = q.re + m * (q.re - p[j].re);
        r[j].im = q.im + m * (q.im - p[j].im);
        p[j] = q;
    }
}

enum { WAVELET_TAPS = 4 };

/* Low pass: (1 + s, 3 + s, 3 - s, 1 - s) / (4 sqrt 2), s = sqrt 3. High pass: high[t] = (-1)^t low[3 - t]. */
HOST_DEVICE static inline float wavelet_low(int t)
{
    return t == 0   ? 0.48296291314453414f
           : t == 1 ? 0.83651630373780790f
           : t == 2 ? 0.22414386804201339f
                    : -0.12940952255126037f;
}

HOST_DEVICE static inline float wavelet_high(int t)
{
    return t & 1 ? -wavelet_low(WAVELET_TAPS - 1 - t) : wavelet_low(WAVELET_TAPS - 1 - t);
}

#endif
