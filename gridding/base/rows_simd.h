/* rows_simd.h: the loops of rows.h for one instruction set; rows_sse2.c, rows_avx2.c and rows_avx512.c define REGISTER,
 * the bytes of a vector register (default: 16), include this, and are compiled with that set's flags. */
#include "gridding/base/inline.h"
#include "gridding/base/rows.h"
#include "gridding/base/rows_sum.h"

#undef NAME
#undef REAL
#define REAL       double
#define NAME(what) what##_doubles
#include "gridding/base/rows_sum.h"

/* `vectors`, a constant of at most 8, from element `first`. */
INLINE void block_reals(int vectors, const struct rows_reals *x, const float *a, size_t first, float *y)
{
    enum { LANES = REGISTER / sizeof(float) };
    vec_floats sum[8] = {{0}};
    for (size_t t = 0; t < x->count; t++)
        for (int k = 0; k < vectors; k++)
            sum[k] += a[t] * *(const vec_unaligned_floats *)(x->x + t * x->stride + first + (size_t)(k * LANES));
    for (int k = 0; k < vectors; k++)
        *(vec_unaligned_floats *)(y + first + (size_t)(k * LANES)) = sum[k];
}

static void sum_reals(const struct rows_reals *x, const float *a, size_t n, float *y)
{
    enum { LANES = REGISTER / sizeof(float) };
    size_t i = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES)
        block_reals(8, x, a, i, y);
    for (; i + LANES <= n; i += LANES)
        block_reals(1, x, a, i, y);
    for (; i < n; i++) {
        float sum = 0;
        for (size_t t = 0; t < x->count; t++)
            sum += a[t] * x->x[t * x->stride + i];
        y[i] = sum;
    }
}
