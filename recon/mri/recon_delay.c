/* Gradient delays of radial scans. Gradients that lag behind the readout shift each spoke by S n, in samples, where n
 * is the spoke's direction and S = [[x, xy], [xy, y]]: lines that should meet in k = 0 do not.
 *
 * RING (Rosenzweig, Holme and Uecker 2019, doi:10.1002/mrm.27506): two spokes i and j have the same signal where they
 * cross, at sample l of one and m of the other (counted from their nominal k = 0), so S (n_i - n_j) = m n_j - l n_i.
 * Each spoke is paired with the one most nearly at a right angle to it; S is the least-squares solution of all pairs.
 */
#include "recon/mri/recon_steps.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPOKES_MOST = 64, /* spokes used, evenly spaced among the first image's */
    REACH = 75,       /* positions on each side of k = 0, in hundredths of a sample */
    PLACES = 2 * REACH + 1
};

struct centre_line {
    double n[2], first,
        spacing; /* direction; coordinate of the first sample, in samples; spacing in cycles per pixel */
    size_t samples;
    struct c32 *values; /* [coils][PLACES] around k = 0 */
};

struct ring {
    struct recon_job *job;
    int coils, count;
    struct centre_line spoke[SPOKES_MOST];
    float *kernel; /* [PLACES][samples], of the spoke described by the next two */
    size_t kernel_samples;
    double kernel_first;
};

static int not_radial(const struct scan_readout *readout)
{
    return err_set_acquisition(ERR_BAD_PARAMETER, readout->acquisition,
                               "Parameter gradient_delay=ring needs a 2-D radial scan whose spokes pass through k = 0; "
                               "acquisition %u is not such a spoke. Pass the delays as numbers, or off.",
                               readout->acquisition);
}

/* The line through k[samples][2]. */
static bool line_find(struct centre_line *spoke, size_t samples, const float *k)
{
    if (samples < 8)
        return false;
    const double *const end =
        (const double[]){(double)k[2 * samples - 2] - (double)k[0], (double)k[2 * samples - 1] - (double)k[1]};
    const double length = hypot(end[0], end[1]);
    if (!(length > 0))
        return false;
    spoke->samples = samples;
    spoke->spacing = length / (double)(samples - 1);
    for (int d = 0; d < 2; d++)
        spoke->n[d] = end[d] / length;
    spoke->first = ((double)k[0] * spoke->n[0] + (double)k[1] * spoke->n[1]) / spoke->spacing;
    bool straight = spoke->first < -2 && spoke->first + (double)samples - 1 > 2;
    for (size_t m = 0; m < samples && straight; m++)
        for (int d = 0; d < 2; d++) {
            const double nominal = (spoke->first + (double)m) * spoke->spacing * spoke->n[d];
            straight = straight && fabs((double)k[2 * m + (size_t)d] - nominal) < 0.02 * spoke->spacing;
        }
    return straight;
}

/* Interpolation between samples, exact for an object within 1.2 fields of view: sum over |x| <= M of exp(2 pi i x u /
 * N) / N.
 */
static int kernel_make(struct ring *ring, const struct centre_line *spoke)
{
    const size_t samples = spoke->samples;
    if (ring->kernel && ring->kernel_samples == samples && fabs(ring->kernel_first - spoke->first) < 1e-5)
        return 0;
    const int widest = ring->job->n[0] > ring->job->n[1] ? ring->job->n[0] : ring->job->n[1];
    const double share = fmin(1, 1.2 * widest * spoke->spacing), n = (double)samples;
    const double terms = 2 * floor(share * (n - 1) / 2) + 1;
    float *kernel = realloc(ring->kernel, PLACES * samples * sizeof *kernel);
    if (!kernel)
        return err_no_memory("the interpolation of spokes of %zu samples", samples);
    ring->kernel = kernel;
    ring->kernel_samples = samples;
    ring->kernel_first = spoke->first;
    for (int p = 0; p < PLACES; p++)
        for (size_t m = 0; m < samples; m++) {
            const double u = M_PI * ((p - REACH) / 100.0 - spoke->first - (double)m) / n;
            kernel[(size_t)p * samples + m] = (float)(fabs(sin(u)) < 1e-9 ? terms / n : sin(terms * u) / (n * sin(u)));
        }
    return 0;
}

