/* vec_cpu.c: vector arithmetic on the CPU. Loops run over plain floats, which the compiler turns into vector
 * instructions; threads share a vector's blocks. */
#include "gridding/base/dev_leaf.h"

#include <math.h>
#include <string.h>

enum {
    PARALLEL_FROM = 1 << 15, /* elements; for shorter vectors, waking threads costs more than it saves */
    SUMS = 256,              /* parts of a dot product, summed in their order */
    LANES = 8                /* independent sums of a part, so that it vectorises without reordering */
};

static int copy(struct dev *dev, size_t n, const struct c32 *x, struct c32 *y)
{
    (void)dev;
    memcpy(y, x, n * sizeof *y);
    return 0;
}

static int axpy(struct dev *dev, size_t n, float a, const struct c32 *x, struct c32 *y)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t i = 0; i < n; i++)
        y[i] = (struct c32){y[i].re + a * x[i].re, y[i].im + a * x[i].im};
    return 0;
}

static int xpay(struct dev *dev, size_t n, const struct c32 *x, float a, struct c32 *y)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t i = 0; i < n; i++)
        y[i] = (struct c32){x[i].re + a * y[i].re, x[i].im + a * y[i].im};
    return 0;
}

static int scale(struct dev *dev, size_t n, float a, struct c32 *x)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t i = 0; i < n; i++)
        x[i] = (struct c32){a * x[i].re, a * x[i].im};
    return 0;
}

/* Of x[first .. last). */
static double dot_part(const struct c32 *x, const struct c32 *y, size_t first, size_t last)
{
    double lane[LANES] = {0}, sum = 0;
    size_t i = first;
    for (; i + LANES <= last; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l].re * (double)y[i + l].re + (double)x[i + l].im * (double)y[i + l].im;
    for (; i < last; i++)
        lane[(i - first) % LANES] += (double)x[i].re * (double)y[i].re + (double)x[i].im * (double)y[i].im;
    for (size_t l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

static int dot(struct dev *dev, size_t n, const struct c32 *x, const struct c32 *y, double *out)
{
    double part[SUMS];
    const size_t length = (n + SUMS - 1) / SUMS;
    *out = 0;
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t p = 0; p < SUMS; p++) {
        size_t first = p * length < n ? p * length : n, last = first + length < n ? first + length : n;
        part[p] = dot_part(x, y, first, last);
    }
    for (size_t p = 0; p < SUMS; p++)
        *out += part[p];
    return 0;
}

static int multiply(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y)
{
    for (int c = 0; c < count; c++, m += n, y += n)
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
        for (size_t i = 0; i < n; i++)
            y[i] = (struct c32){m[i].re * x[i].re - m[i].im * x[i].im, m[i].re * x[i].im + m[i].im * x[i].re};
    return 0;
}

static int multiply_conj_add(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                             struct c32 *x)
{
    for (int c = 0; c < count; c++, m += n, y += n)
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
        for (size_t i = 0; i < n; i++)
            x[i] = (struct c32){x[i].re + (m[i].re * y[i].re + m[i].im * y[i].im),
                                x[i].im + (m[i].re * y[i].im - m[i].im * y[i].re)};
    return 0;
}

static int soft(struct dev *dev, size_t n, float t, struct c32 *x)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t i = 0; i < n; i++) {
        const float size = sqrtf(x[i].re * x[i].re + x[i].im * x[i].im);
        const float keep = size <= t ? 0 : 1 - t / size;
        x[i] = (struct c32){keep * x[i].re, keep * x[i].im};
    }
    return 0;
}

const struct vec_leaf vec_leaf_cpu = {
    .copy = copy,
    .axpy = axpy,
    .xpay = xpay,
    .scale = scale,
    .dot = dot,
    .multiply = multiply,
    .multiply_conj_add = multiply_conj_add,
    .soft = soft,
};
