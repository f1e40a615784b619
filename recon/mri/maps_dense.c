/* ESPIRiT's projection onto the signal space, from the smaller side of the calibration matrix A.
 *
 * X is A or A^H, whichever has fewer columns ("side"). With X^H X + e I = U^H U (Cholesky, U upper triangular):
 *
 *   P = V^H V,       V = U^-H A^H,   if the columns are A's
 *   P = I - e V^H V, V = U^-H,       if they are A^H's
 *
 * Rows of [X^H X | A^H or I] become those of [U | V], in panels of some rows: from each block of columns, first what
 * the rows before the panel contribute is taken away, then, once the panel's block on the diagonal is known, the rest.
 */
#include "recon/mri/maps_inner.h"

#include "gridding/base/rows.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    PANEL = 32,      /* rows */
    COLUMNS = 64,    /* of a block; a multiple of PANEL */
    POWER_STEPS = 12 /* to find s_0 within a few percent */
};

struct dense {
    const struct maps_work *work;
    const struct rows_leaf *leaf;
    bool by_places;      /* X is A */
    size_t side, rows;   /* columns of X; rows of A */
    double *y_re, *y_im; /* [coils][centre] */
    double *u_re, *u_im; /* [side][side]; both halves of X^H X at first */
    double *v_re, *v_im; /* [side][rows of A] */
    double cut;
};

/* ---- X^H X ----
 *
 * Entries whose places have the same difference d share their products: with T(u) = sum_c conj(y_c(u)) y_c(u + d), the
 * entry of places q and q + d of A^H A is the sum of T(q + p) over the offsets p of a kernel. In A A^H offsets and
 * places change roles, for each pair of coils. */

/* A thread's: products, and their sums over boxes along z; along z and y; all. Complex, parts apart. */
struct boxes {
    double *re[4], *im[4];
};

/* out[outer][count][inner] = sums over `box` successive ones of in[outer][count + box - 1][inner]. */
static void axis_sum(size_t outer, size_t count, size_t box, size_t inner, const double *in, double *out)
{
    for (size_t o = 0; o < outer; o++, in += (count + box - 1) * inner, out += count * inner) {
        memset(out, 0, inner * sizeof *out);
        for (size_t s = 0; s < box; s++) {
#pragma omp simd
            for (size_t i = 0; i < inner; i++)
                out[i] += in[s * inner + i];
        }
        for (size_t t = 1; t < count; t++) {
            const double *leaves = in + (t - 1) * inner, *enters = leaves + box * inner;
            double *to = out + t * inner;
#pragma omp simd
            for (size_t i = 0; i < inner; i++)
                to[i] = to[i - inner] + enters[i] - leaves[i];
        }
    }
}

/* Add conj(y(u)) y'(u + d) of two coils' centres to the products. */
static void products_add(const struct dense *d, size_t coil, size_t other, const int at[3], const struct boxes *b)
{
    const int *m = d->work->m;
    const size_t size = (size_t)(m[0] * m[1] * m[2]);
    const double *ar = d->y_re + coil * size, *ai = d->y_im + coil * size;
    const double *br = d->y_re + other * size, *bi = d->y_im + other * size;
    const int x0 = at[0] < 0 ? -at[0] : 0, x1 = at[0] < 0 ? m[0] : m[0] - at[0];
    const int y0 = at[1] < 0 ? -at[1] : 0, y1 = at[1] < 0 ? m[1] : m[1] - at[1];
    const int z0 = at[2] < 0 ? -at[2] : 0, z1 = at[2] < 0 ? m[2] : m[2] - at[2];
    for (int z = z0; z < z1; z++)
        for (int y = y0; y < y1; y++) {
            const ptrdiff_t row = (ptrdiff_t)(z * m[1] + y) * m[0];
            const ptrdiff_t there = row + ((ptrdiff_t)at[2] * m[1] + at[1]) * m[0] + at[0];
            double *re = b->re[0] + row, *im = b->im[0] + row;
#pragma omp simd
            for (int x = x0; x < x1; x++) {
                re[x] += ar[row + x] * br[there + x] + ai[row + x] * bi[there + x];
                im[x] += ar[row + x] * bi[there + x] - ai[row + x] * br[there + x];
            }
        }
}

