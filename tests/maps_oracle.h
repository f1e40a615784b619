/* maps_oracle.h: ESPIRiT's maps by their definition (recon/mri/maps.h), in double precision, for small images.
 *
 * The calibration matrix A is written out, P = A (A' A + e I)^-1 A' is solved for, G(r) is summed over all pairs of
 * offsets, and its eigenvectors are iterated until they do not change. */
#ifndef MRIRECON_TEST_MAPS_ORACLE_H
#define MRIRECON_TEST_MAPS_ORACLE_H

#include "gridding/base/num.h"
#include "recon/mri/maps.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ORACLE_COILS_MOST = 64, ORACLE_STEPS = 4000 };

struct maps_oracle {
    const struct maps_params *params;
    int m[3], width[3], coils;
    size_t pixels, offsets, places, rows;
    double complex *a, *p; /* [rows][places], [rows][rows] */
    double complex reference[ORACLE_COILS_MOST];
};

/* A pixel: the first two eigenvalues, and the map that the first one's vector gives. */
struct oracle_pixel {
    double first, second, along; /* along: |<reference, vector>| */
    double complex map[ORACLE_COILS_MOST];
};

static inline void oracle_place(size_t index, const int n[3], int at[3])
{
    at[0] = (int)(index % (size_t)n[0]);
    at[1] = (int)(index / (size_t)n[0] % (size_t)n[1]);
    at[2] = (int)(index / (size_t)n[0] / (size_t)n[1]);
}

/* One sample of a coil's centre of k-space. */
static inline double complex oracle_sample(const struct maps_oracle *o, const struct c32 *image, const int k[3])
{
    const int *n = o->params->n;
    double complex sum = 0;
    for (size_t i = 0; i < o->pixels; i++) {
        int r[3];
        double turns = 0;
        oracle_place(i, n, r);
        for (int d = 0; d < 3; d++)
            turns += (double)(r[d] - n[d] / 2) * (k[d] - o->m[d] / 2) / n[d];
        sum += ((double)image[i].re + I * (double)image[i].im) * cexp(-2 * M_PI * I * turns);
    }
    return sum;
}

/* The first eigenvector of h[count][count], Hermitian, orthogonal to `other` (may be NULL); returns the eigenvalue. */
static inline double oracle_first(const double complex *h, size_t count, const double complex *other,
                                  double complex *vector)
{
    double complex *next = calloc(count, sizeof *next);
    double value = 0;
    for (size_t i = 0; i < count; i++)
        vector[i] = 1 + 0.3 * cexp(I * 7.0 * (double)(i * i));
    for (int step = 0; step < ORACLE_STEPS; step++) {
        double complex along = 0;
        double square = 0;
        for (size_t i = 0; i < count && other; i++)
            along += conj(other[i]) * vector[i];
        for (size_t i = 0; i < count && other; i++)
            vector[i] -= along * other[i];
        for (size_t i = 0; i < count; i++)
            square += creal(vector[i] * conj(vector[i]));
        for (size_t i = 0; i < count; i++)
            vector[i] /= square > 0 ? sqrt(square) : 1;
        value = 0;
        for (size_t i = 0; i < count; i++) {
            next[i] = 0;
            for (size_t j = 0; j < count; j++)
                next[i] += h[i * count + j] * vector[j];
            value += creal(conj(vector[i]) * next[i]);
        }
        if (step + 1 < ORACLE_STEPS)
            memcpy(vector, next, count * sizeof *next);
    }
    free(next);
    return value;
}

