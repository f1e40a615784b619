/* kind_job.h: shared by the run() functions of kinds: the report, progress, and the announced sizes (promises). Linked
 * by the worker only. A struct kind_job belongs to the thread that runs the job.
 */
#ifndef MRIRECON_KIND_JOB_H
#define MRIRECON_KIND_JOB_H

#include "recon/kind_run.h"

struct kind_job {
    struct dev *dev;    /* the job's device */
    struct dev *beside; /* a CPU device opened in addition to a GPU, or NULL */
    const struct job_request *request;
    const struct job_listener *listener;
    struct json_t *report;
    const double *shares; /* of its time that the job knows its steps to take; NULL: those of the kind's table */
    double begun;
    uint64_t most_bytes; /* of the files, promised so far */
};

/* Begin the report, with the device. Fails with ERR_NO_MEMORY. */
int kind_job_begin(struct kind_job *job, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener);
/* End the report. If `rc` is 0, *out receives the report and the promise, and the kind adds its results. Frees what the
 * job holds. Returns `rc`. */
int kind_job_end(struct kind_job *job, struct job_outcome *out, int rc);

/* Continue on a CPU device, because the job's GPU lacks `what` ("sums of limited range"); reported as a decision. On a
 * CPU nothing happens. Fails as dev_create(). */
int kind_job_use_cpu(struct kind_job *job, const char *what);

/* Report a step's progress, 0..1, of which `done` of `most` units are complete. Fails with ERR_CANCELED. */
int kind_job_tell(const struct kind_job *job, int step, double fraction, int64_t done, int64_t most);

/* Entries of the report: the seconds of a step, a number, a decision with its reason, a warning. */
void kind_job_stage(struct kind_job *job, int step, double seconds);
void kind_job_number(struct kind_job *job, const char *name, double value);
void kind_job_decide(struct kind_job *job, const char *what, const char *value, const char *reason, ...)
    __attribute__((format(printf, 4, 5)));
void kind_job_warn(struct kind_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Promise the largest size of the files of one result (an index into the kind's table); most() returns it for a format
 * (false: too large to be counted). For a failure's text: `what` describes the result, `advice` is a sentence. Fails
 * with ERR_RESULT_TOO_LARGE, ERR_SPOOL_FULL. */
int kind_job_promise(struct kind_job *job, int result, bool (*most)(const void *of, int format, size_t *bytes),
                     const void *of, const char *what, const char *advice);

/* Check that the device has this much memory, before anything is allocated. Fails with ERR_NO_MEMORY or ERR_GPU_OOM,
 * and a sentence that ends with `advice`. */
int kind_job_memory(struct kind_job *job, size_t bytes, const char *what, const char *advice);

#endif
