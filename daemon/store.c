#include "daemon/store.h"

#include "daemon/clock.h"
#include "daemon/wire.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA = 1, BUSY_MS = 5000 };

/* One connection and its prepared statements, used under its lock. */
struct connection {
    pthread_mutex_t lock;
    sqlite3 *db;
};

struct store {
    struct connection writer, reader;
};

static const struct {
    const char *name;
    bool final;
} states[JOB_STATES] = {
    [JOB_QUEUED] = {"queued", false},      [JOB_RUNNING] = {"running", false}, [JOB_CANCELING] = {"canceling", false},
    [JOB_SUCCEEDED] = {"succeeded", true}, [JOB_FAILED] = {"failed", true},    [JOB_CANCELED] = {"canceled", true},
};

const char *job_state_name(enum job_state state)
{
    return states[state].name;
}

int job_state_find(const char *name)
{
    for (int i = 0; i < JOB_STATES; i++)
        if (strcmp(states[i].name, name) == 0)
            return i;
    return -1;
}

bool job_state_is_final(enum job_state state)
{
    return states[state].final;
}

void job_clear(struct job *job)
{
    json_decref(job->parameters);
    json_decref(job->formats);
    json_decref(job->error);
    json_decref(job->results);
    json_decref(job->report);
    *job = (struct job){.sequence = 0};
}

static int failed(sqlite3 *db, const char *doing)
{
    int code = db ? sqlite3_errcode(db) : SQLITE_NOMEM;
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return err_set(ERR_STORE,
                       "The job store is damaged (%s, while %s). Restore it from a backup, or move it and its "
                       "-wal and -shm files away to start with an empty one.",
                       sqlite3_errmsg(db), doing);
    if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY)
        return err_set(ERR_STORE,
                       "The job store cannot be written (%s, while %s). Give this user the right to write it "
                       "and its folder, or name another --state-dir.",
                       sqlite3_errmsg(db), doing);
    if (code == SQLITE_FULL)
        return err_set(ERR_SPOOL_FULL, "The disk of the job store is full (%s). Free some space.", doing);
    return err_set(ERR_STORE, "The job store failed while %s: %s.", doing, db ? sqlite3_errmsg(db) : "no memory");
}

static int run(sqlite3 *db, const char *sql, const char *doing)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(db, doing);
}

/* ---- transactions: begin takes the lock, end gives it back ---- */

static int begin(struct store *store)
{
    pthread_mutex_lock(&store->writer.lock);
    int result = run(store->writer.db, "BEGIN IMMEDIATE", "beginning a change");
    if (result)
        pthread_mutex_unlock(&store->writer.lock);
    return result;
}

/* Commit where `result` is 0, else roll back and keep the failure. */
static int end(struct store *store, int result)
{
    if (!result)
        result = run(store->writer.db, "COMMIT", "committing a change");
    if (result && !sqlite3_get_autocommit(store->writer.db))
        sqlite3_exec(store->writer.db, "ROLLBACK", NULL, NULL, NULL);
    pthread_mutex_unlock(&store->writer.lock);
    return result;
}

/* A statement with its values bound in order: s text, i int64_t, j json_t or NULL. NULL (failure set) where it cannot
 * be. */
static sqlite3_stmt *prepare(sqlite3 *db, const char *sql, const char *types, ...)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK) {
        failed(db, "reading its tables");
        return NULL;
    }
    va_list values;
    va_start(values, types);
    int bad = 0;
    for (int i = 0; types[i] && !bad; i++) {
        if (types[i] == 's') {
            bad = sqlite3_bind_text(statement, i + 1, va_arg(values, const char *), -1, SQLITE_TRANSIENT);
        } else if (types[i] == 'i') {
            bad = sqlite3_bind_int64(statement, i + 1, va_arg(values, int64_t));
        } else {
            json_t *value = va_arg(values, json_t *);
            char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
            if (value && !text)
                bad = SQLITE_NOMEM;
            else if (text)
                bad = sqlite3_bind_text(statement, i + 1, text, -1, SQLITE_TRANSIENT);
            free(text);
        }
    }
    va_end(values);
    if (bad) {
        failed(db, "preparing a change");
        sqlite3_finalize(statement);
        return NULL;
    }
    return statement;
}

