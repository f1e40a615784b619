/* mrd_session.h: one MRD session, from its first byte to its last image; in a thread of its own.
 *
 *   client -> daemon   CONFIG_FILE, CONFIG_TEXT (each perhaps), HEADER, ACQUISITION ..., CLOSE
 *   daemon -> client   IMAGE ..., CLOSE; or IMAGE ..., TEXT (the error), CLOSE
 *
 * Everything from HEADER on is stored unchanged in the spool. At CLOSE it becomes a job, after fsync and commit, as an
 * upload over HTTP does; only the sandboxed codec reads it. The images are the job's result in the format mrd; those
 * completed before the job's end, or before CLOSE, are sent at once (mrd_images.h). If the client disconnects or the
 * service restarts, the job continues. A stream that ends without CLOSE is kept as a failed job.
 */
#ifndef MRIRECON_DAEMON_MRD_SESSION_H
#define MRIRECON_DAEMON_MRD_SESSION_H

#include "daemon/http/request.h"

struct mrd_session {
    struct service *service;
    int socket;                                /* non-blocking; stays the caller's */
    int stop;                                  /* eventfd: readable when the service stops */
    char client[JOB_CLIENT], peer[JOB_CLIENT]; /* its name; its address */
    struct quota quota;
    struct err refusal; /* code 0: none; else the only message sent to the client */
};

void mrd_session_run(const struct mrd_session *session);

#endif
