/* vec_simd.h: vectors of 16 floats for loops that are compiled once for each instruction set: the compiler's vector
 * extension, independent of the size of registers. Only files *_simd.h include this. */
#ifndef MRIRECON_VEC_SIMD_H
#define MRIRECON_VEC_SIMD_H

#include "gridding/base/inline.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed within one file only */

typedef float vec __attribute__((vector_size(64)));
typedef float vec_unaligned __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vec_int __attribute__((vector_size(64)));

static const vec_int lane_number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

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
    return (vec){f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f};
}

INLINE vec_int splat_int(int32_t i)
{
    return (vec_int){i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i};
}

INLINE vec only(vec v, vec_int mask)
{
    return (vec)((vec_int)v & mask);
}

/* Comparisons of lanes: all bits where true. Where registers are shorter than the vector, GCC compiles `a < b` itself
 * lane by lane. PARTS: op() of parts of BYTES, of a type that they are loaded as. */
#define PARTS(BYTES, TYPE, OP)                              \
    vec_int all;                                            \
    for (int part = 0; part < 64 / (BYTES); part++) {       \
        TYPE x, y;                                          \
        memcpy(&x, (const char *)&a + (BYTES)*part, BYTES); \
        memcpy(&y, (const char *)&b + (BYTES)*part, BYTES); \
        x = OP;                                             \
        memcpy((char *)&all + (BYTES)*part, &x, BYTES);     \
    }                                                       \
    return all

INLINE vec_int below(vec a, vec b)
{
#if defined(__AVX512F__)
    return a < b;
#elif defined(__AVX2__)
    PARTS(32, __m256, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
#else
    PARTS(16, __m128, _mm_cmplt_ps(x, y));
#endif
}

INLINE vec_int at_most(vec a, vec b)
{
#if defined(__AVX512F__)
    return a <= b;
#elif defined(__AVX2__)
    PARTS(32, __m256, _mm256_cmp_ps(x, y, _CMP_LE_OQ));
#else
    PARTS(16, __m128, _mm_cmple_ps(x, y));
#endif
}

INLINE vec_int below_int(vec_int a, vec_int b)
{
#if defined(__AVX512F__)
    return a < b;
#elif defined(__AVX2__)
    PARTS(32, __m256i, _mm256_cmpgt_epi32(y, x));
#else
    PARTS(16, __m128i, _mm_cmplt_epi32(x, y));
#endif
}

#undef PARTS

/* The sum of a vector's lanes. */
INLINE double total(vec v)
{
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    return (double)v[0] + (double)v[1] + (double)v[2] + (double)v[3];
}

/* 1 / sqrt(x), x > 0, by the hardware's estimate and one Newton step: to 2^-22. */
INLINE vec inverse_root(vec x)
{
    vec y;
#if defined(__AVX512F__)
    y = (vec)_mm512_rsqrt14_ps((__m512)x);
#elif defined(__AVX__)
    for (int half = 0; half < 2; half++) {
        __m256 part;
        memcpy(&part, (const char *)&x + 32 * half, 32);
        part = _mm256_rsqrt_ps(part);
        memcpy((char *)&y + 32 * half, &part, 32);
    }
#else
    for (int quarter = 0; quarter < 4; quarter++) {
        __m128 part;
        memcpy(&part, (const char *)&x + 16 * quarter, 16);
        part = _mm_rsqrt_ps(part);
        memcpy((char *)&y + 16 * quarter, &part, 16);
    }
#endif
    return y * (splat(1.5f) - splat(0.5f) * x * y * y);
}

INLINE unsigned mask_bits(vec_int mask)
{
#if defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX__)
    unsigned bits = 0;
    for (int half = 0; half < 2; half++) {
        __m256 part;
        memcpy(&part, (const char *)&mask + 32 * half, 32);
        bits |= (unsigned)_mm256_movemask_ps(part) << (8 * half);
    }
    return bits;
#else
    unsigned bits = 0;
    for (int quarter = 0; quarter < 4; quarter++) {
        __m128 part;
        memcpy(&part, (const char *)&mask + 16 * quarter, 16);
        bits |= (unsigned)_mm_movemask_ps(part) << (4 * quarter);
    }
    return bits;
#endif
}

#endif
