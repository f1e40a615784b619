/* ESPIRiT (doi:10.1002/mrm.24751), from the centre of k-space to the operator on each pixel's coils.
 *
 * The calibration matrix A has a row for each coil c and offset p of a k-space kernel, n = coils x width^d, and a
 * column for each place of the kernel in the centre of k-space. P = M (M + e I)^-1, M = A A^H, projects onto its signal
 * space: singular vectors weighted by s_i^2 / (s_i^2 + e), e = (threshold s_0)^2. In image space P acts on each pixel's
 * coils alone, as
 *
 *   G(r)[c][c'] = width^-d  sum over p, p' of P[(c,p)][(c',p')] exp(2 pi i (p - p') r / N).
 *
 * P needs no eigenvectors: with a pivoted Cholesky decomposition M = L L^H, which stops when the remainder is far below
 * e, and L^H L + e I = R R^H, P = V^H V with V = R^-1 L^H. That is a few triangular loops in a fixed order; LAPACK's
 * eigensolvers would be a dependency with threads of its own and bits that depend on their number. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/err.h"
#include "gridding/base/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DENSE_MOST = 1024, /* along one side of A: more are decomposed faster by pivots */
    RANK_MOST = 512,   /* columns of L */
    BLOCK = 256,       /* rows of A that a thread takes at a time */
    NARROW = 64,       /* the same of all of V */
    ROWS = 32,         /* of R, between two calls of progress */
    BLOCKS = 16,       /* of V, likewise */
    POWER_STEPS = 12   /* to find s_0 within a few percent */
};

/* Progress after L, R and V. */
#define DONE_L (0.5 * MAPS_CALIBRATED)
#define DONE_R (0.65 * MAPS_CALIBRATED)
#define DONE_V (0.8 * MAPS_CALIBRATED)

/* Pivots below this, relative to e, are dropped. With a smaller value, down to 1e-3, the maps' error is the same to a
 * few percent, but a noisy scan's L has twice as many columns. */
#define NEGLIGIBLE 0.01

/* Complex numbers as separate parts. */
struct double_parts {
    double *re, *im;
};

struct calibration {
    const struct maps_work *work;
    const struct rows_leaf *leaf;
    int coils, width[3];
    size_t offsets, places, n;   /* of a kernel; columns of A; its rows */
    float *a_re, *a_im;          /* A by columns: [places][n] */
    struct double_parts l, v, r; /* [rank][n]: L transposed; V; [rank][rank]: R */
    bool dense;                  /* A is small along one side: maps_dense.c; L, V and R are not used */
    size_t rank, rank_most;
    double cut, *rest; /* e; [n]: the diagonal of M - L L^H */
};

static bool double_parts_create(struct double_parts *m, size_t count)
{
    m->re = calloc(count + 1, sizeof *m->re);
    m->im = calloc(count + 1, sizeof *m->im);
    return m->re && m->im;
}

static void double_parts_free(struct double_parts *m)
{
    free(m->re);
    free(m->im);
}

/* sum conj(x) y */
static inline void product(size_t n, const double *xr, const double *xi, const double *yr, const double *yi,
                           double out[2])
{
    double re = 0, im = 0;
#pragma omp simd reduction(+ : re, im)
    for (size_t i = 0; i < n; i++) {
        re += xr[i] * yr[i] + xi[i] * yi[i];
        im += xr[i] * yi[i] - xi[i] * yr[i];
    }
    out[0] = re;
    out[1] = im;
}

/* ---- the calibration matrix ---- */

static void matrix_fill(struct calibration *c)
{
    const int *m = c->work->m, *w = c->width;
    const size_t size = (size_t)m[0] * (size_t)m[1] * (size_t)m[2];
    size_t place = 0;
    for (int z = 0; z + w[2] <= m[2]; z++)
        for (int y = 0; y + w[1] <= m[1]; y++)
            for (int x = 0; x + w[0] <= m[0]; x++, place++)
                for (size_t i = 0; i < c->n; i++) {
                    const int p = (int)(i % c->offsets), px = p % w[0], py = p / w[0] % w[1], pz = p / w[0] / w[1];
                    const size_t at =
                        ((size_t)(z + pz) * (size_t)m[1] + (size_t)(y + py)) * (size_t)m[0] + (size_t)(x + px);
                    const struct c32 value = c->work->centre[i / c->offsets * size + at];
                    c->a_re[place * c->n + i] = value.re;
                    c->a_im[place * c->n + i] = value.im;
                }
}

