/* store_parts.h: what the files of the store share. Only daemon/store/ include this.
 *
 * DESIGN. One thread, the writer, owns the connection that writes. A change is a function that runs in it; callers put
 * changes on a list and sleep. The writer takes the whole list, runs each change under a savepoint of its own inside
 * one transaction, commits once, and wakes all: as many callers as wait share one sync of the disk, and a change that
 * fails undoes itself alone. What readers ask for most, the counts, is kept in memory: changes leave entries of what
 * they moved, which are added up when the transaction is on the disk and dropped with what is rolled back.
 */
#ifndef MRIRECON_DAEMON_STORE_PARTS_H
#define MRIRECON_DAEMON_STORE_PARTS_H

#include "daemon/store/store.h"

#include <pthread.h>
#include <sqlite3.h>
#include <sys/types.h>

enum { STATEMENTS = 48 };

/* A connection and its statements, which are prepared once. Of one thread at a time. */
struct connection {
    sqlite3 *db;
    struct {
        const char *sql; /* known by its address: SQL is written as literals */
        sqlite3_stmt *statement;
    } cache[STATEMENTS];
    int cached;
};

/* A job has come, gone or moved. States: -1 for none. */
struct tally_entry {
    int from, to;
    enum job_priority priority;
    int64_t bytes;
    struct kept kept; /* what more, or less, is kept of ended jobs */
    int64_t held;     /* ms that it held a worker, which it now leaves */
    char client[JOB_CLIENT];
};

/* What a client has in the queue, and was given of the machine. */
struct client {
    char name[JOB_CLIENT];
    int64_t waiting[PRIORITIES], waiting_bytes;
    int64_t running; /* and canceling */
    double given;    /* bytes of jobs begun, and for the time of workers; see ORDER in store.h */
};

/* The pauses between jobs that leave the queue. */
struct drain {
    double since;  /* clock_seconds() when the last one left, or when the queue began to fill; 0: it is empty */
    bool one_left; /* ... when one left */
    double pause;  /* mean of the last ones, s; 0: not yet known */
};

struct change {
    struct change *next;
    int (*apply)(struct store *store, void *context); /* in the writer, inside a transaction */
    void *context;
    bool soft; /* need not outlive a power cut */
    pthread_cond_t settled;
    bool done;
    int rc;
    struct err failure; /* if rc is not 0 */
};

/* Which file has a name. */
struct file_identity {
    const char *path; /* SQLite's */
    dev_t device;
    ino_t inode; /* 0: none yet */
};

struct store {
    /* of the writer's thread */
    struct connection writer;
    struct file_identity file[2]; /* jobs.db and its log, which are open */
    char saved[512];              /* where their contents are, since one of them has lost its name; "": nowhere */
    bool save_tried;
    bool soft; /* its commits do not wait for the disk */
    struct tally_entry *entry;
    size_t entries, room;
    int64_t now;                      /* of the transaction, ms since 1970 */
    int64_t clock_offset, clock_step; /* store_clock.c; ms */
    _Atomic int64_t clock_moved;      /* of anybody: since it was last asked for */
    pthread_t thread;
    bool threaded;
    /* the list of changes, under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct change *first, **last;
    bool closing;
    double busy_since; /* clock_seconds(); 0: the writer waits */
    struct err health; /* of the last transaction */
    /* under `tally_lock`, held for additions only */
    pthread_mutex_t tally_lock;
    int64_t counts[JOB_STATES];
    struct kept kept;
    struct client *client;
    size_t clients, clients_room;
    struct drain drain;
    double served; /* what the client that was served last had been given before */
    _Atomic int64_t ageing, quota_jobs, quota_bytes;
    _Atomic bool failed_scans_stay, succeeded_scans_stay;
    /* under `reader_lock` */
    pthread_mutex_t reader_lock;
    struct connection reader;
    /* Lists, which take long, have connections of their own. */
    struct lister {
        pthread_mutex_t lock;
        struct connection connection;
    } lister[STORE_LISTS];
};

/* ---- store_sql.c ---- */

/* Leave what `db` last failed with in the error slot; its code. */
int sql_failed(sqlite3 *db, const char *doing);
int sql_run(sqlite3 *db, const char *sql, const char *doing);

/* A statement of the cache, reset, with its values bound in order: s text (NULL: NULL), i int64_t, j json_t or NULL.
 * NULL (failure set) where it cannot be. Not to be finalized; sql_release() when it is no longer stepped. */
