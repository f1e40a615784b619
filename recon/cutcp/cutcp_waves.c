/* The transform of the split's smooth part, which is the law less the near part:
 *
 *   F(k) = (4 pi / k) (integral from 0 to rc of r g(r) sin(k r) dr - integral from 0 to a of r near(r) sin(k r) dr)
 *
 * r g(r) is a polynomial of r / rc, so that the first integral is known. The second is taken by Gauss' rule at few k,
 * between which cubics interpolate: its waves are as long as a is short. Both fill a fine table, from which the mesh
 * interpolates linearly.
 */
#include "recon/cutcp/cutcp_gauss.h"
#include "recon/cutcp/cutcp_split.h"

#include "gridding/base/err.h"
#include "gridding/range/kernel.h"

#include <math.h>
#include <stdlib.h>

/* Radians: of waves of the length 2 pi / rc per value of the table; of waves of the length 2 pi / a per value of the
 * near part's. */
static const double fine_step = 0.005, coarse_step = 0.05;

/* ---- the law ---- */

enum { POWERS = 6, TERMS = 13 };

/* r g(r) = sum_i law_powers[form][i] (r / rc)^i. */
static const double law_powers[2][POWERS] = {
    [CUTCP_THESIS] = {1, 0, -2, 0, 1}, [CUTCP_TAYLOR2] = {1, -15.0 / 8, 0, 5.0 / 4, 0, -3.0 / 8}};

/* What its integral consists of. */
struct law_sines {
    double start[POWERS], end[POWERS]; /* derivatives at 0 and 1 */
    double series[TERMS];              /* coefficients of w^2i */
};

static struct law_sines law_sines_of(const double powers[POWERS])
{
    struct law_sines s;
    double factorial = 1; /* of 2 i + 1 */
    for (int n = 0; n < POWERS; n++) {
        s.end[n] = 0;
        for (int i = n; i < POWERS; i++) {
            double derived = powers[i];
            for (int k = 0; k < n; k++)
                derived *= i - k;
            s.end[n] += derived;
            s.start[n] = i == n ? derived : s.start[n];
        }
    }
    for (int i = 0; i < TERMS; i++) {
        double moment = 0;
        for (int n = 0; n < POWERS; n++)
            moment += powers[n] / (n + 2 * i + 2);
        factorial *= i > 0 ? -2.0 * i * (2 * i + 1) : 1;
        s.series[i] = moment / factorial;
    }
    return s;
}

/* The integral over x from 0 to 1 of p(x) sin(w x), over w: by parts, or where these cancel as a series. turn: the
 * cosine and the sine of w. */
static double law_integral(const struct law_sines *s, double w, const double turn[2])
{
    if (w < 2) {
        double sum = 0;
        for (int i = TERMS - 1; i >= 0; i--)
            sum = sum * w * w + s->series[i];
        return sum;
    }
    const double *p = s->start, *q = s->end, u = 1 / w, u2 = u * u;
    const double start = -p[0] + u2 * (p[2] - u2 * p[4]), end = -q[0] + u2 * (q[2] - u2 * q[4]),
                 sines = q[1] + u2 * (-q[3] + u2 * q[5]);
    return u2 * (end * turn[0] - start + u * sines * turn[1]);
}

/* ---- the near part ---- */

/* r near(r) at some points, times the weights of an integral over r. */
struct near_points {
    int count;
    double *at, *value; /* [count] each */
};

static int near_points_create(struct near_points *points, const struct cutcp_split *s, double most)
{
    const double most_radians = (KERNEL_PI / s->cell + most) * s->radius;
    const int panels = 1 + (int)(most_radians / CUTCP_GAUSS_PANEL);
    points->count = panels * CUTCP_GAUSS_POINTS;
    points->at = malloc(2 * (size_t)points->count * sizeof *points->at);
    if (!points->at)
        return err_no_memory("the waves of the potential");
    points->value = points->at + points->count;
    for (int i = 0; i < points->count; i++) {
        const struct cutcp_gauss *g = &cutcp_gauss[i % CUTCP_GAUSS_POINTS];
        const double r = (i / CUTCP_GAUSS_POINTS + g->at) / panels * s->radius;
        const double fall = s->form == CUTCP_THESIS ? 1 - pow(r / s->cutoff, 2) : 1;
        points->at[i] = r;
        points->value[i] = g->weight / panels * s->radius * fall * fall * (1 - r * cutcp_split_rise(s, r));
    }
    return 0;
}

