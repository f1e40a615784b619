/* columns_simd.h: a stage of columns.h for one instruction set; columns_sse2.c, columns_avx2.c and columns_avx512.c
 * define LANES, the floats of a vector (default: 4), include it, and are compiled with that set's flags. A vector holds
 * LANES / 2 neighbouring complex values of a row. */
#include "gridding/base/inline.h"
#include "gridding/fft/columns.h"

#ifndef LANES
#define LANES 4
#endif

#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors stay inside this file */

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef double vec_pairs __attribute__((vector_size(4 * LANES)));
typedef float vec_unaligned __attribute__((vector_size(4 * LANES), aligned(8), may_alias));

INLINE vec load(const float *p)
{
    return *(const vec_unaligned *)p;
}

INLINE void store(float *p, vec v)
{
    *(vec_unaligned *)p = v;
}

/* Swap re and im of each value of a vector. */
INLINE vec swapped(vec v)
{
#if LANES == 16
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif LANES == 8
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    return __builtin_shufflevector(v, v, 1, 0, 3, 2);
#endif
}

INLINE vec pairs(const float pair[2])
{
    double both;
    memcpy(&both, pair, sizeof both);
#if LANES == 16
    return (vec)(vec_pairs){both, both, both, both, both, both, both, both};
#elif LANES == 8
    return (vec)(vec_pairs){both, both, both, both};
#else
    return (vec)(vec_pairs){both, both};
#endif
}

/* Multiply by exp(2 pi i x); and by s i, `i` being s (-1, 1) in all pairs. */
INLINE vec turned(vec v, const struct columns_twiddle *by)
{
    return v * pairs(by->direct) + swapped(v) * pairs(by->swapped);
}

INLINE vec times_i(vec v, vec i)
{
    return swapped(v) * i;
}

/* Multiply by a constant exp(s 2 pi i x). */
INLINE vec turned_by(vec v, float re, float im, vec i)
{
    return v * re + swapped(v) * (i * im);
}

/* ---- butterflies: v[R] to its transform, in place, in natural order ---- */

INLINE void dft2(vec *a, vec *b)
{
    const vec t = *a;
    *a = t + *b;
    *b = t - *b;
}

INLINE void dft3(vec *a, vec *b, vec *c, vec i)
{
    const vec s = *b + *c, d = times_i(*b - *c, i * 0.86602540378443865f), m = *a - 0.5f * s;
    *a += s;
    *b = m + d;
    *c = m - d;
}

INLINE void dft4(vec *a, vec *b, vec *c, vec *d, vec i)
{
    const vec s = *a + *c, t = *a - *c, u = *b + *d, v = times_i(*b - *d, i);
    *a = s + u;
    *b = t + v;
    *c = s - u;
    *d = t - v;
}

INLINE void dft5(vec *a, vec *b, vec *c, vec *d, vec *e, vec i)
{
    const float c1 = 0.30901699437494745f, c2 = -0.80901699437494742f, s1 = 0.95105651629515357f,
                s2 = 0.58778525229247314f;
    const vec t1 = *b + *e, t2 = *c + *d, u1 = times_i(*b - *e, i), u2 = times_i(*c - *d, i);
    const vec m1 = *a + c1 * t1 + c2 * t2, m2 = *a + c2 * t1 + c1 * t2;
    const vec p = s1 * u1 + s2 * u2, q = s2 * u1 - s1 * u2;
    *a += t1 + t2;
    *b = m1 + p;
    *e = m1 - p;
    *c = m2 + q;
    *d = m2 - q;
}

INLINE void butterfly_2(vec v[2], vec i)
{
    (void)i;
    dft2(&v[0], &v[1]);
}

INLINE void butterfly_3(vec v[3], vec i)
{
    dft3(&v[0], &v[1], &v[2], i);
}

INLINE void butterfly_4(vec v[4], vec i)
{
    dft4(&v[0], &v[1], &v[2], &v[3], i);
}

INLINE void butterfly_5(vec v[5], vec i)
{
    dft5(&v[0], &v[1], &v[2], &v[3], &v[4], i);
}

/* Inputs 3 a + 2 b mod 6, outputs 3 a + 4 b mod 6: no twiddles. */
INLINE void butterfly_6(vec v[6], vec i)
{
    dft2(&v[0], &v[3]);
    dft2(&v[2], &v[5]);
    dft2(&v[4], &v[1]);
    dft3(&v[0], &v[2], &v[4], i);
    dft3(&v[3], &v[5], &v[1], i);
    const vec out[6] = {v[0], v[5], v[4], v[3], v[2], v[1]};
    memcpy(v, out, sizeof out);
}

