/* --repair-state: copies the readable rows of a damaged job store into a new one. */
#include "daemon/repair/store_check.h"

#include "daemon/base/clock.h"
#include "daemon/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRESH "jobs.db.new"

/* Number of rows to try if the store does not say how many it had. */
enum { SEQUENCES_UNKNOWN = 1 << 20 };

/* ---- rows ---- */

/* INSERT of the row's columns, of whatever version they are. NULL: failed. */
static sqlite3_stmt *copy_prepare(sqlite3 *db, sqlite3_stmt *row)
{
    sqlite3_str *sql = sqlite3_str_new(db);
    sqlite3_stmt *copy = NULL;
    int columns = sqlite3_column_count(row);
    sqlite3_str_appendall(sql, "INSERT OR IGNORE INTO job (");
    for (int i = 0; i < columns; i++)
        sqlite3_str_appendf(sql, "%s\"%w\"", i ? ", " : "", sqlite3_column_name(row, i));
    sqlite3_str_appendall(sql, ") VALUES (");
    for (int i = 0; i < columns; i++)
        sqlite3_str_appendall(sql, i ? ", ?" : "?");
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    if (text)
        sqlite3_prepare_v2(db, text, -1, &copy, NULL);
    sqlite3_free(text);
    return copy;
}

/* The highest sequence that the old store mentions; 0: none. */
static int64_t sequences(struct connection *old)
{
    int64_t told = 0, last = 0;
    if (sql_number(old, sql_prepare(old, "SELECT seq FROM sqlite_sequence WHERE name = 'job'", ""), &told))
        told = 0;
    if (sql_number(old, sql_prepare(old, "SELECT max(sequence) FROM job", ""), &last))
        last = 0;
    return told > last ? told : last;
}

/* Insert the row by `copy`, unless its values are invalid: these count as unreadable. *copied: counts inserted rows;
 * NULL: not counted. */
static int row_copy(struct connection *fresh, sqlite3_stmt *row, sqlite3_stmt *copy, int *copied)
{
    for (int i = 0; i < sqlite3_column_count(row); i++)
        sqlite3_bind_value(copy, i + 1, sqlite3_column_value(row, i));
    const int step = sqlite3_step(copy);
    const bool failed = step == SQLITE_FULL || step == SQLITE_IOERR;
    const int rc = failed ? sql_failed(fresh->db, "writing the new job store") : 0;
    if (copied && step == SQLITE_DONE)
        *copied += sqlite3_changes(fresh->db);
    sqlite3_reset(copy);
    return rc;
}

/* Rows of the old store: those that are in the new one, and all; ROWS_UNKNOWN: it does not say how many it had. */
struct rows {
    int copied;
    int64_t all;
};
enum { ROWS_UNKNOWN = -1 };

/* Row by row: an unreadable page loses only its own rows. */
static int rows_copy(struct connection *old, struct connection *fresh, struct rows *rows)
{
    sqlite3_stmt *row = NULL, *copy = NULL;
    int rc = 0;
    if (sqlite3_prepare_v2(old->db, "SELECT * FROM job WHERE sequence = ?", -1, &row, NULL) != SQLITE_OK) {
        const int code = sqlite3_errcode(old->db);
        const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR;
        return damaged ? 0 : sql_failed(old->db, "reading the old one");
    }
    copy = copy_prepare(fresh->db, row);
    if (!copy)
        rc = sql_failed(fresh->db, "making the new job store");
    int64_t known = sequences(old), most = known > 0 ? known : SEQUENCES_UNKNOWN, all = 0;
    for (int64_t sequence = 1; !rc && sequence <= most; sequence++) {
        sqlite3_bind_int64(row, 1, sequence);
        const int step = sqlite3_step(row);
        if (step == SQLITE_ROW)
            rc = row_copy(fresh, row, copy, &rows->copied);
        all += step != SQLITE_DONE;
        sqlite3_reset(row);
    }
    if (known > 0)
        rows->all = all;
    sqlite3_finalize(row);
    sqlite3_finalize(copy);
    return rc;
}

