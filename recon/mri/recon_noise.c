/* Step "noise": decorrelate the coils by the noise acquisitions of the scan (doi:10.1002/mrm.1241, appendix A). */
#include "recon/mri/recon_steps.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_PER_COIL = 4 /* fewer do not determine a covariance well enough to divide by it */ };

/* In place: the lower triangle of Hermitian a[n][n] becomes L with a = L L^H. */
static bool cholesky(int n, double (*a)[2])
{
    for (int j = 0; j < n; j++) {
        double(*row)[2] = a + (size_t)j * (size_t)n, before = row[j][0];
        for (int k = 0; k < j; k++)
            row[j][0] -= row[k][0] * row[k][0] + row[k][1] * row[k][1];
        /* Relative limit of a coil's noise that is independent of the other coils': below it is rounding error. */
        if (!(row[j][0] > 1e-9 * before) || !isfinite(row[j][0]))
            return false;
        row[j][0] = sqrt(row[j][0]);
        row[j][1] = 0;
        for (int i = j + 1; i < n; i++) {
            double(*lower)[2] = a + (size_t)i * (size_t)n;
            for (int k = 0; k < j; k++) {
                double re = lower[k][0] * row[k][0] + lower[k][1] * row[k][1];
                double im = lower[k][1] * row[k][0] - lower[k][0] * row[k][1];
                lower[j][0] -= re;
                lower[j][1] -= im;
            }
            lower[j][0] /= row[j][0];
            lower[j][1] /= row[j][0];
        }
    }
    return true;
}

/* One column of L^-1 by forward substitution: x[n] with L x = e_column. */
static void lower_solve(int n, const double (*l)[2], int column, double (*x)[2])
{
    for (int i = 0; i < n; i++) {
        const double(*row)[2] = l + (size_t)i * (size_t)n;
        x[i][0] = i == column;
        x[i][1] = 0;
        for (int k = column; k < i; k++) {
            x[i][0] -= row[k][0] * x[k][0] - row[k][1] * x[k][1];
            x[i][1] -= row[k][0] * x[k][1] + row[k][1] * x[k][0];
        }
        x[i][0] /= row[i][0];
        x[i][1] /= row[i][0];
    }
}

int recon_whitening(int n, double (*covariance)[2], struct c32 *out)
{
    double trace = 0;
    for (int c = 0; c < n; c++)
        trace += covariance[(size_t)c * (size_t)n + (size_t)c][0];
    if (!cholesky(n, covariance))
        return 1;
    double(*x)[2] = calloc((size_t)n, sizeof *x), scale = sqrt(trace / n);
    if (!x)
        return err_no_memory("the inverse of the noise covariance of %d coils", n);
    for (int column = 0; column < n; column++) {
        lower_solve(n, (const double(*)[2])covariance, column, x);
        for (int i = 0; i < n; i++)
            out[(size_t)i * (size_t)n + (size_t)column] =
                (struct c32){(float)(scale * x[i][0]), (float)(scale * x[i][1])};
    }
    free(x);
    return 0;
}

/* covariance[n][n] += sum over the samples of d d^H, of one readout. */
static void covariance_add(const struct recon_job *job, const struct scan_readout *readout, int n,
                           double (*covariance)[2])
{
    size_t samples = frames_kept(readout);
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            const struct c32 *a = recon_kept_data(job, readout, i), *b = recon_kept_data(job, readout, j);
            double re = 0, im = 0;
            for (size_t s = 0; s < samples; s++) {
                re += (double)a[s].re * b[s].re + (double)a[s].im * b[s].im;
                im += (double)a[s].im * b[s].re - (double)a[s].re * b[s].im;
            }
            covariance[(size_t)i * (size_t)n + (size_t)j][0] += re;
            covariance[(size_t)i * (size_t)n + (size_t)j][1] += im;
        }
}

/* Sum over all noise readouts of `n` coils; *samples: their number of samples. */
static int covariance_measure(const struct recon_job *job, int n, double (*covariance)[2], size_t *samples)
{
    *samples = 0;
    for (uint64_t i = 0; i < job->scan.header->readouts; i++) {
        const struct scan_readout *readout = &job->scan.readouts[i];
        if (frames_ignore(readout->flags) != FRAMES_NOISE || readout->coils != n)
            continue;
        for (int c = 0; c < n; c++)
            if (recon_any_nonfinite(recon_kept_data(job, readout, c), frames_kept(readout)))
                return recon_data_nonfinite(readout);
        covariance_add(job, readout, n, covariance);
        *samples += frames_kept(readout);
    }
    for (size_t i = 0; i < (size_t)n * (size_t)n && *samples; i++) {
        covariance[i][0] /= (double)*samples;
        covariance[i][1] /= (double)*samples;
    }
    return 0;
}

/* Without noise acquisitions: whether the header refers to a noise measurement in another file. */
static void noise_absent(struct recon_job *job)
{
    if (job->scan.xml && strcasestr(job->scan.xml, "dependencyType>noise<"))
        recon_report_warn(job,
                          "The header names a noise measurement that is not part of this file, so the coils were not "
                          "decorrelated.");
}

/* Whether the coils of all frames can be decorrelated in the same way; false: a warning says why, unless the parameters
 * disable it. */
static bool noise_applies(struct recon_job *job)
{
    const int n = job->frames->frame[0].coils;
    if (job->frames->ignored[FRAMES_NOISE] == 0) {
        noise_absent(job);
        return false;
    }
    if (recon_choice(job, RECON_PREWHITEN) == RECON_PREWHITEN_OFF || n < 2)
        return false;
    for (size_t f = 1; f < job->frames->count; f++)
        if (job->frames->frame[f].coils != n) {
            recon_report_warn(job, "The images have different numbers of coils, so the coils were not decorrelated.");
            return false;
        }
    return true;
}

int recon_noise(struct recon_job *job)
{
    if (!noise_applies(job))
        return 0;
    const int n = job->frames->frame[0].coils;
    size_t samples = 0, entries = (size_t)n * (size_t)n;
    double(*covariance)[2] = calloc(entries, sizeof *covariance);
    job->mix = calloc(entries, sizeof *job->mix);
    int rc = covariance && job->mix ? covariance_measure(job, n, covariance, &samples)
                                    : err_no_memory("the noise covariance of %d coils", n);
    if (rc != 0)
        goto out;
    if (samples == 0) {
        recon_report_warn(
            job,
            "The coils were not decorrelated: none of the %zu noise acquisitions has samples of the images' %d coils.",
            job->frames->ignored[FRAMES_NOISE], n);
        goto out;
    }
    if (samples < (size_t)n * SAMPLES_PER_COIL) {
        recon_report_warn(job, "The coils were not decorrelated: %zu noise samples are too few for %d coils.", samples,
                          n);
        goto out;
    }
    rc = recon_whitening(n, covariance, job->mix);
    if (rc > 0) {
        recon_report_warn(
            job, "The coils were not decorrelated: the noise of one coil is zero, or a combination of the others'.");
        rc = 0;
    } else if (rc == 0) {
        job->mixed_coils = n;
        recon_report_decide(job, "prewhitening", "on", "%zu noise samples of %d coils in %zu acquisitions.", samples, n,
                            job->frames->ignored[FRAMES_NOISE]);
    }
out:
    free(covariance);
    return rc;
}
