/* sparse_cpu.c: finite differences and wavelets on the CPU. An axis of an array is [outer][n][inner] with the elements
 * of `inner` side by side: loops over those are vector instructions; threads share the rest. */
#include "gridding/base/ask.h"
#include "gridding/base/err.h"
#include "gridding/sparse/sparse_element.h"
#include "gridding/sparse/sparse_leaf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements; below, waking threads costs more than they save. */
enum { PARALLEL_FROM = 1 << 15 };

static size_t product(const int *n, int from, int until)
{
    size_t p = 1;
    for (int d = from; d < until; d++)
        p *= (size_t)n[d];
    return p;
}

/* ---- finite differences ---- */

static int difference(struct dev *dev, const int *n, unsigned axes, const struct c32 *x, struct c32 *g)
{
    const size_t pixels = product(n, 0, SPARSE_AXES);
    struct asker *asker = dev_asker(dev);
    for (int d = 0; d < SPARSE_AXES; d++) {
        const size_t inner = product(n, 0, d), length = (size_t)n[d], rows = pixels / inner;
        if (!(axes >> d & 1) || asker_stopped(asker, pixels))
            continue;
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (pixels >= PARALLEL_FROM)
        for (size_t row = 0; row < rows; row++) {
            const struct c32 *at = x + row * inner, *next = at + inner;
            struct c32 *to = g + row * inner;
            const bool last = row % length == length - 1;
            for (size_t i = 0; i < inner; i++)
                to[i] = element_difference(last, at[i], last ? at[i] : next[i]);
        }
        g += pixels;
    }
    return asker_rc(asker);
}

/* x = x + a (g[r - e] - g[r]), where g of an axis' last pixel counts as 0, as do those before the first. */
static int difference_adjoint(struct dev *dev, const int *n, unsigned axes, const struct c32 *v, float a,
                              const struct c32 *g, struct c32 *x)
{
    const size_t pixels = product(n, 0, SPARSE_AXES);
    struct asker *asker = dev_asker(dev);
    if (!v)
        memset(x, 0, pixels * sizeof *x);
    else if (v != x)
        memcpy(x, v, pixels * sizeof *x);
    for (int d = 0; d < SPARSE_AXES; d++) {
        const size_t inner = product(n, 0, d), length = (size_t)n[d], rows = pixels / inner;
        if (!(axes >> d & 1) || asker_stopped(asker, pixels))
            continue;
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (pixels >= PARALLEL_FROM)
        for (size_t row = 0; row < rows; row++) {
            const float less = row % length < length - 1 ? -a : 0, more = row % length > 0 ? a : 0;
            const struct c32 *here = g + row * inner, *before = more != 0 ? here - inner : here;
            struct c32 *to = x + row * inner;
            for (size_t i = 0; i < inner; i++)
                to[i] = element_difference_adjoint(to[i], more, before[i], less, here[i]);
        }
        g += pixels;
    }
    return asker_rc(asker);
}

static int tv_step(struct dev *dev, size_t pixels, int count, float c, const struct c32 *g, float m, struct c32 *p,
                   struct c32 *r)
{
    enum { PIECE = 1 << 12, COST = 20 /* ns of a pixel */ };
    struct asker *asker = dev_asker(dev);
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (pixels >= PARALLEL_FROM)
    for (size_t from = 0; from < pixels; from += PIECE) {
        const size_t most = pixels - from < PIECE ? pixels : from + PIECE;
        const size_t end = asker_stopped(asker, PIECE * COST) ? from : most;
        for (size_t i = from; i < end; i++)
            element_tv_step(i, pixels, count, c, g, m, p, r);
    }
    return asker_rc(asker);
}

/* ---- wavelets ---- */

enum { PANEL = 32, RUN = WAVELET_TAPS, COST = 4 /* ns of a coefficient, approximately */ };

