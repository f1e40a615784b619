/* The thread that writes the store. */
#include "daemon/store/store_parts.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BATCH = 256,        /* most changes in one transaction */
    PROOF_SECONDS = 1,  /* interval of test writes when idle */
    SAVE_SECONDS = 5,   /* after a failure to save the contents of a store that was removed */
    STUCK_SECONDS = 10, /* a longer transaction means that the disk does not respond */
    LOG_PAGES = 1000,   /* of the write-ahead log, from which on it is moved into jobs.db when no change comes .. */
    LOG_PAGES_MOST = 8 * LOG_PAGES /* .. and from which on, after the next commit */
};

#define REST_SECONDS 2e-3 /* without a change, after which one will hardly wait for that */

/* ---- transactions ---- */

/* Whether commits fsync. A commit with fsync includes all earlier ones without. */
static int sync_set(struct store *store, bool soft)
{
    if (store->soft == soft)
        return 0;
    int rc = sql_run(store->writer.db, soft ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL",
                     "setting up a change");
    if (!rc)
        store->soft = soft;
    return rc;
}

/* Save all committed contents to a file beside the one that lost its name. */
static void contents_save(struct store *store)
{
    char path[sizeof store->saved];
    int length = snprintf(path, sizeof path, "%s.saved-%lld", store->file[0].path, (long long)clock_milliseconds());
    char *sql = length < (int)sizeof path ? sqlite3_mprintf("VACUUM INTO %Q", path) : NULL;
    store->save_at = clock_seconds() + SAVE_SECONDS;
    if (sql && sqlite3_exec(store->writer.db, sql, NULL, NULL, NULL) == SQLITE_OK)
        memcpy(store->saved, path, sizeof path);
    else if (sql)
        unlink(path);
    sqlite3_free(sql);
}

/* Whether the path now names another file, or none. */
static bool is_gone(struct file_identity *file)
{
    struct stat there;
    bool found = stat(file->path, &there) == 0;
    if (found && !file->inode) {
        file->device = there.st_dev;
        file->inode = there.st_ino;
    }
    return found ? there.st_ino != file->inode || there.st_dev != file->device : errno == ENOENT && file->inode;
}

/* Writes to a file without a name are lost at the end of the process. */
static int files_check(struct store *store)
{
    for (int i = 0; i < 2; i++) {
        if (!is_gone(&store->file[i]))
            continue;
        if (!*store->saved && clock_seconds() >= store->save_at)
            contents_save(store);
        return err_set(ERR_STORE,
                       "The job store's file %s was removed or replaced while it is in use: no changes are accepted. "
                       "Put it back, or stop mrirecond and follow Recovery in docs/operations.md%s%s.",
                       store->file[i].path, *store->saved ? "; all jobs are saved in " : "", store->saved);
    }
    return 0;
}

static int transaction_begin(struct store *store, bool soft)
{
    int gone = files_check(store);
    if (gone)
        return gone;
    bool clock_set = store_clock_read(store);
    int rc = sync_set(store, soft && !clock_set);
    if (!rc)
        rc = sql_run(store->writer.db, "BEGIN IMMEDIATE", "beginning a change");
    return rc ? rc : store_clock_move(store);
}

