/* vec_simd.h: vectors of floats as long as the registers of the instruction set that a file is compiled for: 4, 8 or 16
 * lanes. Longer ones would be kept in memory by GCC, which costs AVX2 most of its speed (docs/notebook/cpu.md). Only
 * files *_simd.h include this. */
#ifndef MRIRECON_VEC_SIMD_H
#define MRIRECON_VEC_SIMD_H

#include "gridding/base/inline.h"

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)
#define VEC_LANES 16
#elif defined(__AVX2__)
#define VEC_LANES 8
#else
#define VEC_LANES 4
#endif

typedef float vec __attribute__((vector_size(4 * VEC_LANES)));
typedef float vec_unaligned __attribute__((vector_size(4 * VEC_LANES), aligned(4), may_alias));
typedef int32_t vec_int __attribute__((vector_size(4 * VEC_LANES)));

INLINE vec load(const float *p)
{
    return *(const vec_unaligned *)p;
}

INLINE void store(float *p, vec v)
{
    *(vec_unaligned *)p = v;
}

INLINE vec splat(float f)
{
    return f - (vec){0}; /* exact, -0 included */
}

INLINE vec_int splat_int(int32_t i)
{
    return i - (vec_int){0};
}

/* 0, 1, 2, ... */
INLINE vec_int lane_numbers(void)
{
    vec_int numbers;
    for (int i = 0; i < VEC_LANES; i++)
        numbers[i] = i;
    return numbers;
}

INLINE vec only(vec v, vec_int mask)
{
    return (vec)((vec_int)v & mask);
}

/* The sum of a vector's lanes. */
INLINE double total(vec v)
{
#if VEC_LANES == 16
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
#elif VEC_LANES == 8
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
#endif
    return (double)v[0] + (double)v[1] + (double)v[2] + (double)v[3];
}

/* 1 / sqrt(x), x > 0, by the hardware's estimate and one Newton step: to 2^-22. */
INLINE vec inverse_root(vec x)
{
#if VEC_LANES == 16
    const vec y = (vec)_mm512_rsqrt14_ps((__m512)x);
#elif VEC_LANES == 8
    const vec y = (vec)_mm256_rsqrt_ps((__m256)x);
#else
    const vec y = (vec)_mm_rsqrt_ps((__m128)x);
#endif
    return y * (splat(1.5f) - splat(0.5f) * x * y * y);
}

INLINE unsigned mask_bits(vec_int mask)
{
#if VEC_LANES == 16
    return _mm512_movepi32_mask((__m512i)mask);
#elif VEC_LANES == 8
    return (unsigned)_mm256_movemask_ps((__m256)mask);
#else
    return (unsigned)_mm_movemask_ps((__m128)mask);
#endif
}

#endif
