/* The transform of the split's smooth part:
 *
 *   F(k) = (4 pi / k) integral over r from 0 to rc of r smooth(r) sin(k r) dr
 *
 * by Simpson's rule at points that are closer than the waves of F need, and interpolated by cubics to a finer table,
 * from which the mesh interpolates linearly.
 */
#include "recon/cutcp/cutcp_split.h"

#include "gridding/base/err.h"
#include "gridding/range/kernel.h"

#include <math.h>
#include <stdlib.h>

enum { FINER = 16 };

/* Of sines in Simpson's sums, and of F, whose waves have the length 2 pi / rc: radians per step. */
static const double phase_step = 0.08;

/* A function at equal steps from 0 on, times Simpson's weights. */
struct samples {
    double step;
    int steps;     /* even */
    double *value; /* [steps + 1] */
};

static int samples_create(struct samples *f, double most, double wave)
{
    f->steps = 2 * (int)ceil(100 + most * wave / phase_step / 2);
    f->step = most / f->steps;
    f->value = malloc((size_t)(f->steps + 1) * sizeof *f->value);
    return f->value ? 0 : err_no_memory("the smooth part of the potential");
}

static double weight(const struct samples *f, int i)
{
    return (i == 0 || i == f->steps ? 1 : i % 2 ? 4 : 2) * f->step / 3;
}

/* The sum of f(x) sin(k x). Each sine is the one before, turned by a step. */
static double sine_sum(const struct samples *f, double k)
{
    const double turn_cos = cos(k * f->step), turn_sin = sin(k * f->step);
    double now_cos = 1, now_sin = 0, sum = 0;
    for (int i = 0; i <= f->steps; i++) {
        sum += f->value[i] * now_sin;
        const double next = now_cos * turn_cos - now_sin * turn_sin;
        now_sin = now_sin * turn_cos + now_cos * turn_sin;
        now_cos = next;
    }
    return sum;
}

/* T(k) / k; 0 at k = 0, where T(k) sin(k r) / k is r. */
static int taper_create(struct samples *taper, const struct cutcp_split *s)
{
    const double most = KERNEL_PI / s->cell, top = kernel_bessel_i0(s->taper);
    int rc = samples_create(taper, most, s->cutoff);
    for (int i = 0; i <= taper->steps && rc == 0; i++) {
        const double x = (double)i / taper->steps, t = kernel_bessel_i0(s->taper * sqrt(fmax(0, 1 - x * x))) / top;
        taper->value[i] = i ? weight(taper, i) * t / (i * taper->step) : 0;
    }
    return rc;
}

/* r smooth(r). */
static int smooth_create(struct samples *smooth, const struct cutcp_split *s, double most, int threads)
{
    struct samples taper;
    int rc = samples_create(smooth, s->cutoff, most);
    if (rc != 0)
        return rc;
    rc = taper_create(&taper, s);
    if (rc != 0) {
        free(smooth->value);
        return rc;
    }
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads)
    for (int i = 0; i <= smooth->steps; i++) {
        const double r = i * smooth->step, u2 = r * r / (s->cutoff * s->cutoff);
        const double rise = 2 / KERNEL_PI * (sine_sum(&taper, r) + weight(&taper, 0) * r);
        const double taylor2 = (15.0 / 8 - 5.0 / 4 * u2 + 3.0 / 8 * u2 * u2) / s->cutoff;
        smooth->value[i] =
            weight(smooth, i) * (s->form == CUTCP_THESIS ? (1 - u2) * (1 - u2) * rise : rise - r * taylor2);
    }
    free(taper.value);
    return 0;
}

static double transform(const struct samples *smooth, double k)
{
    if (k > 0)
        return 4 * KERNEL_PI * sine_sum(smooth, k) / k;
    double sum = 0;
    for (int i = 0; i <= smooth->steps; i++)
        sum += smooth->value[i] * i * smooth->step;
    return 4 * KERNEL_PI * sum;
}

/* The cubic through coarse[at - 1 .. at + 2], at at + x. F is even: before 0 lies the value after it. */
static double cubic(const double *coarse, size_t at, double x)
{
    const double before = coarse[at > 0 ? at - 1 : 1], a = coarse[at], b = coarse[at + 1], after = coarse[at + 2];
    return -x * (x - 1) * (x - 2) / 6 * before + (x + 1) * (x - 1) * (x - 2) / 2 * a - (x + 1) * x * (x - 2) / 2 * b +
           (x + 1) * x * (x - 1) / 6 * after;
}

static double wave_most(const struct cutcp_split *split)
{
    double squares = 0;
    for (int d = 0; d < 3; d++)
        squares += pow(KERNEL_PI * split->mesh[d] / split->length[d], 2);
    return sqrt(squares);
}

static size_t coarse_count_of(const struct cutcp_split *split)
{
    return (size_t)ceil(wave_most(split) * split->cutoff / phase_step) + 4;
}

size_t cutcp_waves_count(const struct cutcp_split *split)
{
    return (coarse_count_of(split) - 2) * FINER;
}

int cutcp_waves_create(struct cutcp_waves *waves, const struct cutcp_split *split, int threads)
{
    const double most = wave_most(split), coarse_step = phase_step / split->cutoff;
    const size_t coarse_count = coarse_count_of(split);
    struct samples smooth;
    double *coarse = malloc(coarse_count * sizeof *coarse);
    *waves = (struct cutcp_waves){.step = coarse_step / FINER, .count = cutcp_waves_count(split)};
    waves->value = malloc(waves->count * sizeof *waves->value);
    int rc = coarse && waves->value ? smooth_create(&smooth, split, most, threads)
                                    : err_no_memory("the waves of the potential");
    if (rc == 0) {
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads)
        for (size_t i = 0; i < coarse_count; i++)
            coarse[i] = transform(&smooth, (double)i * coarse_step);
        for (size_t i = 0; i < waves->count; i++)
            waves->value[i] = (float)cubic(coarse, i / FINER, (double)(i % FINER) / FINER);
        free(smooth.value);
    }
    free(coarse);
    return rc;
}

void cutcp_waves_free(struct cutcp_waves *waves)
{
    free(waves->value);
}
