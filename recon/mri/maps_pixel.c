/* First eigenvectors of many small Hermitian matrices, one after the other: power iteration from the neighbouring
 * pixel's vector, which is close to the solution. LAPACK has no batched routine. */
#include "recon/mri/maps_inner.h"

#include "gridding/base/err.h"
#include "gridding/base/rows.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS_MOST = 40,
    LANES = 8,
    ROWS_TOLD = 32,         /* rows of pixels between two calls of progress, a thread, at most .. */
    PRODUCTS_TOLD = 1 << 22 /* .. and entries of their matrices */
};

/* v is accepted at this |G v - mu v|^2 / mu^2: an angle of 1e-3 / (1 - mu_2 / mu_1) before the last step. */
#define RESIDUAL 1e-6f
/* A pixel whose norm is below this share of `crop` has no map, whatever the rounding. */
#define NORM_SHARE 0.99f
#define SMALLEST   1e-30f /* the data are scaled to about 1 */

int maps_pixel_create(struct maps_pixel *pixel, int coils)
{
    const size_t stride = ((size_t)coils + LANES - 1) / LANES * LANES, matrix = (size_t)coils * stride;
    float *memory = aligned_alloc(64, ((2 * matrix + 4 * stride) * sizeof *memory + 63) / 64 * 64);
    if (!memory)
        return err_no_memory("the eigenvectors of %d coils", coils);
    memset(memory, 0, (2 * matrix + 4 * stride) * sizeof *memory);
    *pixel = (struct maps_pixel){
        .leaf = rows_best(), .coils = coils, .stride = (int)stride, .re = memory, .im = memory + matrix};
    pixel->vector_re = memory + 2 * matrix;
    pixel->vector_im = pixel->vector_re + stride;
    pixel->next_re = pixel->vector_im + stride;
    pixel->next_im = pixel->next_re + stride;
    return 0;
}

void maps_pixel_free(struct maps_pixel *pixel)
{
    free(pixel->re);
}

/* next = G vector */
static void multiply(const struct maps_pixel *p)
{
    const struct rows_floats columns = {(size_t)p->coils, (size_t)p->stride, p->re, p->im};
    p->leaf->floats(&columns, p->vector_re, p->vector_im, (size_t)p->stride, p->next_re, p->next_im);
}

/* vector = next / |next| */
static void take(struct maps_pixel *p, float square)
{
    const float scale = 1 / sqrtf(square);
    for (int i = 0; i < p->coils; i++) {
        p->vector_re[i] = scale * p->next_re[i];
        p->vector_im[i] = scale * p->next_im[i];
    }
}

bool maps_pixel_reaches(const float *re, const float *im, int coils, float crop)
{
    const int pairs = coils * (coils + 1) / 2;
    float square = 0;
#pragma omp simd reduction(+ : square)
    for (int i = 0; i < pairs; i++)
        square += 2 * (re[i] * re[i] + im[i] * im[i]);
    for (int i = 0, at = 0; i < coils; i++, at += i + 1)
        square -= re[at] * re[at] + im[at] * im[at];
    return square >= NORM_SHARE * NORM_SHARE * crop * crop;
}

void maps_pixel_begin(struct maps_pixel *p)
{
    int largest = 0;
    for (int j = 1; j < p->coils; j++)
        if (p->re[(size_t)j * (size_t)(p->stride + 1)] > p->re[(size_t)largest * (size_t)(p->stride + 1)])
            largest = j;
    float square = 0;
    for (int i = 0; i < p->coils; i++) {
        p->next_re[i] = p->re[(size_t)largest * (size_t)p->stride + (size_t)i];
        p->next_im[i] = p->im[(size_t)largest * (size_t)p->stride + (size_t)i];
        square += p->next_re[i] * p->next_re[i] + p->next_im[i] * p->next_im[i];
    }
    if (square > SMALLEST) {
        take(p, square);
        return;
    }
    memset(p->vector_re, 0, (size_t)p->stride * sizeof *p->vector_re);
    memset(p->vector_im, 0, (size_t)p->stride * sizeof *p->vector_im);
    p->vector_re[0] = 1;
}

float maps_pixel_first(struct maps_pixel *p)
{
    float value = 0;
    for (int step = 0; step < STEPS_MOST; step++) {
        float square = 0;
        value = 0;
        multiply(p);
#pragma omp simd reduction(+ : square, value)
        for (int i = 0; i < p->stride; i++) {
            square += p->next_re[i] * p->next_re[i] + p->next_im[i] * p->next_im[i];
            value += p->next_re[i] * p->vector_re[i] + p->next_im[i] * p->vector_im[i];
        }
        if (!(square > SMALLEST) && step > 0)
            return 0;
        if (!(square > SMALLEST)) { /* the neighbour's vector is orthogonal to this pixel's */
            maps_pixel_begin(p);
            continue;
        }
        take(p, square);
        if (square - value * value <= RESIDUAL * value * value)
            break;
    }
    return value;
}

void maps_pixel_fill(struct maps_pixel *p, const float *re, const float *im, size_t step)
{
    const size_t stride = (size_t)p->stride;
    for (size_t i = 0; i < (size_t)p->coils; i++) {
        for (size_t j = 0; j < i; j++, re += step, im += step) {
            p->re[j * stride + i] = p->re[i * stride + j] = *re;
            p->im[j * stride + i] = *im;
            p->im[i * stride + j] = -*im;
        }
        p->re[i * stride + i] = *re;
        p->im[i * stride + i] = 0;
        re += step;
        im += step;
    }
}

bool maps_pixel_store(const struct maps_work *work, const struct maps_pixel *p, float eigenvalue, double crop,
                      const struct c32 *reference, size_t at)
{
    if (!(eigenvalue > 0 && (double)eigenvalue >= crop)) {
        for (int i = 0; i < p->coils; i++)
            work->maps[(size_t)i * work->pixels + at] = (struct c32){0, 0};
        return false;
    }
    float re = 0, im = 0;
    for (int i = 0; i < p->coils; i++) {
        re += reference[i].re * p->vector_re[i] + reference[i].im * p->vector_im[i];
        im += reference[i].re * p->vector_im[i] - reference[i].im * p->vector_re[i];
    }
    const float size = hypotf(re, im), c = size > 0 ? re / size : 1, s = size > 0 ? im / size : 0;
    for (int i = 0; i < p->coils; i++)
        work->maps[(size_t)i * work->pixels + at] =
            (struct c32){p->vector_re[i] * c + p->vector_im[i] * s, p->vector_im[i] * c - p->vector_re[i] * s};
    return true;
}

static int rows_told(const struct maps_params *p)
{
    const size_t row = (size_t)p->n[0] * (size_t)p->coils * (size_t)p->coils, most = PRODUCTS_TOLD / row;
    return most < 1 ? 1 : most < ROWS_TOLD ? (int)most : ROWS_TOLD;
}

int maps_rows(struct maps_work *work, double begun, size_t (*row)(const void *of, int thread, int z, int y),
              const void *of)
{
    const int *n = work->params->n, count = n[1] * n[2], step = rows_told(work->params) * work->threads;
    size_t support = 0;
    int rc = 0;
    for (int first = 0; first < count && rc == 0; first += step) {
        const int last = first + step < count ? first + step : count;
#pragma omp parallel for schedule(dynamic) num_threads(work->threads) reduction(+ : support)
        for (int i = first; i < last; i++)
            support += row(of, omp_get_thread_num(), i / n[1], i % n[1]);
        rc = maps_tell(work, begun + (1 - begun) * last / count);
    }
    work->support = support;
    return rc;
}
