/* scheduler_status.h: the scheduler's state as other threads see it, and waking it.
 *
 * Any thread: a copy under a lock that is never held across disk access or a wait.
 */
#ifndef MRIRECON_DAEMON_SCHEDULER_STATUS_H
#define MRIRECON_DAEMON_SCHEDULER_STATUS_H

#include "daemon/queue/workers.h"

struct scheduler;

/* Progress of a running job. */
struct job_progress {
    double fraction;
    int step; /* index into the kind's steps; -1: none reported yet */
    int64_t iteration, iterations;
    int64_t told; /* number of changes so far, until the job ends */
};

/* The bound of `told`, not reached by a job that runs for years. */
#define PROGRESS_TOLD_MOST INT64_C(999999999)

/* The state of a worker. */
struct worker_status {
    enum worker_state state;
    char wanted[WORKER_TEXT], device[WORKER_TEXT], note[WORKER_NOTE];
    char job[JOB_ID];                       /* "": none */
    char client[JOB_CLIENT], kind[32];      /* of `job` */
    char ending[JOB_ID];                    /* computed, results not yet on the disk; "": none */
    struct job_progress progress;           /* of `job` */
    bool gpu, landlock;                     /* landlock: it cannot open files of the state folder */
    bool resting;                           /* its device is held at fault (FAULTS); `note` says why */
    int64_t memory_available, memory_total; /* of the device, bytes, as last reported; 0: not yet */
};

/* Whether a job submitted now would be started by this worker, at once or after others: false while the device is held
 * at fault. */
static inline bool worker_is_ready(const struct worker_status *status)
{
    return status->state == WORKER_IDLE || (status->state == WORKER_BUSY && !status->resting);
}

/* Wake the scheduler: a job was queued, or is to be canceled. */
void scheduler_wake(struct scheduler *scheduler);

/* Copy the state of up to WORKERS_MAX workers; returns their number. */
int scheduler_status(struct scheduler *scheduler, struct worker_status status[WORKERS_MAX]);

/* EARLY in scheduler.h: whether the results of this job may be sent to the client that submitted it.
 * _tell: the same, for a caller that sends them if so; *warnings, of the job's report, is then the caller's (NULL:
 * none). _told: whether that was done and the end of the job is still being stored; if `id` is "", of the last such
 * job. `out`: its id, which is woken (waiters.h) when that is over. */
bool scheduler_early(struct scheduler *scheduler, const char *id);
bool scheduler_early_tell(struct scheduler *scheduler, const char *id, json_t **warnings);
bool scheduler_early_told(struct scheduler *scheduler, const char *id, char out[JOB_ID]);

/* Whether no job starts because of the disk: too little space (option work-reserve) or inodes, or failing writes. */
bool scheduler_is_held(struct scheduler *scheduler);

/* Fails with the reason for that, as of now; if there is none any more, with that of the last turn. */
int scheduler_held_check(struct scheduler *scheduler);

/* clock_seconds() of the scheduler's last turn: advances after scheduler_wake() unless the thread hangs. */
double scheduler_turned(struct scheduler *scheduler);

/* Whether no job runs and all outcomes are stored. */
bool scheduler_is_idle(struct scheduler *scheduler);

#endif
