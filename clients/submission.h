/* submission.h: creating a job from a scan: the query from the command line, and the upload. */
#ifndef MRIRECON_SUBMISSION_H
#define MRIRECON_SUBMISSION_H

#include "clients/client.h"

/* The path and query of a submission with the options' kind, priority and PARAM=VALUE words after the first; if
 * `again` is the id of a job, of that job's resubmission. *path is the caller's. CLIENT_OK, or the exit status after
 * the reason was printed. */
int submission_path(struct server *server, const struct client_options *options, const char *again, char **path);

/* Upload the file `scan` ("-": standard input) with an idempotency key, or none (NULL); *job is the document of the
 * new job. The job gets the file's name, unless the options forbid that or set another. Fails as server_upload. */
int submission_send(struct server *server, const struct client_options *options, const char *path, const char *scan,
                    const char *key, json_t **job);

#endif
