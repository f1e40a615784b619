/* ESPIRiT, pixel by pixel: the operator of maps_calibration.c at each pixel, and its first eigenvector. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/err.h"
#include "gridding/base/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct espirit {
    struct maps_work *work;
    const struct rows_leaf *leaf;
    struct maps_lags lags;
    struct parts turns[3]; /* exp(2 pi i lag r / N): [n][lags] */
    float *weights;        /* of a row's waves: [nx][lags x] */
    struct row *rows;      /* a thread each */
};

/* One thread's. */
struct row {
    struct maps_pixel pixel;
    int z; /* of `planes`; -1: none yet */
    /* Lags summed over z, y, x: [lags y][lags x][pairs], [lags x][pairs], [pairs]. */
    struct parts planes, line, pairs;
    float *waves; /* [lags x][2 pairs]: the line as a series of cosines and sines of x */
};

static bool turns_make(struct parts *turns, int n, int lags)
{
    struct parts circle = {.re = NULL};
    const bool room = circle_create(&circle, n) && parts_create(turns, (size_t)n * (size_t)lags);
    for (int r = 0; r < n && room; r++)
        for (int l = 0; l < lags; l++) {
            const int place = circle_place((r - n / 2) * (l - lags / 2), n);
            turns->re[(size_t)r * (size_t)lags + (size_t)l] = circle.re[place];
            turns->im[(size_t)r * (size_t)lags + (size_t)l] = circle.im[place];
        }
    free(circle.re);
    return room;
}

/* out[inner] = sum over the lags l of axis d of turns[r][l] in[l][inner] */
static void lags_turn(const struct espirit *e, int d, size_t r, size_t inner, const struct parts *in,
                      const struct parts *out)
{
    const size_t lags = (size_t)e->lags.count[d];
    const struct rows_floats rows = {lags, inner, in->re, in->im};
    e->leaf->floats(&rows, e->turns[d].re + r * lags, e->turns[d].im + r * lags, inner, out->re, out->im);
}

static int row_create(struct row *row, const struct maps_lags *lags, int coils)
{
    const size_t line = (size_t)lags->count[0] * lags->pairs;
    const int rc = maps_pixel_create(&row->pixel, coils);
    if (rc != 0)
        return rc;
    row->z = -1;
    row->waves = malloc(2 * line * sizeof *row->waves);
    return row->waves && parts_create(&row->planes, (size_t)lags->count[1] * line) && parts_create(&row->line, line) &&
                   parts_create(&row->pairs, lags->pairs)
               ? 0
               : err_no_memory("the maps of %d coils", coils);
}

static void row_free(struct row *row)
{
    maps_pixel_free(&row->pixel);
    free(row->planes.re);
    free(row->line.re);
    free(row->pairs.re);
    free(row->waves);
}

/* row->waves of row->line: with L_l = line[l], t = 2 pi r / N and h = (lags - 1) / 2,
 *
 *   sum over |l| <= h of L_l exp(i l t) = L_0 + sum over l = 1 .. h of (L_l + L_-l) cos(l t) + i (L_l - L_-l) sin(l t):
 *
 * weights that are real. Wave h - l is that of the cosine, h + l that of the sine. */
static void waves_fill(const struct espirit *e, struct row *row)
{
    const size_t pairs = e->lags.pairs, half = (size_t)e->lags.count[0] / 2;
    memcpy(row->waves + half * 2 * pairs, row->line.re + half * pairs, pairs * sizeof *row->waves);
    memcpy(row->waves + (2 * half + 1) * pairs, row->line.im + half * pairs, pairs * sizeof *row->waves);
    for (size_t l = 1; l <= half; l++) {
        const size_t below = (half - l) * pairs, above = (half + l) * pairs;
        float *cosine = row->waves + 2 * below, *sine = row->waves + 2 * above;
        for (size_t i = 0; i < pairs; i++) {
            const float re = row->line.re[above + i], im = row->line.im[above + i];
            const float re_below = row->line.re[below + i], im_below = row->line.im[below + i];
            cosine[i] = re + re_below;
            cosine[pairs + i] = im + im_below;
            sine[i] = im_below - im;
            sine[pairs + i] = re - re_below;
        }
    }
}

static bool weights_make(struct espirit *e)
{
    const int lags = e->lags.count[0], all = e->work->params->n[0] * lags;
    e->weights = malloc((size_t)all * sizeof *e->weights);
    for (int i = 0; i < all && e->weights; i++)
        e->weights[i] = i % lags > lags / 2 ? e->turns[0].im[i] : e->turns[0].re[i];
    return e->weights;
}

/* Returns the number of pixels of the row that have a map. */
static size_t row_run(const void *of, int thread, int z, int y)
{
    const struct espirit *e = of;
    struct row *row = &e->rows[thread];
    const struct maps_work *work = e->work;
    const size_t nx = (size_t)work->params->n[0], pairs = e->lags.pairs, lags = (size_t)e->lags.count[0];
    const struct rows_reals waves = {lags, 2 * pairs, row->waves};
    const size_t at = ((size_t)z * (size_t)work->params->n[1] + (size_t)y) * nx;
    struct maps_pixel *pixel = &row->pixel;
    size_t support = 0;
    bool follows = false; /* the vector is that of the pixel before */
    if (z != row->z)
        lags_turn(e, 2, (size_t)z, (size_t)e->lags.count[1] * lags * pairs, &e->lags.values, &row->planes);
    row->z = z;
    lags_turn(e, 1, (size_t)y, lags * pairs, &row->planes, &row->line);
    waves_fill(e, row);
    for (size_t x = 0; x < nx; x++) {
        e->leaf->reals(&waves, e->weights + x * lags, 2 * pairs, row->pairs.re);
        const bool runs = maps_pixel_reaches(row->pairs.re, row->pairs.im, pixel->coils, (float)work->params->crop);
        if (runs)
            maps_pixel_fill(pixel, row->pairs.re, row->pairs.im, 1);
        if (runs && !follows)
            maps_pixel_begin(pixel);
        follows = runs;
        const float value = runs ? maps_pixel_first(pixel) : 0;
        support += maps_pixel_store(work, pixel, value, work->params->crop, work->reference, at + x);
    }
    return support;
}

int maps_espirit(struct maps_work *work)
{
    struct row *rows = calloc((size_t)work->threads, sizeof *rows);
    struct espirit e = {.work = work, .leaf = rows_best(), .rows = rows};
    const int *n = work->params->n;
    int rc = rows ? maps_calibrate(work, &e.lags) : err_no_memory("coil maps");
    for (int d = 0; d < 3 && rc == 0; d++)
        if (!turns_make(&e.turns[d], n[d], e.lags.count[d]))
            rc = err_no_memory("the maps of %d coils", work->params->coils);
    if (rc == 0 && !weights_make(&e))
        rc = err_no_memory("the maps of %d coils", work->params->coils);
    for (int t = 0; t < work->threads && rc == 0; t++)
        rc = row_create(&rows[t], &e.lags, work->params->coils);
    if (rc == 0)
        rc = maps_rows(work, MAPS_CALIBRATED, row_run, &e);
    for (int t = 0; t < work->threads && rows; t++)
        row_free(&rows[t]);
    for (int d = 0; d < 3; d++)
        free(e.turns[d].re);
    free(e.weights);
    free(e.lags.values.re);
    free(rows);
    return rc;
}