/* The outbox, of jobs that were copied; what cannot be read is lost. A store of an earlier version has none. */
static int deliveries_copy(struct connection *old, struct connection *fresh)
{
    sqlite3_stmt *row = NULL, *copy = NULL;
    int rc = 0;
    if (sqlite3_prepare_v2(old->db,
                           "SELECT job, destination, iif(state = 1, 0, state), attempts, created, due, ended, "
                           "answer FROM delivery",
                           -1, &row, NULL) != SQLITE_OK)
        return 0;
    if (sqlite3_prepare_v2(
            fresh->db,
            "INSERT OR IGNORE INTO delivery (job, destination, state, attempts, created, due, ended, "
            "answer) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE EXISTS (SELECT 1 FROM job WHERE id = ?1)",
            -1, &copy, NULL) != SQLITE_OK)
        rc = sql_failed(fresh->db, "making the new job store");
    while (!rc && sqlite3_step(row) == SQLITE_ROW)
        rc = row_copy(fresh, row, copy, NULL);
    sqlite3_finalize(row);
    sqlite3_finalize(copy);
    return rc;
}

/* Remove rows with values that the daemon never wrote. */
static int rows_sift(struct connection *fresh, int *copied)
{
    int bad = 0;
    int rc = sql_change(
        fresh,
        sql_prepare(fresh,
                    "DELETE FROM job WHERE length(id) <> 26 OR id GLOB '*[^0-9a-z]*' OR typeof(bytes) <> 'integer' OR "
                    "bytes < 0 OR NOT json_valid(parameters) OR NOT json_valid(formats) OR "
                    "NOT json_valid(coalesce(error, '{}')) OR NOT json_valid(coalesce(results, '[]')) OR "
                    "NOT json_valid(coalesce(report, '{}'))",
                    ""),
        &bad);
    *copied -= bad;
    return rc;
}

/* A job that lacks files runs again if its scan exists, and fails otherwise. */
static int row_mend(const struct spool *spool, struct connection *fresh, sqlite3_stmt *row, enum lack lack, FILE *out)
{
    struct stat scan;
    char id[JOB_ID];
    snprintf(id, sizeof id, "%s", (const char *)sqlite3_column_text(row, 0));
    const enum disk_sight seen = lack == LACK_UNREAD ? DISK_UNSEEN : disk_look(spool->scans, id, &scan);
    if (seen == DISK_UNSEEN) /* not to be lost if the disk shows it later */
        return disk_failed("looking for the files of a job");
    const bool again = lack == LACK_RESULTS && seen == DISK_THERE && scan.st_size == sqlite3_column_int64(row, 2);
    json_t *error = NULL;
    if (!again) {
        err_set(ERR_IO, lack == LACK_SCAN
                            ? "The uploaded scan is no longer on the server's disk. Submit it again."
                            : "The results are no longer on the server's disk, nor is the scan. Submit it again.");
        error = wire_error_pack(err_last());
    }
    int rc = sql_change(
        fresh,
        sql_prepare(fresh,
                    "UPDATE job SET state = ?, finished = ?, started = 0, error = ?, results = NULL, report "
                    "= NULL, kept = 0, kept_scan = 0 WHERE id = ?",
                    "iijs", (int64_t)(again ? JOB_QUEUED : JOB_FAILED), again ? 0 : clock_milliseconds(), error, id),
        NULL);
    json_decref(error);
    fprintf(out, "job %s: %s\n", id,
            again ? "runs again because its results are incomplete" : "failed because its files are lost");
    return rc;
}

