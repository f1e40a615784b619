/* ESPIRiT's projection onto the signal space, summed over equal lags.
 *
 *   c_ij[l] = sum over vectors s and offsets p of conj(V_s[i][p]) V_s[j][p - l]
 *
 * is a correlation: with G_s[i][k] = sum over p of V_s[i][p] exp(2 pi i k p / L), where L = 2 width - 1 along each axis
 * keeps lags apart,
 *
 *   c_ij[l] = L^-d  sum over k of exp(2 pi i k l / L)  sum over s of conj(G_s[i][k]) G_s[j][k].
 *
 * That takes L^d products for a vector and a pair of coils instead of width^2d: 121 for 1296 with kernels of 6 x 6, 729
 * for 15,625 with kernels of 5 x 5 x 5. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/rows.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    VECTORS = 16, /* transformed together, and then added to the sums */
    PAIRS = 64    /* transformed back together */
};

/* The work of one axis: out[k] = sum over `from` rows of turn[k][row] in[row]. */
struct turns {
    size_t from, to;
    double *re, *im; /* [to][from] */
};

struct lags_work {
    const struct maps_work *work;
    const struct rows_leaf *leaf;
    const struct maps_vectors *v;
    struct maps_lags *out;
    size_t coils, offsets, all;     /* all: lags, and k */
    struct turns forth[3], back[3]; /* x, y, z */
    double *waves, *sums, *scratch; /* complex: [all][VECTORS][coils], [all][pairs]; of each thread 2 x `each` */
    size_t each;
};

static bool turns_create(struct turns *t, int from, int to)
{
    t->from = (size_t)from;
    t->to = (size_t)to;
    t->re = malloc(2 * t->from * t->to * sizeof *t->re);
    t->im = t->re ? t->re + t->from * t->to : NULL;
    return t->re;
}

/* From places to k, and from k to lags, without a factor. */
static bool turns_make(struct lags_work *l, int d)
{
    const int width = l->out->width[d], lags = l->out->count[d];
    struct turns *forth = &l->forth[d], *back = &l->back[d];
    if (!turns_create(forth, width, lags) || !turns_create(back, lags, lags))
        return false;
    for (int k = 0; k < lags; k++) {
        for (int p = 0; p < width; p++) {
            forth->re[k * width + p] = cos(2 * M_PI * (k * p % lags) / lags);
            forth->im[k * width + p] = sin(2 * M_PI * (k * p % lags) / lags);
        }
        for (int q = 0; q < lags; q++) { /* lag k - width + 1 from wave q */
            const int turn = (k - width + 1) * q % lags;
            back->re[k * lags + q] = cos(2 * M_PI * turn / lags);
            back->im[k * lags + q] = sin(2 * M_PI * turn / lags);
        }
    }
    return true;
}

/* Complex arrays here are all real parts, then all imaginary parts: values[n], values + n. */

/* Along the middle axis: in [outer][from][inner], out [outer][to][inner]. */
static void axis_turn(const struct lags_work *l, const struct turns *t, size_t outer, size_t inner, const double *in,
                      double *out)
{
    const size_t n_in = outer * t->from * inner, n_out = outer * t->to * inner;
    for (size_t o = 0; o < outer; o++) {
        const double *from = in + o * t->from * inner;
        const struct rows_doubles rows = {t->from, inner, from, from + n_in};
        for (size_t k = 0; k < t->to; k++) {
            double *to = out + (o * t->to + k) * inner;
            l->leaf->doubles(&rows, t->re + k * t->from, t->im + k * t->from, inner, to, to + n_out);
        }
    }
}

/* All axes: a [z][y][x][inner] to a again; b is scratch. */
static double *volume_turn(const struct lags_work *l, const struct turns t[3], size_t inner, double *a, double *b)
{
    axis_turn(l, &t[2], 1, t[1].from * t[0].from * inner, a, b);
    axis_turn(l, &t[1], t[2].to, t[0].from * inner, b, a);
    axis_turn(l, &t[0], t[2].to * t[1].to, inner, a, b);
    return b;
}

/* The waves of vector `s`, as the `at`th of those that are transformed together. */
static void vector_turn(const struct lags_work *l, size_t s, size_t at, double *scratch)
{
    const size_t n = l->coils * l->offsets, waves = l->all * VECTORS * l->coils, count = l->all * l->coils;
    for (size_t c = 0; c < l->coils; c++)
        for (size_t p = 0; p < l->offsets; p++) {
            scratch[p * l->coils + c] = l->v->re[s * n + c * l->offsets + p];
            scratch[n + p * l->coils + c] = l->v->im[s * n + c * l->offsets + p];
        }
    const double *done = volume_turn(l, l->forth, l->coils, scratch, scratch + l->each);
    for (size_t k = 0; k < l->all; k++) {
        double *to = l->waves + (k * VECTORS + at) * l->coils;
        memcpy(to, done + k * l->coils, l->coils * sizeof *to);
        memcpy(to + waves, done + count + k * l->coils, l->coils * sizeof *to);
    }
}