static inline void oracle_calibration(struct maps_oracle *o, const struct c32 *images)
{
    const size_t size = (size_t)(o->m[0] * o->m[1] * o->m[2]), coils = (size_t)o->coils;
    double complex *centre = calloc(coils * size, sizeof *centre), *covariance = calloc(coils * coils, sizeof *centre);
    int k[3], place[3], offset[3], places[3];
    double trace = 0;
    size_t largest = 0;
    for (int d = 0; d < 3; d++)
        places[d] = o->m[d] - o->width[d] + 1;
    for (size_t i = 0; i < coils * size; i++) {
        oracle_place(i % size, o->m, k);
        centre[i] = oracle_sample(o, images + i / size * o->pixels, k);
    }
    for (size_t i = 0; i < coils * coils; i++) {
        for (size_t q = 0; q < size; q++)
            covariance[i] += centre[i / coils * size + q] * conj(centre[i % coils * size + q]);
        trace += i % (coils + 1) == 0 ? creal(covariance[i]) : 0;
    }
    for (size_t i = 0; i < coils * coils; i++)
        covariance[i] /= trace;
    oracle_first(covariance, coils, NULL, o->reference);
    /* Its phase: that of the covariance's largest column, whose entry on the diagonal is positive. */
    for (size_t i = 1; i < coils; i++)
        largest = creal(covariance[i * (coils + 1)]) > creal(covariance[largest * (coils + 1)]) ? i : largest;
    const double complex turn = conj(o->reference[largest]) / cabs(o->reference[largest]);
    for (size_t i = 0; i < coils; i++)
        o->reference[i] *= turn;
    for (size_t i = 0; i < o->rows * o->places; i++) {
        const size_t row = i / o->places;
        oracle_place(i % o->places, places, place);
        oracle_place(row % o->offsets, o->width, offset);
        for (int d = 0; d < 3; d++)
            k[d] = place[d] + offset[d];
        o->a[i] = centre[row / o->offsets * size + (size_t)((k[2] * o->m[1] + k[1]) * o->m[0] + k[0])];
    }
    free(covariance);
    free(centre);
}

/* e: the twelfth step of a power iteration of the smaller of A' A and A A', from its column with the largest diagonal
 * entry. */
static inline double oracle_cut(const struct maps_oracle *o)
{
    const bool by_places = o->places < o->rows;
    const size_t side = by_places ? o->places : o->rows, other = by_places ? o->rows : o->places;
    double complex *x = calloc(side, sizeof *x), *y = calloc(other, sizeof *y);
    double value = 0, most = -1;
    size_t largest = 0;
    for (size_t i = 0; i < side; i++) {
        double square = 0;
        for (size_t j = 0; j < other; j++)
            square += pow(cabs(o->a[by_places ? j * o->places + i : i * o->places + j]), 2);
        largest = square > most * (1 + 1e-12) ? i : largest;
        most = fmax(most, square);
    }
    x[largest] = 1;
    for (int step = 0; step < 12; step++) {
        memset(y, 0, other * sizeof *y);
        for (size_t i = 0; i < side * other; i++) {
            const size_t row = i / o->places, column = i % o->places;
            y[by_places ? row : column] += by_places ? o->a[i] * x[column] : conj(o->a[i]) * x[row];
        }
        memset(x, 0, side * sizeof *x);
        for (size_t i = 0; i < side * other; i++) {
            const size_t row = i / o->places, column = i % o->places;
            x[by_places ? column : row] += by_places ? conj(o->a[i]) * y[row] : o->a[i] * y[column];
        }
        double square = 0;
        for (size_t i = 0; i < side; i++)
            square += creal(x[i] * conj(x[i]));
        value = sqrt(square);
        for (size_t i = 0; i < side; i++)
            x[i] /= value;
    }
    free(y);
    free(x);
    return pow(o->params->threshold, 2) * value;
}

/* o->p, by Gauss-Jordan elimination of [A' A + e I | A'], which has no pivots near 0. */
static inline void oracle_project(struct maps_oracle *o)
{
    const size_t n = o->places, wide = n + o->rows;
    double complex *w = calloc(n * wide, sizeof *w);
    const double cut = oracle_cut(o);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++)
            for (size_t r = 0; r < o->rows; r++)
                w[i * wide + j] += conj(o->a[r * n + i]) * o->a[r * n + j];
        w[i * wide + i] += cut;
        for (size_t r = 0; r < o->rows; r++)
            w[i * wide + n + r] = conj(o->a[r * n + i]);
    }
    for (size_t i = 0; i < n; i++) {
        const double complex pivot = w[i * wide + i];
        for (size_t j = i; j < wide; j++)
            w[i * wide + j] /= pivot;
        for (size_t k = 0; k < n; k++) {
            const double complex factor = w[k * wide + i];
            for (size_t j = i; j < wide && k != i; j++)
                w[k * wide + j] -= factor * w[i * wide + j];
        }
    }
    for (size_t r = 0; r < o->rows; r++)
        for (size_t c = 0; c < o->rows; c++)
            for (size_t i = 0; i < n; i++)
                o->p[r * o->rows + c] += o->a[r * n + i] * w[i * wide + n + c];
    free(w);
}