static int spoke_read(struct ring *ring, struct centre_line *spoke, const struct scan_readout *readout)
{
    const size_t samples = spoke->samples;
    struct c32 *data = malloc(samples * sizeof *data);
    spoke->values = malloc((size_t)ring->coils * PLACES * sizeof *spoke->values);
    int rc = data && spoke->values ? kernel_make(ring, spoke) : err_no_memory("spokes of %d coils", ring->coils);
    for (int c = 0; c < ring->coils && rc == 0; c++) {
        recon_coil_mix(ring->job, readout, c, data);
        if (recon_any_nonfinite(data, samples))
            rc = recon_data_nonfinite(readout);
        for (size_t p = 0; p < PLACES && rc == 0; p++) {
            const float *kernel = ring->kernel + p * samples;
            double re = 0, im = 0;
            for (size_t m = 0; m < samples; m++) {
                re += (double)kernel[m] * (double)data[m].re;
                im += (double)kernel[m] * (double)data[m].im;
            }
            spoke->values[(size_t)c * PLACES + p] = (struct c32){(float)re, (float)im};
        }
    }
    free(data);
    return rc;
}

static int spokes_read(struct ring *ring)
{
    struct recon_job *job = ring->job;
    const struct frame *frame = &job->frames->frame[0];
    size_t *offsets = malloc((frame->count + 1) * sizeof *offsets);
    float *k = malloc((frame->samples + 1) * (size_t)job->dim * sizeof *k);
    int rc = offsets && k ? 0 : err_no_memory("the spokes of an image");
    const size_t step = (frame->count + SPOKES_MOST - 1) / SPOKES_MOST;
    if (rc == 0) {
        recon_frame_offsets(job, frame, offsets);
        recon_frame_gather(job, frame, offsets, k, NULL);
    }
    for (size_t i = 0; i < frame->count && rc == 0; i += step) {
        const struct scan_readout *readout = &job->scan.readouts[job->frames->readouts[frame->first + i]];
        struct centre_line *spoke = &ring->spoke[ring->count++];
        rc = job->dim == 2 && line_find(spoke, offsets[i + 1] - offsets[i], k + 2 * offsets[i])
                 ? spoke_read(ring, spoke, readout)
                 : not_radial(readout);
    }
    free(k);
    free(offsets);
    return rc;
}

/* The crossing of two spokes: its place on each, in samples. */
static void crossing_find(const struct ring *ring, const struct centre_line *a, const struct centre_line *b, double *l,
                          double *m)
{
    double least = INFINITY;
    for (int p = 0; p < PLACES; p++)
        for (int q = 0; q < PLACES; q++) {
            double cost = 0;
            for (int c = 0; c < ring->coils; c++) {
                const struct c32 x = a->values[c * PLACES + p], y = b->values[c * PLACES + q];
                const double re = (double)x.re - (double)y.re, im = (double)x.im - (double)y.im;
                cost += re * re + im * im;
            }
            if (cost < least) {
                least = cost;
                *l = (p - REACH) / 100.0;
                *m = (q - REACH) / 100.0;
            }
        }
}

/* x of the symmetric a[3][4] = [A | b], by elimination; false: too few directions of spokes. */
static bool solve(double a[3][4], double x[3])
{
    const double scale = a[0][0] + a[1][1] + a[2][2];
    for (int i = 0; i < 3; i++) {
        if (!(a[i][i] > 1e-6 * scale))
            return false;
        for (int j = i + 1; j < 3; j++)
            for (int k = 3; k >= i; k--)
                a[j][k] -= a[j][i] / a[i][i] * a[i][k];
    }
    for (int i = 2; i >= 0; i--) {
        x[i] = a[i][3];
        for (int j = i + 1; j < 3; j++)
            x[i] -= a[i][j] * x[j];
        x[i] /= a[i][i];
    }
    return true;
}

