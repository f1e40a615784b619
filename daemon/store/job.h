/* job.h: one job, as a row of the store, and the names of states and priorities.
 *
 * Plain values, owned by their holder. The transitions between states are in store.h.
 */
#ifndef MRIRECON_DAEMON_JOB_H
#define MRIRECON_DAEMON_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_CANCELING, JOB_SUCCEEDED, JOB_FAILED, JOB_CANCELED, JOB_STATES };

enum job_priority { PRIORITY_URGENT, PRIORITY_NORMAL, PRIORITY_BATCH, PRIORITIES };

enum {
    JOB_ID = 26 + 1,
    JOB_CLIENT = 63 + 1,
    JOB_NAME = 200 + 1,
    JOB_KEY = 200 + 1,
    JOB_DIGEST = 64 + 1,
    JOB_DESTINATIONS = 200 + 1
};

/* Limits of what one client may have waiting: jobs, and bytes of their scans. `bytes` limits the results of a job, too.
 * 0: as store_set_quota(). */
struct quota {
    int64_t jobs, bytes;
};

/* One row. job_clear() frees what it owns. */
struct job {
    char id[JOB_ID];
    enum job_state state;
    int64_t sequence; /* order of acceptance; larger is newer */
    char kind[32];
    char client[JOB_CLIENT];            /* the client */
    char name[JOB_NAME];                /* given by the client, as a file name; "": none */
    char destination[JOB_DESTINATIONS]; /* names, separated by commas, that the client gave; "": none; not read back */
    struct quota quota;                 /* of the client, at submission; `bytes` is stored */
    enum job_priority priority;
    int64_t bytes; /* of the upload */
    int64_t created, started, finished;
    int64_t deadline;        /* latest start; 0: none */
    int64_t patience;        /* at submission, not stored: ms until the deadline; 0: none */
    char key[JOB_KEY];       /* Idempotency-Key; "": none */
    char digest[JOB_DIGEST]; /* SHA-256 of the scan in hexadecimal, if there is a key */
    bool scan_kept;          /* not ended, or the scan is kept for resubmission */
    int64_t attempts;        /* times that it was given to a worker */
    int64_t deaths;          /* of those since the daemon's start, how often the worker died */
    json_t *parameters;      /* {name: text}, every parameter of the kind */
    json_t *formats;         /* ["png", ...]: of the default result, written by the worker */
    json_t *error;           /* as wire_error_pack(), or NULL */
    json_t *results;         /* [{name, type, bytes}], or NULL */
    json_t *report;          /* or NULL */
};
void job_clear(struct job *job);
/* The results that its parameters ask for, as kind_results_wanted() takes it; NULL: the default. */
const char *job_results_asked(const struct job *job);

const char *job_state_name(enum job_state state);
int job_state_find(const char *name); /* -1: none */
bool job_state_is_final(enum job_state state);
const char *job_priority_name(enum job_priority priority);
int job_priority_find(const char *name); /* -1: none */

/* Filter of a list. All zero: all jobs. */
struct job_filter {
    int64_t before;     /* older than the one with this sequence; 0: from the newest */
    unsigned states;    /* a bit for each state, 1 << JOB_QUEUED; 0: any */
    bool brief;         /* without parameters, formats and results */
    const char *client; /* NULL: any */
    bool client_begins; /* `client` is the beginning of a client's name */
    const char *kind;   /* NULL: any */
    const char *name;   /* substring of the job's name, ASCII letters in either case; NULL: any */
    int64_t since;      /* accepted or ended at this time or later; 0: any time */
};

/* The files that must exist of a job. */
struct job_files {
    char id[JOB_ID];
    enum job_state state;
    int64_t bytes;   /* of its scan */
    bool scan_stays; /* the job has not ended, or its scan is kept */
};

#endif
