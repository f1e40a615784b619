/* result.h: which result of a job a command saves, and in which format: --result, --format, --out. */
#ifndef MRIRECON_RESULT_H
#define MRIRECON_RESULT_H

#include "clients/client.h"
#include "recon/recon.h"

struct client_result {
    char name[KIND_FILE_NAME];   /* of the result */
    char format[KIND_FILE_NAME]; /* --format, else the ending of --out, else the native one */
    char ending[KIND_FILE_NAME]; /* of files named by the program: the format; after the name of a result that is not
                                  * the job's default one */
};

/* The result of a job that the options submit. CLIENT_OK, or CLIENT_USAGE after the reason was printed: the job gives
 * no such result, or it has no such format. */
int result_of_submission(const struct client_options *options, struct client_result *out);

/* The result of the job `id`, or of its resubmission with PARAM=VALUE words. CLIENT_OK, or the exit status. */
int result_of_job(struct server *server, const struct client_options *options, const char *id,
                  struct client_result *out);

#endif
