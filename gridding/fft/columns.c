#include "gridding/fft/columns.h"

#include "gridding/base/cpu_set.h"
#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

struct fft_columns {
    int stages;
    struct columns_stage stage[COLUMNS_STAGES];
    const struct columns_leaf *leaf;
    struct columns_twiddle twiddle[];
};

/* Vectors are not longer than a row. */
static const struct columns_leaf *leaf_best(int columns)
{
    const enum cpu_set set = cpu_set_best();
    if (set == CPU_AVX512 && columns % 8 == 0)
        return &columns_leaf_avx512;
    return set >= CPU_AVX2 ? &columns_leaf_avx2 : &columns_leaf_sse2;
}

/* Radices of a length: the fewest; among those, the largest smallest one. */
struct radices {
    int count, radix[COLUMNS_STAGES];
};

static void radices_search(int rest, int largest, struct radices *now, struct radices *best)
{
    static const int known[] = {10, 8, 7, 6, 5, 4, 3, 2};
    if (rest == 1) {
        const int last = now->count - 1;
        if (best->count == 0 || now->count < best->count ||
            (now->count == best->count && now->radix[last] > best->radix[last]))
            *best = *now;
        return;
    }
    if (now->count == COLUMNS_STAGES || (best->count && now->count >= best->count))
        return;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] <= largest && rest % known[i] == 0) {
            now->radix[now->count++] = known[i];
            radices_search(rest / known[i], known[i], now, best);
            now->count--;
        }
}

static struct columns_twiddle twiddle_of(int turn, int of, int sign)
{
    const double angle = sign * 2 * 3.14159265358979323846 * turn / of;
    const float re = (float)cos(angle), im = (float)sin(angle);
    return (struct columns_twiddle){{re, re}, {-im, im}};
}

int fft_columns_create(struct fft_columns **out, int n, int columns, int sign)
{
    struct radices now = {0}, found = {0};
    if (n >= 2)
        radices_search(n, COLUMNS_RADIX_MOST, &now, &found);
    if (found.count == 0 || (columns != 4 && columns != 8 && columns != 16))
        return err_set(ERR_BAD_PARAMETER, "There is no FFT of %d points in %d columns.", n, columns);
    size_t twiddles = 0;
    for (int s = 0, done = 1; s < found.count; done *= found.radix[s++])
        twiddles += (size_t)done * (size_t)(found.radix[s] - 1);
    struct fft_columns *fft = calloc(1, sizeof *fft + twiddles * sizeof *fft->twiddle);
    if (!fft)
        return err_no_memory_bytes(twiddles * sizeof *fft->twiddle, "planning an FFT of %d points", n);
    struct columns_twiddle *to = fft->twiddle;
    fft->stages = found.count;
    fft->leaf = leaf_best(columns);
    for (int s = 0, done = 1; s < found.count; done *= found.radix[s++]) {
        const int radix = found.radix[s];
        fft->stage[s] = (struct columns_stage){n, columns, radix, done, (float)sign, to};
        for (int j = 0; j < done; j++)
            for (int r = 1; r < radix; r++)
                *to++ = twiddle_of(j * r, done * radix, sign);
    }
    *out = fft;
    return 0;
}

void fft_columns_free(struct fft_columns *fft)
{
    free(fft);
}

struct c32 *fft_columns_run(const struct fft_columns *fft, const struct c32 *in, size_t pitch, struct c32 *a,
                            struct c32 *b)
{
    for (int s = 0; s < fft->stages; s++) {
        struct c32 *to = s % 2 ? b : a;
        fft->leaf->run(&fft->stage[s], in, pitch, to);
        in = to;
        pitch = (size_t)fft->stage[s].columns;
    }
    return fft->stages % 2 ? a : b;
}
