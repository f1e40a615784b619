/* Walsh's and Inati's maps: the first eigenvector of the coil values' covariance over a box around each pixel, of
 * images that a Hann window limits to the centre of k-space. Without the window the maps follow the object's edges and
 * the artefacts of undersampling; with it they are about as good as the plain quotient image / root-sum-of-squares
 * allows. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct patch {
    struct maps_work *work;
    size_t pairs, coils;
    struct c32 *low;  /* [coils][pixels] */
    struct row *rows; /* a thread each */
};

/* One thread's: sums over the box's z and y, for each x of a row. */
struct row {
    struct maps_pixel pixel;
    struct c32 *products, *values; /* [nx][pairs] of values times conjugates, [nx][coils] */
    struct c32 *sum, *mean;        /* [pairs], [coils]: over x, too */
};

static void window_apply(const struct maps_work *work, struct c32 *centre)
{
    const int *m = work->m;
    size_t at = 0;
    for (int c = 0; c < work->params->coils; c++)
        for (int z = 0; z < m[2]; z++)
            for (int y = 0; y < m[1]; y++)
                for (int x = 0; x < m[0]; x++, at++) {
                    const int place[3] = {x, y, z};
                    double square = 0;
                    for (int d = 0; d < 3; d++)
                        square += m[d] > 1 ? pow(2.0 * (place[d] - m[d] / 2) / m[d], 2) : 0;
                    const float w = (float)(square < 1 ? 0.5 + 0.5 * cos(M_PI * sqrt(square)) : 0);
                    centre[at] = (struct c32){w * centre[at].re, w * centre[at].im};
                }
}

static int row_create(struct row *row, const struct patch *p)
{
    const size_t nx = (size_t)p->work->params->n[0];
    int rc = maps_pixel_create(&row->pixel, (int)p->coils);
    row->products = malloc((nx + 1) * p->pairs * sizeof *row->products);
    row->values = malloc((nx + 1) * p->coils * sizeof *row->values);
    if (rc == 0 && (!row->products || !row->values))
        return err_no_memory("the maps of %zu coils", p->coils);
    row->sum = row->products + nx * p->pairs;
    row->mean = row->values + nx * p->coils;
    return rc;
}

static void row_free(struct row *row)
{
    maps_pixel_free(&row->pixel);
    free(row->values);
    free(row->products);
}

/* Add the row of images at `at` to the sums. */
static void row_add(const struct patch *p, struct row *row, size_t at)
{
    const int nx = p->work->params->n[0];
    for (int x = 0; x < nx; x++) {
        struct c32 *products = row->products + (size_t)x * p->pairs, *values = row->values + (size_t)x * p->coils;
        for (size_t i = 0; i < p->coils; i++) {
            const struct c32 a = p->low[i * p->work->pixels + at + (size_t)x];
            values[i].re += a.re;
            values[i].im += a.im;
            for (size_t j = 0; j <= i; j++, products++) {
                const struct c32 b = p->low[j * p->work->pixels + at + (size_t)x];
                products->re += a.re * b.re + a.im * b.im;
                products->im += a.im * b.re - a.re * b.im;
            }
        }
    }
}

static void columns_add(size_t count, size_t columns, const struct c32 *in, struct c32 *sum)
{
    memset(sum, 0, count * sizeof *sum);
    for (size_t x = 0; x < columns; x++)
        for (size_t i = 0; i < count; i++) {
            sum[i].re += in[x * count + i].re;
            sum[i].im += in[x * count + i].im;
        }
}

/* Returns the number of pixels of the row that have a map. */
static size_t row_run(const void *of, int thread, int z, int y)
{
    const struct patch *p = of;
    struct row *row = &p->rows[thread];
    struct maps_work *work = p->work;
    const int *n = work->params->n, half = work->params->width / 2;
    const size_t at = ((size_t)z * (size_t)n[1] + (size_t)y) * (size_t)n[0];
    size_t support = 0;
    memset(row->products, 0, (size_t)n[0] * p->pairs * sizeof *row->products);
    memset(row->values, 0, (size_t)n[0] * p->coils * sizeof *row->values);
    for (int v = z - half < 0 ? 0 : z - half; v <= z + half && v < n[2]; v++)
        for (int u = y - half < 0 ? 0 : y - half; u <= y + half && u < n[1]; u++)
            row_add(p, row, ((size_t)v * (size_t)n[1] + (size_t)u) * (size_t)n[0]);
    for (int x = 0; x < n[0]; x++) {
        const int first = x - half < 0 ? 0 : x - half, last = x + half < n[0] ? x + half : n[0] - 1;
        columns_add(p->pairs, (size_t)(last - first + 1), row->products + (size_t)first * p->pairs, row->sum);
        columns_add(p->coils, (size_t)(last - first + 1), row->values + (size_t)first * p->coils, row->mean);
        maps_pixel_fill(&row->pixel, &row->sum->re, &row->sum->im, 2);
        if (x == 0)
            maps_pixel_begin(&row->pixel);
        const float value = maps_pixel_first(&row->pixel);
        support += maps_pixel_store(work, &row->pixel, value, 0,
                                    work->params->method == MAPS_INATI ? row->mean : work->reference, at + (size_t)x);
    }
    return support;
}

int maps_patch(struct maps_work *work)
{
    const size_t coils = (size_t)work->params->coils;
    struct row *rows = calloc((size_t)work->threads, sizeof *rows);
    struct patch p = {.work = work, .pairs = coils * (coils + 1) / 2, .coils = coils, .rows = rows};
    p.low = malloc(coils * work->pixels * sizeof *p.low);
    int rc = rows && p.low ? 0 : err_no_memory("the maps of %zu coils", coils);
    for (int t = 0; t < work->threads && rc == 0; t++)
        rc = row_create(&rows[t], &p);
    if (rc == 0) {
        window_apply(work, work->centre);
        rc = maps_synthesise(work, work->centre, p.low);
    }
    if (rc == 0)
        rc = maps_rows(work, 0, row_run, &p);
    for (int t = 0; t < work->threads && rows; t++)
        row_free(&rows[t]);
    free(p.low);
    free(rows);
    return rc;
}