static int rows_mend(const struct spool *spool, struct connection *fresh, FILE *out)
{
    /* Ordered by id, so that rows changed meanwhile do not appear twice. */
    sqlite3_stmt *row = NULL;
    if (sqlite3_prepare_v2(fresh->db, "SELECT id, state, bytes, results FROM job ORDER BY id", -1, &row, NULL) !=
        SQLITE_OK)
        return sql_failed(fresh->db, "reading the new job store");
    int rc = 0;
    while (!rc && sqlite3_step(row) == SQLITE_ROW) {
        enum lack lack = row_lacks(spool, row);
        if (lack != LACK_NOTHING)
            rc = row_mend(spool, fresh, row, lack, out);
    }
    sqlite3_finalize(row);
    return rc;
}

/* ---- files ---- */

struct find {
    const struct spool *spool;
    int folder;         /* source folder */
    const char *ending; /* in found-TIME/ */
    int64_t time;
    int moved;
};

static void find_move(void *context, const char *id)
{
    struct find *find = context;
    char kept[64];
    snprintf(kept, sizeof kept, "%s%s", id, find->ending);
    find->moved += spool_found_keep(find->spool, find->time, find->folder, id, kept);
}

/* Move scans and results without a row to found-TIME/, where a start does not remove them and people can examine them.
 */
static int orphans_keep(const struct spool *spool, struct connection *fresh, int64_t time, FILE *out)
{
    struct find scans = {spool, spool->scans, ".scan", time, 0}, results = {spool, spool->results, ".results", time, 0};
    int count, rc = orphans_each(spool, fresh, spool->scans, find_move, &scans, &count);
    if (!rc)
        rc = orphans_each(spool, fresh, spool->results, find_move, &results, &count);
    if (scans.moved || results.moved)
        fprintf(out,
                "%d scans and %d results whose rows are lost were moved to found-%lld/: submit the scans again, with "
                "the parameters that they had\n",
                scans.moved, results.moved, (long long)time);
    return !rc && (scans.moved || results.moved) ? spool_found_sync(spool, time) : rc;
}

/* Put the repaired store in the place of the old one, which is kept. The old one's log must not be read into it, nor be
 * missed by the old one: in between, no start takes jobs.db. */
static int swap_end(const struct spool *spool)
{
    static const char *const logs[] = {"jobs.db-shm", "jobs.db-wal"};
    const int folder = spool->state;
    for (int i = 0; i < 2; i++)
        if (unlinkat(folder, logs[i], 0) < 0 && errno != ENOENT)
            return err_set(ERR_IO, "The old job store's %s cannot be removed: %s. Run this again.", logs[i],
                           strerror(errno));
    if (fsync(folder) < 0 || renameat(folder, STORE_REPAIRED, folder, "jobs.db") < 0 || fsync(folder) < 0)
        return err_set(ERR_IO, "The new job store cannot take its place: %s. Run this again.", strerror(errno));
    return 0;
}

/* Put the new store in the place of the old one, which keeps its log and gets another name. */
static int stores_swap(const struct spool *spool, int64_t time, FILE *out)
{
    static const char *const endings[] = {"", "-wal"};
    int folder = spool->state;
    if (!spool_owner_give(spool, FRESH))
        return err_set(
            ERR_IO,
            "The new job store cannot be given to the state folder's owner: %s. Run this as root, or as that account.",
            strerror(errno));
    for (int i = 0; i < 2; i++) {
        char from[32], to[64];
        snprintf(from, sizeof from, "jobs.db%s", endings[i]);
        snprintf(to, sizeof to, "jobs.db.damaged-%lld%s", (long long)time, endings[i]);
        const bool kept = linkat(folder, from, folder, to, 0) == 0;
        if (!kept && errno != ENOENT)
            return err_set(ERR_IO, "%s cannot be kept as %s: %s.", from, to, strerror(errno));
        if (kept)
            fprintf(out, "%s is kept as %s\n", i ? "its log" : "the old job store", to);
    }
    /* The first fsync is for the names of what is kept. */
    if (fsync(folder) < 0 || renameat(folder, FRESH, folder, STORE_REPAIRED) < 0 || fsync(folder) < 0)
        return err_set(ERR_IO, "The new job store cannot take its place: %s.", strerror(errno));
    return swap_end(spool);
}

/* ---- all steps ---- */