/* Difference number `of`, of coils `coil` and `other` (all coils with themselves where the columns are places). */
static void difference_fill(const struct dense *d, int of, size_t coil, size_t other, const struct boxes *b)
{
    const int *m = d->work->m;
    const bool by_places = d->by_places;
    int at[3], n[3], box[3];
    for (int e = 0; e < 3; e++) {
        n[e] = by_places ? m[e] - maps_width(d->work->params, e) + 1 : maps_width(d->work->params, e);
        box[e] = m[e] - n[e] + 1;
        at[e] = of % (2 * n[e] - 1) - n[e] + 1;
        of /= 2 * n[e] - 1;
    }
    if (coil == other && (at[2] < 0 || (at[2] == 0 && (at[1] < 0 || (at[1] == 0 && at[0] < 0)))))
        return; /* the mirror image of another difference */
    const size_t size = (size_t)(m[0] * m[1] * m[2]), entries = (size_t)(n[0] * n[1] * n[2]);
    memset(b->re[0], 0, size * sizeof *b->re[0]);
    memset(b->im[0], 0, size * sizeof *b->im[0]);
    for (size_t c = 0; c < (by_places ? (size_t)d->work->params->coils : 1); c++)
        products_add(d, by_places ? c : other, by_places ? c : coil, at, b);
    for (int part = 0; part < 2; part++) {
        double *const *step = part ? b->im : b->re;
        axis_sum(1, (size_t)n[2], (size_t)box[2], (size_t)(m[1] * m[0]), step[0], step[1]);
        axis_sum((size_t)n[2], (size_t)n[1], (size_t)box[1], (size_t)m[0], step[1], step[2]);
        axis_sum((size_t)(n[2] * n[1]), (size_t)n[0], (size_t)box[0], 1, step[2], step[3]);
    }
    const double sign = by_places ? 1 : -1;
    for (size_t t = 0; t < entries; t++) {
        const int x = (int)t % n[0] + at[0], y = (int)t / n[0] % n[1] + at[1], z = (int)t / n[0] / n[1] + at[2];
        if (x < 0 || x >= n[0] || y < 0 || y >= n[1] || z < 0 || z >= n[2])
            continue;
        const size_t row = other * entries + t, column = coil * entries + (size_t)((z * n[1] + y) * n[0] + x);
        d->u_re[row * d->side + column] = d->u_re[column * d->side + row] = b->re[3][t];
        d->u_im[column * d->side + row] = -sign * b->im[3][t];
        d->u_im[row * d->side + column] = row == column ? 0 : sign * b->im[3][t];
    }
}

static int gram_fill(const struct dense *d)
{
    const int *m = d->work->m, coils = d->by_places ? 1 : d->work->params->coils;
    const size_t size = (size_t)(m[0] * m[1] * m[2]);
    double *memory = malloc((size_t)d->work->threads * 8 * size * sizeof *memory);
    const size_t cost = size * (size_t)(d->by_places ? d->work->params->coils : 1); /* ns: of products and sums */
    int differences = 1;
    for (int e = 0; e < 3; e++) {
        const int width = maps_width(d->work->params, e);
        differences *= 2 * (d->by_places ? m[e] - width + 1 : width) - 1;
    }
    if (!memory)
        return err_no_memory("a calibration matrix of %zu rows", d->rows);
#pragma omp parallel for collapse(2) schedule(dynamic, 4) num_threads(d->work->threads)
    for (int pair = 0; pair < coils * coils; pair++)
        for (int of = 0; of < differences; of++) {
            double *mine = memory + (size_t)omp_get_thread_num() * 8 * size;
            struct boxes b;
            for (int part = 0; part < 4; part++) {
                b.re[part] = mine + 2 * (size_t)part * size;
                b.im[part] = b.re[part] + size;
            }
            if (pair / coils >= pair % coils && !asker_stopped(d->work->asker, cost))
                difference_fill(d, of, (size_t)(pair / coils), (size_t)(pair % coils), &b);
        }
    free(memory);
    return asker_rc(d->work->asker);
}

