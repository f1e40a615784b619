/* vec_cpu.c: vector arithmetic on the CPU. Loops run over plain floats, which the compiler turns into vector
 * instructions; threads share a vector's blocks. */
#include "gridding/base/ask.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/vec_element.h"

enum {
    PARALLEL_FROM = 1 << 15, /* elements; for shorter vectors, waking threads costs more than it saves */
    SUMS = 256,              /* parts of a dot product, summed in their order */
    LANES = 8                /* independent sums of a part, so that it vectorises without reordering */
};

static int zero(struct dev *dev, size_t n, struct c32 *x)
{
    return asker_zero(dev_asker(dev), x, n * sizeof *x);
}

static int copy(struct dev *dev, size_t n, const struct c32 *x, struct c32 *y)
{
    return asker_copy(dev_asker(dev), y, x, n * sizeof *y);
}

static int axpy(struct dev *dev, size_t n, float a, const struct c32 *x, struct c32 *y)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t i = 0; i < n; i++)
        y[i] = element_axpy(a, x[i], y[i]);
    return 0;
}

static int xpay(struct dev *dev, size_t n, const struct c32 *x, float a, struct c32 *y)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t i = 0; i < n; i++)
        y[i] = element_axpy(a, y[i], x[i]);
    return 0;
}

static int scale(struct dev *dev, size_t n, float a, struct c32 *x)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t i = 0; i < n; i++)
        x[i] = element_scale(a, x[i]);
    return 0;
}

/* Of x[first .. last). */
static double dot_part(const struct c32 *x, const struct c32 *y, size_t first, size_t last)
{
    double lane[LANES] = {0}, sum = 0;
    size_t i = first;
    for (; i + LANES <= last; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lane[l] += element_dot(x[i + l], y[i + l]);
    for (; i < last; i++)
        lane[(i - first) % LANES] += element_dot(x[i], y[i]);
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

static double size_part(const struct c32 *x, size_t first, size_t last)
{
    double lane[LANES] = {0}, sum = 0;
    for (size_t i = first; i < last; i++)
        lane[(i - first) % LANES] += element_size(x[i]);
    for (size_t l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

static int size_sum(struct dev *dev, size_t n, const struct c32 *x, double *out)
{
    double part[SUMS];
    const size_t length = (n + SUMS - 1) / SUMS;
    *out = 0;
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t p = 0; p < SUMS; p++) {
        size_t first = p * length < n ? p * length : n, last = first + length < n ? first + length : n;
        part[p] = size_part(x, first, last);
    }
    for (size_t p = 0; p < SUMS; p++)
        *out += part[p];
    return 0;
}

static int multiply(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y)
{
    struct asker *asker = dev_asker(dev);
    for (int c = 0; c < count && !asker_stopped(asker, n); c++, m += n, y += n)
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
        for (size_t i = 0; i < n; i++)
            y[i] = element_multiply(m[i], x[i]);
    return asker_rc(asker);
}

static int multiply_conj_add(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                             struct c32 *x)
{
    struct asker *asker = dev_asker(dev);
    for (int c = 0; c < count && !asker_stopped(asker, n); c++, m += n, y += n)
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
        for (size_t i = 0; i < n; i++)
            x[i] = element_multiply_conj_add(m[i], y[i], x[i]);
    return asker_rc(asker);
}

static int multiply_each(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y)
{
    int rc = 0;
    for (int c = 0; c < count && rc == 0; c++)
        rc = multiply(dev, n, 1, m, x + (size_t)c * n, y + (size_t)c * n);
    return rc;
}

static int multiply_conj_add_each(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                                  struct c32 *x)
{
    int rc = 0;
    for (int c = 0; c < count && rc == 0; c++)
        rc = multiply_conj_add(dev, n, 1, m, y + (size_t)c * n, x + (size_t)c * n);
    return rc;
}

static int wave(struct dev *dev, size_t n, double a, const float *f, struct c32 *y)
{
    enum { PIECE = 1 << 12, COST = 30 /* ns of an element */ };
    struct asker *asker = dev_asker(dev);
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t from = 0; from < n; from += PIECE) {
        const size_t most = n - from < PIECE ? n : from + PIECE;
        const size_t end = asker_stopped(asker, PIECE * COST) ? from : most;
        for (size_t i = from; i < end; i++)
            y[i] = element_wave(a, f[i]);
    }
    return asker_rc(asker);
}

static int squares_add(struct dev *dev, size_t n, int count, const struct c32 *x, float *squares)
{
    struct asker *asker = dev_asker(dev);
    for (int c = 0; c < count && !asker_stopped(asker, n); c++, x += n)
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
        for (size_t i = 0; i < n; i++)
            squares[i] = element_square_add(x[i], squares[i]);
    return asker_rc(asker);
}

static int soft(struct dev *dev, size_t n, float t, struct c32 *x)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads) if (n >= PARALLEL_FROM)
    for (size_t i = 0; i < n; i++)
        x[i] = element_soft(t, x[i]);
    return 0;
}

const struct vec_leaf vec_leaf_cpu = {
    .zero = zero,
    .copy = copy,
    .axpy = axpy,
    .xpay = xpay,
    .scale = scale,
    .dot = dot,
    .size_sum = size_sum,
    .multiply = multiply,
    .multiply_conj_add = multiply_conj_add,
    .multiply_each = multiply_each,
    .multiply_conj_add_each = multiply_conj_add_each,
    .wave = wave,
    .squares_add = squares_add,
    .soft = soft,
    .cg_begin = vec_cg_begin_cpu,
    .cg_step = vec_cg_step_cpu,
};