/* Of four runs of numbers, two weighted sums: forwards a low and a high coefficient from samples 2k to 2k + 3, back the
 * samples 2k and 2k + 1 from the coefficients k - 1 and k, in the order low, high, low, high. */
struct taps {
    float first[RUN], second[RUN];
};

static struct taps taps_of(bool inverse)
{
    struct taps f;
    for (int t = 0; t < RUN; t++) {
        f.first[t] = wavelet_low(t);
        f.second[t] = wavelet_high(t);
    }
    if (inverse)
        f = (struct taps){{f.first[2], f.second[2], f.first[0], f.second[0]},
                          {f.first[3], f.second[3], f.first[1], f.second[1]}};
    return f;
}

/* `n` complex numbers of each run; the sums overlap no run. */
static void taps_sum(size_t n, const struct taps *f, const struct c32 *const run[RUN], struct c32 *first,
                     struct c32 *second)
{
    const float *a = &run[0]->re, *b = &run[1]->re, *c = &run[2]->re, *d = &run[3]->re;
    float *restrict p = &first->re, *restrict q = &second->re;
    const struct taps w = *f;
    for (size_t i = 0; i < 2 * n; i++) {
        p[i] = w.first[0] * a[i] + w.first[1] * b[i] + w.first[2] * c[i] + w.first[3] * d[i];
        q[i] = w.second[0] * a[i] + w.second[1] * b[i] + w.second[2] * c[i] + w.second[3] * d[i];
    }
}

/* One level of `columns` adjacent columns of length `m`, `stride` elements from row to row: a run is a row. */
static void level_columns(size_t m, size_t stride, size_t columns, bool inverse, struct c32 *x, struct c32 *panel)
{
    const size_t half = m / 2;
    const struct taps f = taps_of(inverse);
    for (size_t i = 0; i < m; i++)
        memcpy(panel + i * PANEL, x + i * stride, columns * sizeof *panel);
    for (size_t k = 0; k < half; k++) {
        const size_t before = k > 0 ? k - 1 : half - 1, after = k + 1 < half ? 2 * k + 2 : 0;
        const size_t back[RUN] = {before, before + half, k, k + half},
                     forth[RUN] = {2 * k, 2 * k + 1, after, after + 1};
        const size_t *at = inverse ? back : forth;
        const struct c32 *const run[RUN] = {panel + at[0] * PANEL, panel + at[1] * PANEL, panel + at[2] * PANEL,
                                            panel + at[3] * PANEL};
        const size_t first = inverse ? 2 * k : k, second = inverse ? 2 * k + 1 : k + half;
        taps_sum(columns, &f, run, x + first * stride, x + second * stride);
    }
}

/* One level of a row of length `m`: the runs are the row's even and odd samples, or its low and high coefficients, each
 * with its neighbour beyond the end, and the same one further. `panel`: for 2 m + 2 elements. */
static void level_row(size_t m, bool inverse, struct c32 *x, struct c32 *panel)
{
    const size_t half = m / 2;
    const struct taps f = taps_of(inverse);
    struct c32 *a = panel, *b = a + half + 1;
    const struct c32 *const run[RUN] = {a, b, a + 1, b + 1};
    if (inverse) {
        struct c32 *even = b + half + 1, *odd = even + half;
        memcpy(a + 1, x, half * sizeof *a);
        memcpy(b + 1, x + half, half * sizeof *b);
        a[0] = a[half];
        b[0] = b[half];
        taps_sum(half, &f, run, even, odd);
        for (size_t k = 0; k < half; k++) {
            x[2 * k] = even[k];
            x[2 * k + 1] = odd[k];
        }
    } else {
        for (size_t k = 0; k < half; k++) {
            a[k] = x[2 * k];
            b[k] = x[2 * k + 1];
        }
        a[half] = a[0];
        b[half] = b[0];
        taps_sum(half, &f, run, x, x + half);
    }
}

