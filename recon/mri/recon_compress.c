/* Step "noise", second part: coil compression. Data of many coils are nearly linear combinations of a few (Huang et al.
 * 2008, doi:10.1016/j.mri.2007.04.010; Buehrer et al. 2007, doi:10.1002/mrm.21237): the eigenvectors of the coils'
 * covariance, of whitened data, with the largest eigenvalues. Such virtual coils replace the scan's from here on. */
#include "recon/mri/recon_made.h"
#include "recon/mri/recon_steps.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COILS_MOST = 256,       /* the most: their eigenvectors take about a second */
    COILS_FEW = 12,         /* up to this number, `auto` keeps all: little would be saved */
    GRAM_SAMPLES = 1 << 18, /* of a coil, that the covariance is summed over at most */
    SWEEPS_MOST = 30
};

#define ENERGY 0.99 /* that `auto` keeps */

struct compression {
    struct recon_job *job;
    int n;
    size_t images;                    /* that the covariance is summed over */
    double (*gram)[2], (*vectors)[2]; /* [n][n] each: Hermitian; eigenvectors in columns */
    int *order;                       /* [n]: columns, the largest eigenvalue first */
};

static size_t place(const struct compression *c, int i, int j)
{
    return (size_t)i * (size_t)c->n + (size_t)j;
}

static void gram_row(struct compression *c, int i, size_t samples, const struct c32 *data)
{
    for (int j = 0; j <= i; j++) {
        const struct c32 *a = data + (size_t)i * samples, *b = data + (size_t)j * samples;
        double re = 0, im = 0;
#pragma omp simd reduction(+ : re, im)
        for (size_t s = 0; s < samples; s++) {
            re += (double)a[s].re * b[s].re + (double)a[s].im * b[s].im;
            im += (double)a[s].im * b[s].re - (double)a[s].re * b[s].im;
        }
        c->gram[place(c, i, j)][0] += re;
        c->gram[place(c, i, j)][1] += im;
    }
}

/* gram += sum over the samples of d d^H, of one readout, whitened; a thread computes whole entries. */
static int gram_add(struct compression *c, const struct scan_readout *readout)
{
    const size_t samples = frames_kept(readout);
    struct c32 *data = malloc((size_t)c->n * samples * sizeof *data);
    if (!data)
        return err_no_memory("the covariance of %d coils", c->n);
#pragma omp parallel num_threads(recon_threads(c->job, samples *(size_t)c->n *(size_t)c->n / 2))
    {
#pragma omp for schedule(static)
        for (int i = 0; i < c->n; i++)
            recon_coil_mix(c->job, readout, i, data + (size_t)i * samples);
#pragma omp for schedule(dynamic)
        for (int row = 0; row < c->n; row++) /* the longest first */
            gram_row(c, c->n - 1 - row, samples, data);
    }
    free(data);
    return 0;
}

/* Computed over all coils: a virtual coil need not contain each of them. While a scan arrives, images that were made
 * were checked before. */
static int data_check(const struct recon_job *job, int coils)
{
    const struct frames *frames = job->frames;
    for (size_t f = 0; f < frames->count; f++) {
        const struct frame *frame = &frames->frame[f];
        for (size_t i = 0; i < frame->count && !(job->more && recon_made_before(job, f)); i++) {
            const struct scan_readout *readout = &job->scan.readouts[frames->readouts[frame->first + i]];
            for (int c = 0; c < coils; c++)
                if (recon_any_nonfinite(recon_kept_data(job, readout, c), frames_kept(readout)))
                    return recon_data_nonfinite(readout);
        }
    }
    return 0;
}

/* The images that the covariance is summed over: of the first window of a series, so that its images are final as soon
 * as it is complete; else all. Images are sorted by their place in time. */
static size_t images_count(const struct recon_job *job)
{
    const struct frames *frames = job->frames;
    const bool series = recon_choice(job, RECON_METHOD) >= RECON_METHOD_TEMPORAL_TV;
    const int64_t most = series ? recon_choice(job, RECON_WINDOW_FRAMES) : 0;
    int64_t times = 1;
    size_t count = 1;
    for (; count < frames->count; count++) {
        times += frames->frame[count].repetition != frames->frame[count - 1].repetition;
        if (most > 0 && times > most)
            break;
    }
    return count;
}

