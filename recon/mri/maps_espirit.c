/* ESPIRiT, pixel by pixel: the operator of maps_calibration.c at each pixel, and its first eigenvector. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct espirit {
    struct maps_work *work;
    struct maps_lags lags;
    struct c32 *turns[3]; /* exp(2 pi i lag r / N): [n][lags] */
    struct row *rows;     /* a thread each */
};

/* One thread's. */
struct row {
    struct maps_pixel pixel;
    struct c32 *planes, *line; /* lags summed over z and y: [lags y][lags x][pairs], [lags x][pairs] */
};

static struct c32 *turns_make(int n, int lags)
{
    struct c32 *turns = malloc((size_t)n * (size_t)lags * sizeof *turns);
    for (int r = 0; r < n && turns; r++)
        for (int l = 0; l < lags; l++) {
            const double angle = 2 * M_PI * ((r - n / 2) * (l - lags / 2) % n) / n;
            turns[(size_t)r * (size_t)lags + (size_t)l] = (struct c32){(float)cos(angle), (float)sin(angle)};
        }
    return turns;
}

/* out[inner] = sum_l turns[l] in[l][inner] */
static void lags_turn(int lags, size_t inner, const struct c32 *turns, const struct c32 *in, struct c32 *out)
{
    memset(out, 0, inner * sizeof *out);
    for (int l = 0; l < lags; l++) {
        const struct c32 a = turns[l], *x = in + (size_t)l * inner;
#pragma omp simd
        for (size_t i = 0; i < inner; i++) {
            out[i].re += a.re * x[i].re - a.im * x[i].im;
            out[i].im += a.re * x[i].im + a.im * x[i].re;
        }
    }
}

static int row_create(struct row *row, const struct maps_lags *lags, int coils)
{
    const size_t line = (size_t)lags->count[0] * lags->pairs;
    int rc = maps_pixel_create(&row->pixel, coils);
    row->planes = malloc((size_t)lags->count[1] * line * sizeof *row->planes);
    row->line = malloc((line + lags->pairs) * sizeof *row->line);
    if (rc == 0 && (!row->planes || !row->line))
        rc = err_no_memory("the maps of %d coils", coils);
    return rc;
}

static void row_free(struct row *row)
{
    maps_pixel_free(&row->pixel);
    free(row->planes);
    free(row->line);
}

/* Returns the number of pixels of the row that have a map. */
static size_t row_run(const void *of, int thread, int z, int y)
{
    const struct espirit *e = of;
    struct row *row = &e->rows[thread];
    const struct maps_work *work = e->work;
    const struct maps_lags *lags = &e->lags;
    const size_t nx = (size_t)work->params->n[0], line = (size_t)lags->count[0] * lags->pairs;
    const size_t at = ((size_t)z * (size_t)work->params->n[1] + (size_t)y) * nx;
    struct maps_pixel *pixel = &row->pixel;
    struct c32 *pairs = row->line + line;
    size_t support = 0;
    lags_turn(lags->count[2], (size_t)lags->count[1] * line, e->turns[2] + z * lags->count[2], lags->values,
              row->planes);
    lags_turn(lags->count[1], line, e->turns[1] + y * lags->count[1], row->planes, row->line);
    for (size_t x = 0; x < nx; x++) {
        lags_turn(lags->count[0], lags->pairs, e->turns[0] + x * (size_t)lags->count[0], row->line, pairs);
        maps_pixel_fill(pixel, pairs);
        if (x == 0)
            maps_pixel_begin(pixel);
        const float value = maps_pixel_first(pixel);
        support += maps_pixel_store(work, pixel, value, work->params->crop, work->reference, at + x);
    }
    return support;
}

int maps_espirit(struct maps_work *work)
{
    struct row *rows = calloc((size_t)work->threads, sizeof *rows);
    struct espirit e = {.work = work, .rows = rows};
    const int *n = work->params->n;
    int rc = rows ? maps_calibrate(work, &e.lags) : err_no_memory("coil maps");
    for (int d = 0; d < 3 && rc == 0; d++) {
        e.turns[d] = turns_make(n[d], e.lags.count[d]);
        if (!e.turns[d])
            rc = err_no_memory("the maps of %d coils", work->params->coils);
    }
    for (int t = 0; t < work->threads && rc == 0; t++)
        rc = row_create(&rows[t], &e.lags, work->params->coils);
    if (rc == 0)
        rc = maps_rows(work, 0.2, row_run, &e);
    for (int t = 0; t < work->threads && rows; t++)
        row_free(&rows[t]);
    for (int d = 0; d < 3; d++)
        free(e.turns[d]);
    free(e.lags.values);
    free(rows);
    return rc;
}