/* The integral over k, at `count` equal steps of k from 0 on. Each sine is the one before, turned by a step. */
static int near_integrals(const struct near_points *points, double step, size_t count, double *sums)
{
    const int n = points->count;
    double *memory = malloc(4 * (size_t)n * sizeof *memory), still = 0;
    if (!memory)
        return err_no_memory("the waves of the potential");
    double *by_cos = memory, *by_sin = memory + n, *now_cos = memory + 2 * n, *now_sin = memory + 3 * n;
    for (int i = 0; i < n; i++) {
        by_cos[i] = cos(step * points->at[i]);
        by_sin[i] = sin(step * points->at[i]);
        now_cos[i] = 1;
        now_sin[i] = 0;
        still += points->value[i] * points->at[i];
    }
    for (size_t k = 0; k < count; k++) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            const double next = now_cos[i] * by_cos[i] - now_sin[i] * by_sin[i];
            sum += points->value[i] * now_sin[i];
            now_sin[i] = now_sin[i] * by_cos[i] + now_cos[i] * by_sin[i];
            now_cos[i] = next;
        }
        sums[k] = k > 0 ? sum / ((double)k * step) : still;
    }
    free(memory);
    return 0;
}

/* The cubic c[0] + c[1] x + ... through values[-1 .. 2] at -1, 0, 1 and 2. first: values[0] is that at 0 of an even
 * function. */
static void cubic_through(const double *values, bool first, double c[4])
{
    const double before = values[first ? 1 : -1], a = values[0], b = values[1], after = values[2];
    c[0] = a;
    c[1] = b - before / 3 - a / 2 - after / 6;
    c[2] = (before + b) / 2 - a;
    c[3] = (after - before) / 6 + (a - b) / 2;
}

/* ---- the table ---- */

static double wave_most(const struct cutcp_split *split)
{
    double squares = 0;
    for (int d = 0; d < 3; d++)
        squares += pow(KERNEL_PI * split->mesh[d] / split->length[d], 2);
    return sqrt(squares);
}

size_t cutcp_waves_count(const struct cutcp_split *split)
{
    return (size_t)ceil(wave_most(split) * split->cutoff / fine_step) + 2;
}

/* From the near part's integrals, every `apart` values. Between two of them, sines are turned from value to value. */
static void waves_fill(struct cutcp_waves *waves, const struct cutcp_split *split, const double *coarse, size_t apart)
{
    const struct law_sines law = law_sines_of(law_powers[split->form]);
    const double by_cos = cos(fine_step), by_sin = sin(fine_step), square = split->cutoff * split->cutoff;
    const double by_x = 1 / (double)apart;
    double c[4];
    for (size_t at = 0, first = 0; first < waves->count; at++, first += apart) {
        const size_t count = waves->count - first < apart ? waves->count - first : apart;
        cubic_through(coarse + at, at == 0, c);
        double turn[2] = {cos((double)first * fine_step), sin((double)first * fine_step)};
        for (size_t i = 0; i < count; i++) {
            const double phase = (double)(first + i) * fine_step, next = turn[0] * by_cos - turn[1] * by_sin;
            const double x = (double)i * by_x, near = c[0] + x * (c[1] + x * (c[2] + x * c[3]));
            waves->value[first + i] = (float)(4 * KERNEL_PI * (square * law_integral(&law, phase, turn) - near));
            turn[1] = turn[1] * by_cos + turn[0] * by_sin;
            turn[0] = next;
        }
    }
}

int cutcp_waves_create(struct cutcp_waves *waves, const struct cutcp_split *split)
{
    const double step = fine_step / split->cutoff;
    const size_t count = cutcp_waves_count(split), apart = (size_t)fmax(1, coarse_step / split->radius / step),
                 coarse_count = count / apart + 4;
    struct near_points points = {.count = 0};
    double *coarse = malloc(coarse_count * sizeof *coarse);
    *waves = (struct cutcp_waves){.step = step, .count = count};
    waves->value = malloc(count * sizeof *waves->value);
    int rc = coarse && waves->value ? near_points_create(&points, split, wave_most(split))
                                    : err_no_memory("the waves of the potential");
    if (rc == 0)
        rc = near_integrals(&points, (double)apart * step, coarse_count, coarse);
    if (rc == 0)
        waves_fill(waves, split, coarse, apart);
    free(points.at);
    free(coarse);
    return rc;
}

void cutcp_waves_free(struct cutcp_waves *waves)
{
    free(waves->value);
}
