/* maps_inner.h: shared by the methods of maps.h. Only maps*.c include this. All memory is the host's. */
#ifndef MRIRECON_MAPS_INNER_H
#define MRIRECON_MAPS_INNER_H

#include "gridding/base/ask.h"
#include "gridding/base/err.h"
#include "recon/mri/maps.h"

#include <math.h>
#include <stdlib.h>

/* Complex numbers: real and imaginary parts as two arrays in one memory, released by free(re). */
struct parts {
    float *re, *im;
};
static inline bool parts_create(struct parts *parts, size_t n)
{
    parts->re = malloc(2 * n * sizeof *parts->re);
    parts->im = parts->re ? parts->re + n : NULL;
    return parts->re;
}

/* exp(2 pi i j / n), j = 0 .. n - 1; and that of any number of turns. */
static inline bool circle_create(struct parts *circle, int n)
{
    if (!parts_create(circle, (size_t)n))
        return false;
    for (int j = 0; j < n; j++) {
        circle->re[j] = (float)cos(2 * M_PI * j / n);
        circle->im[j] = (float)sin(2 * M_PI * j / n);
    }
    return true;
}
static inline int circle_place(int turns, int n)
{
    return turns % n < 0 ? turns % n + n : turns % n;
}

struct maps_work {
    const struct maps_params *params;
    int threads;
    size_t pixels, support; /* of an image; number of pixels with a map */
    struct c32 *maps;       /* [coils][pixels] */
    int m[3];               /* size of the centre of k-space; floor(m/2) is k = 0 */
    struct c32 *centre;     /* [coils][mz][my][mx]: of the images' Fourier transform */
    struct c32 *reference;  /* [coils]: the combination of coils with the most signal; its norm is 1 */
    struct asker *asker;    /* for the transforms before the first progress */
};

/* The size of the centre of k-space along an axis, and of an ESPIRiT kernel, which must be smaller than the centre, so
 * that it can be moved within it. */
static inline int maps_centre(const struct maps_params *params, int d)
{
    return params->n[d] < params->calibration ? params->n[d] : params->calibration;
}
static inline int maps_width(const struct maps_params *params, int d)
{
    const int most = (maps_centre(params, d) + 1) / 2;
    return params->width < most ? params->width : most;
}

/* The two families of methods: fill work->maps. */
int maps_espirit(struct maps_work *work);
int maps_patch(struct maps_work *work);

/* Report the progress. Fails with ERR_CANCELED. */
static inline int maps_tell(const struct maps_work *work, double done)
{
    const struct maps_params *params = work->params;
    if (params->progress && params->progress(params->context, done) != 0)
        return err_set(ERR_CANCELED, "The job was canceled while coil maps were being estimated.");
    return 0;
}

/* ---- maps_fourier.c ---- */

/* out[coils][mz][my][mx] = the centre of k-space of images[coils][nz][ny][nx]; and back, onto the images' pixels.
 * Fail with ERR_NO_MEMORY, ERR_CANCELED. */
int maps_analyse(const struct maps_work *work, const struct c32 *images, struct c32 *out);
int maps_synthesise(const struct maps_work *work, const struct c32 *centre, struct c32 *out);

/* ESPIRiT's operator on a pixel's coils, G(r)[c][c'] = sum over lags of value exp(2 pi i lag r / N), |lag| < width.
 * Its eigenvalues are between 0 and 1. */
struct maps_lags {
    int width[3], count[3]; /* of a kernel; of lags: 2 width - 1 */
    size_t pairs;
    struct parts values; /* [lags z][y][x][pairs]: pairs (c, c') with c' <= c, at c (c + 1) / 2 + c' */
};

/* ---- maps_lags.c ---- */

/* Vectors V over coils and offsets of a kernel, [count][coils][offsets z][y][x]: P = scale V^H V, to which I is added
 * if the scale is negative. */
struct maps_vectors {
    size_t count;
    const double *re, *im;
    double scale;
    double *memory; /* theirs, or NULL */
};

/* out->values = sum over the offsets p - p' = lag of P[(c, p)][(c', p')], divided by their number. Sizes are set;
 * progress runs from `begun` to `until`. Fails with ERR_NO_MEMORY, ERR_CANCELED. */
int maps_lags_sum(const struct maps_work *work, const struct maps_vectors *v, double begun, double until,
                  struct maps_lags *out);

/* The memory that this uses, including the values. */
size_t maps_lags_bytes(const struct maps_work *work, struct maps_lags *out);

/* ---- maps_dense.c ---- */

/* The vectors of the signal space of the calibration matrix, of `places` columns and `rows` rows (coils x offsets),
 * whose memory the caller frees, also after a failure; progress runs to `done`. Fails with ERR_NO_MEMORY, ERR_CANCELED.
 */
int maps_dense(const struct maps_work *work, size_t places, size_t rows, double done, struct maps_vectors *out);

/* The memory that this uses, including the vectors. */
size_t maps_dense_bytes(const struct maps_work *work, size_t places, size_t rows);

/* ---- maps_calibration.c ---- */

/* The operator, from work->centre; progress runs to MAPS_CALIBRATED. Fails with ERR_NO_MEMORY, ERR_CANCELED. */
#define MAPS_CALIBRATED 0.2
int maps_calibrate(const struct maps_work *work, struct maps_lags *out);

/* The most memory that this uses, including the values. */
size_t maps_calibration_bytes(const struct maps_work *work, struct maps_lags *lags);

/* ---- maps_pixel.c ---- */

/* Hermitian matrices of one pixel, and vectors, as separate real and imaginary parts; a column has `stride` numbers;
 * those after `coils` are 0. */
struct maps_pixel {
    const struct rows_leaf *leaf;
    int coils, stride;
    float *re, *im;               /* [coils][stride]: column j, row i */
    float *vector_re, *vector_im; /* [stride] */
    float *next_re, *next_im;
};
int maps_pixel_create(struct maps_pixel *pixel, int coils);
void maps_pixel_free(struct maps_pixel *pixel);

/* Replace the vector (of norm 1) by the first eigenvector of the matrix, by power iteration from it. Returns the
 * eigenvalue; 0 for a matrix of zeros, and the vector is unchanged. */
float maps_pixel_first(struct maps_pixel *pixel);

/* Whether the first eigenvalue of the matrix of these pairs, in the order of maps_pixel_fill(), may reach `crop`: it is
 * at most the matrix's norm. */
bool maps_pixel_reaches(const float *re, const float *im, int coils, float crop);

/* The initial vector: the matrix's column with the largest diagonal entry. */
void maps_pixel_begin(struct maps_pixel *pixel);

/* The whole matrix, from its lower triangle: pairs (i, j) with j <= i, at (i (i + 1) / 2 + j) step. */
void maps_pixel_fill(struct maps_pixel *pixel, const float *re, const float *im, size_t step);

/* Store the vector as the maps of pixel `at`, turned so that its product with `reference` [coils], sum conj(reference)
 * vector, is positive, if its eigenvalue is positive and at least `crop`; else the maps are 0. Returns whether the
 * pixel has a map. */
bool maps_pixel_store(const struct maps_work *work, const struct maps_pixel *pixel, float eigenvalue, double crop,
                      const struct c32 *reference, size_t at);

/* Call `row` for each row of pixels; it returns the number of pixels with a map, summed in work->support. `of` is
 * passed on, with the thread's number 0 .. work->threads - 1. Progress runs from `begun` to 1. Fails with ERR_CANCELED.
 */
int maps_rows(struct maps_work *work, double begun, size_t (*row)(const void *of, int thread, int z, int y),
              const void *of);

#endif