/* Run a statement that changes rows (NULL: it failed before); *changed rows were. */
static int change(sqlite3 *db, sqlite3_stmt *statement, int *changed)
{
    if (!statement)
        return err_last()->code;
    int result = sqlite3_step(statement) == SQLITE_DONE ? 0 : failed(db, "changing a job");
    *changed = sqlite3_changes(db);
    sqlite3_finalize(statement);
    return result;
}

/* ---- rows ---- */

#define COLUMNS                                                                                                    \
    "id, state, sequence, kind, bytes, created, started, finished, attempts, deaths, parameters, formats, error, " \
    "results, report"

static void column_text(sqlite3_stmt *row, int column, char *text, size_t size)
{
    const unsigned char *value = sqlite3_column_text(row, column);
    snprintf(text, size, "%s", value ? (const char *)value : "");
}

static json_t *column_json(sqlite3_stmt *row, int column)
{
    const unsigned char *value = sqlite3_column_text(row, column);
    return value ? json_loads((const char *)value, JSON_ALLOW_NUL, NULL) : NULL;
}

static void job_read(sqlite3_stmt *row, struct job *job)
{
    *job = (struct job){.sequence = sqlite3_column_int64(row, 2)};
    column_text(row, 0, job->id, sizeof job->id);
    job->state = (enum job_state)sqlite3_column_int(row, 1);
    column_text(row, 3, job->kind, sizeof job->kind);
    job->bytes = sqlite3_column_int64(row, 4);
    job->created = sqlite3_column_int64(row, 5);
    job->started = sqlite3_column_int64(row, 6);
    job->finished = sqlite3_column_int64(row, 7);
    job->attempts = sqlite3_column_int64(row, 8);
    job->deaths = sqlite3_column_int64(row, 9);
    job->parameters = column_json(row, 10);
    job->formats = column_json(row, 11);
    job->error = column_json(row, 12);
    job->results = column_json(row, 13);
    job->report = column_json(row, 14);
}

/* Read up to `limit` rows of a SELECT of COLUMNS (NULL: it failed before). */
static int rows_read(sqlite3 *db, sqlite3_stmt *statement, struct job *jobs, int limit, int *count)
{
    if (!statement)
        return err_last()->code;
    int step, found = 0;
    while ((step = found < limit ? sqlite3_step(statement) : SQLITE_DONE) == SQLITE_ROW)
        job_read(statement, &jobs[found++]);
    int result = step == SQLITE_DONE ? 0 : failed(db, "reading jobs");
    if (result)
        while (found > 0)
            job_clear(&jobs[--found]);
    sqlite3_finalize(statement);
    *count = found;
    return result;
}

static int not_found(const char *id)
{
    return err_set(ERR_NOT_FOUND, "There is no job %.40s. It may have been deleted.", id);
}

/* ---- opening ---- */

static int schema_make(sqlite3 *db)
{
    sqlite3_stmt *statement = prepare(db, "PRAGMA user_version", "");
    if (!statement)
        return err_last()->code;
    int version = sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int(statement, 0) : -1;
    sqlite3_finalize(statement);
    if (version == SCHEMA)
        return 0;
    if (version < 0)
        return failed(db, "reading its version");
    if (version > SCHEMA)
        return err_set(ERR_STORE,
                       "The job store has version %d, this program knows versions up to %d. Run the newer program, or "
                       "name another --state-dir.",
                       version, SCHEMA);
    /* States are the values of enum job_state. The partial index is the queue. */
    return run(db,
               "BEGIN IMMEDIATE;"
               "CREATE TABLE job (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
               " state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5), kind TEXT NOT NULL, bytes INTEGER NOT NULL,"
               " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0,"
               " attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0, parameters TEXT NOT NULL,"
               " formats TEXT NOT NULL, error TEXT, results TEXT, report TEXT);"
               "CREATE INDEX job_state ON job (state, sequence);"
               "PRAGMA user_version = 1; COMMIT",
               "making its tables");
}

