/* daemon/store/store.h: reopening a store: after kill -9, of an earlier version, with jobs that ran. */
#include "tests/unit/store_fixture.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* A child submits jobs and writes each accepted id to a pipe, until it is killed. Afterwards every id in the pipe is in
 * the store, and at most one other. */
static void what_was_accepted_survives_kill_9(void **state)
{
    struct fixture *f = *state;
    store_free(f->store);
    f->store = NULL;
    int told[2], last = 0, first = 1;
    for (int round = 0; round < 5; round++) {
        assert_int_equal(pipe(told), 0);
        pid_t child = fork();
        if (child == 0) {
            struct store *store;
            if (store_create(&store, f->path) == 0)
                for (int i = first; submit(store, i, 1000000) == 0; i++)
                    if (write(told[1], &i, sizeof i) != sizeof i)
                        break;
            _exit(0);
        }
        close(told[1]);
        /* Kill it at an arbitrary moment after some jobs. */
        for (int n = 0; n < 10 + 7 * round && read(told[0], &last, sizeof last) == sizeof last; n++)
            ;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(told[0], &last, sizeof last) == sizeof last)
            ;
        close(told[0]);
        struct store *store;
        int64_t counts[JOB_STATES], oldest;
        assert_int_equal(store_create(&store, f->path), 0);
        assert_int_equal(store_counts(store, counts, &oldest), 0);
        assert_in_range(counts[JOB_QUEUED], (unsigned)last, (unsigned)last + 1);
        for (int i = first; i <= last; i++)
            assert_int_equal(state_of(store, i), JOB_QUEUED);
        first = (int)counts[JOB_QUEUED] + 1;
        store_free(store);
    }
}