static int pairs_solve(const struct ring *ring, double delay[3])
{
    double normal[3][4] = {{0}};
    for (int i = 0; i < ring->count; i++) {
        const struct centre_line *a = &ring->spoke[i], *b = a;
        double least = INFINITY, l = 0, m = 0;
        for (int j = 0; j < ring->count; j++) {
            const double along = fabs(a->n[0] * ring->spoke[j].n[0] + a->n[1] * ring->spoke[j].n[1]);
            if (along < least - 1e-9) {
                least = along;
                b = &ring->spoke[j];
            }
        }
        crossing_find(ring, a, b, &l, &m);
        const double dx = a->n[0] - b->n[0], dy = a->n[1] - b->n[1];
        const double rows[2][3] = {{dx, 0, dy}, {0, dy, dx}};
        for (int d = 0; d < 2; d++)
            for (int r = 0; r < 3; r++) {
                for (int s = 0; s < 3; s++)
                    normal[r][s] += rows[d][r] * rows[d][s];
                normal[r][3] += rows[d][r] * (m * b->n[d] - l * a->n[d]);
            }
    }
    return solve(normal, delay)
               ? 0
               : err_set(ERR_BAD_PARAMETER,
                         "Parameter gradient_delay=ring needs spokes of at least three directions; the "
                         "scan's %d do not determine the delays. Pass them as numbers, or off.",
                         ring->count);
}

static int estimate(struct recon_job *job)
{
    struct ring ring = {.job = job, .coils = job->frames->frame[0].coils};
    int rc = spokes_read(&ring);
    if (rc == 0)
        rc = pairs_solve(&ring, job->delay);
    for (int i = 0; i < ring.count; i++)
        free(ring.spoke[i].values);
    free(ring.kernel);
    const double largest = fmax(fabs(job->delay[0]), fmax(fabs(job->delay[1]), fabs(job->delay[2])));
    if (rc == 0 && largest > 0.6 * REACH / 100.0)
        recon_report_warn(job, "The gradient delays that RING finds are near its limit of %g samples.", REACH / 100.0);
    return rc;
}

int recon_delay(struct recon_job *job)
{
    const char *asked = job->request->values->value[RECON_GRADIENT_DELAY].text;
    char text[96];
    if (strcmp(asked, "off") == 0)
        return 0;
    const bool ring = strcmp(asked, "ring") == 0;
    const int rc = ring ? estimate(job) : recon_delay_parse(asked, job->delay);
    snprintf(text, sizeof text, "%.4g,%.4g,%.4g", job->delay[0], job->delay[1], job->delay[2]);
    if (rc == 0)
        recon_report_decide(job, "gradient_delay", text, "%s; samples along x, y, and xy by which spokes are shifted.",
                            ring ? "By RING, from the crossings of the first image's spokes" : "As given");
    return rc;
}

void recon_delay_apply(const struct recon_job *job, const struct frame *frame, const size_t *offsets, float *k)
{
    const size_t dim = (size_t)job->dim;
    if (job->delay[0] == 0 && job->delay[1] == 0 && job->delay[2] == 0)
        return;
    for (size_t i = 0; i < frame->count; i++) {
        const size_t samples = offsets[i + 1] - offsets[i];
        float *first = k + offsets[i] * dim, *last = first + (samples - 1) * dim;
        if (samples < 2)
            continue;
        const double x = ((double)last[0] - (double)first[0]) / (double)(samples - 1);
        const double y = ((double)last[1] - (double)first[1]) / (double)(samples - 1);
        const float dx = (float)(job->delay[0] * x + job->delay[2] * y);
        const float dy = (float)(job->delay[2] * x + job->delay[1] * y);
        for (float *at = first; at <= last; at += dim) {
            at[0] += dx;
            at[1] += dy;
        }
    }
}