/* Add conj(G_s[i][k]) G_s[j][k] of `count` vectors to the sums of one k. */
static void products_add(const struct lags_work *l, size_t k, size_t count, double *scratch)
{
    const size_t coils = l->coils, pairs = l->out->pairs, waves = l->all * VECTORS * coils;
    const double *g = l->waves + k * VECTORS * coils;
    const struct rows_doubles rows = {count, coils, g, g + waves};
    double *re = scratch, *im = re + coils;
    double *sum_re = l->sums + k * pairs, *sum_im = sum_re + l->all * pairs;
    for (size_t i = 0; i < coils; i++) {
        double weight_re[VECTORS], weight_im[VECTORS];
        for (size_t s = 0; s < count; s++) {
            weight_re[s] = g[s * coils + i];
            weight_im[s] = -g[waves + s * coils + i];
        }
        l->leaf->doubles(&rows, weight_re, weight_im, i + 1, re, im);
        for (size_t j = 0; j <= i; j++) {
            *sum_re++ += re[j];
            *sum_im++ += im[j];
        }
    }
}

/* Whether a pair (i, j), at i (i + 1) / 2 + j, has j = i: one of 0, 2, 5, 9 .. */
static bool coils_equal(size_t pair)
{
    const size_t i = (size_t)((sqrt(8.0 * (double)pair + 9) - 3) / 2 + 0.5);
    return pair == i * (i + 3) / 2;
}

/* From the sums of pairs [first, first + count) to their lags. */
static void pairs_turn_back(const struct lags_work *l, size_t first, size_t count, double *scratch)
{
    const size_t pairs = l->out->pairs, n = l->all * count;
    const double scale = l->v->scale / ((double)l->all * (double)l->offsets);
    for (size_t k = 0; k < l->all; k++) {
        memcpy(scratch + k * count, l->sums + k * pairs + first, count * sizeof *scratch);
        memcpy(scratch + n + k * count, l->sums + (l->all + k) * pairs + first, count * sizeof *scratch);
    }
    const double *done = volume_turn(l, l->back, count, scratch, scratch + l->each);
    for (size_t lag = 0; lag < l->all; lag++)
        for (size_t p = 0; p < count; p++) {
            const bool one = lag == l->all / 2 && l->v->scale < 0 && coils_equal(first + p);
            l->out->values.re[lag * pairs + first + p] = (float)(scale * done[lag * count + p] + one);
            l->out->values.im[lag * pairs + first + p] = (float)(scale * done[n + lag * count + p]);
        }
}

static struct lags_work work_of(const struct maps_work *work, const struct maps_vectors *v, struct maps_lags *out)
{
    struct lags_work l = {.work = work, .leaf = rows_best(), .v = v, .out = out, .offsets = 1, .all = 1};
    l.coils = (size_t)work->params->coils;
    for (int d = 0; d < 3; d++) {
        l.offsets *= (size_t)out->width[d];
        l.all *= (size_t)out->count[d];
    }
    l.each = 2 * l.all * (l.coils > PAIRS ? l.coils : PAIRS);
    return l;
}

size_t maps_lags_bytes(const struct maps_work *work, struct maps_lags *out)
{
    const struct lags_work l = work_of(work, NULL, out);
    return (2 * l.all * (VECTORS * l.coils + out->pairs) + (size_t)work->threads * 2 * l.each) * sizeof *l.sums +
           2 * l.all * out->pairs * sizeof *out->values.re;
}

static int vectors_sum(const struct lags_work *l, double begun, double until)
{
    int rc = 0;
    for (size_t first = 0; first < l->v->count && rc == 0; first += VECTORS) {
        const size_t count = l->v->count - first < VECTORS ? l->v->count - first : VECTORS;
#pragma omp parallel num_threads(l->work->threads)
        {
            double *scratch = l->scratch + 2 * l->each * (size_t)omp_get_thread_num();
#pragma omp for schedule(static)
            for (size_t s = 0; s < count; s++)
                vector_turn(l, first + s, s, scratch);
#pragma omp for schedule(static)
            for (size_t k = 0; k < l->all; k++)
                products_add(l, k, count, scratch);
        }
        rc = maps_tell(l->work, begun + (until - begun) * (double)(first + count) / (double)l->v->count);
    }
    return rc;
}

int maps_lags_sum(const struct maps_work *work, const struct maps_vectors *v, double begun, double until,
                  struct maps_lags *out)
{
    struct lags_work l = work_of(work, v, out);
    bool room = parts_create(&out->values, l.all * out->pairs);
    for (int d = 0; d < 3; d++)
        room = turns_make(&l, d) && room;
    l.waves = malloc(2 * l.all * VECTORS * l.coils * sizeof *l.waves);
    l.sums = calloc(2 * l.all * out->pairs, sizeof *l.sums);
    l.scratch = malloc((size_t)work->threads * 2 * l.each * sizeof *l.scratch);
    int rc = l.waves && l.sums && l.scratch && room ? vectors_sum(&l, begun, until)
                                                    : err_no_memory("the kernels of %zu coils", l.coils);
#pragma omp parallel for schedule(static) num_threads(work->threads) if (rc == 0)
    for (size_t first = 0; first < out->pairs; first += PAIRS)
        if (rc == 0)
            pairs_turn_back(&l, first, out->pairs - first < PAIRS ? out->pairs - first : PAIRS,
                            l.scratch + 2 * l.each * (size_t)omp_get_thread_num());
    for (int d = 0; d < 3; d++) {
        free(l.forth[d].re);
        free(l.back[d].re);
    }
    free(l.scratch);
    free(l.sums);
    free(l.waves);
    return rc;
}
