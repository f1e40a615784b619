/* kind_job.h: what the run() of kinds shares: the report, progress, and what is promised before anything is computed.
 * Of the worker alone. A struct kind_job belongs to the thread that runs the job.
 */
#ifndef MRIRECON_KIND_JOB_H
#define MRIRECON_KIND_JOB_H

#include "recon/kind_run.h"

struct kind_job {
    struct dev *dev;    /* that computes */
    struct dev *beside; /* a CPU that was opened beside a GPU, or NULL */
    const struct job_request *request;
    const struct job_listener *listener;
    struct json_t *report;
    double begun;
    uint64_t most_bytes; /* that the files may take, as far as promised */
};

/* Begin the report, of the device too. Fails with ERR_NO_MEMORY. */
int kind_job_begin(struct kind_job *job, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener);
/* End it: where `rc` is 0, *out becomes the report and the promise, to which the kind adds its results. Returns `rc`.
 * Frees what the job holds. */
int kind_job_end(struct kind_job *job, struct job_outcome *out, int rc);

/* Compute on a CPU beside the job's GPU, which lacks `what` ("sums of limited range"); told as a decision. On a CPU
 * nothing happens. Fails as dev_create(). */
int kind_job_use_cpu(struct kind_job *job, const char *what);

/* Tell how far a step is, 0..1, of its unit `done` of `most`. Fails with ERR_CANCELED. */
int kind_job_tell(const struct kind_job *job, int step, double fraction, int64_t done, int64_t most);

/* Entries of the report: the seconds of a step, a number, a decision with its reason, a warning. */
void kind_job_stage(struct kind_job *job, int step, double seconds);
void kind_job_number(struct kind_job *job, const char *name, double value);
void kind_job_decide(struct kind_job *job, const char *what, const char *value, const char *reason, ...)
    __attribute__((format(printf, 4, 5)));
void kind_job_warn(struct kind_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Promise the bytes of the files of one result (its place in the kind's table), each the most that most() tells of its
 * format (false: too many to be counted). `what` describes the result, `advice` is a sentence, for a failure. Fails
 * with ERR_RESULT_TOO_LARGE, ERR_SPOOL_FULL. */
int kind_job_promise(struct kind_job *job, int result, bool (*most)(const void *of, int format, size_t *bytes),
                     const void *of, const char *what, const char *advice);

/* Promise memory of the device, before anything is allocated. Fails with ERR_NO_MEMORY or ERR_GPU_OOM, and a sentence
 * that ends with `advice`. */
int kind_job_memory(struct kind_job *job, size_t bytes, const char *what, const char *advice);

#endif
