#include "recon/mri/recon_gridder.h"

/* An image as it is sent. */
struct sent {
    const struct image_series *images;
    char beginning[IMAGE_BEGINNING];
};

static const void *message_piece(void *of, size_t image, size_t at, size_t *count)
{
    struct sent *sent = of;
    return image_message_piece(sent->images, image, at, sent->beginning, count);
}

/* Show the first job->shown images, and `more` bytes of the next one's message. */
static void show(const struct recon_job *job, size_t more)
{
    struct sent sent = {.images = job->images};
    const struct job_parts parts = {image_message_bytes(job->images), message_piece, &sent};
    job->request->show->show(job->request->show->context, &parts, job->shown, more);
}

void gridder_show(struct gridder *g)
{
    struct recon_job *job = g->job;
    const size_t before = job->shown;
    while (job->shown < job->frames->placed && job->made[job->shown])
        job->shown++;
    if (job->request->show && job->shown > before && recon_wants(job, RECON_RESULT_IMAGE))
        show(job, 0);
}

bool gridder_shows(const struct gridder *g, size_t f)
{
    const struct recon_job *job = g->job;
    return job->request->show && job->shown == f && f < job->frames->placed && recon_wants(job, RECON_RESULT_IMAGE);
}

void gridder_show_pixels(const struct gridder *g, size_t pixels)
{
    show(g->job, image_message_bytes(g->job->images) - (g->pixels - pixels) * sizeof(float));
}
