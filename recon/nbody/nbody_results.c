/* The results of a job, and their files. */
#include "recon/nbody/nbody.h"

#include "gridding/base/err.h"
#include "recon/image/picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct nbody_record) == SERIES_COLUMNS * sizeof(double), "a row of doubles");

int nbody_outcome_create(struct nbody_outcome **out, size_t count, size_t records)
{
    struct nbody_outcome *o = calloc(1, sizeof *o);
    if (!o)
        return err_no_memory("bodies");
    o->users = 1;
    o->record_room = records;
    struct nbody_bodies *b = &o->bodies;
    *b = (struct nbody_bodies){.count = count,
                               .mass = malloc((count + 1) * sizeof *b->mass),
                               .at = malloc((count + 1) * sizeof *b->at),
                               .velocity = malloc((count + 1) * sizeof *b->velocity),
                               .acceleration = malloc((count + 1) * sizeof *b->acceleration),
                               .potential = malloc((count + 1) * sizeof *b->potential)};
    o->id = malloc((count + 1) * sizeof *o->id);
    o->records = malloc((records + 1) * sizeof *o->records);
    if (b->mass && b->at && b->velocity && b->acceleration && b->potential && o->id && o->records) {
        *out = o;
        return 0;
    }
    nbody_outcome_free(o);
    return err_no_memory("%zu bodies", count);
}

void nbody_outcome_free(void *of)
{
    struct nbody_outcome *o = of;
    if (!o || --o->users > 0)
        return;
    free(o->bodies.mass);
    free(o->bodies.at);
    free(o->bodies.velocity);
    free(o->bodies.acceleration);
    free(o->bodies.potential);
    free(o->id);
    free(o->records);
    free(o);
}

uint64_t nbody_file_most(const struct nbody_outcome *o, struct result_file file)
{
    /* HDF5: 12 numbers per body, and groups, attributes and heads of datasets. CSV: at most 24 characters per number.
     */
    enum { H5_HEADS = 64 << 10, NPY_HEAD = 128, NUMBER = 25, PNG_HEADS = 32 << 10 };
    const uint64_t bodies = o->bodies.count, records = o->record_room;
    const uint64_t pixels = (uint64_t)o->picture * (uint64_t)o->picture;
    switch (file.result) {
    case NBODY_PARTICLES:
        return file.format == BODIES_H5 ? H5_HEADS + bodies * 12 * sizeof(double)
                                        : NPY_HEAD + bodies * BODIES_COLUMNS * sizeof(double);
    case NBODY_SERIES:
        return file.format == SERIES_NPY ? NPY_HEAD + records * sizeof(struct nbody_record)
                                         : (records + 1) * SERIES_COLUMNS * NUMBER;
    default:
        return pixels * 3 + pixels / 64 + PNG_HEADS; /* deflate adds five bytes per 16 kB of incompressible data */
    }
}

int nbody_particles_write(const void *of, int format, int fd)
{
    enum { ROWS = 1024 }; /* of one write(2) */
    const struct nbody_outcome *o = of;
    const struct nbody_bodies *b = &o->bodies;
    if (format == BODIES_H5)
        return nbody_h5_write(o, fd);
    int rc = nbody_npy_head(fd, b->count, BODIES_COLUMNS);
    for (size_t first = 0; first < b->count && rc == 0; first += ROWS) {
        double rows[ROWS][BODIES_COLUMNS];
        const size_t count = b->count - first < ROWS ? b->count - first : ROWS;
        for (size_t r = 0; r < count; r++) {
            const size_t i = first + r;
            memcpy(rows[r], b->at[i], sizeof b->at[i]);
            memcpy(rows[r] + 3, b->velocity[i], sizeof b->velocity[i]);
            rows[r][6] = b->mass[i];
            memcpy(rows[r] + 7, b->acceleration[i], sizeof b->acceleration[i]);
            rows[r][10] = b->potential[i];
        }
        rc = nbody_put(fd, rows, count * sizeof *rows);
    }
    return rc;
}

int nbody_series_write(const void *of, int format, int fd)
{
    const struct nbody_outcome *o = of;
    if (format == SERIES_CSV)
        return nbody_csv_write(fd, o->records, o->record_count);
    int rc = nbody_npy_head(fd, o->record_count, SERIES_COLUMNS);
    return rc == 0 ? nbody_put(fd, o->records, o->record_count * sizeof *o->records) : rc;
}

/* ---- the picture ---- */

/* The square that is shown. In open space it contains the middle 99 % of the mass along each axis, so that a few
 * escaping bodies do not shrink the others to a dot. */
struct view {
    double low[2], side;
};

