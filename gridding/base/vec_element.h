/* vec_element.h: the formulas of vec.h for one element, for every kind of device. Only vec_cpu.c and vec_gpu.cu include
 * this. */
#ifndef MRIRECON_VEC_ELEMENT_H
#define MRIRECON_VEC_ELEMENT_H

#include "gridding/base/host_device.h"
#include "gridding/base/num.h"

#include <math.h>

/* a x + y */
HOST_DEVICE static inline struct c32 element_axpy(float a, struct c32 x, struct c32 y)
{
    const struct c32 sum = {y.re + a * x.re, y.im + a * x.im};
    return sum;
}

HOST_DEVICE static inline struct c32 element_scale(float a, struct c32 x)
{
    const struct c32 scaled = {a * x.re, a * x.im};
    return scaled;
}

/* Re conj(x) y */
HOST_DEVICE static inline double element_dot(struct c32 x, struct c32 y)
{
    return (double)x.re * (double)y.re + (double)x.im * (double)y.im;
}

/* |x|, in double, because |x|^2 may overflow a float */
HOST_DEVICE static inline double element_size(struct c32 x)
{
    return sqrt((double)x.re * (double)x.re + (double)x.im * (double)x.im);
}

HOST_DEVICE static inline struct c32 element_multiply(struct c32 m, struct c32 x)
{
    const struct c32 product = {m.re * x.re - m.im * x.im, m.re * x.im + m.im * x.re};
    return product;
}

/* x + conj(m) y */
HOST_DEVICE static inline struct c32 element_multiply_conj_add(struct c32 m, struct c32 y, struct c32 x)
{
    const struct c32 sum = {x.re + (m.re * y.re + m.im * y.im), x.im + (m.re * y.im - m.im * y.re)};
    return sum;
}

/* exp(-2 pi i a f) */
HOST_DEVICE static inline struct c32 element_wave(double a, float f)
{
    const double cycles = ROUNDED_PRODUCT(a, (double)f);
    const double angle = -2 * 3.14159265358979323846 * (cycles - floor(cycles));
    const struct c32 wave = {(float)cos(angle), (float)sin(angle)};
    return wave;
}

/* sum + |x|^2 */
HOST_DEVICE static inline float element_square_add(struct c32 x, float sum)
{
    return sum + (x.re * x.re + x.im * x.im);
}

/* x max(0, 1 - t / |x|); NaN stays NaN */
HOST_DEVICE static inline struct c32 element_soft(float t, struct c32 x)
{
    const float size = sqrtf(x.re * x.re + x.im * x.im);
    return element_scale(size <= t ? 0 : 1 - t / size, x);
}

#endif
