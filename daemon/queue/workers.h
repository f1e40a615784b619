/* workers.h: the worker processes: how each is started, spoken to, watched and replaced. What a worker does with jobs
 * is the scheduler's business. A struct worker belongs to the scheduler's thread.
 */
#ifndef MRIRECON_DAEMON_WORKERS_H
#define MRIRECON_DAEMON_WORKERS_H

#include "daemon/base/log.h"
#include "daemon/base/options.h"
#include "daemon/store/store.h"

enum { WORKERS_MAX = 32, WORKER_TEXT = 96 };

enum worker_state {
    WORKER_DOWN,     /* no process; one is started at `restart_at` */
    WORKER_STARTING, /* has not said hello */
    WORKER_IDLE,
    WORKER_BUSY
};

struct worker {
    char wanted[WORKER_TEXT]; /* "auto", "cpu", "gpu:0" */
    int index;
    enum worker_state state;
    pid_t pid;
    int socket, pidfd;
    pid_t left;                                      /* a process of it that was killed and has not ended; 0: none */
    char device[WORKER_TEXT], note[2 * WORKER_TEXT]; /* of its hello */
    bool gpu, landlock;
    uint64_t gpus; /* GPUs of the machine that can be used, a bit each */
    /* clock_seconds() */
    double started, heard, pinged; /* pinged: 0: no answer is due */
    double restart_at, pause;      /* pause: before the next start; grows with each early end */
    char prefetched[JOB_ID];       /* the job whose scan it was told to read ahead; "": none */
    bool prefetched_early;         /* ... whose row was still to come when that was last looked at */
    char suspect[JOB_ID];          /* what it read ahead when it died: that is not read ahead again */
};

/* Fill workers[] from the option `devices`. Fails with ERR_BAD_PARAMETER. */
int workers_plan(struct worker workers[WORKERS_MAX], int *count, const char *devices);

/* A worker that is to be started now. */
void worker_init(struct worker *worker, int index, const char *wanted);

/* Start the process. Fails with ERR_WORKER_DIED (it cannot be started; the last one has not ended), ERR_INTERNAL. */
int worker_start(struct worker *worker, const struct options *options);

/* Send a message; `message` is taken. Fails as wire_send. */
int worker_send(struct worker *worker, json_t *message, const int *fds, int fd_count);

/* Have it read the scan of a job that is likely to be its next, or not any more. Only hints: failures change nothing.
 * A second job replaces the first. */
void worker_prepare(struct worker *worker, const struct job *job, int scan);
void worker_forget(struct worker *worker);

/* Take a hello. Fails with ERR_BAD_REQUEST (another version of the wire). */
int worker_hello(struct worker *worker, const json_t *message);

/* It has done a job: what ends it now is no fault of its device or its installation, and it is started again soon. */
void worker_proved(struct worker *worker);

/* Kill the process if it is still there, collect it, say how it ended in `how`, and plan the next start. One that does
 * not end within a second is left, and is in the way of the next until it does. */
void worker_end(struct worker *worker, char *how, size_t size);

/* Ping it when it is time to. false: it has been silent for too long, and `reason` says so. */
bool worker_watch(struct worker *worker, const struct options *options, double now, char *reason, size_t size);

const char *worker_state_name(enum worker_state state);

#endif
