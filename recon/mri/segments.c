#include "recon/mri/segments.h"

#include <math.h>

enum { TIMES_TRIED = 24 };

/* Regularisation, relative to the trace: keeps the normal equations positive definite if there are more segments than
 * the frequencies distinguish. It adds at most its root, 1e-6, to the error. */
static const double RIDGE = 1e-12;

/* The total weight of frequencies that no pixel has: without it, a fit to few frequencies would be arbitrary within
 * their bins.
 */
static const double ANY = 0.1;

void spectrum_of(struct spectrum *out, size_t count, const float *hz)
{
    double least = INFINITY, most = -INFINITY, sum = 0;
    size_t others = 0, occupied = 0;
    *out = (struct spectrum){.bins = SEGMENTS_BINS};
    for (size_t i = 0; i < count; i++) {
        least = fmin(least, (double)hz[i]);
        most = fmax(most, (double)hz[i]);
        others += hz[i] != 0;
    }
    out->first = least;
    out->step = (most - least) / (SEGMENTS_BINS - 1);
    if (!(out->step > 0)) {
        *out = (struct spectrum){.bins = 1, .first = count ? least : 0, .share = {1}};
        return;
    }
    for (size_t i = 0; i < count; i++)
        out->share[lround(((double)hz[i] - least) / out->step)] += hz[i] != 0;
    for (int b = 0; b < SEGMENTS_BINS; b++)
        occupied += out->share[b] > 0;
    if (others < count)
        out->share[lround((0 - least) / out->step)] += (double)others / (double)occupied;
    for (int b = 0; b < SEGMENTS_BINS; b++)
        sum += out->share[b];
    for (int b = 0; b < SEGMENTS_BINS; b++)
        out->share[b] = (1 - ANY) * out->share[b] / sum + ANY / SEGMENTS_BINS;
}

void spectrum_differences(struct spectrum *out, const struct spectrum *of)
{
    *out = (struct spectrum){.bins = 2 * of->bins - 1, .first = -(of->bins - 1) * of->step, .step = of->step};
    for (int a = 0; a < of->bins; a++)
        for (int b = 0; b < of->bins; b++)
            out->share[a - b + of->bins - 1] += of->share[a] * of->share[b];
}

static double complex turn(double cycles)
{
    return cexp(-2 * M_PI * I * (cycles - floor(cycles)));
}

static double node(const struct segments *s, int l)
{
    return s->from + l * s->step;
}

/* out[l] = sum over f of share exp(2 pi i f (tau_l - t)) */
static void products(const struct segments *s, double t, double complex *out)
{
    double re[2 * SEGMENTS_BINS - 1], im[2 * SEGMENTS_BINS - 1];
    for (int i = 0; i < s->of->bins; i++) {
        const double complex w = s->of->share[i] * turn((s->of->first + i * s->of->step) * t);
        re[i] = creal(w);
        im[i] = cimag(w);
    }
    for (int l = 0; l < s->count; l++) {
        double sum[2] = {0}; /* written out: complex multiplication in C checks for NaN first */
        for (int i = 0; i < s->of->bins; i++) {
            const double *wave = s->wave[l][i];
            sum[0] += wave[0] * re[i] - wave[1] * im[i];
            sum[1] += wave[0] * im[i] + wave[1] * re[i];
        }
        out[l] = sum[0] + I * sum[1];
    }
}

/* The nodes' exponentials, and the lower Cholesky factor of their products. */
static void factorise(struct segments *s)
{
    double complex by[SEGMENTS_MOST]; /* the products depend only on the distance of two nodes */
    for (int l = 0; l < s->count; l++)
        for (int i = 0; i < s->of->bins; i++) {
            const double complex w = turn(-(s->of->first + i * s->of->step) * node(s, l));
            s->wave[l][i][0] = creal(w);
            s->wave[l][i][1] = cimag(w);
        }
    products(s, node(s, 0), by);
    for (int j = 0; j < s->count; j++)
        for (int i = j; i < s->count; i++) {
            double complex sum = by[i - j] + (i == j ? RIDGE * s->count : 0);
            for (int k = 0; k < j; k++)
                sum -= s->factor[i][k] * conj(s->factor[j][k]);
            s->factor[i][j] = i == j ? sqrt(fmax(creal(sum), RIDGE)) : sum / creal(s->factor[j][j]);
        }
}

void segments_at(const struct segments *s, double t, double complex *b)
{
    products(s, t, b);
    for (int l = 0; l < s->count; l++) {
        for (int k = 0; k < l; k++)
            b[l] -= s->factor[l][k] * b[k];
        b[l] /= creal(s->factor[l][l]);
    }
    for (int l = s->count - 1; l >= 0; l--) {
        for (int k = l + 1; k < s->count; k++)
            b[l] -= conj(s->factor[k][l]) * b[k];
        b[l] /= creal(s->factor[l][l]);
    }
}

static double error_at(const struct segments *s, double t)
{
    double complex b[SEGMENTS_MOST];
    double squares = 0;
    segments_at(s, t, b);
    for (int i = 0; i < s->of->bins; i++) {
        const double complex exact = turn((s->of->first + i * s->of->step) * t);
        double off[2] = {-creal(exact), -cimag(exact)};
        for (int l = 0; l < s->count; l++) { /* + b_l exp(-2 pi i f tau_l) */
            const double *wave = s->wave[l][i];
            off[0] += creal(b[l]) * wave[0] + cimag(b[l]) * wave[1];
            off[1] += cimag(b[l]) * wave[0] - creal(b[l]) * wave[1];
        }
        squares += s->of->share[i] * (off[0] * off[0] + off[1] * off[1]);
    }
    return sqrt(squares);
}

bool segments_make(struct segments *out, const struct spectrum *of, double from, double until, double tolerance,
                   int least)
{
    /* At least one segment for each cycle between the extreme frequencies is needed. */
    const int cycles = (int)fmin((of->bins - 1) * of->step * (until - from), SEGMENTS_MOST + 1);
    for (int count = cycles > least ? cycles : least; count <= SEGMENTS_MOST; count++) {
        out->of = of;
        out->count = count;
        out->from = count > 1 ? from : (from + until) / 2;
        out->step = count > 1 ? (until - from) / (count - 1) : 0;
        out->error = 0;
        factorise(out);
        for (int i = 0; i < TIMES_TRIED; i++)
            out->error = fmax(out->error, error_at(out, from + (until - from) * (i + 0.5) / TIMES_TRIED));
        if (out->error <= tolerance)
            return true;
    }
    return false;
}