/* e, from s_0^2 by power iteration from the column with the largest diagonal entry. Progress stays at 0. */
static int cut_find(struct dense *d)
{
    const size_t side = d->side;
    double *x = calloc(4 * side, sizeof *x), *y = x ? x + 2 * side : NULL, value = 0;
    size_t largest = 0;
    int rc = x ? 0 : err_no_memory("a calibration matrix of %zu rows", d->rows);
    for (size_t i = 1; i < side && x; i++)
        largest = d->u_re[i * (side + 1)] > d->u_re[largest * (side + 1)] ? i : largest;
    if (x)
        x[largest] = 1;
    for (int step = 0; step < POWER_STEPS && rc == 0; step++) {
        double square = 0;
        /* Rows are the conjugates of columns: conj(H x) = sum over t of conj(x_t) H[t]. */
        for (size_t i = 0; i < side; i++)
            x[side + i] = -x[side + i];
#pragma omp parallel for schedule(static) num_threads(d->work->threads)
        for (size_t first = 0; first < side; first += COLUMNS) {
            const struct rows_doubles part = {side, side, d->u_re + first, d->u_im + first};
            d->leaf->doubles(&part, x, x + side, side - first < COLUMNS ? side - first : COLUMNS, y + first,
                             y + side + first);
        }
        for (size_t i = 0; i < side; i++)
            square += y[i] * y[i] + y[side + i] * y[side + i];
        value = sqrt(square);
        for (size_t i = 0; i < side && value > 0; i++) {
            x[i] = y[i] / value;
            x[side + i] = -y[side + i] / value;
        }
        rc = maps_tell(d->work, 0);
    }
    d->cut = d->work->params->threshold * d->work->params->threshold * value;
    free(x);
    return rc;
}

/* The columns of a block: of U, or of V. */
struct columns {
    double *re, *im; /* of row 0 */
    size_t stride, first, count;
};

static struct columns block_of(const struct dense *d, size_t block)
{
    const size_t blocks = (d->side + COLUMNS - 1) / COLUMNS, rows = d->rows;
    const bool right = block >= blocks;
    const size_t all = right ? rows : d->side, first = (right ? block - blocks : block) * COLUMNS;
    struct columns c = {(right ? d->v_re : d->u_re) + first, (right ? d->v_im : d->u_im) + first, all, first, 0};
    c.count = all - first < COLUMNS ? all - first : COLUMNS;
    return c;
}

/* Without the columns before `begin`, of a block of U. */
static struct columns columns_from(struct columns c, size_t begin)
{
    const size_t skip = begin <= c.first ? 0 : begin - c.first < c.count ? begin - c.first : c.count;
    c.re += skip;
    c.im += skip;
    c.first += skip;
    c.count -= skip;
    return c;
}

/* Rows s of [first, until) minus the sum over rows t of [from, s or first) of conj(U[t][s]) times row t; in the panel
 * itself (`inside`) divided by U[s][s]. */
static void rows_subtract(const struct dense *d, const struct columns *c, size_t from, size_t first, size_t until,
                          bool inside, double *weights)
{
    const size_t side = d->side;
    double re[COLUMNS], im[COLUMNS];
    for (size_t s = first; s < until && c->count > 0; s++) {
        const size_t count = (inside ? s : first) - from;
        const struct rows_doubles before = {count, c->stride, c->re + from * c->stride, c->im + from * c->stride};
        const double scale = inside ? 1 / d->u_re[s * side + s] : 1;
        double *to_re = c->re + s * c->stride, *to_im = c->im + s * c->stride;
        for (size_t t = 0; t < count; t++) {
            weights[t] = d->u_re[(from + t) * side + s];
            weights[side + t] = -d->u_im[(from + t) * side + s];
        }
        d->leaf->doubles(&before, weights, weights + side, c->count, re, im);
        for (size_t i = 0; i < c->count; i++) {
            to_re[i] = scale * (to_re[i] - re[i]);
            to_im[i] = scale * (to_im[i] - im[i]);
        }
    }
}

/* U of the panel's own columns. */
static void diagonal_factor(const struct dense *d, size_t first, size_t until)
{
    const size_t side = d->side;
    for (size_t s = first; s < until; s++) {
        double *re = d->u_re + s * side, *im = d->u_im + s * side;
        for (size_t t = first; t < s; t++) {
            const double a = d->u_re[t * side + s], b = d->u_im[t * side + s];
            const double *tr = d->u_re + t * side, *ti = d->u_im + t * side;
            for (size_t j = s; j < until; j++) {
                re[j] -= a * tr[j] + b * ti[j];
                im[j] -= a * ti[j] - b * tr[j];
            }
        }
        const double root = sqrt(re[s] + d->cut);
        for (size_t j = s + 1; j < until; j++) {
            re[j] /= root;
            im[j] /= root;
        }
        re[s] = root;
        im[s] = 0;
    }
}

