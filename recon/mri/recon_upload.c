/* Uploads of an image's coils to the device. */
#include "recon/mri/recon_gridder.h"

int gridder_coils(const struct gridder *g, const struct frame *frame, int first)
{
    return frame->coils - first < g->batch ? frame->coils - first : g->batch;
}

int gridder_upload(struct gridder *g, const struct frame *frame, int first, int count, struct c32 *data)
{
    int rc = 0;
    for (int c = 0; c < count && rc == 0; c++) {
        struct c32 *there = data + (size_t)c * frame->samples, *direct = dev_direct(g->job->dev, there);
        rc = recon_coil_gather(g->job, frame, g->offsets, first + c, direct ? direct : g->staging);
        if (rc == 0 && !direct)
            rc = dev_upload_begin(g->job->dev, there, g->staging, frame->samples * sizeof(struct c32));
    }
    return rc;
}
