/* Uploads of an image's coils to the device. */
#include "recon/mri/recon_gridder.h"

int gridder_coils(const struct gridder *g, const struct frame *frame, int first)
{
    return frame->coils - first < g->batch ? frame->coils - first : g->batch;
}

size_t gridder_staging(const struct gridder *g)
{
    enum { STAGED_BYTES = 16 << 20 };
    const size_t coil = g->most_samples * sizeof(struct c32), batch = (size_t)g->batch * coil;
    return dev_is_gpu(g->job->dev) && g->job->mixed_coils && batch <= STAGED_BYTES ? batch : coil;
}

int gridder_upload(struct gridder *g, const struct frame *frame, int first, int count, struct c32 *data)
{
    struct recon_job *job = g->job;
    struct c32 *direct = dev_direct(job->dev, data);
    if (recon_early_is(job, data, first))
        return recon_early_end(job);
    if (direct)
        return recon_coils_gather(job, frame, g->offsets, first, count, direct);
    if (!job->mixed_coils)
        return recon_coils_upload(job, frame, g->offsets, first, count, data);
    const size_t coil = frame->samples * sizeof(struct c32);
    const int most = (size_t)count * coil <= gridder_staging(g) ? count : 1;
    int rc = 0;
    for (int c = 0; c < count && rc == 0; c += most) {
        rc = recon_coils_gather(job, frame, g->offsets, first + c, most, g->staging);
        if (rc == 0)
            rc = dev_upload_begin(job->dev, data + (size_t)c * frame->samples, g->staging, (size_t)most * coil);
    }
    return rc;
}
