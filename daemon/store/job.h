/* job.h: a job as the store has it: its row, the names of its states and priorities.
 *
 * Plain values; whoever holds one owns it. store.h says how a job comes from one state to another.
 */
#ifndef MRIRECON_DAEMON_JOB_H
#define MRIRECON_DAEMON_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_CANCELING, JOB_SUCCEEDED, JOB_FAILED, JOB_CANCELED, JOB_STATES };

enum job_priority { PRIORITY_URGENT, PRIORITY_NORMAL, PRIORITY_BATCH, PRIORITIES };

enum { JOB_ID = 26 + 1, JOB_CLIENT = 63 + 1, JOB_NAME = 200 + 1, JOB_KEY = 200 + 1, JOB_DIGEST = 64 + 1 };

/* What one client may have waiting: jobs, and bytes of their scans. 0: as store_set_quota() says. */
struct quota {
    int64_t jobs, bytes;
};

/* One row. job_clear() gives back what it owns. */
struct job {
    char id[JOB_ID];
    enum job_state state;
    int64_t sequence; /* order of acceptance; larger is newer */
    char kind[32];
    char client[JOB_CLIENT]; /* who sent it */
    char name[JOB_NAME];     /* that its sender gave it, as a file's; "": none */
    struct quota quota;      /* of whoever sent it, at its submission; not kept */
    enum job_priority priority;
    int64_t bytes; /* of the upload */
    int64_t created, started, finished;
    int64_t deadline;        /* it is to begin before; 0: any time */
    int64_t patience;        /* at its submission, not kept: ms that it may wait until its deadline; 0: any time */
    char key[JOB_KEY];       /* Idempotency-Key; "": none */
    char digest[JOB_DIGEST]; /* of the scan, where there is a key: SHA-256 in hexadecimal */
    int64_t attempts;        /* times that it was handed to a worker */
    int64_t deaths;          /* of those since the daemon's start, times that the worker died of it */
    json_t *parameters;      /* {name: text}, every parameter of the kind */
    json_t *formats;         /* ["png", ...]: written at once */
    json_t *error;           /* as wire_error_pack(), or NULL */
    json_t *results;         /* [{name, type, bytes}], or NULL */
    json_t *report;          /* or NULL */
};
void job_clear(struct job *job);

const char *job_state_name(enum job_state state);
int job_state_find(const char *name); /* -1: none */
bool job_state_is_final(enum job_state state);
const char *job_priority_name(enum job_priority priority);
int job_priority_find(const char *name); /* -1: none */

/* Which jobs of a list are wanted. All zero but state = -1: all. */
struct job_filter {
    int64_t before;     /* older than the one with this sequence; 0: from the newest */
    int state;          /* -1: any */
    const char *client; /* NULL: any */
    const char *name;   /* a part of the job's name, of ASCII letters in either case; NULL: any */
    int64_t since;      /* accepted or ended then or later; 0: at any time */
};

/* What the folders must hold of a job. */
struct job_files {
    char id[JOB_ID];
    enum job_state state;
    int64_t bytes;   /* of its scan */
    bool scan_stays; /* it has not ended, or its scan is kept */
};

#endif
