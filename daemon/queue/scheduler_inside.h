/* scheduler_inside.h: the scheduler's state, shared by its eight files. scheduler.c: the thread, the workers, and which
 * job runs where; scheduler_prefetch.c: PREFETCH; scheduler_messages.c: messages of workers; scheduler_ready.c: results
 * of jobs that have not begun; scheduler_results.c: outcomes and what is queued again; scheduler_success.c: results;
 * scheduler_faults.c: FAULTS; scheduler_status.c: the copy for other threads. Each file calls only those after it. No
 * other file includes this header. Called in the scheduler's thread.
 */
#ifndef MRIRECON_DAEMON_SCHEDULER_INSIDE_H
#define MRIRECON_DAEMON_SCHEDULER_INSIDE_H

#include "daemon/base/pool.h"
#include "daemon/queue/scheduler.h"

#include <pthread.h>
#include <stdatomic.h>

#define STORE_RETRY_SECONDS 1.0 /* between attempts while the store fails */

/* How a job ended, until the store has recorded it. */
enum outcome {
    OUTCOME_NONE,
    OUTCOME_DONE,
    OUTCOME_FAILED,
    OUTCOME_DIED,
    OUTCOME_SHORT, /* SHORTAGES in scheduler.h */
    OUTCOME_REQUEUE
};

/* A job that was given to a worker. */
struct assignment {
    struct job job;             /* id "": none */
    const char *device;         /* of its worker */
    double started, progressed; /* progressed: time of the last progress message */
    double cancel_at;           /* when "cancel" was sent; 0: not sent */
    bool timed_out;             /* ... because of the time limit */
    char ahead[JOB_ID];         /* the other job that the worker had prefetched when it was given this one; "": none */
    bool begun;                 /* the worker has reported progress of this job */
    bool scan_lost;             /* the scan is no longer on the disk */
    double kept;                /* since when the worker keeps a complete result open for writing; 0: it does not */
    enum outcome outcome;
    double finish_at;
    struct err failure;
    int64_t most;             /* bytes that its results may take; 0: any */
    json_t *results, *report; /* of OUTCOME_DONE; results once the files are in their place */
    bool synced;              /* ... and on the disk */
    int stored;               /* 0: the row is committed, too; else why not (failure) */
};

/* A success that is being stored by a thread of `storers`. */
struct storing {
    struct pool_task task;
    struct scheduler *scheduler;
    struct assignment *assignment; /* not touched by the scheduler's thread meanwhile */
    int place;                     /* EARLY in scheduler.h: where the job is shown */
    _Atomic enum { STORING_NOT, STORING_BEGUN, STORING_OVER } state;
};

/* Result files of a job that has not begun, made while its scan arrives: on some file systems that takes milliseconds,
 * which the job would wait for. A worker that computes the job ahead writes them. */
struct ready_files {
    char id[JOB_ID]; /* "": none */
    json_t *names;
    int files[KIND_MAX_FILES];
    bool open;
    const struct kind *kind;
    unsigned wanted;          /* results, as of kind_results_wanted() */
    int64_t most;             /* bytes that they may take; 0: any */
    json_t *results, *report; /* they are written, and in their place; NULL: not yet */
};

/* A worker and its jobs. */
struct worker_slot {
    struct worker worker;
    struct assignment running; /* the job that it computes */
    struct assignment ending;  /* the job that it completed, until its end is stored: the next one runs meanwhile */
    struct storing storing;    /* of `ending` */
    struct ready_files ready;  /* of the job that it prefetches */
    char why[WORKER_NOTE];     /* why it failed to start, or backs off */
    /* FAULTS in scheduler.h */
    json_t *died_of; /* ids of the jobs it died of since it last completed one (true for each); NULL: none */
    double backoff;  /* s of back-off; 0: the device is not held at fault */
};

enum stopping { RUNNING, DRAINING, STOPPING };

/* PREFETCH, step 1. */
struct announcement {
    struct job job; /* id "": none */
    int scan;
    enum wire_arriving arriving;
};

/* EARLY in scheduler.h: which of a worker's jobs is shown. */
enum early_of { EARLY_ENDING, EARLY_RUNNING, EARLY_READY, EARLY_PLACES };

/* One that is. */
struct shown {
    char id[JOB_ID];  /* "": none */
    json_t *warnings; /* of its report; shared with nobody */
    uint64_t told;    /* its client has been answered: the how manieth one; 0: it has not */
};

struct scheduler {
    struct core core;
    pthread_t thread;
    struct pool *storers;
    int wake; /* eventfd */
    _Atomic int stopping;
    _Atomic bool claiming; /* the thread looks for a job to give to a worker, or has one that no status shows yet */
    _Atomic double turned; /* clock_seconds() of the last turn */
    _Atomic bool held;     /* no job starts: the disk is full or failing; `held_by` says why */
    /* of the thread */
    struct worker_slot slot[WORKERS_MAX];
    int count;             /* changed under the lock: read by other threads */
    double take_at;        /* earliest time of the next claim, after a failure of the store */
    bool prefetch_pending; /* there may be a job to prefetch */
    bool landlock_missed;  /* the log says so */
    json_t *put_back;      /* id: {until, pause}; SHORTAGES in scheduler.h */
    json_t *died_on;       /* id: the device that the job's worker died on; FAULTS in scheduler.h */
    /* of all threads, under the lock */
    pthread_mutex_t lock;
    struct worker_status status[WORKERS_MAX];
    struct err held_by; /* code 0: never held */
    struct announcement announced;
    json_t *retracted; /* ids of the jobs whose rows will not be committed (true for each); NULL: none */
    struct shown early[EARLY_PLACES * WORKERS_MAX];
    uint64_t early_told; /* how many were */
};

