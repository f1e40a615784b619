/* store_parts.h: shared by the files of daemon/store/, and included only there.
 *
 * DESIGN. One thread, the writer, owns the connection that writes. A change is a function that runs in this thread;
 * callers append changes to a list and sleep. The writer takes the whole list, runs each change under a savepoint
 * inside one transaction, commits once and wakes all callers: they share one fsync, and a failed change is rolled back
 * alone. The counts, which readers ask for most, are kept in memory: each change notes its differences (struct
 * tally_entry), which are added when the transaction is on the disk and dropped if it is rolled back.
 */
#ifndef MRIRECON_DAEMON_STORE_PARTS_H
#define MRIRECON_DAEMON_STORE_PARTS_H

#include "daemon/store/deliveries.h"

#include <pthread.h>
#include <sqlite3.h>
#include <sys/types.h>

enum { STATEMENTS = 64 };

/* A connection and its prepared statements. Of one thread at a time. */
struct connection {
    sqlite3 *db;
    struct {
        const char *sql; /* identified by its address: SQL is written as literals */
        sqlite3_stmt *statement;
    } cache[STATEMENTS];
    int cached;
};

/* A job was added, removed or changed its state, or its deliveries did. States: -1 for none. */
struct tally_entry {
    int from, to;
    bool delivering; /* its deliveries have changed */
    enum job_priority priority;
    int64_t bytes;
    struct kept kept; /* difference of the disk space of ended jobs */
    int64_t held;     /* ms that it held a worker, when it leaves it */
    char id[JOB_ID];
    char client[JOB_CLIENT];
};

/* A client's jobs and share. */
struct client {
    char name[JOB_CLIENT];
    int64_t waiting[PRIORITIES], waiting_bytes;
    int64_t running; /* and canceling */
    double given;    /* its share in bytes; ORDER in store.h */
};

/* The mean interval between jobs leaving the queue. */
struct drain {
    double since;  /* clock_seconds() when the last job left, or the queue became non-empty; 0: it is empty */
    bool one_left; /* ... when a job left */
    double pause;  /* mean interval, s; 0: not yet known */
};

struct change {
    struct change *next;
    int (*apply)(struct store *store, void *context); /* in the writer, inside a transaction */
    void *context;
    bool soft; /* may be lost in a power cut */
    pthread_cond_t settled;
    bool done;
    int rc;
    struct err failure; /* if rc is not 0 */
};

/* The identity of the file behind a path. */
struct file_identity {
    const char *path; /* SQLite's */
    dev_t device;
    ino_t inode; /* 0: none yet */
};

struct store {
    /* of the writer's thread */
    struct connection writer;
    struct file_identity file[2]; /* jobs.db and its write-ahead log */
    int log_pages;                /* in that log after the last commit */
    char saved[512];              /* where their contents were saved after one of them lost its name; "": nowhere */
    double save_at;               /* clock_seconds() from which on that may be tried again */
    bool soft;                    /* its commits do not wait for the disk */
    struct tally_entry *entry;
    size_t entries, room;
    int64_t now;                      /* of the transaction, ms since 1970 */
    int64_t clock_offset, clock_step; /* store_clock.c; ms */
    _Atomic int64_t clock_moved;      /* any thread: since store_clock_set() was last called */
    pthread_t thread;
    bool threaded;
    /* the list of changes, under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct change *first, **last;
    bool closing;
    double busy_since; /* clock_seconds(); 0: the writer is idle */
    struct err health; /* of the last transaction */
    /* under `tally_lock`, held for additions only */
    pthread_mutex_t tally_lock;
    int64_t counts[JOB_STATES];
    struct kept kept;
    struct client *client;
    size_t clients, clients_room;
    struct drain drain;
    double served;                  /* the share of the client served last, before that job */
    struct store_listener listener; /* .told NULL: none */
    struct store_router router;     /* .route NULL: none */
    _Atomic int64_t ageing, quota_jobs, quota_bytes;
    _Atomic bool failed_scans_stay, succeeded_scans_stay;
    /* under `reader_lock` */
    pthread_mutex_t reader_lock;
    struct connection reader;
    /* Lists take long and have connections of their own. */
    struct lister {
        pthread_mutex_t lock;
        struct connection connection;
    } lister[STORE_LISTS];
};

/* ---- store_sql.c ---- */

/* Set the failure from the last error of `db`; returns its code. */
int sql_failed(sqlite3 *db, const char *doing);
int sql_run(sqlite3 *db, const char *sql, const char *doing);

/* A cached statement, reset, with its values bound in order: s text (NULL: NULL), i int64_t, j json_t or NULL. NULL:
 * failed (failure set). Not to be finalized; call sql_release() after the last step. */
sqlite3_stmt *sql_prepare(struct connection *connection, const char *sql, const char *types, ...);
void sql_release(sqlite3_stmt *statement);
/* Run a statement that changes rows (NULL: an earlier failure); *changed: how many (may be NULL). */
int sql_change(struct connection *connection, sqlite3_stmt *statement, int *changed);
/* The single number that a statement selects (NULL: an earlier failure); 0 if it selects none. */
int sql_number(struct connection *connection, sqlite3_stmt *statement, int64_t *out);

