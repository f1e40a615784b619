/* submission.h: what a job is asked to be, as queries say it, and how its complete input becomes a job. Of a POST and
 * of an MRD session alike. */
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

/* Read these of a query; what it leaves out stays. Fails with ERR_UNKNOWN_KIND, ERR_BAD_PARAMETER, ERR_BAD_REQUEST. */
int submission_about_read(struct submission *submission, const char *query);

/* The kind's parameters in `count` queries, of which a later one counts more; the others from `base` (NULL: none), or
 * the defaults. Then the rules between them are checked. *out: {name: text}, a new reference. Fails with
 * ERR_UNKNOWN_PARAMETER, ERR_BAD_PARAMETER, ERR_BAD_REQUEST. */
int submission_parameters_read(json_t **out, const struct kind *kind, const char *const *queries, int count,
                               const json_t *base);

/* Give the job a name, as far as the option job-names has it: `text` without what controls or formats, cut between two
 * characters where it is too long. */
void submission_name_set(struct job *job, const struct options *options, const char *text);

/* The input is complete: announce the job to a worker, fsync, and commit its row. Takes the upload: it is the job's, or
 * after a failure removed (and job->id is ""). May wait for the disk. Fails as spool_finish() and store_submit(). */
int submission_commit(struct service *service, struct job *job, struct spool_file *upload);

/* The input broke off: it becomes a job that has failed with `failure`, and keeps what arrived as the option keep-scans
 * says. Otherwise likewise. */
int submission_commit_failed(struct service *service, struct job *job, struct spool_file *upload,
                             const struct err *failure);

/* The job has its row: count and log it, and wake the scheduler. `how` begins the line. */
void submission_accepted(struct service *service, const struct job *job, const char *how);

/* What the job's upload in `input` is, as metrics tell it. */
const char *ingest_format(const struct job *job, int input);

/* The name of a job as it stands in the log, where the option job-names has it there; else "". */
enum { NAME_FOR_LOG = JOB_NAME + 8 };
const char *name_for_log(const struct service *service, const struct job *job, char text[NAME_FOR_LOG]);

#endif