static int commit(struct store *store, int rc)
{
    sqlite3 *db = store->writer.db;
    if (!rc)
        rc = sql_run(db, "COMMIT", "committing a change");
    if (rc && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* Run one change, rolled back if it fails. Non-zero: the whole transaction was lost. */
static int change_apply(struct store *store, struct change *change)
{
    sqlite3 *db = store->writer.db;
    size_t before = store->entries;
    int rc = sql_run(db, "SAVEPOINT one", "beginning a change");
    if (rc)
        return rc;
    change->rc = change->apply(store, change->context);
    if (change->rc) {
        change->failure = *err_last();
        store->entries = before;
        if (sqlite3_get_autocommit(db)) /* SQLite rolled back the whole transaction, as on a full disk */
            return change->rc;
        rc = sql_run(db, "ROLLBACK TO one", "undoing a change");
    }
    return rc ? rc : sql_run(db, "RELEASE one", "ending a change");
}

/* Run the changes of a list in one transaction, and set their return codes. */
static int changes_commit(struct store *store, struct change *first)
{
    bool soft = true;
    for (struct change *change = first; change; change = change->next)
        soft = soft && change->soft;
    int rc = transaction_begin(store, soft);
    for (struct change *change = first; !rc && change; change = change->next)
        rc = change_apply(store, change);
    rc = commit(store, rc);
    if (!rc) {
        store_clock_moved(store);
        tally_add(store);
        return 0;
    }
    store->entries = 0;
    for (struct change *change = first; change; change = change->next) {
        if (!change->rc)
            change->failure = *err_last();
        change->rc = change->failure.code;
    }
    return rc;
}

/* A write that changes nothing still takes the write lock and detects a read-only or vanished file. After a failure
 * (`again`) it is fsynced: that alone shows that the disk works again, and it overwrites the frames of the failed
 * transaction in the log, which a start after a crash would take for committed ones. */
static int prove(struct store *store, bool again)
{
    struct connection *writer = &store->writer;
    int rc = transaction_begin(store, false);
    if (!rc)
        rc = again
                 ? schema_touch(writer)
                 : sql_change(writer, sql_prepare(writer, "UPDATE job SET state = state WHERE sequence = 0", ""), NULL);
    rc = commit(store, rc);
    if (!rc)
        store_clock_moved(store);
    return rc;
}

/* ---- the write-ahead log ---- */

/* After each commit, instead of SQLite's own hook, which would move the log within the commit of a change. */
static int log_note(void *context, sqlite3 *db, const char *name, int pages)
{
    (void)db;
    (void)name;
    ((struct store *)context)->log_pages = pages;
    return SQLITE_OK;
}

/* As SQLite does by itself: a failure is left to the next one, since the log still has everything. Under the lock,
 * which is given up meanwhile. */
static void log_move(struct store *store)
{
    store->busy_since = clock_seconds();
    pthread_mutex_unlock(&store->lock);
    sqlite3_wal_checkpoint_v2(store->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    pthread_mutex_lock(&store->lock);
    store->busy_since = 0;
    store->log_pages = 0;
}

/* ---- the thread ---- */

/* Take up to BATCH changes from the list. Under the lock. */
static struct change *changes_take(struct store *store)
{
    struct change *first = store->first, *last = first;
    for (int i = 1; i < BATCH && last && last->next; i++)
        last = last->next;
    store->first = last ? last->next : NULL;
    if (last)
        last->next = NULL;
    if (!store->first)
        store->last = &store->first;
    return first;
}

static void *writer_run(void *context)
{
    struct store *store = context;
    pthread_mutex_lock(&store->lock);
    while (store->first || !store->closing) {
        const bool full = store->log_pages >= LOG_PAGES, due = store->log_pages >= LOG_PAGES_MOST;
        double until = clock_seconds() + (full ? REST_SECONDS : PROOF_SECONDS);
        int waited = 0;
        while (!store->first && !store->closing && !due && waited != ETIMEDOUT)
            waited = thread_cond_wait(&store->news, &store->lock, until);
        if (!store->first && store->closing)
            break;
        if (due || (full && !store->first)) {
            log_move(store);
            continue;
        }
        struct change *first = changes_take(store);
        bool failed = store->health.code != 0;
        store->busy_since = clock_seconds();
        pthread_mutex_unlock(&store->lock);
        int rc = first ? changes_commit(store, first) : prove(store, failed);
        /* Not every change writes: success alone does not show that the disk works again. */
        if (first && (rc || failed))
            rc = prove(store, true);
        pthread_mutex_lock(&store->lock);
        store->health.code = 0;
        if (rc)
            store->health = *err_last();
        store->busy_since = 0;
        for (struct change *change = first, *next; change; change = next) {
            next = change->next; /* the change is on its caller's stack and may vanish once it is done */
            change->done = true;
            pthread_cond_signal(&change->settled);
        }
    }
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

static int change_run(struct store *store, int (*apply)(struct store *store, void *context), void *context, bool soft)
{
    struct change change = {.apply = apply, .context = context, .soft = soft};
    pthread_cond_init(&change.settled, NULL);
    pthread_mutex_lock(&store->lock);
    *store->last = &change;
    /* cppcheck-suppress autoVariables ; the writer takes the change off the list before it is done */
    store->last = &change.next;
    pthread_cond_signal(&store->news);
    while (!change.done)
        pthread_cond_wait(&change.settled, &store->lock);
    pthread_mutex_unlock(&store->lock);
    pthread_cond_destroy(&change.settled);
    return change.rc ? err_restore(&change.failure) : 0;
}

int store_change(struct store *store, int (*apply)(struct store *store, void *context), void *context)
{
    return change_run(store, apply, context, false);
}

int store_change_soft(struct store *store, int (*apply)(struct store *store, void *context), void *context)
{
    return change_run(store, apply, context, true);
}

static int time_apply(struct store *store, void *now)
{
    *(int64_t *)now = store->now;
    return 0;
}

int store_time(struct store *store, int64_t *now)
{
    return store_change_soft(store, time_apply, now);
}

int store_check(struct store *store)
{
    pthread_mutex_lock(&store->lock);
    struct err health = store->health;
    double busy = store->busy_since > 0 ? clock_seconds() - store->busy_since : 0;
    pthread_mutex_unlock(&store->lock);
    if (busy > STUCK_SECONDS)
        return err_set(ERR_STORE, "The job store has been writing for %.0f s. Its disk may not answer; see its health.",
                       busy);
    return health.code ? err_restore(&health) : 0;
}

int writer_start(struct store *store)
{
    store->file[0].path = sqlite3_db_filename(store->writer.db, "main");
    store->file[1].path = sqlite3_filename_wal(store->file[0].path);
    sqlite3_wal_hook(store->writer.db, log_note, store);
    int rc = thread_start(&store->thread, writer_run, store, "writes the job store");
    store->threaded = !rc;
    return rc;
}

void writer_stop(struct store *store)
{
    if (!store->threaded)
        return;
    pthread_mutex_lock(&store->lock);
    store->closing = true;
    pthread_cond_signal(&store->news);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->thread, NULL);
}