int connection_open(struct connection *connection, const char *path, int flags);
void connection_close(struct connection *connection);

/* ---- store_schema.c ---- */

/* Create the tables, or migrate those of an earlier version. */
int schema_make(struct connection *connection);
/* Within a transaction: rewrite the schema version with its present value. */
int schema_touch(struct connection *connection);
/* The version of a store. Fails with ERR_STORE if it is newer than this program. */
int schema_version(struct connection *connection, int64_t *version);
bool schema_is_newer(int64_t version);
int schema_refuse(int64_t version);

/* ---- store.c ---- */

enum { NO_JOB = -1 };

/* Within a change: the starting point of a job's tally_entry. `from` and `to` are its state, NO_JOB if there is no job;
 * `held` as if it left its worker now. *kept: its disk space (may be NULL). */
int tally_read(struct store *store, const char *id, struct tally_entry *entry, struct kept *kept);

/* ---- store_rows.c ---- */

#define JOB_COLUMNS_OF(parameters, formats, results, report)                                                   \
    "id, state, sequence, kind, bytes, created, started, finished, attempts, deaths, " parameters ", " formats \
    ", error, " results ", " report ", client, priority, deadline, idempotency_key, digest, name, kept_scan, quota"
#define JOB_COLUMNS       JOB_COLUMNS_OF("parameters", "formats", "results", "report")
#define JOB_COLUMNS_LIST  JOB_COLUMNS_OF("parameters", "formats", "results", "NULL")
#define JOB_COLUMNS_BRIEF JOB_COLUMNS_OF("NULL", "NULL", "NULL", "NULL")

/* Read up to `limit` rows of a SELECT of JOB_COLUMNS (NULL: an earlier failure). */
int job_rows_read(struct connection *connection, sqlite3_stmt *statement, struct job *jobs, int limit, int *count);
int row_not_found(const char *id);

/* ---- store_writer.c ---- */

/* Have the writer run `apply`, and sleep until it is committed and on the disk. Returns what `apply` returns; after a
 * failure nothing has changed. */
int store_change(struct store *store, int (*apply)(struct store *store, void *context), void *context);
/* The same without fsync, unless another change of the transaction needs one: for changes that a power cut may undo
 * (not the end of this process), such as the start of a job. */
int store_change_soft(struct store *store, int (*apply)(struct store *store, void *context), void *context);
int writer_start(struct store *store);
void writer_stop(struct store *store);

/* ---- store_clock.c: in the writer, but for the first ---- */

void store_clock_start(struct store *store);
/* Set store->now. Returns whether the wall clock was set, so that this transaction must move the times of jobs. */
bool store_clock_read(struct store *store);
/* Within the transaction: move them; after the commit: note that this is done. */
int store_clock_move(struct store *store);
void store_clock_moved(struct store *store);

/* ---- store_tally.c ---- */

/* Within a change: note a difference of the counts. Fails with ERR_NO_MEMORY. */
int store_note(struct store *store, const struct tally_entry *entry);
/* After the commit: add the noted differences to the counts. */
void tally_add(struct store *store);
/* Recount all jobs. In the writer, or before it runs. */
int tally_load(struct store *store);
/* Within a change: store_room(), including the differences noted so far in the transaction. */
int tally_room(struct store *store, const char *client, struct quota quota, int64_t bytes, int64_t limit);
/* The probable contribution of a waiting job to its client's share, bytes. */
double tally_mean(const struct client *client);
/* Clients with waiting jobs; the caller frees the list. Fails with ERR_NO_MEMORY. */
int tally_waiting(struct store *store, struct client **out, size_t *count);

/* ---- store_deliveries.c: in the writer ---- */

/* Within the change that ends a job: its deliveries, as the router says. *added: there are any. */
int deliveries_insert(struct store *store, const char *id, enum job_state state, bool *added);
/* Whether any of a job's has not ended: store_delivery_send() may have added it since store_ended(). */
int deliveries_wait(struct store *store, const char *id, bool *out);
/* At a start: what was being sent is pending again. */
int deliveries_recover(struct store *store);

/* ---- store_drain.c ---- */

/* Under tally_lock: the queue has changed; `left`: a job left it. */
void drain_count(struct store *store, bool left);

/* ---- store_order.c ---- */

/* A candidate for the next job. */
struct candidate {
    int64_t sequence; /* 0: none */
    int64_t rank;     /* priority minus the ageing */
    double given;     /* its client's share */
};

/* The next job at the time `now` whose id is not in `avoid` (a JSON array, or NULL). */
int next_find(struct store *store, struct connection *connection, int64_t now, const json_t *avoid,
              struct candidate *out);
/* Read it; *count 0: it no longer waits. */
int next_read(struct connection *connection, const struct candidate *next, struct job *job, int *count);

#endif
