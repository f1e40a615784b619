/* low_rank_cpu.c: singular values of blocks of a series, lowered (low_rank.h), a thread a block. */
#include "gridding/base/err.h"
#include "gridding/sparse/low_rank.h"
#include "gridding/sparse/sparse_leaf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct low_rank {
    size_t rows, columns; /* the largest block: the size of the arrays */
    double *re, *im;      /* [rows][2 rows]: G and V^H, side by side */
    float *m_re, *m_im;   /* [rows][columns] */
    float *out_re, *out_im;
    float *row_re, *row_im; /* [columns] */
};

static int low_rank_create(struct low_rank *l, size_t rows, size_t columns)
{
    const size_t gram = 2 * rows * rows, matrix = rows * columns;
    *l = (struct low_rank){.rows = rows, .columns = columns};
    l->re = malloc(2 * gram * sizeof *l->re);
    l->m_re = malloc((4 * matrix + 2 * columns) * sizeof *l->m_re);
    if (!l->re || !l->m_re)
        return -1;
    l->im = l->re + gram;
    l->m_im = l->m_re + matrix;
    l->out_re = l->m_im + matrix;
    l->out_im = l->out_re + matrix;
    l->row_re = l->out_im + matrix;
    l->row_im = l->row_re + columns;
    return 0;
}

static void low_rank_free(struct low_rank *l)
{
    free(l->re);
    free(l->m_re);
}

/* Copy between the array and the matrix. */
static void block_move(const struct low_rank_block *b, const int *n, struct c32 *x, float *re, float *im, bool out)
{
    const size_t nx = (size_t)n[0], ny = (size_t)n[1], plane = nx * ny * (size_t)n[2];
    const size_t frame_step = b->by_frames ? b->columns : 1, pixel_step = b->by_frames ? 1 : b->columns;
    for (size_t f = 0; f < b->frames; f++)
        for (size_t z = 0, p = 0; z < b->size[2]; z++)
            for (size_t y = 0; y < b->size[1]; y++) {
                struct c32 *at = x + f * plane + ((b->at[2] + z) * ny + b->at[1] + y) * nx + b->at[0];
                for (size_t i = 0; i < b->size[0]; i++, p++) {
                    const size_t to = f * frame_step + p * pixel_step;
                    if (out) {
                        at[i] = (struct c32){re[to], im[to]};
                    } else {
                        re[to] = at[i].re;
                        im[to] = at[i].im;
                    }
                }
            }
}

/* Set G, and V^H to the unit matrix; returns G's trace, the sum of s^2. */
static double gram_fill(struct low_rank *l, const struct low_rank_block *b)
{
    const size_t rows = b->rows, wide = 2 * rows, columns = b->columns;
    double trace = 0;
    memset(l->re, 0, rows * wide * sizeof *l->re);
    memset(l->im, 0, rows * wide * sizeof *l->im);
    for (size_t i = 0; i < rows; i++) {
        const float *ar = l->m_re + i * columns, *ai = l->m_im + i * columns;
        for (size_t j = 0; j <= i; j++) {
            const float *br = l->m_re + j * columns, *bi = l->m_im + j * columns;
            double re = 0, im = 0;
#pragma omp simd reduction(+ : re, im)
            for (size_t c = 0; c < columns; c++) {
                re += (double)ar[c] * (double)br[c] + (double)ai[c] * (double)bi[c];
                im += (double)ai[c] * (double)br[c] - (double)ar[c] * (double)bi[c];
            }
            l->re[i * wide + j] = l->re[j * wide + i] = re;
            l->im[i * wide + j] = i == j ? 0 : im;
            l->im[j * wide + i] = i == j ? 0 : -im;
        }
        trace += l->re[i * wide + i];
        l->re[i * wide + rows + i] = 1;
    }
    return trace;
}

/* Rotate rows p and q of G and V^H so that G[p][q] = 0: J^H from the left on both; J from the right on G follows
 * because G is Hermitian. */
static void rotate(struct low_rank *l, size_t rows, size_t p, size_t q)
{
    const size_t wide = 2 * rows;
    double *pr = l->re + p * wide, *pi = l->im + p * wide, *qr = l->re + q * wide, *qi = l->im + q * wide;
    const double a = pr[p], b = qr[q];
    const struct rotation r = rotation_of(a, b, pr[q], pi[q]);
#pragma omp simd
    for (size_t k = 0; k < wide; k++)
        rotation_turn(&r, &pr[k], &pi[k], &qr[k], &qi[k]);
    for (size_t k = 0; k < rows; k++) {
        l->re[k * wide + p] = pr[k];
        l->im[k * wide + p] = -pi[k];
        l->re[k * wide + q] = qr[k];
        l->im[k * wide + q] = -qi[k];
    }
    pr[p] = a - r.move;
    qr[q] = b + r.move;
    pr[q] = qr[p] = pi[q] = qi[p] = pi[p] = qi[q] = 0;
}

