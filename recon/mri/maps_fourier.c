/* The centre of k-space of images, and images of a centre: sums over one axis after the other, which are cheaper than
 * FFTs of all of k-space, because the centre is small. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The sums over one axis: out[outer][to][inner] = sum_j matrix[j][to] in[outer][j][inner]. */
struct pass {
    size_t outer, inner;
    int from, to;
    const struct c32 *matrix;
};

/* y[i] += a x[i] */
static inline void scaled_add(size_t count, struct c32 a, const struct c32 *x, struct c32 *y)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        y[i].re += a.re * x[i].re - a.im * x[i].im;
        y[i].im += a.re * x[i].im + a.im * x[i].re;
    }
}

static void pass_run(int threads, const struct pass *p, const struct c32 *in, struct c32 *out)
{
    const size_t from = (size_t)p->from, to = (size_t)p->to;
#pragma omp parallel for schedule(dynamic, 8) num_threads(threads)
    for (size_t o = 0; o < p->outer; o++) {
        const struct c32 *x = in + o * from * p->inner;
        struct c32 *y = out + o * to * p->inner;
        memset(y, 0, to * p->inner * sizeof *y);
        /* The long index innermost: the axis itself along x, whose `inner` is 1. */
        for (size_t j = 0; j < from && p->inner == 1; j++)
            scaled_add(to, x[j], p->matrix + j * to, y);
        for (size_t t = 0; t < to && p->inner > 1; t++)
            for (size_t j = 0; j < from; j++)
                scaled_add(p->inner, p->matrix[j * to + t], x + j * p->inner, y + t * p->inner);
    }
}

/* exp(-2 pi i r k / n) as [n][m], or exp(+2 pi i r k / n) as [m][n] where `back`; r = -floor(n/2) .., k = -floor(m/2)
 * ...
 */
static struct c32 *matrix_make(int n, int m, bool back)
{
    struct c32 *matrix = malloc((size_t)n * (size_t)m * sizeof *matrix);
    for (int r = 0; r < n && matrix; r++)
        for (int k = 0; k < m; k++) {
            double angle = 2 * M_PI * ((r - n / 2) * (k - m / 2) % n) / n;
            size_t at = back ? (size_t)k * (size_t)n + (size_t)r : (size_t)r * (size_t)m + (size_t)k;
            matrix[at] = (struct c32){(float)cos(angle), (float)(back ? sin(angle) : -sin(angle))};
        }
    return matrix;
}

/* Axis by axis, from sizes `from` to sizes `to`: x first if they shrink, x last if they grow, so that the intermediate
 * arrays are small. */
static int transform(int threads, int coils, const int from[3], const int to[3], bool back, const struct c32 *in,
                     struct c32 *out)
{
    int size[3] = {from[0], from[1], from[2]}, rc = 0;
    struct c32 *between[2] = {NULL, NULL};
    for (int i = 0; i < 3 && rc == 0; i++) {
        int d = back ? 2 - i : i;
        const int n = back ? to[d] : from[d], m = back ? from[d] : to[d];
        struct pass pass = {.outer = (size_t)coils, .inner = 1, .from = from[d], .to = to[d]};
        for (int e = 0; e < 3; e++)
            *(e < d ? &pass.inner : &pass.outer) *= e == d ? 1 : (size_t)size[e];
        struct c32 *matrix = matrix_make(n, m, back);
        if (i < 2)
            between[i] = malloc(pass.outer * pass.inner * (size_t)to[d] * sizeof **between);
        if (!matrix || (i < 2 && !between[i]))
            rc = err_no_memory("the centre of k-space of %d coils", coils);
        pass.matrix = matrix;
        if (rc == 0)
            pass_run(threads, &pass, i == 0 ? in : between[i - 1], i == 2 ? out : between[i]);
        size[d] = to[d];
        free(matrix);
    }
    free(between[1]);
    free(between[0]);
    return rc;
}

int maps_analyse(int threads, int coils, const int n[3], const int m[3], const struct c32 *images, struct c32 *out)
{
    return transform(threads, coils, n, m, false, images, out);
}

int maps_synthesise(int threads, int coils, const int n[3], const int m[3], const struct c32 *centre, struct c32 *out)
{
    return transform(threads, coils, m, n, true, centre, out);
}
