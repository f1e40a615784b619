/* stream_body.h: the body of a submission that a worker reads while it arrives: an MRD version 1 stream, or a small
 * HDF5 file.
 *
 * Both are recognised by their content, whatever the Content-Type. A stream is announced to the scheduler with its
 * first acquisition, as one over TCP is (daemon/mrd/mrd_session.h), unless its end is there, too. An HDF5 file is
 * announced with its first bytes, if the length that it gives is that of the body. A body that turns out to be
 * something else, or ends without CLOSE or too early, is read when it is complete, like any other.
 */
#ifndef MRIRECON_DAEMON_STREAM_BODY_H
#define MRIRECON_DAEMON_STREAM_BODY_H

#include "daemon/queue/scheduler.h"
#include "recon/h5/h5_length.h"
#include "recon/scan/mrd_frame.h"

struct stream_body {
    struct scheduler *scheduler; /* NULL: the body is no stream, or its kind reads none */
    struct mrd_frame frame;
    bool headed, acquired,
        closed;             /* its header is complete, then an acquisition; CLOSE, or all of a file, has arrived */
    int64_t bytes, arrived; /* of the whole body, -1: unknown; so far */
    bool file;              /* it is an HDF5 file */
    uint8_t head[H5_LENGTH_HEAD]; /* of the body, until that is known */
    size_t held;
    char id[JOB_ID]; /* with which it was announced; "": it was not */
};

/* A body for `job`, whose kind is known, begins. `bytes`: its length if it is known, else -1. */
void stream_body_begin(struct stream_body *body, struct scheduler *scheduler, const struct job *job, int64_t bytes);
/* The next bytes, which have been appended to `upload`. */
void stream_body_add(struct stream_body *body, const struct job *job, struct spool_file *upload, const void *data,
                     size_t bytes);
/* The body is complete. Unless it ended as it should, the worker forgets what it has read. */
void stream_body_end(struct stream_body *body);
/* The body becomes no job: the worker forgets it. May be repeated, and called of a body of zeroes. */
void stream_body_drop(struct stream_body *body);

#endif