/* One level along axis d of the block of size m[] in an array of n[]: rows, or panels of columns of the block's rows.
 */
static int level_axis(struct dev *dev, const int *n, const int *m, int d, bool inverse, struct c32 *x)
{
    size_t stride[SPARSE_AXES], lines = 1;
    for (int e = 0; e < SPARSE_AXES; e++) {
        stride[e] = product(n, 0, e);
        lines *= e == d || e == 0 ? 1 : (size_t)m[e];
    }
    const size_t wide = d > 0 ? (size_t)m[0] : 1, panels = (wide + PANEL - 1) / PANEL;
    struct asker *asker = dev_asker(dev);
    int failed = 0;
#pragma omp parallel num_threads(dev->threads) reduction(| : failed) if (lines * wide * (size_t)m[d] >= PARALLEL_FROM)
    {
        struct c32 *panel = malloc((size_t)m[d] * PANEL * sizeof *panel);
        failed |= !panel;
#pragma omp for schedule(static)
        for (size_t part = 0; part < lines * panels; part++) {
            size_t line = part / panels, first = part % panels * PANEL, offset = first;
            if (asker_stopped(asker, (size_t)m[d] * PANEL * COST))
                continue;
            for (int e = 1; e < SPARSE_AXES; e++)
                if (e != d) {
                    offset += line % (size_t)m[e] * stride[e];
                    line /= (size_t)m[e];
                }
            if (panel && d == 0)
                level_row((size_t)m[0], inverse, x + offset, panel);
            else if (panel)
                level_columns((size_t)m[d], stride[d], wide - first < PANEL ? wide - first : PANEL, inverse, x + offset,
                              panel);
        }
        free(panel);
    }
    return failed ? err_no_memory("a wavelet transform") : asker_rc(asker);
}

static int wavelet(struct dev *dev, const int *n, const int *levels, bool inverse, struct c32 *x)
{
    int most = 0, rc = 0;
    for (int d = 0; d < SPARSE_AXES; d++)
        most = levels[d] > most ? levels[d] : most;
    for (int i = 0; i < most; i++) {
        const int level = inverse ? most - 1 - i : i;
        int m[SPARSE_AXES];
        for (int d = 0; d < SPARSE_AXES; d++)
            m[d] = n[d] >> (level < levels[d] ? level : levels[d]);
        for (int e = 0; e < SPARSE_AXES && rc == 0; e++) {
            const int d = inverse ? SPARSE_AXES - 1 - e : e;
            if (level < levels[d])
                rc = level_axis(dev, n, m, d, inverse, x);
        }
    }
    return rc;
}

static int roll(struct dev *dev, const int *n, const int *shift, const struct c32 *x, struct c32 *y)
{
    const size_t wide = (size_t)n[0], rows = product(n, 1, SPARSE_AXES);
    size_t by[SPARSE_AXES];
    for (int d = 0; d < SPARSE_AXES; d++)
        by[d] = (size_t)((shift[d] % n[d] + n[d]) % n[d]);
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (rows * wide >= PARALLEL_FROM)
    for (size_t row = 0; row < rows; row++) {
        size_t rest = row, to = 0, stride = 1;
        for (int d = 1; d < SPARSE_AXES; d++) {
            to += (rest % (size_t)n[d] + by[d]) % (size_t)n[d] * stride;
            rest /= (size_t)n[d];
            stride *= (size_t)n[d];
        }
        memcpy(y + to * wide + by[0], x + row * wide, (wide - by[0]) * sizeof *y);
        memcpy(y + to * wide, x + row * wide + (wide - by[0]), by[0] * sizeof *y);
    }
    return 0;
}

const struct sparse_leaf sparse_leaf_cpu = {
    .difference = difference,
    .difference_adjoint = difference_adjoint,
    .tv_step = tv_step,
    .wavelet = wavelet,
    .roll = roll,
    .low_rank = sparse_low_rank_cpu,
};
