/* The samples of one coil of an image in one row. */
#include "recon/mri/recon_steps.h"

#include "gridding/base/err.h"

#include <stdio.h>
#include <string.h>

const struct c32 *recon_kept_data(const struct recon_job *job, const struct scan_readout *readout, int coil)
{
    return job->scan.data + readout->data + (size_t)coil * readout->samples + readout->discard_pre;
}

enum { INFINITE_BITS = 0x7f800000 };

/* The largest of `count` numbers' parts, as bits without the sign, which order as magnitudes do; NaN lies above all. */
static uint32_t largest_bits(const struct c32 *data, size_t count)
{
    const float *floats = &data->re;
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < 2 * count; i++) {
        uint32_t bits;
        memcpy(&bits, floats + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

bool recon_any_nonfinite(const struct c32 *data, size_t count)
{
    return largest_bits(data, count) >= INFINITE_BITS;
}

int recon_data_nonfinite(const struct scan_readout *readout)
{
    return err_set_acquisition(
        ERR_DATA_NONFINITE, readout->acquisition,
        "Acquisition %u holds k-space data that are not finite numbers (NaN or infinity). The scan was "
        "damaged before it was sent.",
        readout->acquisition);
}

/* out = sum over j <= coil of whitening[coil][j] data[j], of one readout. */
static void whiten(const struct recon_job *job, const struct scan_readout *readout, int coil, size_t samples,
                   struct c32 *out)
{
    const struct c32 *row = job->whitening + (size_t)coil * (size_t)job->whitened_coils;
    memset(out, 0, samples * sizeof *out);
    for (int j = 0; j <= coil; j++) {
        const struct c32 *data = recon_kept_data(job, readout, j), w = row[j];
        for (size_t s = 0; s < samples; s++) {
            out[s].re += w.re * data[s].re - w.im * data[s].im;
            out[s].im += w.re * data[s].im + w.im * data[s].re;
        }
    }
}

int recon_coil_gather(const struct recon_job *job, const struct frame *frame, const size_t *offsets, int coil,
                      struct c32 *out)
{
    const uint32_t *readouts = job->frames->readouts + frame->first;
    size_t bad = SIZE_MAX;
    uint32_t most = 0;
#pragma omp parallel for schedule(static) reduction(min                      \
                                                    : bad) reduction(max     \
                                                                     : most) \
    num_threads(recon_threads(job, frame->samples))
    for (size_t i = 0; i < frame->count; i++) {
        const struct scan_readout *readout = &job->scan.readouts[readouts[i]];
        struct c32 *to = out + offsets[i];
        size_t samples = offsets[i + 1] - offsets[i];
        uint32_t largest = largest_bits(recon_kept_data(job, readout, coil), samples);
        most = largest > most ? largest : most;
        if (largest >= INFINITE_BITS)
            bad = i < bad ? i : bad;
        else if (job->whitened_coils)
            whiten(job, readout, coil, samples, to);
        else
            memcpy(to, recon_kept_data(job, readout, coil), samples * sizeof *to);
    }
    job->coil_lives[coil] = job->coil_lives[coil] || most > 0;
    return bad == SIZE_MAX ? 0 : recon_data_nonfinite(&job->scan.readouts[readouts[bad]]);
}

void recon_coils_report(struct recon_job *job, int coils)
{
    char list[128] = "";
    size_t used = 0;
    int dead = 0;
    for (int c = 0; c < coils; c++) {
        if (job->coil_lives[c])
            continue;
        if (used + 16 < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", dead ? ", " : "", c);
        else if (list[used - 1] != '.')
            used += (size_t)snprintf(list + used, sizeof list - used, ", ...");
        dead++;
    }
    if (dead == coils)
        recon_report_warn(job, "All samples of all coils are 0, so the image is, too.");
    else if (dead > 0)
        recon_report_warn(job,
                          "%d of %d coils hold nothing but zeros: number %s, counted from 0. A coil element or its "
                          "channel may be broken.",
                          dead, coils, list);
}
