#include "daemon/http/stream_body.h"

#include "recon/recon.h"

#include <string.h>

enum { FILE_BYTES_MOST = 16 << 20 }; /* of a larger one, reading it is the lesser part of its job */

void stream_body_begin(struct stream_body *body, struct scheduler *scheduler, const struct job *job, int64_t bytes)
{
    const struct kind *kind = kind_find(job->kind);
    *body = (struct stream_body){.scheduler = kind && kind_reads(kind, "stream") ? scheduler : NULL, .bytes = bytes};
}

static void announce(struct stream_body *body, const struct job *job, struct spool_file *upload)
{
    struct job arriving = *job; /* the request's job has no id until its row is committed */
    int scan;
    if (spool_reopen(upload, &scan) != 0)
        return;
    memcpy(arriving.id, upload->id, sizeof arriving.id);
    memcpy(body->id, upload->id, sizeof body->id);
    scheduler_announce(body->scheduler, &arriving, scan, body->file ? ARRIVING_FILE : ARRIVING_STREAM);
}

enum { FILE_FIRST = 0x89 }; /* of HDF5; no number of a message begins with it */

/* The head of what may be an HDF5 file: is it one, and as long as the body? HDF5's undefined length is -1, too. */
static void head_add(struct stream_body *body, const uint8_t *data, size_t bytes)
{
    const size_t room = sizeof body->head - body->held, count = bytes < room ? bytes : room;
    memcpy(body->head + body->held, data, count);
    body->held += count;
    if (body->held < sizeof body->head)
        return;
    const uint64_t length = h5_length(body->head, sizeof body->head);
    body->file = body->bytes >= 0 && body->bytes <= FILE_BYTES_MOST && length == (uint64_t)body->bytes;
    if (!body->file)
        stream_body_drop(body);
}

static void messages_add(struct stream_body *body, const void *data, size_t bytes)
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
}

void stream_body_add(struct stream_body *body, const struct job *job, struct spool_file *upload, const void *data,
                     size_t bytes)
{
    const uint8_t *from = data;
    const bool head = body->arrived == 0 ? bytes > 0 && *from == FILE_FIRST : body->held > 0;
    body->arrived += (int64_t)bytes;
    if (head && body->scheduler && !body->file)
        head_add(body, from, bytes);
    else if (!body->file)
        messages_add(body, data, bytes);
    body->closed = body->file ? body->arrived == body->bytes : body->closed;
    if ((body->acquired || body->file) && !body->closed && !*body->id)
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