INLINE void butterfly_7(vec v[7], vec i)
{
    const float c1 = 0.62348980185873353f, c2 = -0.22252093395631440f, c3 = -0.90096886790241913f;
    const float s1 = 0.78183148246802981f, s2 = 0.97492791218182361f, s3 = 0.43388373911755812f;
    const vec t1 = v[1] + v[6], t2 = v[2] + v[5], t3 = v[3] + v[4];
    const vec u1 = times_i(v[1] - v[6], i), u2 = times_i(v[2] - v[5], i), u3 = times_i(v[3] - v[4], i);
    const vec m1 = v[0] + c1 * t1 + c2 * t2 + c3 * t3, m2 = v[0] + c2 * t1 + c3 * t2 + c1 * t3;
    const vec m3 = v[0] + c3 * t1 + c1 * t2 + c2 * t3;
    const vec p1 = s1 * u1 + s2 * u2 + s3 * u3, p2 = s2 * u1 - s3 * u2 - s1 * u3, p3 = s3 * u1 - s1 * u2 + s2 * u3;
    v[0] += t1 + t2 + t3;
    v[1] = m1 + p1;
    v[6] = m1 - p1;
    v[2] = m2 + p2;
    v[5] = m2 - p2;
    v[3] = m3 + p3;
    v[4] = m3 - p3;
}

INLINE void butterfly_8(vec v[8], vec i)
{
    const float h = 0.70710678118654752f;
    dft4(&v[0], &v[2], &v[4], &v[6], i);
    dft4(&v[1], &v[3], &v[5], &v[7], i);
    v[3] = turned_by(v[3], h, h, i);
    v[5] = times_i(v[5], i);
    v[7] = turned_by(v[7], -h, h, i);
    dft2(&v[0], &v[1]);
    dft2(&v[2], &v[3]);
    dft2(&v[4], &v[5]);
    dft2(&v[6], &v[7]);
    /* 2 k + s now holds output k + 4 s. */
    const vec out[8] = {v[0], v[2], v[4], v[6], v[1], v[3], v[5], v[7]};
    memcpy(v, out, sizeof out);
}

/* Inputs 5 a + 2 b mod 10, outputs 5 a + 6 b mod 10: no twiddles. */
INLINE void butterfly_10(vec v[10], vec i)
{
    dft2(&v[0], &v[5]);
    dft2(&v[2], &v[7]);
    dft2(&v[4], &v[9]);
    dft2(&v[6], &v[1]);
    dft2(&v[8], &v[3]);
    dft5(&v[0], &v[2], &v[4], &v[6], &v[8], i);
    dft5(&v[5], &v[7], &v[9], &v[1], &v[3], i);
    const vec out[10] = {v[0], v[7], v[4], v[1], v[8], v[5], v[2], v[9], v[6], v[3]};
    memcpy(v, out, sizeof out);
}

/* ---- stages ---- */

#define STAGE(R)                                                                                               \
    INLINE void stage_##R(const struct columns_stage *s, const struct c32 *from, size_t pitch, struct c32 *to, \
                          bool first)                                                                          \
    {                                                                                                          \
        const int done = first ? 1 : s->done, apart = s->n / R;                                                \
        const size_t columns = (size_t)s->columns;                                                             \
        const vec i = pairs((const float[2]){-s->sign, s->sign});                                              \
        for (int j = 0; j < done; j++)                                                                         \
            for (int block = 0; block < apart / done; block++)                                                 \
                for (size_t c = 0; c < columns; c += LANES / 2) {                                              \
                    const struct c32 *in = from + (size_t)(block * done + j) * pitch + c;                      \
                    struct c32 *out = to + (size_t)(block * done * R + j) * columns + c;                       \
                    vec v[R];                                                                                  \
                    for (int r = 0; r < R; r++) {                                                              \
                        v[r] = load(&in[(size_t)(r * apart) * pitch].re);                                      \
                        if (!first && r > 0)                                                                   \
                            v[r] = turned(v[r], s->twiddle + (size_t)j * (R - 1) + (r - 1));                   \
                    }                                                                                          \
                    butterfly_##R(v, i);                                                                       \
                    for (int r = 0; r < R; r++)                                                                \
                        store(&out[(size_t)(r * done) * columns].re, v[r]);                                    \
                }                                                                                              \
    }                                                                                                          \
    static void any_##R(const struct columns_stage *s, const struct c32 *from, size_t pitch, struct c32 *to)   \
    {                                                                                                          \
        if (s->done == 1)                                                                                      \
            stage_##R(s, from, pitch, to, true);                                                               \
        else                                                                                                   \
            stage_##R(s, from, pitch, to, false);                                                              \
    }

STAGE(2)
STAGE(3)
STAGE(4)
STAGE(5)
STAGE(6)
STAGE(7)
STAGE(8)
STAGE(10)
#undef STAGE

static void run(const struct columns_stage *stage, const struct c32 *from, size_t pitch, struct c32 *to)
{
    switch (stage->radix) {
#define RADIX(R)                         \
    case R:                              \
        any_##R(stage, from, pitch, to); \
        break;
        RADIX(2)
        RADIX(3)
        RADIX(4)
        RADIX(5)
        RADIX(6)
        RADIX(7)
        RADIX(8)
        RADIX(10)
#undef RADIX
    }
}
