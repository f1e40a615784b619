/* The centre of k-space of images, and images of a centre: sums over one axis after the other, which are cheaper than
 * FFTs of all of k-space, because the centre is small. Between the axes, real and imaginary parts are separate. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/err.h"
#include "gridding/base/rows.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

/* A transform of the axes one after the other. */
struct transform {
    const struct rows_leaf *leaf;
    int threads, coils;
    const int *n, *m; /* of images, and of the centre */
    bool back;        /* from the centre to images */
    struct asker *asker;
    size_t size[3]; /* of the arrays so far */
};

enum { COST = 4 /* products in a ns, approximately */ };

/* The sums over one axis: out[outer][to][inner] = sum_j matrix in[outer][j][inner]. */
struct pass {
    size_t outer, inner, from, to;
    struct parts matrix; /* [from][to] along x, else [to][from] */
};

static struct transform transform_of(const struct maps_work *work, const int size[3], bool back)
{
    return (struct transform){.leaf = rows_best(),
                              .threads = work->threads,
                              .coils = work->params->coils,
                              .n = work->params->n,
                              .m = work->m,
                              .back = back,
                              .asker = work->asker,
                              .size = {(size_t)size[0], (size_t)size[1], (size_t)size[2]}};
}

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

static int no_memory(const struct transform *t)
{
    return err_no_memory("the centre of k-space of %d coils", t->coils);
}

/* exp(-2 pi i r k / n), or exp(+2 pi i r k / n) where `back`; r = -floor(n/2) .., k = -floor(m/2) .. */
static bool matrix_make(struct parts *matrix, int n, int m, bool back, bool line)
{
    struct parts circle = {.re = NULL};
    const bool room = circle_create(&circle, n) && parts_create(matrix, (size_t)n * (size_t)m);
    for (int r = 0; r < n && room; r++)
        for (int k = 0; k < m; k++) {
            const int place = circle_place((r - n / 2) * (k - m / 2), n);
            const size_t at = back == line ? (size_t)k * (size_t)n + (size_t)r : (size_t)r * (size_t)m + (size_t)k;
            matrix->re[at] = circle.re[place];
            matrix->im[at] = back ? circle.im[place] : -circle.im[place];
        }
    free(circle.re);
    return room;
}

/* The pass along axis d, after which t->size is that of the result. */
static int pass_begin(struct transform *t, int d, struct pass *p)
{
    *p = (struct pass){.outer = (size_t)t->coils, .inner = 1};
    p->from = (size_t)(t->back ? t->m[d] : t->n[d]);
    p->to = (size_t)(t->back ? t->n[d] : t->m[d]);
    for (int e = 0; e < 3; e++)
        *(e < d ? &p->inner : &p->outer) *= e == d ? 1 : t->size[e];
    t->size[d] = p->to;
    return matrix_make(&p->matrix, t->n[d], t->m[d], t->back, d == 0) ? 0 : no_memory(t);
}

/* x: `parts` from images, in lines of which each thread has one. */
static int lines_analyse(struct transform *t, const struct c32 *images, struct parts *parts)
{
    struct pass p;
    struct parts lines = {.re = NULL};
    int rc = pass_begin(t, 0, &p);
    if (rc == 0 && !(parts_create(&lines, (size_t)t->threads * p.from) && parts_create(parts, p.outer * p.to)))
        rc = no_memory(t);
    const struct rows_floats rows = {p.from, p.to, p.matrix.re, p.matrix.im};
#pragma omp parallel for schedule(dynamic, 8) num_threads(t->threads)
    for (size_t o = 0; o < (rc == 0 ? p.outer : 0); o++) {
        const size_t mine = (size_t)omp_get_thread_num() * p.from;
        if (asker_stopped(t->asker, p.from * p.to / COST))
            continue;
        const struct parts line = {lines.re + mine, lines.im + mine};
        split(p.from, images + o * p.from, &line);
        t->leaf->floats(&rows, line.re, line.im, p.to, parts->re + o * p.to, parts->im + o * p.to);
    }
    free(lines.re);
    free(p.matrix.re);
    return rc ? rc : asker_rc(t->asker);
}

/* x: images from `parts`, likewise. */
static int lines_synthesise(struct transform *t, const struct parts *parts, struct c32 *images)
{
    struct pass p;
    struct parts lines = {.re = NULL};
    int rc = pass_begin(t, 0, &p);
    if (rc == 0 && !parts_create(&lines, (size_t)t->threads * p.to))
        rc = no_memory(t);
    const struct rows_floats rows = {p.from, p.to, p.matrix.re, p.matrix.im};
#pragma omp parallel for schedule(dynamic, 8) num_threads(t->threads)
    for (size_t o = 0; o < (rc == 0 ? p.outer : 0); o++) {
        const size_t mine = (size_t)omp_get_thread_num() * p.to;
        if (asker_stopped(t->asker, p.from * p.to / COST))
            continue;
        const struct parts line = {lines.re + mine, lines.im + mine};
        t->leaf->floats(&rows, parts->re + o * p.from, parts->im + o * p.from, p.to, line.re, line.im);
        join(p.to, &line, images + o * p.to);
    }
    free(lines.re);
    free(p.matrix.re);
    return rc ? rc : asker_rc(t->asker);
}

/* y or z: `parts` becomes the result; its memory is released. */
static int columns(struct transform *t, int d, struct parts *parts)
{
    struct pass p;
    struct parts out = {.re = NULL};
    int rc = pass_begin(t, d, &p);
    if (rc == 0 && !parts_create(&out, p.outer * p.to * p.inner))
        rc = no_memory(t);
#pragma omp parallel for schedule(dynamic, 8) num_threads(t->threads)
    for (size_t o = 0; o < (rc == 0 ? p.outer * p.to : 0); o++) {
        const size_t first = o / p.to * p.from * p.inner, at = o % p.to * p.from;
        if (asker_stopped(t->asker, p.from * p.inner / COST))
            continue;
        const struct rows_floats rows = {p.from, p.inner, parts->re + first, parts->im + first};
        t->leaf->floats(&rows, p.matrix.re + at, p.matrix.im + at, p.inner, out.re + o * p.inner, out.im + o * p.inner);
    }
    free(p.matrix.re);
    free(parts->re);
    *parts = out;
    return rc ? rc : asker_rc(t->asker);
}

/* x first: the intermediate arrays are small. */
int maps_analyse(const struct maps_work *work, const struct c32 *images, struct c32 *out)
{
    const int *n = work->params->n;
    struct transform t = transform_of(work, n, false);
    struct parts parts = {.re = NULL};
    int rc = lines_analyse(&t, images, &parts);
    for (int d = 1; d < 3 && rc == 0; d++)
        if (n[d] > 1)
            rc = columns(&t, d, &parts);
    if (rc == 0)
        join((size_t)t.coils * t.size[0] * t.size[1] * t.size[2], &parts, out);
    free(parts.re);
    return rc;
}

/* x last. */
int maps_synthesise(const struct maps_work *work, const struct c32 *centre, struct c32 *out)
{
    const int *n = work->params->n;
    struct transform t = transform_of(work, work->m, true);
    const size_t all = (size_t)t.coils * t.size[0] * t.size[1] * t.size[2];
    struct parts parts;
    int rc = parts_create(&parts, all) ? 0 : no_memory(&t);
    if (rc == 0)
        split(all, centre, &parts);
    for (int d = 2; d > 0 && rc == 0; d--)
        if (n[d] > 1)
            rc = columns(&t, d, &parts);
    if (rc == 0)
        rc = lines_synthesise(&t, &parts, out);
    free(parts.re);
    return rc;
}
