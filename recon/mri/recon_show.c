#include "recon/mri/recon_gridder.h"

static int message_write(const void *images, size_t image, int fd)
{
    return image_write_message(images, image, fd);
}

void gridder_show(struct gridder *g)
{
    struct recon_job *job = g->job;
    const struct job_show *show = job->request->show;
    const size_t before = job->shown;
    while (job->shown < job->frames->placed && job->made[job->shown])
        job->shown++;
    if (show && job->shown > before && recon_wants(job, RECON_RESULT_IMAGE))
        show->show(show->context, job->shown, image_message_bytes(job->images), message_write, job->images);
}
