#include "daemon/http/stream_body.h"

#include "recon/recon.h"

#include <string.h>

void stream_body_begin(struct stream_body *body, struct scheduler *scheduler, const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    *body = (struct stream_body){.scheduler = kind && kind_reads(kind, "stream") ? scheduler : NULL};
}

static void announce(struct stream_body *body, const struct job *job, const struct spool_file *upload)
{
    struct job arriving = *job; /* the request's job has no id until its row is committed */
    int scan;
    if (spool_reopen(upload, &scan) != 0)
        return;
    memcpy(arriving.id, upload->id, sizeof arriving.id);
    memcpy(body->id, upload->id, sizeof body->id);
    scheduler_announce(body->scheduler, &arriving, scan, true);
}

void stream_body_add(struct stream_body *body, const struct job *job, const struct spool_file *upload, const void *data,
                     size_t bytes)
{
    const uint8_t *from = data, *end = from + bytes;
    struct mrd_part part = {.count = 1};
    while (body->scheduler && !body->closed && part.count > 0) {
        if (mrd_frame_next(&body->frame, &from, end, &part) != 0) {
            stream_body_drop(body);
            return;
        }
        const unsigned number = part.last ? body->frame.number : 0;
        body->headed = body->headed || number == MRD_HEADER;
        body->closed = number == MRD_CLOSE;
        body->acquired = body->acquired || (number == MRD_ACQUISITION && body->headed);
    }
    if (body->acquired && !body->closed && !*body->id)
        announce(body, job, upload);
}

void stream_body_end(struct stream_body *body)
{
    if (!body->closed)
        stream_body_drop(body);
}

void stream_body_drop(struct stream_body *body)
{
    if (*body->id)
        scheduler_retract(body->scheduler, body->id);
    *body = (struct stream_body){.scheduler = NULL};
}