static inline void oracle_create(struct maps_oracle *o, const struct maps_params *params, const struct c32 *images)
{
    *o = (struct maps_oracle){.params = params, .coils = params->coils, .pixels = 1, .offsets = 1, .places = 1};
    for (int d = 0; d < 3; d++) {
        o->m[d] = params->n[d] < params->calibration ? params->n[d] : params->calibration;
        o->width[d] = params->width < (o->m[d] + 1) / 2 ? params->width : (o->m[d] + 1) / 2;
        o->pixels *= (size_t)params->n[d];
        o->offsets *= (size_t)o->width[d];
        o->places *= (size_t)(o->m[d] - o->width[d] + 1);
    }
    o->rows = (size_t)o->coils * o->offsets;
    o->a = calloc(o->rows * o->places, sizeof *o->a);
    o->p = calloc(o->rows * o->rows, sizeof *o->p);
    oracle_calibration(o, images);
    oracle_project(o);
}

static inline void oracle_free(struct maps_oracle *o)
{
    free(o->p);
    free(o->a);
}

static inline struct oracle_pixel oracle_at(const struct maps_oracle *o, size_t pixel)
{
    const size_t coils = (size_t)o->coils;
    double complex g[ORACLE_COILS_MOST * ORACLE_COILS_MOST] = {0}, other[ORACLE_COILS_MOST], along = 0;
    struct oracle_pixel out;
    int r[3], p[3], q[3];
    oracle_place(pixel, o->params->n, r);
    for (size_t i = 0; i < o->rows; i++)
        for (size_t j = 0; j < o->rows; j++) {
            double turns = 0;
            oracle_place(i % o->offsets, o->width, p);
            oracle_place(j % o->offsets, o->width, q);
            for (int d = 0; d < 3; d++)
                turns += (double)(p[d] - q[d]) * (r[d] - o->params->n[d] / 2) / o->params->n[d];
            g[i / o->offsets * coils + j / o->offsets] +=
                o->p[i * o->rows + j] * cexp(2 * M_PI * I * turns) / (double)o->offsets;
        }
    out.first = oracle_first(g, coils, NULL, out.map);
    out.second = coils > 1 ? oracle_first(g, coils, out.map, other) : 0;
    for (size_t i = 0; i < coils; i++)
        along += conj(o->reference[i]) * out.map[i];
    out.along = cabs(along);
    for (size_t i = 0; i < coils && out.along > 0; i++)
        out.map[i] *= conj(along) / out.along;
    return out;
}

/* How many of every `step`th pixel's maps are wrong; *checked: how many have one that is determined.
 *
 * The power iteration ends where |G v - mu v| <= 1e-3 mu: with q = mu_2 / mu_1 the angle is at most 1e-3 / (1 - q)
 * then, and q times that after the step that was taken; or after 40 steps, which leave q^40 of what the first vector
 * erred by. Float32 sums give G with errors of about 1e-5, which turn the vector by 1e-5 / (1 - q). The phase is that
 * of the product with the reference, which amplifies both by 1 / |product|. The eigenvalue's error is the square of the
 * angle, and 1e-5. */
static inline size_t oracle_compare(const struct maps_oracle *o, const struct c32 *maps, size_t step, size_t *checked)
{
    const double crop = o->params->crop;
    size_t wrong = 0;
    *checked = 0;
    for (size_t at = 0; at < o->pixels; at += step) {
        const struct oracle_pixel pixel = oracle_at(o, at);
        const double q = pixel.second / pixel.first, angle = (1e-3 * q + 2e-5) / (1 - q) + pow(q, 40);
        double square = 0, off = 0;
        for (size_t c = 0; c < (size_t)o->coils; c++) {
            const struct c32 map = maps[c * o->pixels + at];
            const double complex value = (double)map.re + I * (double)map.im;
            square += creal(value * conj(value));
            off += pow(cabs(value - pixel.map[c]), 2);
        }
        if (pixel.first < crop - 1e-4 - angle * angle) {
            wrong += square != 0;
        } else if (pixel.first > crop + 1e-4 + angle * angle && q < 0.8) {
            wrong += !(sqrt(off) <= angle * (1 + 1 / pixel.along));
            *checked += 1;
        }
    }
    return wrong;
}

#endif
