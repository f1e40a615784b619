/* --check-state: reads the whole job store, and compares its rows with the files. */
#include "daemon/repair/store_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAVED "jobs.db.saved-" /* as store_writer.c names it; followed by a time of as many digits */

enum { TOLD = 20 }; /* findings of one sort that are listed */

/* ---- files ---- */

/* *error: set to errno if the disk does not show the file: it may be there. */
static bool file_is(int folder, const char *name, int64_t bytes, int *error)
{
    struct stat there;
    const enum disk_sight seen = disk_look(folder, name, &there);
    if (seen == DISK_UNSEEN)
        *error = errno;
    return seen == DISK_THERE && S_ISREG(there.st_mode) && there.st_size == bytes;
}

/* At a start, a job without a scan file takes it from its resumable upload. */
static bool scan_is(const struct spool *spool, const char *id, int64_t bytes, int *error)
{
    char upload[JOB_ID + 16];
    snprintf(upload, sizeof upload, "uploads/%.*s", JOB_ID - 1, id);
    return spool_is_id(id) && (file_is(spool->scans, id, bytes, error) || file_is(spool->state, upload, bytes, error));
}

static bool results_are(const struct spool *spool, const char *id, const char *list, int *error)
{
    json_t *results = list ? json_loads(list, 0, NULL) : NULL;
    bool there = json_array_size(results) > 0;
    size_t i;
    json_t *result;
    json_array_foreach (results, i, result) {
        char path[JOB_ID + SPOOL_NAME];
        const char *name = json_string_value(json_object_get(result, "name"));
        snprintf(path, sizeof path, "%s/%s", id, name ? name : "");
        there = there && name && spool_is_name(name) &&
                file_is(spool->results, path, json_integer_value(json_object_get(result, "bytes")), error);
    }
    json_decref(results);
    return there;
}

enum lack row_lacks(const struct spool *spool, sqlite3_stmt *row)
{
    const char *id = (const char *)sqlite3_column_text(row, 0);
    const int state = sqlite3_column_int(row, 1);
    const int64_t bytes = sqlite3_column_int64(row, 2);
    int error = 0;
    enum lack lack = LACK_NOTHING;
    if (!id || ((state == JOB_QUEUED || state == JOB_RUNNING) && !scan_is(spool, id, bytes, &error)))
        lack = LACK_SCAN;
    else if (state == JOB_SUCCEEDED && !results_are(spool, id, (const char *)sqlite3_column_text(row, 3), &error))
        lack = LACK_RESULTS;
    errno = error;
    return lack != LACK_NOTHING && error ? LACK_UNREAD : lack;
}

int orphans_each(const struct spool *spool, struct connection *connection, int folder,
                 void (*each)(void *context, const char *id), void *context, int *count)
{
    struct disk_names names;
    int rc = disk_names_read(folder, "looking for files without a job", &names);
    *count = 0;
    for (const char *name = NULL; !rc && (name = disk_names_next(&names, name));) {
        int64_t rows = 0;
        if (!spool_is_id(name) || spool_has_upload(spool, name))
            continue;
        if (connection &&
            sql_number(connection, sql_prepare(connection, "SELECT count(*) FROM job WHERE id = ?", "s", name), &rows))
            rows = 1; /* unknown; a store that cannot be read is reported elsewhere */
        if (rows)
            continue;
        ++*count;
        if (each)
            each(context, name);
    }
    disk_names_free(&names);
    return rc;
}

int orphans_count(const struct spool *spool, struct connection *connection, int *scans, int *results)
{
    int rc = orphans_each(spool, connection, spool->scans, NULL, NULL, scans);
    return rc ? rc : orphans_each(spool, connection, spool->results, NULL, NULL, results);
}

/* The copy that a daemon saved when jobs.db was removed while it ran; "": there is none. Fails as disk_failed(). */
static int saved_find(const struct spool *spool, char found[64])
{
    struct disk_names names;
    int rc = disk_names_read(spool->state, "looking for a copy of the job store", &names);
    found[0] = '\0';
    for (const char *name = NULL; !rc && (name = disk_names_next(&names, name));)
        if (strncmp(name, SAVED, strlen(SAVED)) == 0 && strlen(name) < 64 && strcmp(name, found) > 0)
            snprintf(found, 64, "%.63s", name);
    disk_names_free(&names);
    return rc;
}

