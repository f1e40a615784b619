/* stream_body.h: the body of a submission that is an MRD version 1 stream, which a worker reads while it arrives.
 *
 * Such a stream is recognised by its content, whatever the Content-Type, and announced to the scheduler with its first
 * acquisition, as one over TCP is (daemon/mrd/mrd_session.h), unless its end is there, too. A body that turns out to be
 * something else, or ends without CLOSE, is read when it is complete, like any other.
 */
#ifndef MRIRECON_DAEMON_STREAM_BODY_H
#define MRIRECON_DAEMON_STREAM_BODY_H

#include "daemon/queue/scheduler.h"
#include "recon/scan/mrd_frame.h"

struct stream_body {
    struct scheduler *scheduler; /* NULL: the body is no stream, or its kind reads none */
    struct mrd_frame frame;
    bool headed, acquired, closed; /* its header is complete, then an acquisition; CLOSE has arrived */
    char id[JOB_ID];               /* with which it was announced; "": it was not */
};

/* A body for `job`, whose kind is known, begins. */
void stream_body_begin(struct stream_body *body, struct scheduler *scheduler, const struct job *job);
/* The next bytes, which have been appended to `upload`. */
void stream_body_add(struct stream_body *body, const struct job *job, const struct spool_file *upload, const void *data,
                     size_t bytes);
/* The body is complete. Unless it ended with CLOSE, the worker forgets what it has read. */
void stream_body_end(struct stream_body *body);
/* The body becomes no job: the worker forgets it. May be repeated, and called of a body of zeroes. */
void stream_body_drop(struct stream_body *body);

#endif