sqlite3_stmt *sql_prepare(struct connection *connection, const char *sql, const char *types, ...);
void sql_release(sqlite3_stmt *statement);
/* Run a statement that changes rows (NULL: it failed before); *changed rows were (may be NULL). */
int sql_change(struct connection *connection, sqlite3_stmt *statement, int *changed);
/* The one number that a statement (NULL: it failed before) selects; 0 where it selects none. */
int sql_number(struct connection *connection, sqlite3_stmt *statement, int64_t *out);

int connection_open(struct connection *connection, const char *path, int flags);
void connection_close(struct connection *connection);

/* ---- store_schema.c ---- */

/* Make the tables, or bring those of an earlier version to this one. */
int schema_make(struct connection *connection);
/* Within a transaction: write the version of the tables once more, which is what it is. */
int schema_touch(struct connection *connection);
/* The version of a store, whether this program is too old for it, and the sentence that says so (ERR_STORE). */
int schema_version(struct connection *connection, int64_t *version);
bool schema_is_newer(int64_t version);
int schema_refuse(int64_t version);

/* ---- store.c ---- */

enum { NO_JOB = -1 };

/* From within a change: what the change of a job begins from. `from` is its state, NO_JOB where there is none; `to` is
 * the same; `held` as if it left its worker now. *kept: what is kept of it (NULL: not wanted). */
int entry_read(struct store *store, const char *id, struct tally_entry *entry, struct kept *kept);

/* ---- store_rows.c ---- */

#define JOB_COLUMNS_BUT(report)                                                                                    \
    "id, state, sequence, kind, bytes, created, started, finished, attempts, deaths, parameters, formats, error, " \
    "results, " report ", client, priority, deadline, idempotency_key, digest, name"
#define JOB_COLUMNS JOB_COLUMNS_BUT("report")

/* Read up to `limit` rows of a SELECT of JOB_COLUMNS (NULL: it failed before). */
int rows_read(struct connection *connection, sqlite3_stmt *statement, struct job *jobs, int limit, int *count);
int row_not_found(const char *id);

/* ---- store_writer.c ---- */

/* Have the writer run `apply`, and sleep until what it did is on the disk. Its result; on failure nothing was done. */
int store_change(struct store *store, int (*apply)(struct store *store, void *context), void *context);
/* The same without waiting for the disk, where no other change of the transaction does: for what may be undone by a
 * power cut (not by the end of this process), as the start of a job. */
int store_change_soft(struct store *store, int (*apply)(struct store *store, void *context), void *context);
int writer_start(struct store *store);
void writer_stop(struct store *store);

/* ---- store_clock.c: in the writer, but for the first ---- */

void store_clock_start(struct store *store);
/* Set store->now. Whether the clock was set, so that this transaction has to move the times of jobs. */
bool store_clock_read(struct store *store);
/* Within the transaction: move them. Then, it is on the disk. */
int store_clock_move(struct store *store);
void store_clock_moved(struct store *store);

/* ---- store_tally.c ---- */

/* From within a change: note what it moved. Fails with ERR_NO_MEMORY. */
int store_note(struct store *store, const struct tally_entry *entry);
/* What was noted is on the disk: add it up. */
void tally_add(struct store *store);
/* Count all jobs anew. In the writer, or before it runs. */
int tally_load(struct store *store);
/* From within a change: store_room, where what the transaction has moved so far counts. */
int tally_room(struct store *store, const char *client, struct quota quota, int64_t bytes, int64_t limit);
/* What a waiting job of a client is likely to count for its share, bytes. */
double tally_mean(const struct client *client);
/* Those that have; the caller frees the list. Fails with ERR_NO_MEMORY. */
int tally_waiting(struct store *store, struct client **out, size_t *count);

/* ---- store_drain.c ---- */

/* Under tally_lock: the queue has changed; `left`: a job has left it. */
void drain_count(struct store *store, bool left);

/* ---- store_order.c ---- */

/* A job that may be next. */
struct candidate {
    int64_t sequence; /* 0: none */
    int64_t rank;     /* priority less what waiting has earned */
    double given;     /* to its client */
};

/* The job that is next at the time `now`, but for those in `avoid` (a JSON array of ids, or NULL). */
int next_find(struct store *store, struct connection *connection, int64_t now, const json_t *avoid,
              struct candidate *out);
/* Read it; *count 0: it no longer waits. */
int next_read(struct connection *connection, const struct candidate *next, struct job *job, int *count);

#endif
