/* scheduler_inside.h: the scheduler's state, and what its files do for each other. scheduler.c owns the thread, the
 * workers and which job runs where; scheduler_prefetch.c has scans read ahead; scheduler_results.c takes the ends of
 * jobs to the disk; scheduler_faults.c ends workers and holds devices at fault; scheduler_status.c shows all that to
 * other threads. Each takes functions of those after it alone. Only they include this; all of it is the scheduler's
 * thread's.
 */
#ifndef MRIRECON_DAEMON_SCHEDULER_INSIDE_H
#define MRIRECON_DAEMON_SCHEDULER_INSIDE_H

#include "daemon/queue/scheduler.h"

#include <pthread.h>
#include <stdatomic.h>

#define STORE_RETRY_SECONDS 1.0 /* s before the store is asked again after it failed */

/* How a job ended, until the store knows. */
enum outcome {
    OUTCOME_NONE,
    OUTCOME_DONE,
    OUTCOME_FAILED,
    OUTCOME_DIED,
    OUTCOME_SHORT, /* the server was short of something of its own: SHORTAGES in scheduler.h */
    OUTCOME_REQUEUE
};

/* A job that was given to a worker. */
struct assignment {
    struct job job;             /* id "": none */
    const char *device;         /* of its worker */
    double started, progressed; /* progressed: when it last said so */
    double cancel_at;           /* when cancel was sent; 0: it was not */
    bool timed_out;             /* ... because of the time limit */
    bool scan_lost;             /* it is not on the disk any more */
    double kept;                /* since when its worker keeps a result open that it called complete; 0: it does not */
    enum outcome outcome;
    double finish_at;
    struct err failure;
    int64_t most;             /* bytes that its results may take; 0: any */
    json_t *results, *report; /* of OUTCOME_DONE; results once the files are in their place */
};

/* A worker and its jobs. Of the scheduler's thread. */
struct worker_slot {
    struct worker worker;
    struct assignment running; /* what it works at */
    struct assignment ending;  /* what it has ended, until the disk knows: it has its next job meanwhile */
    char why[2 * WORKER_TEXT]; /* it could not start, or rests */
    /* FAULTS in scheduler.h */
    json_t *died_of; /* ids of the jobs it died of since it did one to its end (true for each); NULL: none */
    double backoff;  /* s without a job after a death, for its device is held at fault; 0: it is trusted */
};

enum stopping { RUNNING, DRAINING, STOPPING };

/* A scan that is here, and its row not yet. */
struct announcement {
    struct job job; /* id "": none */
    int scan;
};

struct scheduler {
    struct core core;
    pthread_t thread;
    int wake; /* eventfd */
    _Atomic int stopping;
    _Atomic double turned; /* clock_seconds() when it last looked around */
    _Atomic bool held;     /* no job is begun, for the disk is low */
    /* of the thread */
    struct worker_slot slot[WORKERS_MAX];
    int count;             /* grows under the lock: others count by it, too */
    double take_at;        /* the store failed; no job is taken before */
    bool prefetch_pending; /* there may be a job to be read ahead */
    bool landlock_missed;  /* the log was told */
    json_t *put_back;      /* id: {until, pause}; SHORTAGES in scheduler.h */
    /* of everybody, under the lock */
    pthread_mutex_t lock;
    struct worker_status status[WORKERS_MAX];
    struct announcement announced;
    char retracted[JOB_ID]; /* there will be none */
};

/* Whether `a` is to be chosen before `b` (NULL: none yet): a GPU before a CPU. */
static inline bool slot_better(const struct worker_slot *a, const struct worker_slot *b)
{
    return !b || (a->worker.gpu && !b->worker.gpu);
}

/* ---- scheduler_status.c ---- */

/* Let others see what the slot now is. */
void slot_publish(struct scheduler *scheduler, const struct worker_slot *slot);
/* The same of what its worker says of its job's progress, and of its device's memory. */
void slot_progress(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message);
void slot_memory(struct scheduler *scheduler, const struct worker_slot *slot, const json_t *message);

/* ---- scheduler_faults.c ---- */

/* The worker's process is gone, or is to go. `reason`: why we end it; NULL: it ended itself. A job that it died of is
 * held at fault, or its device. */
void slot_end(struct scheduler *scheduler, struct worker_slot *slot, const char *reason);

/* The worker has done a job to its end: its device is trusted again. */
void device_clear(struct scheduler *scheduler, struct worker_slot *slot);

/* ---- scheduler_results.c ---- */

/* Whether the job that the worker had is over; it makes room for the next, where the one before it is settled. */
bool slot_move_on(struct scheduler *scheduler, struct worker_slot *slot);

/* The room for the results of a job that begins now: of the message "job". *most: what they may take; 0: any. New
 * reference. */
json_t *results_room(const struct scheduler *scheduler, int64_t *most);

/* Store what has ended and wake its waiters; what cannot be stored is tried again later. */
void slot_finish(struct scheduler *scheduler, struct worker_slot *slot);

/* Ids of the jobs that were put back and are not to be begun yet (all: whenever they may be). New reference. */
json_t *put_back_ids(const struct scheduler *scheduler, bool all);

/* ---- scheduler_prefetch.c ---- */

/* Ids of the jobs whose scans workers read ahead: of all, or of the busy ones. New reference. */
json_t *prefetch_ids(const struct scheduler *scheduler, bool busy);

void announcement_clear(struct announcement *announcement);

/* A worker in this state reads ahead the scan that was announced. Of those that are idle, which do so beside the
 * syncing of its upload, this is asked first; of those that are busy when the queue has nothing for them, and what none
 * of them can read either is let go. */
void prefetch_announced(struct scheduler *scheduler, enum worker_state state);

/* Each busy worker reads ahead what is likely to be its next job. The job stays queued, and anybody's; where it is no
 * longer, it is forgotten. */
void prefetch_next(struct scheduler *scheduler);

#endif
