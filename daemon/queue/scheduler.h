/* scheduler.h: gives queued jobs to workers, and settles what becomes of them.
 *
 * One thread of its own owns the worker processes, and sleeps in poll() on their sockets and on an eventfd by which
 * other threads wake it. Everything else it knows it takes from the store at each turn, so a wake-up carries no message
 * and none can be lost: after a submit it finds a queued job, after a cancel a job that is canceling.
 *
 * A worker reads ahead the scan of the job that is likely to be its next, beside the job that it runs. That is a hint
 * and binds nobody: the job stays queued until a worker is free for it, can be canceled, overtaken or taken by another
 * worker, and is neither run nor dead if the worker dies meanwhile.
 *
 * FAULTS. A job whose worker died of it is run once more, after another one where another waits. When a worker dies of
 * a second job and has done none to its end since it died of the first, the fault is taken to be its device's: the
 * second goes back into the queue as if it had not been tried, and the worker rests. After that it is tried with one
 * job at a time, and rests longer each time, until it has done one: then it is trusted again.
 *
 * SHORTAGES. What the server is short of (room or inodes on its disk, descriptors, memory; a disk that fails) is no
 * fault of a job. One whose files could not be opened or whose results could not be written goes back into the queue as
 * if it had not been begun, and the disk is looked at: no job is begun before it takes what is written again. That job
 * itself is begun again after a pause, which grows each time from 1 s to a minute, and after others of its priority:
 * what is too large for the room there is holds up no other.
 *
 * Other threads see the workers through scheduler_status(), a copy under a lock that is never held across a disk or a
 * wait. Who is to run where is decided in one place (scheduler.c:assign): priorities and fair shares are a matter of
 * store_take's order.
 */
#ifndef MRIRECON_DAEMON_SCHEDULER_H
#define MRIRECON_DAEMON_SCHEDULER_H

#include "daemon/queue/metrics.h"
#include "daemon/spool/spool.h"
#include "daemon/queue/waiters.h"
#include "daemon/queue/workers.h"

struct scheduler;

/* What the scheduler works with; all of it must outlive the scheduler. */
struct scheduler_parts {
    const struct options *options;
    const struct log *log;
    struct store *store;
    struct spool *spool;
    struct metrics *metrics;
    struct waiters *waiters;
};

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

/* Starts the thread, which starts the workers. Fails with ERR_BAD_PARAMETER (option devices), ERR_NO_MEMORY,
 * ERR_INTERNAL. */
int scheduler_create(struct scheduler **out, const struct scheduler_parts *parts);

/* The scan of a job has arrived, and its row is about to be committed: a worker may begin to read it meanwhile, from
 * `scan` (open for reading alone; taken). A hint, kept until the thread looks; a second replaces the first. retract:
 * the row will not come. */
void scheduler_announce(struct scheduler *scheduler, const struct job *job, int scan);
void scheduler_retract(struct scheduler *scheduler, const char *id);

/* A job was queued, or is to be canceled. */
void scheduler_wake(struct scheduler *scheduler);

/* Copy the state of up to WORKERS_MAX workers; their number. */
int scheduler_status(struct scheduler *scheduler, struct worker_status status[WORKERS_MAX]);

/* Whether jobs wait for the disk: for room (option work-reserve), inodes, or until it takes what is written. */
bool scheduler_is_held(struct scheduler *scheduler);

/* clock_seconds() when the scheduler last looked around: after a scheduler_wake() this moves, unless it hangs. */
double scheduler_turned(struct scheduler *scheduler);

/* Begin no more jobs; returns at once. scheduler_is_idle() tells when the running ones have ended. */
void scheduler_drain(struct scheduler *scheduler);
bool scheduler_is_idle(struct scheduler *scheduler);

/* Requeue what still runs, stop the workers and the thread. */
void scheduler_free(struct scheduler *scheduler);

#endif