/* re, im [n] = A x, x[places]. In float32: rounding errors are far below the threshold. */
static void matrix_apply(const struct calibration *c, const struct parts *x, double *re, double *im)
{
    const size_t blocks = (c->n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(c->work->threads) if (c->n * c->places > 1 << 20)
    for (size_t b = 0; b < blocks; b++) {
        const size_t first = b * BLOCK, count = first + BLOCK < c->n ? BLOCK : c->n - first;
        const struct rows_floats a = {c->places, c->n, c->a_re + first, c->a_im + first};
        float sum_re[BLOCK], sum_im[BLOCK];
        c->leaf->floats(&a, x->re, x->im, count, sum_re, sum_im);
        for (size_t i = 0; i < count; i++) {
            re[first + i] = (double)sum_re[i];
            im[first + i] = (double)sum_im[i];
        }
    }
}

/* x[places] = A^H y, y[n] */
static void matrix_adjoint(const struct calibration *c, const struct double_parts *y, struct parts *x)
{
#pragma omp parallel for schedule(static) num_threads(c->work->threads) if (c->n * c->places > 1 << 20)
    for (size_t q = 0; q < c->places; q++) {
        const float *ar = c->a_re + q * c->n, *ai = c->a_im + q * c->n;
        double a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
        for (size_t i = 0; i < c->n; i++) {
            a += (double)ar[i] * y->re[i] + (double)ai[i] * y->im[i];
            b += (double)ar[i] * y->im[i] - (double)ai[i] * y->re[i];
        }
        x->re[q] = (float)a;
        x->im[q] = (float)b;
    }
}

/* c->rest = the diagonal of M; returns the place of the largest entry. */
static size_t diagonal_fill(struct calibration *c)
{
    size_t largest = 0;
    memset(c->rest, 0, c->n * sizeof *c->rest);
    for (size_t q = 0; q < c->places; q++)
        for (size_t i = 0; i < c->n; i++)
            c->rest[i] += (double)c->a_re[q * c->n + i] * c->a_re[q * c->n + i] +
                          (double)c->a_im[q * c->n + i] * c->a_im[q * c->n + i];
    for (size_t i = 1; i < c->n; i++)
        largest = c->rest[i] > c->rest[largest] ? i : largest;
    return largest;
}

/* c->cut from s_0^2, by power iteration from the column of M with the largest diagonal entry. */
static int cut_find(struct calibration *c)
{
    struct double_parts x = {.re = NULL};
    struct parts y = {.re = NULL};
    const bool room = double_parts_create(&x, c->n) && parts_create(&y, c->places);
    double value = 0;
    int rc = room ? 0 : err_no_memory("a calibration matrix of %zu rows", c->n);
    if (room)
        x.re[diagonal_fill(c)] = 1;
    for (int step = 0; step < POWER_STEPS && rc == 0; step++) {
        double square[2];
        matrix_adjoint(c, &x, &y);
        matrix_apply(c, &y, x.re, x.im);
        product(c->n, x.re, x.im, x.re, x.im, square);
        value = sqrt(square[0]);
        for (size_t i = 0; i < c->n && value > 0; i++) {
            x.re[i] /= value;
            x.im[i] /= value;
        }
        rc = maps_tell(c->work, 0);
    }
    c->cut = c->work->params->threshold * c->work->params->threshold * value;
    double_parts_free(&x);
    free(y.re);
    return rc;
}

/* ---- M = L L^H, L^H L + e I = R R^H, V = R^-1 L^H ---- */

/* Add the column of L at `pivot`. `place`, `weights`: scratch, for [places] and for [rank_most]. */
static void column_add(struct calibration *c, size_t pivot, struct parts *place, struct double_parts *weights)
{
    const size_t s = c->rank++, n = c->n, blocks = (n + BLOCK - 1) / BLOCK;
    double *re = c->l.re + s * n, *im = c->l.im + s * n;
    for (size_t q = 0; q < c->places; q++) {
        place->re[q] = c->a_re[q * n + pivot];
        place->im[q] = -c->a_im[q * n + pivot];
    }
    for (size_t t = 0; t < s; t++) {
        weights->re[t] = c->l.re[t * n + pivot];
        weights->im[t] = -c->l.im[t * n + pivot];
    }
    matrix_apply(c, place, re, im);
    const double scale = 1 / sqrt(c->rest[pivot]);
#pragma omp parallel for schedule(static) num_threads(c->work->threads) if (n * s > 1 << 18)
    for (size_t b = 0; b < blocks; b++) {
        const size_t first = b * BLOCK, count = first + BLOCK < n ? BLOCK : n - first;
        const struct rows_doubles before = {s, n, c->l.re + first, c->l.im + first};
        double sum_re[BLOCK], sum_im[BLOCK];
        c->leaf->doubles(&before, weights->re, weights->im, count, sum_re, sum_im);
        for (size_t j = 0; j < count; j++) {
            const size_t i = first + j;
            re[i] = scale * (re[i] - sum_re[j]);
            im[i] = scale * (im[i] - sum_im[j]);
            c->rest[i] -= re[i] * re[i] + im[i] * im[i];
        }
    }
    c->rest[pivot] = 0;
}

static int cholesky_pivoted(struct calibration *c)
{
    struct parts place = {.re = NULL};
    struct double_parts weights = {.re = NULL};
    int rc = parts_create(&place, c->places) && double_parts_create(&weights, c->rank_most)
                 ? 0
                 : err_no_memory("a calibration matrix of %zu rows", c->n);
    diagonal_fill(c);
    while (rc == 0 && c->rank < c->rank_most) {
        size_t pivot = 0;
        double rest = 0;
        for (size_t i = 0; i < c->n; i++) {
            pivot = c->rest[i] > c->rest[pivot] ? i : pivot;
            rest += c->rest[i] > 0 ? c->rest[i] : 0;
        }
        if (!(rest > 0.1 * c->cut) || !(c->rest[pivot] > NEGLIGIBLE * c->cut))
            break;
        column_add(c, pivot, &place, &weights);
        rc = maps_tell(c->work, DONE_L * (double)c->rank / (double)c->rank_most);
    }
    double_parts_free(&weights);
    free(place.re);
    return rc;
}

/* Row s of L^H L + e I, in R: t <= s. */
static void row_multiply(struct calibration *c, size_t s)
{
    const size_t rank = c->rank, n = c->n;
    double *re = c->r.re + s * rank, *im = c->r.im + s * rank;
    for (size_t t = 0; t <= s; t++) {
        double sum[2];
        product(n, c->l.re + s * n, c->l.im + s * n, c->l.re + t * n, c->l.im + t * n, sum);
        re[t] = sum[0] + (s == t ? c->cut : 0);
        im[t] = s == t ? 0 : sum[1];
    }
}

/* Row s of R, from that and the rows before it. */
static void row_factor(struct calibration *c, size_t s)
{
    const size_t rank = c->rank;
    double *re = c->r.re, *im = c->r.im;
    for (size_t t = 0; t <= s; t++) {
        double sum[2];
        product(t, re + t * rank, im + t * rank, re + s * rank, im + s * rank, sum);
        const double a = re[s * rank + t] - sum[0], b = im[s * rank + t] - sum[1];
        re[s * rank + t] = s == t ? sqrt(a) : a / re[t * rank + t];
        im[s * rank + t] = s == t ? 0 : b / re[t * rank + t];
    }
}

/* R[s][t], t <= s. */
static int factor(struct calibration *c)
{
    int rc = 0;
    for (size_t first = 0; first < c->rank && rc == 0; first += ROWS) {
        const size_t until = first + ROWS < c->rank ? first + ROWS : c->rank;
#pragma omp parallel for schedule(dynamic) num_threads(c->work->threads) if (c->rank * c->n > 1 << 16)
        for (size_t s = first; s < until; s++)
            row_multiply(c, s);
        for (size_t s = first; s < until; s++)
            row_factor(c, s);
        rc = maps_tell(c->work, DONE_L + (DONE_R - DONE_L) * (double)until / (double)c->rank);
    }
    return rc;
}

/* Columns [first, first + count) of V. */
static void columns_substitute(struct calibration *c, size_t first, size_t count)
{
    const size_t rank = c->rank, n = c->n;
    for (size_t s = 0; s < rank; s++) {
        const struct rows_doubles before = {s, n, c->v.re + first, c->v.im + first};
        const double *lr = c->l.re + s * n + first, *li = c->l.im + s * n + first, diagonal = c->r.re[s * rank + s];
        double *vr = c->v.re + s * n + first, *vi = c->v.im + s * n + first;
        c->leaf->doubles(&before, c->r.re + s * rank, c->r.im + s * rank, count, vr, vi);
        for (size_t i = 0; i < count; i++) {
            vr[i] = (lr[i] - vr[i]) / diagonal;
            vi[i] = (-li[i] - vi[i]) / diagonal;
        }
    }
}

static int substitute(struct calibration *c)
{
    const size_t n = c->n, blocks = (n + NARROW - 1) / NARROW;
    int rc = 0;
    for (size_t begin = 0; begin < blocks && rc == 0; begin += BLOCKS) {
        const size_t end = begin + BLOCKS < blocks ? begin + BLOCKS : blocks;
#pragma omp parallel for schedule(dynamic) num_threads(c->work->threads) if (c->rank * n > 1 << 16)
        for (size_t b = begin; b < end; b++)
            columns_substitute(c, b * NARROW, (b + 1) * NARROW < n ? NARROW : n - b * NARROW);
        rc = maps_tell(c->work, DONE_R + (DONE_V - DONE_R) * (double)end / (double)blocks);
    }
    return rc;
}

static int calibration_create(struct calibration *c)
{
    c->a_re = malloc(c->n * c->places * sizeof *c->a_re);
    c->a_im = malloc(c->n * c->places * sizeof *c->a_im);
    c->rest = malloc(c->n * sizeof *c->rest);
    const bool room = double_parts_create(&c->l, c->rank_most * c->n) &&
                      double_parts_create(&c->v, c->rank_most * c->n) &&
                      double_parts_create(&c->r, c->rank_most * c->rank_most);
    return room && c->a_re && c->a_im && c->rest ? 0
                                                 : err_no_memory("a calibration matrix of %zu x %zu", c->n, c->places);
}

static void calibration_free(struct calibration *c)
{
    double_parts_free(&c->r);
    double_parts_free(&c->v);
    double_parts_free(&c->l);
    free(c->rest);
    free(c->a_im);
    free(c->a_re);
}

static struct calibration sizes_of(const struct maps_work *work, struct maps_lags *out)
{
    struct calibration c = {.work = work, .leaf = rows_best(), .coils = work->params->coils, .offsets = 1, .places = 1};
    for (int d = 0; d < 3; d++) {
        c.width[d] = out->width[d] = maps_width(work->params, d);
        out->count[d] = 2 * c.width[d] - 1;
        c.offsets *= (size_t)c.width[d];
        c.places *= (size_t)(work->m[d] - c.width[d] + 1);
    }
    out->pairs = (size_t)c.coils * (size_t)(c.coils + 1) / 2;
    c.n = c.offsets * (size_t)c.coils;
    c.dense = c.n <= DENSE_MOST || c.places <= DENSE_MOST;
    c.rank_most = c.dense ? 0 : RANK_MOST;
    return c;
}

size_t maps_calibration_bytes(const struct maps_work *work, struct maps_lags *lags)
{
    const struct calibration c = sizes_of(work, lags);
    const size_t matrix = 2 * c.n * c.places * sizeof *c.a_re;
    const size_t factors = 2 * (2 * c.rank_most * c.n + c.rank_most * c.rank_most) * sizeof *c.l.re;
    return maps_lags_bytes(work, lags) +
           (c.dense ? maps_dense_bytes(work, c.places, c.n) : matrix + factors + c.n * sizeof *c.rest);
}

/* The vectors by pivots; their memory is c's. */
static int pivoted(struct calibration *c, struct maps_vectors *out)
{
    int rc = calibration_create(c);
    if (rc == 0) {
        matrix_fill(c);
        rc = cut_find(c);
    }
    if (rc == 0)
        rc = cholesky_pivoted(c);
    if (rc == 0)
        rc = factor(c);
    if (rc == 0)
        rc = substitute(c);
    *out = (struct maps_vectors){.count = c->rank, .re = c->v.re, .im = c->v.im, .scale = 1};
    return rc;
}

int maps_calibrate(const struct maps_work *work, struct maps_lags *out)
{
    struct calibration c = sizes_of(work, out);
    struct maps_vectors v = {.memory = NULL};
    int rc = c.dense ? maps_dense(work, c.places, c.n, DONE_V, &v) : pivoted(&c, &v);
    if (rc == 0)
        rc = maps_lags_sum(work, &v, DONE_V, MAPS_CALIBRATED, out);
    if (rc == 0)
        rc = maps_tell(work, MAPS_CALIBRATED);
    free(v.memory);
    calibration_free(&c);
    return rc;
}
