/* workers.h: the worker processes: start, messages, supervision, restart. The scheduler decides about jobs. A struct
 * worker belongs to the scheduler's thread. // */
#ifndef MRIRECON_DAEMON_WORKERS_H
#define MRIRECON_DAEMON_WORKERS_H

#include "daemon/base/log.h"
#include "daemon/base/options.h"
#include "daemon/store/store.h"
#include "daemon/wire.h"

enum { WORKERS_MAX = 32, WORKER_TEXT = 96, WORKER_NOTE = 600 };

enum worker_state {
    WORKER_DOWN,     /* no process; one is started at `restart_at` */
    WORKER_STARTING, /* has not sent hello */
    WORKER_IDLE,
    WORKER_BUSY
};

struct worker {
    char wanted[WORKER_TEXT]; /* "auto", "cpu", "gpu:0" */
    int index;
    enum worker_state state;
    pid_t pid;
    int socket, pidfd;
    pid_t left;                                  /* a killed process of this worker that has not ended; 0: none */
    char device[WORKER_TEXT], note[WORKER_NOTE]; /* of the message "hello" */
    bool gpu, landlock;
    uint64_t gpus; /* bit mask of the machine's usable GPUs */
    /* clock_seconds() */
    double started, heard, pinged; /* pinged: 0: no ping is unanswered */
    double restart_at, pause;      /* pause: before the next start; grows with each early end */
    char prefetched[JOB_ID];       /* PREFETCH in scheduler.h: the job whose scan it prefetches; "": none */
    bool prefetched_early;         /* ... whose row was not yet committed at the last look */
    bool prefetched_file;          /* ... which was a file that had begun to arrive when it was announced */
    char suspect[JOB_ID];          /* the job that it prefetched when it died, which is not prefetched again */
};

/* Fill workers[] from the option `devices`. Fails with ERR_BAD_PARAMETER. */
int workers_plan(struct worker workers[WORKERS_MAX], int *count, const char *devices);

/* Initialise a worker to be started now. */
void worker_init(struct worker *worker, int index, const char *wanted);

/* Start the process. Fails with ERR_WORKER_DIED (it cannot be started, or the previous one has not ended),
 * ERR_INTERNAL. */
int worker_start(struct worker *worker, const struct options *options);

/* Send a message; `message` is taken. Fails as wire_send. */
int worker_send(struct worker *worker, json_t *message, const int *fds, int fd_count);

/* PREFETCH: send "prepare" (`names`: of the job's files; `files`: these, NULL: they do not exist yet; `room`: for them,
 * as in "job"; `arriving`: whether the scan is still being written), or "forget". Hints: failures are ignored. */
void worker_prepare(struct worker *worker, const struct job *job, json_t *names, const int *files, json_t *room,
                    int scan, enum wire_arriving arriving, int live, int64_t shown);
void worker_forget(struct worker *worker);

/* Handle "hello". Fails with ERR_BAD_REQUEST (another version of the protocol). */
int worker_hello(struct worker *worker, const json_t *message);

/* The worker completed a job: a later end is not the fault of its device or installation, and the restart delay is
 * short again. */
void worker_proved(struct worker *worker);

/* Kill the process if it still runs, reap it, describe its end in `how`, and schedule the restart. If it does not end
 * within a second, the restart waits until it has ended. */
void worker_end(struct worker *worker, char *how, size_t size);

/* Send a ping when one is due. false: the worker has not answered for too long; the sentence is in `reason`. */
bool worker_watch(struct worker *worker, const struct options *options, double now, char *reason, size_t size);

const char *worker_state_name(enum worker_state state);

#endif