static int connection_open(struct connection *connection, const char *path, int flags)
{
    if (sqlite3_open_v2(path, &connection->db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return failed(connection->db, "opening it");
    sqlite3_extended_result_codes(connection->db, 0);
    sqlite3_busy_timeout(connection->db, BUSY_MS);
    return 0;
}

int store_create(struct store **out, const char *path)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return err_set(ERR_NO_MEMORY, "No memory for the job store.");
    pthread_mutex_init(&store->writer.lock, NULL);
    pthread_mutex_init(&store->reader.lock, NULL);
    int result = connection_open(&store->writer, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (!result)
        result = run(store->writer.db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON",
                     "opening it");
    if (!result)
        result = schema_make(store->writer.db);
    if (!result)
        result = connection_open(&store->reader, path, SQLITE_OPEN_READONLY);
    if (result) {
        err_prefix("%s: ", path);
        store_free(store);
        return result;
    }
    *out = store;
    return 0;
}

void store_free(struct store *store)
{
    if (!store)
        return;
    sqlite3_close(store->reader.db);
    sqlite3_close(store->writer.db);
    pthread_mutex_destroy(&store->reader.lock);
    pthread_mutex_destroy(&store->writer.lock);
    free(store);
}

int store_recover(struct store *store, int *requeued)
{
    int result = begin(store), canceled;
    if (result)
        return result;
    sqlite3 *db = store->writer.db;
    result = change(db,
                    prepare(db, "UPDATE job SET state = ?, started = 0 WHERE state = ?", "ii", (int64_t)JOB_QUEUED,
                            (int64_t)JOB_RUNNING),
                    requeued);
    if (!result)
        result = change(db,
                        prepare(db, "UPDATE job SET state = ?, finished = ? WHERE state = ?", "iii",
                                (int64_t)JOB_CANCELED, clock_milliseconds(), (int64_t)JOB_CANCELING),
                        &canceled);
    return end(store, result);
}

/* ---- transitions ---- */

static int count_queued(sqlite3 *db, int64_t *count)
{
    sqlite3_stmt *statement = prepare(db, "SELECT count(*) FROM job WHERE state = ?", "i", (int64_t)JOB_QUEUED);
    if (!statement)
        return err_last()->code;
    int result = sqlite3_step(statement) == SQLITE_ROW ? 0 : failed(db, "counting jobs");
    *count = result ? 0 : sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return result;
}

int store_submit(struct store *store, struct job *job, int64_t limit)
{
    int result = begin(store), changed;
    if (result)
        return result;
    sqlite3 *db = store->writer.db;
    int64_t queued = 0, created = clock_milliseconds();
    result = count_queued(db, &queued);
    if (!result && queued >= limit)
        result =
            err_set(ERR_QUEUE_FULL, "%lld jobs are waiting, which is the limit. Try again later.", (long long)queued);
    if (!result)
        result = change(db,
                        prepare(db,
                                "INSERT INTO job (id, state, kind, bytes, created, parameters, formats) "
                                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                                "sisiijj", job->id, (int64_t)JOB_QUEUED, job->kind, job->bytes, created,
                                job->parameters, job->formats),
                        &changed);
    int64_t sequence = sqlite3_last_insert_rowid(db);
    result = end(store, result);
    if (result)
        return result;
    job->sequence = sequence;
    job->created = created;
    job->state = JOB_QUEUED;
    return 0;
}

/* The job that is next, but for those in `avoid` (a JSON array of ids). */
static int next_read(sqlite3 *db, json_t *avoid, struct job *job, int *count)
{
    return rows_read(db,
                     prepare(db,
                             "SELECT " COLUMNS
                             " FROM job WHERE state = ? AND id NOT IN (SELECT value FROM json_each(?)) "
                             "ORDER BY sequence LIMIT 1",
                             "ij", (int64_t)JOB_QUEUED, avoid),
                     job, 1, count);
}

int store_next(struct store *store, json_t *avoid, struct job *job, bool *found)
{
    int count = 0;
    pthread_mutex_lock(&store->reader.lock);
    int result = next_read(store->reader.db, avoid, job, &count);
    pthread_mutex_unlock(&store->reader.lock);
    *found = !result && count > 0;
    return result;
}

int store_take(struct store *store, json_t *avoid, struct job *job, bool *found)
{
    int result = begin(store), count = 0, changed;
    if (result)
        return result;
    sqlite3 *db = store->writer.db;
    result = next_read(db, avoid, job, &count);
    if (!result && !count)
        result = next_read(db, NULL, job, &count);
    int64_t now = clock_milliseconds();
    if (!result && count)
        result = change(db,
                        prepare(db, "UPDATE job SET state = ?, started = ?, attempts = attempts + 1 WHERE id = ?",
                                "iis", (int64_t)JOB_RUNNING, now, job->id),
                        &changed);
    result = end(store, result);
    if (result) {
        if (count)
            job_clear(job);
        return result;
    }
    *found = count > 0;
    if (count) {
        job->state = JOB_RUNNING;
        job->started = now;
        job->attempts++;
    }
    return 0;
}

/* One transition by one statement; that it touched no row means that the job was not in a state that allows it. */
static int transition(struct store *store, const char *id, const char *doing, sqlite3_stmt *(*make)(sqlite3 *, void *),
                      void *context)
{
    int result = begin(store), changed = 0;
    if (result)
        return result;
    result = change(store->writer.db, make(store->writer.db, context), &changed);
    if (!result && changed != 1)
        result = err_set(ERR_CONFLICT, "Job %.40s is not in a state in which %s is possible.", id, doing);
    return end(store, result);
}

struct ending {
    const char *id;
    enum job_state state;
    json_t *error, *results, *report;
};

static sqlite3_stmt *ending_make(sqlite3 *db, void *context)
{
    const struct ending *e = context;
    return prepare(db,
                   "UPDATE job SET state = ?, finished = ?, error = ?, results = ?, report = ? WHERE id = ? AND state "
                   "IN (0, 1, 2)",
                   "iijjjs", (int64_t)e->state, clock_milliseconds(), e->error, e->results, e->report, e->id);
}

int store_succeed(struct store *store, const char *id, json_t *results, json_t *report)
{
    struct ending ending = {.id = id, .state = JOB_SUCCEEDED, .results = results, .report = report};
    return transition(store, id, "success", ending_make, &ending);
}

int store_fail(struct store *store, const char *id, const struct err *failure)
{
    struct ending ending = {.id = id, .state = JOB_FAILED, .error = wire_error_pack(failure)};
    int result = transition(store, id, "failure", ending_make, &ending);
    json_decref(ending.error);
    return result;
}

int store_canceled(struct store *store, const char *id)
{
    struct ending ending = {.id = id, .state = JOB_CANCELED};
    return transition(store, id, "cancellation", ending_make, &ending);
}

struct requeue {
    const char *id;
    bool died;
};

static sqlite3_stmt *requeue_make(sqlite3 *db, void *context)
{
    const struct requeue *r = context;
    return prepare(db, "UPDATE job SET state = ?, started = 0, deaths = deaths + ? WHERE id = ? AND state = ?", "iisi",
                   (int64_t)JOB_QUEUED, (int64_t)r->died, r->id, (int64_t)JOB_RUNNING);
}

int store_requeue(struct store *store, const char *id, bool died)
{
    struct requeue requeue = {id, died};
    return transition(store, id, "another try", requeue_make, &requeue);
}

/* The state of a job, inside a transaction. */
static int state_read(sqlite3 *db, const char *id, enum job_state *state)
{
    sqlite3_stmt *statement = prepare(db, "SELECT state FROM job WHERE id = ?", "s", id);
    if (!statement)
        return err_last()->code;
    int step = sqlite3_step(statement), result = 0;
    if (step == SQLITE_ROW)
        *state = (enum job_state)sqlite3_column_int(statement, 0);
    else
        result = step == SQLITE_DONE ? not_found(id) : failed(db, "reading a job");
    sqlite3_finalize(statement);
    return result;
}

int store_cancel(struct store *store, const char *id, enum job_state *state)
{
    int result = begin(store), changed;
    if (result)
        return result;
    sqlite3 *db = store->writer.db;
    enum job_state now = JOB_QUEUED;
    result = state_read(db, id, &now);
    if (!result && (now == JOB_SUCCEEDED || now == JOB_FAILED))
        result = err_set(ERR_CONFLICT, "Job %.40s has already %s; there is nothing to cancel.", id, states[now].name);
    if (!result && now == JOB_QUEUED)
        result = change(db,
                        prepare(db, "UPDATE job SET state = ?, finished = ? WHERE id = ?", "iis",
                                (int64_t)(now = JOB_CANCELED), clock_milliseconds(), id),
                        &changed);
    else if (!result && now == JOB_RUNNING)
        result =
            change(db, prepare(db, "UPDATE job SET state = ? WHERE id = ?", "is", (int64_t)(now = JOB_CANCELING), id),
                   &changed);
    result = end(store, result);
    if (!result)
        *state = now;
    return result;
}

int store_delete(struct store *store, const char *id)
{
    int result = begin(store), changed;
    if (result)
        return result;
    sqlite3 *db = store->writer.db;
    enum job_state now = JOB_QUEUED;
    result = state_read(db, id, &now);
    if (!result && !states[now].final)
        result = err_set(ERR_CONFLICT, "Job %.40s is %s. Cancel it first: POST /v1/jobs/%.40s/cancel.", id,
                         states[now].name, id);
    if (!result)
        result = change(db, prepare(db, "DELETE FROM job WHERE id = ?", "s", id), &changed);
    return end(store, result);
}

/* ---- reading ---- */

int store_get(struct store *store, const char *id, struct job *job)
{
    int count = 0;
    pthread_mutex_lock(&store->reader.lock);
    sqlite3 *db = store->reader.db;
    int result = rows_read(db, prepare(db, "SELECT " COLUMNS " FROM job WHERE id = ?", "s", id), job, 1, &count);
    pthread_mutex_unlock(&store->reader.lock);
    return !result && !count ? not_found(id) : result;
}

int store_list(struct store *store, int64_t before, int state, struct job *jobs, int limit, int *count)
{
    pthread_mutex_lock(&store->reader.lock);
    sqlite3 *db = store->reader.db;
    int64_t older = before > 0 ? before : INT64_MAX;
    int result = rows_read(
        db,
        state < 0
            ? prepare(db, "SELECT " COLUMNS " FROM job WHERE sequence < ? ORDER BY sequence DESC LIMIT ?", "ii", older,
                      (int64_t)limit)
            : prepare(db, "SELECT " COLUMNS " FROM job WHERE sequence < ? AND state = ? ORDER BY sequence DESC LIMIT ?",
                      "iii", older, (int64_t)state, (int64_t)limit),
        jobs, limit, count);
    pthread_mutex_unlock(&store->reader.lock);
    return result;
}

int store_each(struct store *store, int (*each)(void *context, const char *id, enum job_state state), void *context)
{
    pthread_mutex_lock(&store->reader.lock);
    sqlite3 *db = store->reader.db;
    sqlite3_stmt *statement = prepare(db, "SELECT id, state FROM job ORDER BY sequence", "");
    int result = statement ? 0 : err_last()->code, step = SQLITE_DONE, stop = 0;
    while (!result && !stop && (step = sqlite3_step(statement)) == SQLITE_ROW) {
        char id[JOB_ID];
        column_text(statement, 0, id, sizeof id);
        stop = each(context, id, (enum job_state)sqlite3_column_int(statement, 1));
    }
    if (!result && !stop && step != SQLITE_DONE)
        result = failed(db, "reading jobs");
    sqlite3_finalize(statement);
    pthread_mutex_unlock(&store->reader.lock);
    return result;
}

int store_counts(struct store *store, int64_t counts[JOB_STATES], int64_t *oldest)
{
    memset(counts, 0, sizeof *counts * JOB_STATES);
    *oldest = 0;
    pthread_mutex_lock(&store->reader.lock);
    sqlite3 *db = store->reader.db;
    sqlite3_stmt *statement = prepare(
        db,
        "SELECT state, count(*), (SELECT created FROM job WHERE state = 0 ORDER BY sequence LIMIT 1) FROM job GROUP BY "
        "state",
        "");
    int result = statement ? 0 : err_last()->code, step = SQLITE_DONE;
    while (!result && (step = sqlite3_step(statement)) == SQLITE_ROW) {
        int state = sqlite3_column_int(statement, 0);
        if (state >= 0 && state < JOB_STATES)
            counts[state] = sqlite3_column_int64(statement, 1);
        *oldest = sqlite3_column_int64(statement, 2);
    }
    if (!result && step != SQLITE_DONE)
        result = failed(db, "counting jobs");
    sqlite3_finalize(statement);
    pthread_mutex_unlock(&store->reader.lock);
    return result;
}

int store_check(struct store *store)
{
    /* A write that changes nothing still takes the write lock and meets a read-only or vanished file. */
    int result = begin(store), changed;
    if (result)
        return result;
    result = change(store->writer.db, prepare(store->writer.db, "UPDATE job SET state = state WHERE sequence = 0", ""),
                    &changed);
    return end(store, result);
}