static void rows_tell(const struct rows *rows, FILE *out)
{
    if (rows->all != ROWS_UNKNOWN)
        fprintf(out, "%d jobs were read from the old job store, %lld could not be read\n", rows->copied,
                (long long)rows->all - rows->copied);
    else if (rows->copied)
        fprintf(out, "%d jobs were read from the old job store; it does not say how many it had\n", rows->copied);
    else
        fputs("no job could be read from the old job store\n", out);
}

/* Make the new store, in the place of one that an interrupted repair left. */
static int fresh_open(struct connection *fresh, const struct spool *spool, const char *state_dir)
{
    char path[4096];
    unlinkat(spool->state, FRESH, 0);
    /* Root may run this, and follows no link that the service's account has made there meanwhile. SQLite refuses links
     * in the whole path, and systemd makes the state folder's one. */
    char *real = realpath(state_dir, NULL);
    if (!real)
        return err_set(ERR_IO, "The path of %s cannot be resolved: %s.", state_dir, strerror(errno));
    const int length = snprintf(path, sizeof path, "%s/" FRESH, real);
    free(real);
    if (length >= (int)sizeof path)
        return err_set(ERR_IO, "The path of %s is too long; it may have %zu bytes.", state_dir,
                       sizeof path - sizeof "/" FRESH);
    return connection_open(fresh, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW);
}

static int rebuild(const struct spool *spool, const char *state_dir, bool store, int64_t time, FILE *out)
{
    struct connection old = {.db = NULL}, fresh = {.db = NULL};
    struct rows rows = {0, ROWS_UNKNOWN};
    int64_t version;
    bool there = false, damaged;
    int rc = fresh_open(&fresh, spool, state_dir);
    if (!rc)
        rc = sql_run(fresh.db, "PRAGMA synchronous = FULL", "making the new job store");
    if (!rc)
        rc = schema_make(&fresh);
    if (!rc)
        rc = sql_run(fresh.db, "BEGIN", "making the new job store");
    if (!rc)
        rc = store_is_there(spool, &there);
    if (!rc && there)
        rc = store_open(&old, state_dir, &version, &damaged);
    /* SQLite refuses a file that is shorter than its header says, unless the schema is writable; this connection only
     * reads. */
    if (!rc && there)
        rc = sql_run(old.db, "PRAGMA writable_schema = ON", "opening it");
    if (!rc && there)
        rc = rows_copy(&old, &fresh, &rows);
    if (!rc)
        rc = rows_sift(&fresh, &rows.copied);
    if (!rc && there)
        rc = deliveries_copy(&old, &fresh);
    if (!rc)
        rc = rows_mend(spool, &fresh, out);
    if (!rc)
        rc = sql_run(fresh.db, "COMMIT", "writing the new job store");
    if (!rc)
        rows_tell(&rows, out);
    if (!rc && !store)
        rc = orphans_keep(spool, &fresh, time, out);
    connection_close(&old);
    connection_close(&fresh);
    return rc ? rc : stores_swap(spool, time, out);
}

int state_repair(const char *state_dir, FILE *out)
{
    struct spool *spool;
    struct findings found;
    int64_t time = clock_milliseconds();
    int rc = state_look(state_dir, out, &spool, &found);
    bool sound = found.store && found.files && found.uploads, mended = true, between = false;
    if (!rc)
        rc = store_is_between(spool, &between);
    if (!rc && between)
        rc = swap_end(spool);
    else if (!rc && !(found.store && found.files))
        rc = rebuild(spool, state_dir, found.store, time, out);
    if (!rc && !found.uploads)
        rc = uploads_look(spool, time, out, &mended);
    if (!rc && !mended)
        rc = err_set(ERR_IO, "Not everything could be repaired; see above.");
    if (!rc)
        fputs(sound ? "The state folder is sound; nothing was changed.\n"
                    : "The state folder is repaired. Start mrirecond.\n",
              out);
    spool_free(spool);
    return rc;
}
