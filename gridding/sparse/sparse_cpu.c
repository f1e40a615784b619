/* sparse_cpu.c: finite differences and wavelets on the CPU. An axis of an array is [outer][n][inner] with the elements
 * of `inner` side by side: loops over those are vector instructions; threads share the rest. */
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
    for (int d = 0; d < SPARSE_AXES; d++) {
        const size_t inner = product(n, 0, d), length = (size_t)n[d], rows = pixels / inner;
        if (!(axes >> d & 1))
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
    return 0;
}

/* x = x + a (g[r - e] - g[r]), where g of an axis' last pixel counts as 0, as do those before the first. */
static int difference_adjoint(struct dev *dev, const int *n, unsigned axes, const struct c32 *v, float a,
                              const struct c32 *g, struct c32 *x)
{
    const size_t pixels = product(n, 0, SPARSE_AXES);
    if (!v)
        memset(x, 0, pixels * sizeof *x);
    else if (v != x)
        memcpy(x, v, pixels * sizeof *x);
    for (int d = 0; d < SPARSE_AXES; d++) {
        const size_t inner = product(n, 0, d), length = (size_t)n[d], rows = pixels / inner;
        if (!(axes >> d & 1))
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
    return 0;
}

static int tv_step(struct dev *dev, size_t pixels, int count, float c, const struct c32 *g, float m, struct c32 *p,
                   struct c32 *r)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (pixels >= PARALLEL_FROM)
    for (size_t i = 0; i < pixels; i++)
        element_tv_step(i, pixels, count, c, g, m, p, r);
    return 0;
}

/* ---- wavelets ---- */

enum { PANEL = 32 };

/* One level of `columns` adjacent columns of length `m`, `stride` elements from row to row. */
static void level_columns(size_t m, size_t stride, size_t columns, bool inverse, struct c32 *x, struct c32 *panel)
{
    const size_t half = m / 2, pitch = columns > 1 ? PANEL : 1;
    for (size_t i = 0; i < m; i++)
        memcpy(panel + i * pitch, x + i * stride, columns * sizeof *panel);
    if (inverse)
        for (size_t i = 0; i < m; i++)
            memset(x + i * stride, 0, columns * sizeof *x);
    for (size_t k = 0; k < half; k++)
        for (int h = 0; h < 2; h++) {
            const size_t coefficient = k + (h ? half : 0);
            struct c32 sum[PANEL] = {{0, 0}};
            for (int t = 0; t < WAVELET_TAPS; t++) {
                const size_t sample = (2 * k + (size_t)t) % m;
                const float f = h ? wavelet_high(t) : wavelet_low(t);
                const struct c32 *from = panel + (inverse ? coefficient : sample) * pitch;
                struct c32 *to = inverse ? x + sample * stride : sum;
                for (size_t c = 0; c < columns; c++)
                    to[c] = (struct c32){to[c].re + f * from[c].re, to[c].im + f * from[c].im};
            }
            if (!inverse)
                memcpy(x + coefficient * stride, sum, columns * sizeof *sum);
        }
}

/* One level along axis d of the block of size m[] in an array of n[]: column panels of the block's rows. Along x, the
 * rows are taken through the panel one at a time. */
static int level_axis(struct dev *dev, const int *n, const int *m, int d, bool inverse, struct c32 *x)
{
    size_t stride[SPARSE_AXES], lines = 1;
    for (int e = 0; e < SPARSE_AXES; e++) {
        stride[e] = product(n, 0, e);
        lines *= e == d || (e == 0 && d > 0) ? 1 : (size_t)m[e];
    }
    const size_t wide = d > 0 ? (size_t)m[0] : 1, panels = (wide + PANEL - 1) / PANEL;
    int failed = 0;
#pragma omp parallel num_threads(dev->threads) reduction(| : failed) if (lines * wide * (size_t)m[d] >= PARALLEL_FROM)
    {
        struct c32 *panel = malloc((size_t)m[d] * PANEL * sizeof *panel);
        failed |= !panel;
#pragma omp for schedule(static)
        for (size_t part = 0; part < lines * panels; part++) {
            size_t line = part / panels, first = part % panels * PANEL, offset = first;
            for (int e = d > 0 ? 1 : 0; e < SPARSE_AXES; e++)
                if (e != d) {
                    offset += line % (size_t)m[e] * stride[e];
                    line /= (size_t)m[e];
                }
            if (panel)
                level_columns((size_t)m[d], stride[d], wide - first < PANEL ? wide - first : PANEL, inverse, x + offset,
                              panel);
        }
        free(panel);
    }
    return failed ? err_no_memory("a wavelet transform") : 0;
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