/* A double's bits as a number that orders as the doubles do. */
static uint64_t ordered(uint64_t bits)
{
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

/* The value that sorting would put at `rank`: the bits of its number 16 by 16, each from a histogram of those values
 * that have the ones before. That takes four passes, which end with a cancel, and no copy of the values. */
static int ranked(const double *values, size_t count, size_t stride, size_t rank, double *value)
{
    enum { DIGIT = 16, DIGITS = 1 << DIGIT };
    uint64_t number = 0, bits;
    size_t *histogram = malloc(DIGITS * sizeof *histogram);
    if (!histogram)
        return err_no_memory("a histogram");
    for (int shift = 64 - DIGIT; shift >= 0; shift -= DIGIT) {
        memset(histogram, 0, DIGITS * sizeof *histogram);
        for (size_t i = 0; i < count && result_goes_on(i); i++) {
            memcpy(&bits, &values[i * stride], sizeof bits);
            bits = ordered(bits);
            histogram[bits >> shift & (DIGITS - 1)] += (bits ^ number) >> shift >> DIGIT == 0;
        }
        uint64_t digit = 0;
        while (digit < DIGITS - 1 && rank >= histogram[digit])
            rank -= histogram[digit++];
        number |= digit << shift;
    }
    free(histogram);
    bits = number >> 63 ? number & ~(UINT64_C(1) << 63) : ~number;
    memcpy(value, &bits, sizeof *value);
    return 0;
}

static int view_of(const struct nbody_outcome *o, struct view *view)
{
    const size_t count = o->bodies.count;
    *view = (struct view){.side = o->box};
    if (o->periodic)
        return 0;
    const double *first = o->bodies.at[0];
    double middle[2];
    view->side = 0;
    for (int d = 0; d < 2; d++) {
        double low, high;
        int rc = ranked(first + d, count, 3, count / 200, &low);
        if (rc == 0)
            rc = ranked(first + d, count, 3, count - 1 - count / 200, &high);
        if (rc != 0)
            return rc;
        middle[d] = (low + high) / 2;
        view->side = fmax(view->side, 1.1 * (high - low));
    }
    view->side = view->side > 0 ? view->side : 1;
    for (int d = 0; d < 2; d++)
        view->low[d] = middle[d] - view->side / 2;
    return 0;
}

/* Each mass is distributed to the four nearest pixels, bilinearly. */
static void draw(const struct nbody_outcome *o, const struct view *view, float *pixels)
{
    const int n = o->picture;
    double mean = 0;
    for (size_t i = 0; i < o->bodies.count && result_goes_on(i); i++)
        mean += o->bodies.mass[i] / (double)o->bodies.count;
    for (size_t i = 0; i < o->bodies.count && result_goes_on(i); i++) {
        const double x = (o->bodies.at[i][0] - view->low[0]) / view->side * n - 0.5;
        const double y = (o->bodies.at[i][1] - view->low[1]) / view->side * n - 0.5;
        if (!(x > -1 && x < n && y > -1 && y < n))
            continue;
        const int px = (int)floor(x), py = (int)floor(y);
        for (int corner = 0; corner < 4; corner++) {
            int cx = px + (corner & 1), cy = py + (corner >> 1);
            const double weight = (1 - fabs(x - cx)) * (1 - fabs(y - cy));
            if (o->periodic) {
                cx = (cx + n) % n;
                cy = (cy + n) % n;
            }
            /* The y axis points up; the first row of a picture is at its top. */
            if (cx >= 0 && cx < n && cy >= 0 && cy < n && mean > 0)
                pixels[(size_t)(n - 1 - cy) * (size_t)n + (size_t)cx] += (float)(weight * o->bodies.mass[i] / mean);
        }
    }
}

/* Black, violet, orange, white by the logarithm of the mass in a pixel; white is the value that one in a thousand of
 * the non-empty pixels exceeds. */
static int colour(float *pixels, size_t count, uint8_t *rgb)
{
    static const float stops[][3] = {{0, 0, 0}, {60, 15, 110}, {190, 50, 100}, {250, 150, 50}, {255, 255, 240}};
    enum { SPANS = sizeof stops / sizeof *stops - 1 };
    double *held = malloc((count + 1) * sizeof *held);
    size_t occupied = 0;
    if (!held)
        return err_no_memory("a picture of %zu pixels", count);
    for (size_t i = 0; i < count && result_goes_on(i); i++) {
        pixels[i] = log10f(1 + 10 * pixels[i]);
        if (pixels[i] > 0)
            held[occupied++] = (double)pixels[i];
    }
    double most = 1;
    int rc = occupied ? ranked(held, occupied, 1, occupied - 1 - occupied / 1000, &most) : 0;
    free(held);
    const float white = (float)most;
    for (size_t i = 0; i < count && rc == 0 && result_goes_on(i); i++) {
        const float at = fminf(pixels[i] / white, 1) * SPANS;
        const int span = at < SPANS ? (int)at : SPANS - 1;
        for (int c = 0; c < 3; c++)
            rgb[3 * i + (size_t)c] =
                (uint8_t)lrintf(stops[span][c] + (at - (float)span) * (stops[span + 1][c] - stops[span][c]));
    }
    return rc;
}

int nbody_picture_write(const void *of, int format, int fd)
{
    (void)format; /* there is one */
    const struct nbody_outcome *o = of;
    const size_t side = (size_t)o->picture, count = side * side;
    struct view view = {.side = 1};
    float *pixels = calloc(count, sizeof *pixels);
    struct picture picture = {side, side, 3, malloc(3 * count), 0};
    int rc = pixels && picture.pixels ? view_of(o, &view) : err_no_memory("a picture of %zu pixels", count);
    if (rc == 0) {
        draw(o, &view, pixels);
        rc = colour(pixels, count, picture.pixels);
    }
    if (rc == 0)
        rc = picture_write_png(&picture, fd);
    free(pixels);
    free(picture.pixels);
    return rc;
}
