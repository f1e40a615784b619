/* The samples of one coil of an image in one row. */
#include "recon/mri/recon_steps.h"

#include "gridding/base/err.h"

#include <string.h>

const struct c32 *recon_kept_data(const struct recon_job *job, const struct scan_readout *readout, int coil)
{
    return job->scan.data + readout->data + (size_t)coil * readout->samples + readout->discard_pre;
}

/* Is any of `count` floats NaN or infinite: the exponent is all ones. */
bool recon_any_nonfinite(const struct c32 *data, size_t count)
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
    return most >= 0x7f800000;
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
#pragma omp parallel for schedule(static) reduction(min : bad) num_threads(recon_threads(job, frame->samples))
    for (size_t i = 0; i < frame->count; i++) {
        const struct scan_readout *readout = &job->scan.readouts[readouts[i]];
        struct c32 *to = out + offsets[i];
        size_t samples = offsets[i + 1] - offsets[i];
        if (recon_any_nonfinite(recon_kept_data(job, readout, coil), samples))
            bad = i < bad ? i : bad;
        else if (job->whitened_coils)
            whiten(job, readout, coil, samples, to);
        else
            memcpy(to, recon_kept_data(job, readout, coil), samples * sizeof *to);
    }
    return bad == SIZE_MAX ? 0 : recon_data_nonfinite(&job->scan.readouts[readouts[bad]]);
}
