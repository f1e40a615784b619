/* The centre of k-space of images, and images of a centre: sums over one axis after the other, which are cheaper than
 * FFTs of all of k-space, because the centre is small. Between the axes, real and imaginary parts are separate. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/err.h"
#include "gridding/base/rows.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

/* The sums over one axis: out[outer][to][inner] = sum_j matrix in[outer][j][inner]. */
struct pass {
    const struct rows_leaf *leaf;
    size_t outer, inner, from, to;
    struct parts matrix; /* [from][to] along x, else [to][from] */
    int threads;
};

static void split(size_t n, const struct c32 *in, const struct parts *out)
{
    for (size_t i = 0; i < n; i++) {
        out->re[i] = in[i].re;
        out->im[i] = in[i].im;
    }
}

static void join(size_t n, const struct parts *in, struct c32 *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (struct c32){in->re[i], in->im[i]};
}

/* y or z */
static void columns_run(const struct pass *p, const struct parts *in, const struct parts *out)
{
#pragma omp parallel for schedule(dynamic, 8) num_threads(p->threads)
    for (size_t o = 0; o < p->outer * p->to; o++) {
        const size_t first = o / p->to * p->from * p->inner, t = o % p->to * p->from;
        const struct rows_floats rows = {p->from, p->inner, in->re + first, in->im + first};
        p->leaf->floats(&rows, p->matrix.re + t, p->matrix.im + t, p->inner, out->re + o * p->inner,
                        out->im + o * p->inner);
    }
}

/* x, from `images` to `parts`, or back. Fails with ERR_NO_MEMORY. */
static int lines_run(const struct pass *p, bool back, const struct c32 *images, const struct parts *parts,
                     struct c32 *out)
{
    const struct rows_floats rows = {p->from, p->to, p->matrix.re, p->matrix.im};
    struct parts lines;
    if (!parts_create(&lines, (size_t)p->threads * (back ? p->to : p->from)))
        return err_no_memory("%d lines of images", p->threads);
#pragma omp parallel for schedule(dynamic, 8) num_threads(p->threads)
    for (size_t o = 0; o < p->outer; o++) {
        const size_t mine = (size_t)omp_get_thread_num() * (back ? p->to : p->from);
        const struct parts line = {lines.re + mine, lines.im + mine};
        const size_t at = o * (back ? p->from : p->to);
        if (back) {
            p->leaf->floats(&rows, parts->re + at, parts->im + at, p->to, line.re, line.im);
            join(p->to, &line, out + o * p->to);
        } else {
            split(p->from, images + o * p->from, &line);
            p->leaf->floats(&rows, line.re, line.im, p->to, parts->re + at, parts->im + at);
        }
    }
    free(lines.re);
    return 0;
}

/* exp(-2 pi i r k / n), or exp(+2 pi i r k / n) where `back`; r = -floor(n/2) .., k = -floor(m/2) .. */
static bool matrix_make(struct parts *matrix, int n, int m, bool back, bool line)
{
    if (!parts_create(matrix, (size_t)n * (size_t)m))
        return false;
    for (int r = 0; r < n; r++)
        for (int k = 0; k < m; k++) {
            const double angle = 2 * M_PI * ((r - n / 2) * (k - m / 2) % n) / n;
            const size_t at = back == line ? (size_t)k * (size_t)n + (size_t)r : (size_t)r * (size_t)m + (size_t)k;
            matrix->re[at] = (float)cos(angle);
            matrix->im[at] = (float)(back ? sin(angle) : -sin(angle));
        }
    return true;
}

/* The pass along axis d of arrays of `size`, which becomes that of the result. */
static int pass_make(struct pass *p, int threads, int coils, int d, int n, int m, bool back, size_t size[3])
{
    *p = (struct pass){.leaf = rows_best(), .outer = (size_t)coils, .inner = 1, .threads = threads};
    p->from = (size_t)(back ? m : n);
    p->to = (size_t)(back ? n : m);
    for (int e = 0; e < 3; e++)
        *(e < d ? &p->inner : &p->outer) *= e == d ? 1 : size[e];
    size[d] = p->to;
    return matrix_make(&p->matrix, n, m, back, d == 0) ? 0 : err_no_memory("the centre of k-space of %d coils", coils);
}

/* `parts` = those of axis d of `parts`, whose memory is released. */
static int columns(int threads, int coils, int d, int n, int m, bool back, size_t size[3], struct parts *parts)
{
    struct pass p;
    struct parts out = {.re = NULL};
    int rc = pass_make(&p, threads, coils, d, n, m, back, size);
    if (rc == 0 && !parts_create(&out, p.outer * p.to * p.inner))
        rc = err_no_memory("the centre of k-space of %d coils", coils);
    if (rc == 0)
        columns_run(&p, parts, &out);
    free(p.matrix.re);
    free(parts->re);
    *parts = out;
    return rc;
}

/* x first: the intermediate arrays are small. */
int maps_analyse(int threads, int coils, const int n[3], const int m[3], const struct c32 *images, struct c32 *out)
{
    size_t size[3] = {(size_t)n[0], (size_t)n[1], (size_t)n[2]};
    struct pass p;
    struct parts parts = {.re = NULL};
    int rc = pass_make(&p, threads, coils, 0, n[0], m[0], false, size);
    if (rc == 0 && !parts_create(&parts, p.outer * p.to))
        rc = err_no_memory("the centre of k-space of %d coils", coils);
    if (rc == 0)
        rc = lines_run(&p, false, images, &parts, NULL);
    free(p.matrix.re);
    for (int d = 1; d < 3 && rc == 0; d++)
        if (n[d] > 1)
            rc = columns(threads, coils, d, n[d], m[d], false, size, &parts);
    if (rc == 0)
        join((size_t)coils * size[0] * size[1] * size[2], &parts, out);
    free(parts.re);
    return rc;
}

/* x last. */
int maps_synthesise(int threads, int coils, const int n[3], const int m[3], const struct c32 *centre, struct c32 *out)
{
    size_t size[3] = {(size_t)m[0], (size_t)m[1], (size_t)m[2]};
    const size_t all = (size_t)coils * size[0] * size[1] * size[2];
    struct pass p = {.threads = 0};
    struct parts parts;
    int rc = parts_create(&parts, all) ? 0 : err_no_memory("the centre of k-space of %d coils", coils);
    if (rc == 0)
        split(all, centre, &parts);
    for (int d = 2; d > 0 && rc == 0; d--)
        if (n[d] > 1)
            rc = columns(threads, coils, d, n[d], m[d], true, size, &parts);
    if (rc == 0)
        rc = pass_make(&p, threads, coils, 0, n[0], m[0], true, size);
    if (rc == 0)
        rc = lines_run(&p, true, NULL, &parts, out);
    free(p.matrix.re);
    free(parts.re);
    return rc;
}