/* A store as version 0.1.0 wrote it: its queue is kept in order, and its jobs have normal priority. */
static void a_store_of_an_earlier_version_is_kept(void **state)
{
    struct fixture *f = *state;
    char path[64], id[JOB_ID];
    sqlite3 *db;
    struct store *store;
    struct job job;
    snprintf(path, sizeof path, "%s/old.db", f->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(
            db,
            "PRAGMA journal_mode = WAL;"
            "CREATE TABLE job (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
            " state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5), kind TEXT NOT NULL, bytes INTEGER NOT NULL,"
            " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0,"
            " attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0, parameters TEXT NOT NULL,"
            " formats TEXT NOT NULL, error TEXT, results TEXT, report TEXT);"
            "CREATE INDEX job_state ON job (state, sequence);"
            "PRAGMA user_version = 1;"
            "INSERT INTO job (id, state, kind, bytes, created, parameters, formats, results, finished) VALUES"
            " ('00000000000000000000000001', 3, 'recon', 10, 1000, '{\"dcf\":\"none\"}', '[]', '[{\"bytes\":5}]', "
            "2000),"
            " ('00000000000000000000000002', 0, 'recon', 20, 1001, '{}', '[\"png\"]', NULL, 0),"
            " ('00000000000000000000000003', 0, 'recon', 30, 1002, '{}', '[]', NULL, 0)",
            NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_create(&store, path), 0);
    assert_int_equal(store_get(store, id_of(1, id), &job), 0);
    assert_true(job.state == JOB_SUCCEEDED && job.finished == 2000 && job.bytes == 10);
    assert_int_equal(kept_bytes(store), 5);
    job_clear(&job);
    assert_int_equal(submit_of(store, 4, 10, "", PRIORITY_URGENT, 40), 0);
    store_free(store);
    assert_int_equal(store_create(&store, path), 0); /* now of the current version, opened again */
    taken_in_order(store, (const int[]){4, 2, 3}, 3);
    assert_int_equal(store_get(store, id_of(2, id), &job), 0);
    assert_true(job.priority == PRIORITY_NORMAL && job.created == 1001);
    assert_string_equal(json_string_value(json_array_get(job.formats, 0)), "png");
    job_clear(&job);
    store_free(store);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 1000", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    store = NULL;
    assert_int_equal(store_create(&store, path), ERR_STORE);
    assert_non_null(strstr(err_last()->text, "version 1000"));
    assert_null(store);
}

/* A store of version 4: kept scans are derived from the recorded bytes; jobs had no names. */
static void a_store_of_version_4_is_kept(void **state)
{
    struct fixture *f = *state;
    char path[64], id[JOB_ID], scans[2][JOB_ID];
    sqlite3 *db;
    struct store *store;
    struct job job;
    struct kept kept;
    int count;
    snprintf(path, sizeof path, "%s/four.db", f->folder);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(
            db,
            "CREATE TABLE job (sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
            " state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5), kind TEXT NOT NULL, bytes INTEGER NOT NULL,"
            " created INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0,"
            " attempts INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0, parameters TEXT NOT NULL,"
            " formats TEXT NOT NULL, error TEXT, results TEXT, report TEXT, client TEXT NOT NULL DEFAULT '',"
            " priority INTEGER NOT NULL DEFAULT 1, deadline INTEGER NOT NULL DEFAULT 0, idempotency_key TEXT,"
            " digest TEXT, kept INTEGER NOT NULL DEFAULT 0);"
            "PRAGMA user_version = 4;"
            "INSERT INTO job (id, state, kind, bytes, created, parameters, formats, results, finished, kept) VALUES"
            " ('00000000000000000000000001', 3, 'recon', 10, 1000, '{}', '[]', '[{\"bytes\":5}]', 2000, 5),"
            " ('00000000000000000000000002', 4, 'recon', 20, 1001, '{}', '[]', NULL, 2001, 20),"
            " ('00000000000000000000000003', 4, 'recon', 30, 1002, '{}', '[]', NULL, 2002, 0),"
            " ('00000000000000000000000004', 0, 'recon', 40, 1003, '{}', '[]', NULL, 0, 0)",
            NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_create(&store, path), 0);
    store_kept(store, &kept);
    assert_int_equal(kept.scans, 1);
    assert_int_equal(kept.scan_bytes, 20);
    assert_int_equal(kept.result_bytes, 5);
    assert_int_equal(store_kept_scans(store, scans, 2, &count), 0);
    assert_int_equal(count, 1);
    assert_string_equal(scans[0], id_of(2, id));
    take(store, 4);
    assert_int_equal(store_get(store, id_of(4, id), &job), 0);
    assert_string_equal(job.name, "");
    job_clear(&job);
    store_free(store);
}

static off_t bytes_of(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 ? there.st_size : 0;
}

/* Submit jobs from number *i on until the log beside the store has grown to `bytes`. */
static void log_grow(struct fixture *f, int *i, off_t bytes)
{
    char log[sizeof f->path + 8];
    snprintf(log, sizeof log, "%s-wal", f->path);
    while (bytes_of(log) < bytes && *i < 100000)
        assert_int_equal(submit(f->store, (*i)++, 100000), 0);
}

/* The log is moved into jobs.db between changes; while they follow each other without rest, when it is long. Either way
 * what follows overwrites it: it does not grow for ever. */
static void the_log_is_moved_into_the_store(void **state)
{
    enum { PAGE = 4096, LOG_PAGES = 1000, WITH_FRAME = PAGE + 24 };
    struct fixture *f = *state;
    int i = 0;
    const off_t before = bytes_of(f->path);
    log_grow(f, &i, (off_t)LOG_PAGES * WITH_FRAME);
    for (int tries = 0; tries < 10000 && bytes_of(f->path) == before; tries++)
        moments_pass(1);
    assert_true(bytes_of(f->path) > before);
    char log[sizeof f->path + 8];
    snprintf(log, sizeof log, "%s-wal", f->path);
    const off_t moved = bytes_of(f->path);
    for (const int end = i + 4000; i < end; i++)
        assert_int_equal(submit(f->store, i, 100000), 0);
    assert_true(bytes_of(f->path) > moved);
    assert_true(bytes_of(log) < (off_t)2 * 8 * LOG_PAGES * WITH_FRAME);
}

static void recovery_requeues_running_jobs(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    enum job_state before, now;
    int requeued = -1;
    for (int i = 1; i <= 4; i++)
        assert_int_equal(submit(f->store, i, 10), 0);
    take(f->store, 1);
    take(f->store, 2);
    take(f->store, 3);
    assert_int_equal(store_cancel(f->store, id_of(2, id), &before, &now), 0);
    assert_int_equal(store_succeed(f->store, id_of(3, id), NULL, NULL), 0);
    store_free(f->store);
    assert_int_equal(store_create(&f->store, f->path), 0);
    assert_int_equal(store_recover(f->store, &requeued), 0);
    assert_int_equal(requeued, 1);
    assert_int_equal(state_of(f->store, 1), JOB_QUEUED);
    assert_int_equal(state_of(f->store, 2), JOB_CANCELED);
    assert_int_equal(state_of(f->store, 3), JOB_SUCCEEDED);
    take(f->store, 1); /* at its old position */
    take(f->store, 4);
}

static void a_file_that_is_no_store_is_refused(void **state)
{
    struct fixture *f = *state;
    struct store *store = NULL;
    char path[64];
    snprintf(path, sizeof path, "%s/other.db", f->folder);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("this is no database ", file);
    fclose(file);
    assert_int_equal(store_create(&store, path), ERR_STORE);
    assert_non_null(strstr(err_last()->text, path));
    assert_null(store);
}

static void two_deaths_are_counted_until_a_restart(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    char id[JOB_ID];
    struct job job;
    int requeued = -1;
    assert_int_equal(submit(store, 1, 10), 0);
    take(store, 1);
    assert_int_equal(store_requeue(store, id_of(1, id), REQUEUE_DIED), 0);
    take(store, 1);
    assert_int_equal(store_requeue(store, id, REQUEUE_STOPPED), 0);
    assert_int_equal(store_get(store, id, &job), 0);
    assert_true(job.state == JOB_QUEUED && job.attempts == 2 && job.deaths == 1 && job.started == 0);
    job_clear(&job);
    assert_int_equal(store_recover(store, &requeued), 0);
    assert_int_equal(requeued, 0);
    assert_int_equal(store_get(store, id, &job), 0);
    assert_true(job.state == JOB_QUEUED && job.attempts == 2 && job.deaths == 0);
    job_clear(&job);
    assert_int_equal(store_check(store), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(what_was_accepted_survives_kill_9),      WITH_STORE(a_store_of_an_earlier_version_is_kept),
        WITH_STORE(a_store_of_version_4_is_kept),           WITH_STORE(recovery_requeues_running_jobs),
        WITH_STORE(the_log_is_moved_into_the_store),        WITH_STORE(a_file_that_is_no_store_is_refused),
        WITH_STORE(two_deaths_are_counted_until_a_restart),
    };
    return cmocka_run_group_tests_name("store_open", tests, NULL, NULL);
}