/* Evenly. */
static int gram_sum(struct compression *c)
{
    const struct frames *frames = c->job->frames;
    size_t samples = 0, step, at = 0;
    int rc = data_check(c->job, c->n);
    for (size_t f = 0; f < c->images; f++)
        samples += frames->frame[f].samples;
    step = samples / GRAM_SAMPLES + 1;
    for (size_t f = 0; f < c->images; f++)
        for (size_t i = 0; i < frames->frame[f].count && rc == 0; i++, at++)
            if (at % step == 0)
                rc = gram_add(c, &c->job->scan.readouts[frames->readouts[frames->frame[f].first + i]]);
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < i; j++) {
            c->gram[place(c, j, i)][0] = c->gram[place(c, i, j)][0];
            c->gram[place(c, j, i)][1] = -c->gram[place(c, i, j)][1];
        }
    return rc;
}

/* Columns p and q of a[n][n] times [[cosine, sine turn], [-sine conj(turn), cosine]]. */
static void columns_turn(const struct compression *c, double (*a)[2], int p, int q, double cosine, double sine,
                         const double turn[2])
{
    for (int i = 0; i < c->n; i++) {
        double *x = a[place(c, i, p)], *y = a[place(c, i, q)];
        const double xr = x[0], xi = x[1], yr = y[0], yi = y[1];
        x[0] = cosine * xr - sine * (turn[0] * yr + turn[1] * yi);
        x[1] = cosine * xi - sine * (turn[0] * yi - turn[1] * yr);
        y[0] = cosine * yr + sine * (turn[0] * xr - turn[1] * xi);
        y[1] = cosine * yi + sine * (turn[0] * xi + turn[1] * xr);
    }
}

/* The same of rows, conjugated. */
static void rows_turn(const struct compression *c, double (*a)[2], int p, int q, double cosine, double sine,
                      const double turn[2])
{
    for (int i = 0; i < c->n; i++) {
        double *x = a[place(c, p, i)], *y = a[place(c, q, i)];
        const double xr = x[0], xi = x[1], yr = y[0], yi = y[1];
        x[0] = cosine * xr - sine * (turn[0] * yr - turn[1] * yi);
        x[1] = cosine * xi - sine * (turn[0] * yi + turn[1] * yr);
        y[0] = cosine * yr + sine * (turn[0] * xr + turn[1] * xi);
        y[1] = cosine * yi + sine * (turn[0] * xi - turn[1] * xr);
    }
}

/* Jacobi's method (Golub and Van Loan, Matrix Computations, 8.5): gram becomes diagonal, vectors its eigenvectors. A
 * fixed order of operations: the same bits everywhere. */
static void eigenvectors_find(struct compression *c)
{
    for (int i = 0; i < c->n; i++)
        c->vectors[place(c, i, i)][0] = 1;
    for (int sweep = 0, turned = 1; sweep < SWEEPS_MOST && turned; sweep++) {
        turned = 0;
        for (int p = 0; p < c->n; p++)
            for (int q = p + 1; q < c->n; q++) {
                const double *off = c->gram[place(c, p, q)], size = hypot(off[0], off[1]);
                const double a = c->gram[place(c, p, p)][0], b = c->gram[place(c, q, q)][0];
                if (!(size > 1e-13 * sqrt(fabs(a * b))) || !(size > 1e-300))
                    continue;
                const double turn[2] = {off[0] / size, off[1] / size}, ratio = (b - a) / (2 * size);
                const double tangent = (ratio >= 0 ? 1 : -1) / (fabs(ratio) + sqrt(1 + ratio * ratio));
                const double cosine = 1 / sqrt(1 + tangent * tangent), sine = tangent * cosine;
                columns_turn(c, c->gram, p, q, cosine, sine, turn);
                rows_turn(c, c->gram, p, q, cosine, sine, turn);
                columns_turn(c, c->vectors, p, q, cosine, sine, turn);
                turned = 1;
            }
    }
    for (int i = 0; i < c->n; i++) {
        int at = i;
        for (; at > 0 && c->gram[place(c, i, i)][0] > c->gram[place(c, c->order[at - 1], c->order[at - 1])][0]; at--)
            c->order[at] = c->order[at - 1];
        c->order[at] = i;
    }
}

