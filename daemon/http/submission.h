/* submission.h: reading a job's properties from queries, and turning its complete input into a job. For POST requests
 * and MRD sessions. */
#ifndef MRIRECON_DAEMON_SUBMISSION_H
#define MRIRECON_DAEMON_SUBMISSION_H

#include "daemon/http/http_parse.h"
#include "daemon/http/request.h"

/* The job's properties in a query, other than the parameters of its kind. */
struct submission {
    const struct kind *kind;
    enum job_priority priority;
    int64_t deadline; /* s from the acceptance; 0: none */
    char name[HTTP_VALUE];
    char destination[JOB_DESTINATIONS]; /* names, separated by commas; to be checked by destinations_check() */
};

/* Read these from a query; properties that it does not mention keep their values. Fails with ERR_UNKNOWN_KIND,
 * ERR_BAD_PARAMETER, ERR_BAD_REQUEST. */
int submission_about_read(struct submission *submission, const char *query);

/* The kind's parameters from `count` queries, a later one overriding an earlier one; those missing from `base` (NULL:
 * none), else the defaults. Then the rules between parameters are checked. *out: {name: text}, a new reference. Fails
 * with ERR_UNKNOWN_PARAMETER, ERR_BAD_PARAMETER, ERR_BAD_REQUEST. */
int submission_parameters_read(json_t **out, const struct kind *kind, const char *const *queries, int count,
                               const json_t *base);

/* Set the job's name, if the option job-names allows names: `text` without control and format characters, cut between
 * characters if it is too long. */
void submission_name_set(struct job *job, const struct options *options, const char *text);

/* The input is complete: announce the job to a worker, fsync, and commit its row. Takes the upload: it then belongs to
 * the job, or after a failure is removed (and job->id is ""). May wait for the disk. Fails as spool_finish() and
 * store_submit(). */
int submission_commit(struct service *service, struct job *job, struct spool_file *upload);

/* The input is incomplete: it becomes a job that has failed with `failure`; the option keep-scans decides whether the
 * part received is kept. Otherwise as above. */
int submission_commit_failed(struct service *service, struct job *job, struct spool_file *upload,
                             const struct err *failure);

/* The job's row is committed: count and log the job, and wake the scheduler. `how` begins the log line. */
void submission_accepted(struct service *service, const struct job *job, const char *how);

/* The input format of the upload, as a label for metrics. */
const char *ingest_format(const struct job *job, int input);

/* The job's name for log lines if the option job-names allows it there, else "". */
enum { NAME_FOR_LOG = JOB_NAME + 8 };
const char *name_for_log(const struct service *service, const struct job *job, char text[NAME_FOR_LOG]);

#endif