/* Set *bytes to the length of the file `name` of the state folder, 0 if there is none. Fails as disk_failed(). */
static int file_bytes(const struct spool *spool, const char *name, int64_t *bytes)
{
    struct stat there;
    const int found = fstatat(spool->state, name, &there, 0);
    *bytes = found == 0 ? there.st_size : 0;
    return found == 0 || errno == ENOENT ? 0 : disk_failed("looking for the job store");
}

/* Whether jobs.db, without its log, is a database without tables: of a copy, or of a first start that was killed. */
static int store_is_blank(const struct spool *spool, bool *blank)
{
    static const char magic[16] = "SQLite format 3";
    enum { VERSION = 60, HEADER = 100 }; /* of SQLite's file format; VERSION: where user_version is, of 4 bytes */
    char header[HEADER] = "";
    const int file = openat(spool->state, "jobs.db", O_RDONLY | O_CLOEXEC);
    const ssize_t got = file < 0 ? -1 : pread(file, header, sizeof header, 0);
    const int error = errno;
    if (file >= 0)
        close(file);
    errno = error;
    if (got < 0 && errno != EACCES && errno != EISDIR) /* of these SQLite tells more */
        return disk_failed("reading the job store");
    *blank = memcmp(header, magic, sizeof magic) == 0 && memcmp(header + VERSION, (char[4]){0}, 4) == 0;
    return 0;
}

int store_is_there(const struct spool *spool, bool *there)
{
    int64_t bytes, log = 0;
    bool blank = false;
    int rc = file_bytes(spool, "jobs.db", &bytes);
    if (!rc)
        rc = file_bytes(spool, "jobs.db-wal", &log);
    if (!rc && bytes && !log)
        rc = store_is_blank(spool, &blank);
    *there = !rc && bytes && !blank;
    return rc;
}

int store_is_between(const struct spool *spool, bool *between)
{
    struct stat repaired;
    const enum disk_sight seen = disk_look(spool->state, STORE_REPAIRED, &repaired);
    *between = seen == DISK_THERE;
    return seen == DISK_UNSEEN ? disk_failed("looking for a repaired job store") : 0;
}

int state_expect(const struct spool *spool)
{
    char saved[64];
    int64_t log = 0;
    int scans = 0, results = 0;
    bool there, between;
    int rc = store_is_between(spool, &between);
    if (!rc && between)
        rc = err_set(ERR_STORE, "A repair of the job store was interrupted before " STORE_REPAIRED
                                " became jobs.db. Run mrirecond --repair-state, which ends it.");
    if (!rc)
        rc = store_is_there(spool, &there);
    if (rc || there)
        return rc;
    rc = saved_find(spool, saved);
    if (!rc)
        rc = file_bytes(spool, "jobs.db-wal", &log);
    if (!rc)
        rc = orphans_count(spool, NULL, &scans, &results);
    if (rc || (!*saved && !log && !scans && !results))
        return rc;
    if (*saved)
        return err_set(ERR_STORE,
                       "The job store jobs.db is missing or empty. It was removed while mrirecond ran, which saved all "
                       "jobs in %s: rename that to jobs.db, and remove jobs.db-wal and jobs.db-shm if they are there.",
                       saved);
    return err_set(ERR_STORE,
                   "The job store jobs.db is missing or empty, though %d scans, %d results%s are there, which a new "
                   "store would not know. Restore it from a backup, or run mrirecond --repair-state, which sets them "
                   "aside.",
                   scans, results, log ? " and its log jobs.db-wal" : "");
}

/* ---- the store ---- */

