/* columns.h: FFTs along the first axis of values[n][columns] for a few neighbouring columns, which are the lanes of
 * vectors. FFTW's estimated plans of such data run at a third of the speed, and measured ones, which run at two thirds,
 * take up to 0.2 s to make and differ from run to run. */
#ifndef MRIRECON_FFT_COLUMNS_H
#define MRIRECON_FFT_COLUMNS_H

#include "gridding/base/num.h"

#include <stdbool.h>
#include <stddef.h>

struct fft_columns;

/* A transform of length n >= 2, a product of 2, 3, 5, 7, of 4, 8 or 16 columns: sum over j of value[j] exp(sign 2 pi i
 * j m / n), sign +1 or -1, unscaled. Fails with ERR_NO_MEMORY, ERR_BAD_PARAMETER. */
int fft_columns_create(struct fft_columns **out, int n, int columns, int sign);
void fft_columns_free(struct fft_columns *fft);

/* Transforms in[n][columns], whose rows are `pitch` values apart; returns the result, which is in a or b, each
 * [n][columns] and aligned to 64 bytes. `in` may be b, with pitch = columns; if it is neither a nor b, it is not
 * changed. May be called by several threads at once, on different memory. */
struct c32 *fft_columns_run(const struct fft_columns *fft, const struct c32 *in, size_t pitch, struct c32 *a,
                            struct c32 *b);

/* ---- for columns.c and the instruction sets ---- */

enum { COLUMNS_STAGES = 12, COLUMNS_RADIX_MOST = 10 };

/* exp(2 pi i x) as factors of (re, im) and of (im, re). */
struct columns_twiddle {
    float direct[2], swapped[2];
};

/* One Stockham stage of a radix; `done` is the product of the radices before. */
struct columns_stage {
    int n, columns, radix, done;
    float sign;
    const struct columns_twiddle *twiddle; /* [done][radix - 1] */
};

struct columns_leaf {
    /* Rows of `from` are `pitch` values apart, those of `to` adjacent. */
    void (*run)(const struct columns_stage *stage, const struct c32 *from, size_t pitch, struct c32 *to);
};

extern const struct columns_leaf columns_leaf_sse2, columns_leaf_avx2, columns_leaf_avx512;

#endif