/* Diagonalise G; V^H becomes its eigenvectors. */
static void diagonalise(struct low_rank *l, size_t rows, double negligible)
{
    const size_t wide = 2 * rows;
    for (int sweep = 0, turned = 1; sweep < LOW_RANK_SWEEPS && turned; sweep++) {
        turned = 0;
        for (size_t p = 0; p + 1 < rows; p++)
            for (size_t q = p + 1; q < rows; q++)
                if (hypot(l->re[p * wide + q], l->im[p * wide + q]) > negligible) {
                    rotate(l, rows, p, q);
                    turned = 1;
                }
    }
}

/* out += f v (v^H M) for one eigenvector v, whose conjugate is row `i` of V^H. */
static void part_add(struct low_rank *l, const struct low_rank_block *b, size_t i, float f)
{
    const size_t rows = b->rows, columns = b->columns;
    const double *vr = l->re + i * 2 * rows + rows, *vi = l->im + i * 2 * rows + rows;
    memset(l->row_re, 0, columns * sizeof *l->row_re);
    memset(l->row_im, 0, columns * sizeof *l->row_im);
    for (size_t r = 0; r < rows; r++) {
        const float wr = (float)vr[r], wi = (float)vi[r], *mr = l->m_re + r * columns, *mi = l->m_im + r * columns;
#pragma omp simd
        for (size_t c = 0; c < columns; c++) {
            l->row_re[c] += wr * mr[c] - wi * mi[c];
            l->row_im[c] += wr * mi[c] + wi * mr[c];
        }
    }
    for (size_t r = 0; r < rows; r++) {
        const float wr = f * (float)vr[r], wi = -f * (float)vi[r];
        float *to_re = l->out_re + r * columns, *to_im = l->out_im + r * columns;
#pragma omp simd
        for (size_t c = 0; c < columns; c++) {
            to_re[c] += wr * l->row_re[c] - wi * l->row_im[c];
            to_im[c] += wr * l->row_im[c] + wi * l->row_re[c];
        }
    }
}

static void block_lower(struct low_rank *l, const struct low_rank_block *b, const int *n, float t, struct c32 *x)
{
    const double square = (double)t * (double)t;
    block_move(b, n, x, l->m_re, l->m_im, false);
    const double trace = gram_fill(l, b);
    if (!isfinite(trace))
        return;
    memset(l->out_re, 0, b->rows * b->columns * sizeof *l->out_re);
    memset(l->out_im, 0, b->rows * b->columns * sizeof *l->out_im);
    if (trace > square) { /* else no s exceeds t */
        diagonalise(l, b->rows, LOW_RANK_NEGLIGIBLE * square);
        for (size_t i = 0; i < b->rows; i++) {
            const double value = l->re[i * 2 * b->rows + i];
            if (value > square)
                part_add(l, b, i, (float)(1 - (double)t / sqrt(value)));
        }
    }
    block_move(b, n, x, l->out_re, l->out_im, true);
}

int sparse_low_rank_cpu(struct dev *dev, const int *n, const int *block, size_t first, size_t count, float t,
                        struct c32 *x)
{
    size_t pixels = 1;
    for (int d = 0; d < 3; d++)
        pixels *= (size_t)(n[d] < block[d] ? n[d] : block[d]);
    const size_t frames = (size_t)n[3], rows = frames < pixels ? frames : pixels;
    /* A smaller block at an edge may have rows and columns exchanged, and has at most as many of each. */
    const size_t columns = frames < pixels ? pixels : frames;
    int failed = 0;
#pragma omp parallel num_threads(dev->threads) reduction(| : failed) if (count > 1)
    {
        struct low_rank l;
        const bool room = low_rank_create(&l, rows, columns) == 0;
        failed |= !room;
#pragma omp for schedule(dynamic, 4)
        for (size_t i = first; i < first + count; i++) {
            const struct low_rank_block b = block_at(n, block, i);
            if (room)
                block_lower(&l, &b, n, t, x);
        }
        low_rank_free(&l);
    }
    return failed ? err_no_memory("the singular values of blocks of %zu x %zu", rows, columns) : 0;
}