/* The number of virtual coils, and the share of the energy that they keep. */
static int count_choose(const struct compression *c, double *share)
{
    const int64_t asked = recon_choice(c->job, RECON_VIRTUAL_COILS);
    double all = 0, kept = 0;
    int count = 0;
    for (int i = 0; i < c->n; i++)
        all += c->gram[place(c, i, i)][0];
    while (count < c->n && (asked > 0 ? count < asked : kept < ENERGY * all)) {
        const int column = c->order[count++];
        kept += c->gram[place(c, column, column)][0];
    }
    *share = all > 0 ? kept / all : 1;
    return count < 1 ? 1 : count;
}

/* job->mix[count][n] = the conjugate eigenvectors, times the whitening. */
static int mix_replace(struct compression *c, int count)
{
    struct recon_job *job = c->job;
    struct c32 *mix = calloc((size_t)count * (size_t)c->n, sizeof *mix);
    if (!mix)
        return err_no_memory("the compression of %d coils", c->n);
    for (int v = 0; v < count; v++)
        for (int j = 0; j < c->n; j++) {
            double re = 0, im = 0;
            for (int i = 0; i < c->n; i++) {
                const double *vector = c->vectors[place(c, i, c->order[v])];
                const struct c32 w = job->mixed_coils ? job->mix[place(c, i, j)] : (struct c32){i == j ? 1 : 0, 0};
                re += vector[0] * (double)w.re + vector[1] * (double)w.im;
                im += vector[0] * (double)w.im - vector[1] * (double)w.re;
            }
            mix[place(c, v, j)] = (struct c32){(float)re, (float)im};
        }
    free(job->mix);
    job->mix = mix;
    job->mixed_coils = c->n;
    job->compressed = true;
    for (size_t f = 0; f < job->frames->count; f++)
        job->frames->frame[f].coils = count;
    return 0;
}

static int compress(struct compression *c)
{
    const size_t entries = (size_t)c->n * (size_t)c->n;
    double share = 1;
    c->gram = calloc(entries, sizeof *c->gram);
    c->vectors = calloc(entries, sizeof *c->vectors);
    c->order = calloc((size_t)c->n, sizeof *c->order);
    int rc = c->gram && c->vectors && c->order ? gram_sum(c) : err_no_memory("the covariance of %d coils", c->n);
    if (rc != 0)
        return rc;
    eigenvectors_find(c);
    const int count = count_choose(c, &share);
    rc = mix_replace(c, count);
    if (rc == 0) {
        char text[32];
        snprintf(text, sizeof text, "%d", count);
        recon_report_decide(c->job, "virtual_coils", text, "%s; they have %.2f %% of the energy of %d coils%s.",
                            recon_choice(c->job, RECON_VIRTUAL_COILS) > 0 ? "As requested" : "As many as have 99 %",
                            100 * share, c->n, c->images < c->job->frames->count ? " in the series' first window" : "");
    }
    return rc;
}

bool recon_compresses(const struct param_values *values, int coils)
{
    const int64_t asked = values->value[RECON_VIRTUAL_COILS].integer, combined = values->value[RECON_COILS].integer;
    const bool iterates = values->value[RECON_METHOD].integer != RECON_METHOD_ADJOINT;
    const bool maps = iterates || combined == RECON_COILS_ADAPTIVE || combined == RECON_COILS_SENSE;
    const bool given = values->value[RECON_RESULTS_WANTED].integer >> RECON_RESULT_MAPS & 1;
    return asked == RECON_VIRTUAL_COILS_AUTO ? maps && !given && coils > COILS_FEW : asked != RECON_VIRTUAL_COILS_NONE;
}

int recon_compress(struct recon_job *job)
{
    struct compression c = {.job = job, .n = job->frames->frame[0].coils, .images = images_count(job)};
    if (!recon_compresses(job->request->values, c.n))
        return 0;
    for (size_t f = 1; f < job->frames->count; f++)
        if (job->frames->frame[f].coils != c.n) {
            recon_report_warn(job, "The images have different numbers of coils, so the coils were not compressed.");
            return 0;
        }
    if (c.n > COILS_MOST) {
        recon_report_warn(job, "The coils were not compressed: at most %d can be, and there are %d.", COILS_MOST, c.n);
        return 0;
    }
    const int rc = compress(&c);
    free(c.order);
    free(c.vectors);
    free(c.gram);
    return rc;
}