static inline int early_place(const struct worker_slot *slot, enum early_of of)
{
    return (int)of * WORKERS_MAX + slot->worker.index;
}

/* Whether `a` is preferred to `b` (NULL: none yet): a GPU before a CPU. */
static inline bool slot_better(const struct worker_slot *a, const struct worker_slot *b)
{
    return !b || (a->worker.gpu && !b->worker.gpu);
}

/* ---- scheduler_status.c ---- */

/* Publish the slot's state in scheduler_status(). */
void slot_publish(struct scheduler *scheduler, const struct worker_slot *slot);
/* Publish the progress of its job, and its device's memory, from the worker's message. */
void slot_progress(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message);
void slot_memory(struct scheduler *scheduler, const struct worker_slot *slot, const json_t *message);

/* EARLY: the job's results are complete, which is shown at this place, and no longer at another; and the attempt to
 * store its end is over, or the results are not to be used. */
void early_show(struct scheduler *scheduler, int place, const char *id, const json_t *report);
void early_end(struct scheduler *scheduler, int place); /* any thread */

/* ---- scheduler_faults.c ---- */

/* End the worker's process, or note that it has ended. `reason`: why it is killed; NULL: it ended itself. FAULTS
 * decides whether the job or the device is held at fault. */
void slot_end(struct scheduler *scheduler, struct worker_slot *slot, const char *reason);

/* The worker completed a job: its device is no longer held at fault. */
void device_clear(struct scheduler *scheduler, struct worker_slot *slot);

/* ---- scheduler_results.c ---- */

/* If the job `running` has ended and `ending` is empty, move it there. Returns whether it did. */
bool slot_move_on(struct scheduler *scheduler, struct worker_slot *slot);

/* The files that a job writes (wire.h): the native one of each result, the default result's first, from which other
 * formats can be converted later; and those of other formats that the sender waits for. New reference. */
json_t *results_names(const struct job *job);

/* The space for the results of a job that starts now, as a member of the message "job". *most: its limit in bytes; 0:
 * none. New reference. */
json_t *results_room(const struct scheduler *scheduler, const struct job *job, int64_t *most);

/* Store the outcomes of ended jobs and wake their waiters; failures of the store are retried later. */
void slot_finish(struct scheduler *scheduler, struct worker_slot *slot);

/* Ids of the jobs in back-off after a shortage (all: also those whose back-off is over). New reference. */
json_t *put_back_ids(const struct scheduler *scheduler, bool all);

/* ---- scheduler_success.c ---- */

/* Store the success of the job `ending`, while the thread goes on; false: it is still being done, and the thread will
 * be woken. Then ending.stored says how that went; success_is_stored() tries again. */
bool success_is_stored(struct scheduler *scheduler, struct worker_slot *slot);

/* The worker is not trusted to have respected the limit of `most` bytes (0: none). */
int results_check(const json_t *results, int64_t most);

/* Remove the checkpoint of a job that has ended; and its scan, or keep it (option keep-scans). `code`: of the failure;
 * 0: success. Any thread. */
void job_scan_drop(const struct scheduler *scheduler, const char *id, int code);

/* ---- scheduler_ready.c ---- */

/* Create the files of a job that the slot's worker may compute ahead. A failure is no harm: the job will report it, if
 * it still fails then. */
void ready_files_make(struct scheduler *scheduler, struct worker_slot *slot, const struct job *job, json_t *names,
                      int64_t most);
/* Create the files of a job that begins, or take those that are ready for it on this worker; as spool_results_begin().
 */
int ready_files_take(struct scheduler *scheduler, struct worker_slot *slot, const char *id, const json_t *names,
                     int files[KIND_MAX_FILES]);
/* The worker has written them, and closed them: put them in their place. */
void ready_files_made(struct scheduler *scheduler, struct worker_slot *slot, json_t *report);
/* The slot's job begins: whether it ends thereby, because its results are there. */
bool ready_files_end(struct scheduler *scheduler, struct worker_slot *slot, const json_t *names, int64_t most);
/* Remove those of jobs that are no longer prefetched. */
void ready_files_tidy(struct scheduler *scheduler);

/* ---- scheduler_messages.c ---- */

/* Handle one message. false: the worker must be ended; `reason` says why. */
bool slot_message(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message, const char **reason);

/* ---- scheduler_prefetch.c ---- */

/* Ids of the prefetched jobs: of all workers, or of the busy ones. New reference. */
json_t *prefetch_ids(const struct scheduler *scheduler, bool busy);

/* Jobs that are claimed only if there is no other of their priority: prefetched by another worker, killers of a worker
 * (FAULTS), and put back (SHORTAGES). New reference. */
json_t *later_ids(const struct scheduler *scheduler);

void announcement_clear(struct announcement *announcement);

/* PREFETCH, step 1: a worker in this state gets the announced scan. Idle workers are asked before jobs are claimed,
 * busy ones after; an announcement that no busy worker can take is dropped. */
void prefetch_announced(struct scheduler *scheduler, enum worker_state state);

/* Workers forget the scans of retracted announcements. Before a claimed job is handed over, too: its announcement may
 * have been retracted since the turn began, and what a worker has read of it is then not the job's scan. */
void prefetch_retracted(struct scheduler *scheduler);

/* The slot's job begins: other workers forget its scan, this one forgets a scan prefetched for another job. */
void prefetch_claimed(struct scheduler *scheduler, struct worker_slot *slot);

/* PREFETCH, step 2, for each busy worker; scans of jobs that are no longer queued are forgotten. */
void prefetch_next(struct scheduler *scheduler);

#endif
