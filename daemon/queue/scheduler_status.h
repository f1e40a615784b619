/* scheduler_status.h: what other threads see of the scheduler, and how they wake it.
 *
 * Of any thread: a copy under a lock that is never held across a disk or a wait.
 */
#ifndef MRIRECON_DAEMON_SCHEDULER_STATUS_H
#define MRIRECON_DAEMON_SCHEDULER_STATUS_H

#include "daemon/queue/workers.h"

struct scheduler;

/* How far a job is that a worker runs. */
struct job_progress {
    double fraction;
    int step; /* its place among the steps of the kind; -1: it has told none */
    int64_t iteration, iterations;
    int64_t told; /* how often this changed: grows until the job's end */
};

/* More often than that nothing changes, were a job to run for years. */
#define PROGRESS_TOLD_MOST INT64_C(999999999)

/* What others may know of a worker. */
struct worker_status {
    enum worker_state state;
    char wanted[WORKER_TEXT], device[WORKER_TEXT], note[2 * WORKER_TEXT];
    char job[JOB_ID];                       /* "": none */
    char ending[JOB_ID];                    /* over, but for the disk; "": none */
    struct job_progress progress;           /* of `job` */
    bool gpu, landlock;                     /* landlock: it can open no file of the state folder */
    bool resting;                           /* its device is held at fault (FAULTS); `note` says why */
    int64_t memory_available, memory_total; /* of the device, bytes, as last heard; 0: not yet */
};

/* Whether a job that came now would be begun, or would wait for jobs only: not for a device that is at fault. */
static inline bool worker_is_ready(const struct worker_status *status)
{
    return status->state == WORKER_IDLE || (status->state == WORKER_BUSY && !status->resting);
}

/* A job was queued, or is to be canceled. */
void scheduler_wake(struct scheduler *scheduler);

/* Copy the state of up to WORKERS_MAX workers; their number. */
int scheduler_status(struct scheduler *scheduler, struct worker_status status[WORKERS_MAX]);

/* Whether jobs wait for the disk: for room (option work-reserve), inodes, or until it takes what is written. */
bool scheduler_is_held(struct scheduler *scheduler);

/* clock_seconds() when the scheduler last looked around: after a scheduler_wake() this moves, unless it hangs. */
double scheduler_turned(struct scheduler *scheduler);

/* Whether no job runs, and none that ran is still to be stored. */
bool scheduler_is_idle(struct scheduler *scheduler);

#endif
