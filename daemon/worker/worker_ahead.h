/* worker_ahead.h: computes the prepared job before it begins, while the worker has no other job. If the job's input is
 * still arriving, it computes the complete images; if the input is complete (the daemon commits the job's row), it
 * computes the whole job and writes its results into their files, or into memory if it has none yet.
 *
 * The thread that receives messages announces the prepared job and interrupts the computation; the thread that owns the
 * device computes, between jobs. One job at a time: the last one announced. The results are the same with and without
 * this; they come earlier, and images of an arriving input are shown earlier. Results of a complete input stay in this
 * process until its job begins, unless they are in its files: then the daemon is told ("made" in daemon/wire.h).
 */
#ifndef MRIRECON_WORKER_AHEAD_H
#define MRIRECON_WORKER_AHEAD_H

#include "daemon/worker/worker_fetch.h"
#include "daemon/worker/worker_results.h"

struct ahead;

/* In the thread that owns the device. */
struct ahead_listener {
    void *context;
    /* Receives the progress of job `id`, which may have begun meanwhile. Non-zero: stop. */
    int (*progress)(void *context, const char *id, const struct kind *kind, const struct step_progress *now);
    /* The daemon has taken over a job that was computed, or has forgotten it. */
    void (*ended)(void *context);
};

/* Fails with ERR_NO_MEMORY. */
int ahead_create(struct ahead **out, struct fetcher *fetcher, const struct worker_options *options, int socket,
                 const struct ahead_listener *listener);

/* ---- any thread ---- */

/* The prepared job. */
struct expected {
    char id[128]; /* of the job; "": none */
    const struct kind_run *run;
    struct param_values values;
    bool arriving;               /* the input, a stream; a file that arrives is of use as a whole */
    json_t *files;               /* the names of the files that the job will write; a reference */
    uint64_t most;               /* bytes that its results may take; 0: any */
    int written[KIND_MAX_FILES]; /* these files, empty; owned */
    int written_count;           /* 0: they do not exist yet */
    int live;                    /* the live file of its session; -1: none. Owned */
    int64_t shown;               /* bytes of the live file that were reported */
};
/* Announce the prepared job; *expected is taken. */
void ahead_expect(struct ahead *ahead, const struct expected *expected);
void ahead_forget(struct ahead *ahead, const char *id);
/* Job `id` begins, or ("") the worker ends: stop computing, unless it is job `id` that is computed. */
void ahead_interrupt(struct ahead *ahead, const char *id);

/* ---- the thread that owns the device ---- */

/* There is no job: a computation that ahead_interrupt() stopped may continue. Call it under the lock under which a job
 * arrives, so that no interruption is lost. */
void ahead_resume(struct ahead *ahead);
/* The kind of the prepared job; NULL: there is nothing to compute. */
const struct kind_run *ahead_kind(struct ahead *ahead);
/* Compute what is complete. Fails only with ERR_DEVICE. */
int ahead_turn(struct ahead *ahead, struct dev *dev, void *cache);
/* Seconds to wait before the next call, if no job is announced. */
double ahead_pause(const struct ahead *ahead);
/* Job `id` begins, and its input arrived while this worker had no other job: if somebody waits for its images, compute
 * the rest of them as what arrives, instead of anew. Reports progress. Fails only with ERR_DEVICE. */
int ahead_finish(struct ahead *ahead, const char *id, struct dev *dev, void *cache);
/* Job `id` begins: the images computed while its input arrived; NULL: none. *shown is raised to the bytes that were
 * reported. */
const void *ahead_of(struct ahead *ahead, const char *id, int64_t *shown);
/* A job with a complete input, as far as it was computed. */
struct ahead_job {
    void *input;                /* the kind's; NULL: it was not read */
    struct job_outcome outcome; /* .report NULL: it was not computed to the end */
    struct made_files made;     /* its files' bytes, unless there were too many */
    double begun, ended;        /* CLOCK_MONOTONIC, s */
};
/* Move it to the caller, who frees it: kind_run.input_free(), job_outcome_free(), made_files_free(). Files of the
 * announced job that it does not have are closed. */
void ahead_take(struct ahead *ahead, const char *id, struct ahead_job *out);
/* Job `id` has ended. */
void ahead_end(struct ahead *ahead, const char *id);

#endif