static int factor(struct dense *d, double done)
{
    const size_t side = d->side, half = (side + COLUMNS - 1) / COLUMNS;
    const size_t blocks = half + (d->rows + COLUMNS - 1) / COLUMNS;
    double *weights = malloc((size_t)d->work->threads * 2 * side * sizeof *weights);
    int rc = weights ? 0 : err_no_memory("a calibration matrix of %zu rows", d->rows);
    for (size_t first = 0; first < side && rc == 0; first += PANEL) {
        const size_t until = first + PANEL < side ? first + PANEL : side;
#pragma omp parallel for schedule(static) num_threads(d->work->threads)
        for (size_t b = first / COLUMNS; b < blocks; b++) {
            const struct columns all = block_of(d, b), c = b < half ? columns_from(all, first) : all;
            rows_subtract(d, &c, 0, first, until, false, weights + (size_t)omp_get_thread_num() * 2 * side);
        }
        diagonal_factor(d, first, until);
#pragma omp parallel for schedule(static) num_threads(d->work->threads)
        for (size_t b = first / COLUMNS; b < blocks; b++) {
            const struct columns all = block_of(d, b), c = b < half ? columns_from(all, until) : all;
            rows_subtract(d, &c, first, first, until, true, weights + (size_t)omp_get_thread_num() * 2 * side);
        }
        rc = maps_tell(d->work, done * (double)until / (double)side);
    }
    free(weights);
    return rc;
}

/* V begins as A^H or I. */
static void right_fill(const struct dense *d)
{
    const int *m = d->work->m;
    const size_t size = (size_t)(m[0] * m[1] * m[2]);
    int w[3], n[3];
    for (int e = 0; e < 3; e++) {
        w[e] = maps_width(d->work->params, e);
        n[e] = m[e] - w[e] + 1;
    }
#pragma omp parallel for schedule(static) num_threads(d->work->threads)
    for (size_t s = 0; s < d->side; s++) {
        double *re = d->v_re + s * d->rows, *im = d->v_im + s * d->rows;
        const int x = (int)s % n[0], y = (int)s / n[0] % n[1], z = (int)s / n[0] / n[1];
        for (size_t i = 0; i < d->rows && !d->by_places; i++) {
            re[i] = s == i;
            im[i] = 0;
        }
        for (int row = 0; row < d->work->params->coils * w[2] * w[1] && d->by_places; row++)
            for (int p = 0; p < w[0]; p++) {
                const int above = z + row / w[1] % w[2], along = y + row % w[1];
                const size_t at = (size_t)(row / w[1] / w[2]) * size + (size_t)((above * m[1] + along) * m[0] + x + p);
                *re++ = d->y_re[at];
                *im++ = -d->y_im[at];
            }
    }
}

int maps_dense(const struct maps_work *work, size_t places, size_t rows, double done, struct maps_vectors *out)
{
    struct dense d = {.work = work, .leaf = rows_best(), .rows = rows, .by_places = places < rows};
    d.side = d.by_places ? places : rows;
    const size_t y = (size_t)work->params->coils * (size_t)(work->m[0] * work->m[1] * work->m[2]);
    const size_t u = d.side * d.side, v = d.side * rows;
    double *memory = malloc(2 * (y + u + v) * sizeof *memory);
    if (!memory)
        return err_no_memory("a calibration matrix of %zu x %zu", rows, places);
    d.v_re = memory;
    d.v_im = d.v_re + v;
    d.u_re = d.v_im + v;
    d.u_im = d.u_re + u;
    d.y_re = d.u_im + u;
    d.y_im = d.y_re + y;
    for (size_t i = 0; i < y; i++) {
        d.y_re[i] = (double)work->centre[i].re;
        d.y_im[i] = (double)work->centre[i].im;
    }
    int rc = gram_fill(&d);
    if (rc == 0)
        rc = cut_find(&d);
    if (rc == 0)
        right_fill(&d);
    if (rc == 0 && d.cut > 0)
        rc = factor(&d, done);
    *out = (struct maps_vectors){d.cut > 0 ? d.side : 0, d.v_re, d.v_im, d.by_places ? 1 : -d.cut, memory};
    return rc;
}

size_t maps_dense_bytes(const struct maps_work *work, size_t places, size_t rows)
{
    const size_t side = places < rows ? places : rows, threads = (size_t)work->threads;
    const size_t size = (size_t)(work->m[0] * work->m[1] * work->m[2]);
    const size_t each = 8 * size > 2 * side ? 8 * size : 2 * side;
    return sizeof(double) * (2 * ((size_t)work->params->coils * size + side * (side + rows)) + threads * each);
}
