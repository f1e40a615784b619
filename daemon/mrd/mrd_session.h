/* mrd_session.h: one MRD session, from its first byte to its last image; in a thread of its own.
 *
 *   client -> daemon   CONFIG_FILE, CONFIG_TEXT (each perhaps), HEADER, ACQUISITION ..., CLOSE
 *   daemon -> client   IMAGE ..., CLOSE; or IMAGE ..., TEXT (why there are no more), CLOSE
 *
 * What arrives from HEADER on goes into the spool as it is; with CLOSE it becomes a job as an upload over HTTP does,
 * after fsync and commit, and is read by the sandboxed codec alone. The images are the job's result in the format mrd;
 * those that are made before the job's end, or before CLOSE, are sent at once (mrd_images.h).
 * A client that leaves before them, and a restart of the service, leave the job as it is. A stream that ends without
 * CLOSE is kept as a job that failed.
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
    struct err refusal; /* code 0: none; else all that the client is told */
};

void mrd_session_run(const struct mrd_session *session);

#endif