/* Print SQLite's findings. */
static bool is_whole(struct connection *connection, FILE *out)
{
    sqlite3_stmt *check = sql_prepare(connection, "PRAGMA integrity_check(20)", "");
    bool whole = check != NULL;
    int step = SQLITE_ERROR;
    while (check && (step = sqlite3_step(check)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(check, 0);
        if (text && strcmp(text, "ok") == 0)
            continue;
        whole = false;
        fprintf(out, "jobs.db: %s\n", text ? text : "no memory");
    }
    if (step != SQLITE_DONE) {
        whole = false;
        sql_failed(connection->db, "reading it through");
        fprintf(out, "jobs.db: %s\n", err_last()->text);
    }
    if (check)
        sql_release(check);
    return whole;
}

/* Check that each row has its files: *files; *all: every row could be read. Fails as disk_failed(). */
static int rows_look(const struct spool *spool, struct connection *connection, FILE *out, bool *files, bool *all)
{
    int rc = 0, jobs = 0, lacking[3] = {0}, step = SQLITE_ERROR;
    static const char *const what[] = {
        [LACK_SCAN] = "waits, and its scan is missing or cut off",
        [LACK_RESULTS] = "succeeded, and a result is missing or cut off",
    };
    sqlite3_stmt *row = sql_prepare(connection, "SELECT id, state, bytes, results FROM job ORDER BY sequence", "");
    while (!rc && row && (step = sqlite3_step(row)) == SQLITE_ROW) {
        enum lack lack = row_lacks(spool, row);
        jobs++;
        if (lack == LACK_UNREAD)
            rc = disk_failed("looking for the files of a job");
        else if (lack != LACK_NOTHING && lacking[lack]++ < TOLD)
            fprintf(out, "job %.40s: %s\n", (const char *)sqlite3_column_text(row, 0), what[lack]);
    }
    *all = step == SQLITE_DONE;
    if (row)
        sql_release(row);
    fprintf(out, "%d jobs read, %d lack their scan, %d lack results\n", jobs, lacking[LACK_SCAN],
            lacking[LACK_RESULTS]);
    *files = !lacking[LACK_SCAN] && !lacking[LACK_RESULTS];
    return rc;
}

int store_open(struct connection *connection, const char *state_dir, int64_t *version, bool *damaged)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/jobs.db", state_dir);
    int rc = connection_open(connection, path, SQLITE_OPEN_READONLY);
    if (!rc)
        rc = schema_version(connection, version); /* reads the file for the first time */
    const int code = rc && connection->db ? sqlite3_errcode(connection->db) : SQLITE_OK;
    *damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
    return *damaged ? 0 : rc;
}

/* Check jobs.db, and its rows against the files. */
static int store_look(const struct spool *spool, const char *state_dir, FILE *out, struct findings *found)
{
    struct connection connection = {.db = NULL};
    int64_t version = 0;
    bool there, between, damaged = false, all;
    int scans, results, rc = store_is_there(spool, &there);
    if (!rc)
        rc = store_is_between(spool, &between);
    if (!rc && (between || !there)) { /* SQLite would remove the log of an empty one */
        rc = state_expect(spool);
        found->store = found->files = !rc;
        fprintf(out, "%s\n", rc ? err_last()->text : "There is no job store yet, and there are no files.");
        return rc == ERR_STORE ? 0 : rc;
    }
    if (!rc)
        rc = store_open(&connection, state_dir, &version, &damaged);
    if (!rc && damaged) {
        fprintf(out, "jobs.db: %s\n", err_last()->text);
    } else if (!rc && schema_is_newer(version)) {
        rc = schema_refuse(version);
    } else if (!rc) {
        found->store = is_whole(&connection, out);
        rc = rows_look(spool, &connection, out, &found->files, &all);
        found->store = found->store && all;
        if (found->store && !rc)
            rc = orphans_count(spool, &connection, &scans, &results);
        if (found->store && !rc)
            fprintf(out, "%d scans and %d results belong to no job; a start %s\n", scans, results,
                    spool_stop_was_clean(spool) ? "removes them"
                                                : "sets them aside in found-TIME/, because mrirecond was not stopped");
    }
    connection_close(&connection);
    return rc;
}

int state_look(const char *state_dir, FILE *out, struct spool **spool, struct findings *found)
{
    struct stat there;
    *spool = NULL;
    *found = (struct findings){.store = false};
    if (stat(state_dir, &there) < 0)
        return err_set(ERR_IO, "%s cannot be read: %s. Give the state folder with --state-dir.", state_dir,
                       strerror(errno));
    int rc = spool_create(spool, state_dir, 0, 0, 0);
    if (!rc)
        rc = store_look(*spool, state_dir, out, found);
    if (!rc)
        rc = uploads_look(*spool, 0, out, &found->uploads);
    int kept = rc ? 0 : spool_found_count(*spool);
    if (kept)
        fprintf(out, "%d scans and results without a job are set aside in found-TIME/; see the README there\n", kept);
    return rc;
}

int state_check(const char *state_dir, FILE *out, bool *sound)
{
    struct spool *spool;
    struct findings found;
    int rc = state_look(state_dir, out, &spool, &found);
    *sound = found.store && found.files && found.uploads;
    if (!rc)
        fputs(*sound ? "The state folder is sound.\n"
                     : "The state folder is damaged. Restore it from a backup, or run mrirecond --repair-state, which "
                       "saves the readable part and keeps the old job store.\n",
              out);
    spool_free(spool);
    return rc;
}
