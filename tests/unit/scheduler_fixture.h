/* scheduler_fixture.h: tests of daemon/queue/scheduler.h. The worker is the test program itself, run with "serve"; the
 * text of the scan tells it what to do. Each test program is a single source file that includes this header. */
#ifndef MRIRECON_SCHEDULER_FIXTURE_H
#define MRIRECON_SCHEDULER_FIXTURE_H

#include "daemon/base/clock.h"
#include "daemon/queue/scheduler.h"
#include "daemon/wire.h"
#include "recon/recon.h"
#include "tests/unit/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HANGS_SECONDS = 60 }; /* a test that waits longer than this has hung */

/* ---- the worker ---- */

static inline void say(json_t *message)
{
    if (wire_send(WIRE_FD, message, NULL, 0))
        _exit(0);
    json_decref(message);
}

/* The path of `name` in the test's folder, found from a scan in its spool. */
static inline void path_find(char path[160], int scan, const char *name)
{
    char link[48];
    snprintf(link, sizeof link, "/proc/self/fd/%d", scan);
    ssize_t length = readlink(link, path, 120);
    path[length > 0 ? length : 0] = '\0';
    for (int up = 0; up < 2 && strrchr(path, '/'); up++)
        *strrchr(path, '/') = '\0';
    strcat(strcat(path, "/"), name);
}

/* Append "job ID", "prepare ID", "forget ID" or "done ID" to a file beside the spool's folder, once the path is
 * known. */
static inline void note(const json_t *message, int scan)
{
    static int file = -1;
    char path[160];
    if (file < 0 && scan >= 0) {
        path_find(path, scan, "notes");
        file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    const char *id = json_string_value(json_object_get(message, "id"));
    dprintf(file, "%s %s\n", json_string_value(json_object_get(message, "type")), id ? id : "");
}

/* Wait for a cancel message, or end with the daemon. `dies`: end also when another job's scan arrives. */
static inline void wait_for_cancel(const char *id, bool dies)
{
    for (;;) {
        int fds[WIRE_FDS], count;
        json_t *message = NULL;
        if (wire_receive(WIRE_FD, &message, fds, &count))
            _exit(0);
        bool cancel = strcmp(json_string_value(json_object_get(message, "type")), "cancel") == 0;
        note(message, count > 0 ? fds[0] : -1);
        json_decref(message);
        if (count > 0 && dies)
            _exit(4);
        for (int i = 0; i < count; i++)
            close(fds[i]);
        if (cancel)
            break;
        say(json_pack("{s:s}", "type", "status"));
    }
    say(json_pack("{s:s, s:s, s:{s:s, s:s}, s:b}", "type", "failed", "id", id, "error", "code", "canceled", "detail",
                  "Canceled.", "fatal", 0));
}

static inline void device_lost(const char *id)
{
    say(json_pack("{s:s, s:s, s:{s:s, s:s}, s:b}", "type", "failed", "id", id, "error", "code", "device-failed",
                  "detail", "The device is gone.", "fatal", 1));
}

static inline void do_job(const char *id, const json_t *files, const int *fds, int fd_count)
{
    char what[32] = "", mark[160], fault[160];
    int scan = fds[0];
    if (read(scan, what, sizeof what - 1) < 0)
        _exit(9);
    if (strcmp(what, "silent") == 0)
        _exit(3);
    if (strcmp(what, "silent once") == 0) {
        path_find(mark, scan, "mark");
        if (open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0)
            _exit(3);
    }
    /* The second of these reports nothing new; the third and fourth are not valid progress of this kind. */
    for (int i = 0; i < 2; i++)
        say(json_pack("{s:s, s:s, s:f, s:s, s:i, s:i}", "type", "progress", "id", id, "fraction", 0.25, "step",
                      "gridding", "iteration", 3, "iterations", 8));
    say(json_pack("{s:s, s:s, s:f, s:s, s:i, s:i}", "type", "progress", "id", id, "fraction", 0.5, "step", "nothing",
                  "iteration", 3, "iterations", 8));
    say(json_pack("{s:s, s:s, s:f, s:s, s:i, s:i}", "type", "progress", "id", id, "fraction", 0.5, "step", "gridding",
                  "iteration", 9, "iterations", 8));
    say(json_pack("{s:s, s:s, s:f, s:s, s:i, s:i}", "type", "progress", "id", id, "fraction", 0.125, "step", "gridding",
                  "iteration", 4, "iterations", 8));
    if (strcmp(what, "die") == 0)
        _exit(3);
    if (strcmp(what, "die once") == 0) {
        path_find(mark, scan, "mark"); /* made by the first try */
        if (open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0)
            raise(SIGKILL);
    }
    /* The device is broken as long as this file exists in the state folder. */
    path_find(fault, scan, "broken");
    bool broken = strcmp(what, "device") == 0 && access(fault, F_OK) == 0;
    bool unnamed = strcmp(what, "fatal, before it began") == 0;
    if (strcmp(what, "fatal") == 0 || unnamed || broken) {
        device_lost(unnamed ? "" : id);
        pause();
    }
    if (strcmp(what, "hang") == 0)
        for (;;)
            pause();
    if (strcmp(what, "wait") == 0 || strcmp(what, "wait, allergic") == 0) {
        wait_for_cancel(id, strcmp(what, "wait, allergic") == 0);
        return;
    }
    if (strcmp(what, "fail") == 0) {
        say(json_pack("{s:s, s:s, s:{s:s, s:s, s:i}, s:b}", "type", "failed", "id", id, "error", "code",
                      "data-nonfinite", "detail", "NaN.", "acquisition_index", 7, "fatal", 0));
        return;
    }
    path_find(mark, scan, "short"); /* the disk is full as long as this file exists */
    bool is_short = strcmp(what, "short") == 0 && access(mark, F_OK) == 0;
    if (is_short || strcmp(what, "unreadable") == 0) {
        say(json_pack("{s:s, s:s, s:{s:s, s:s}, s:b, s:b}", "type", "failed", "id", id, "error", "code",
                      is_short ? "spool-full" : "io-error", "detail", "No.", "fatal", 0, "put_back", is_short));
        return;
    }
    if (strcmp(what, "nonsense") == 0) {
        if (send(WIRE_FD, "{", 1, 0) < 0)
            _exit(9);
        pause();
    }
    /* Each result contains the name of its format. */
    for (int i = 1; i < fd_count && strcmp(what, "empty") != 0; i++) {
        const char *file = json_string_value(json_array_get(files, (size_t)i - 1));
        if (!file || strncmp(file, "image.", 6) != 0 || dprintf(fds[i], "as %s", file + 6) < 0)
            _exit(9);
        if (strcmp(what, "first only") == 0)
            break;
    }
    if (strcmp(what, "other job") == 0)
        id = "00000000000000000000000000";
    path_find(mark, scan, "mark");
    bool first = strcmp(what, "keeps once") == 0 && open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
    if (first || strcmp(what, "keeps") == 0)
        fcntl(fds[1], F_DUPFD_CLOEXEC, 64);
    for (int i = 0; i < fd_count; i++)
        close(fds[i]);
    if (strcmp(what, "report") == 0)
        say(json_pack("{s:s, s:s, s:s}", "type", "done", "id", id, "report", "all is well"));
    say(json_pack("{s:s, s:s, s:{s:i, s:{s:f}}}", "type", "done", "id", id, "report", "samples", 5, "stages", "fft",
                  0.5));
    if (strcmp(what, "noted") == 0) {
        json_t *done = json_pack("{s:s, s:s}", "type", "done", "id", id);
        note(done, -1);
        json_decref(done);
    }
    if (strcmp(what, "last words") == 0) {
        shutdown(WIRE_FD, SHUT_RD); /* the worker reads no more messages */
        for (;;)
            pause();
    }
}

static inline int worker(void)
{
    say(json_pack("{s:s, s:i, s:s, s:b, s:s, s:b, s:i}", "type", "hello", "version", WIRE_VERSION, "device", "fake",
                  "gpu", 0, "note", "", "landlock", 1, "pid", (int)getpid()));
    for (;;) {
        int fds[WIRE_FDS], count = 0;
        json_t *message = NULL;
        if (wire_receive(WIRE_FD, &message, fds, &count))
            return 0;
        note(message, count > 0 ? fds[0] : -1);
        if (count > 0 && json_integer_value(json_object_get(json_object_get(message, "room"), "most")) <= 0)
            _exit(9); /* neither a job nor one that may be next comes without room: the disk's size at least */
        if (strcmp(json_string_value(json_object_get(message, "type")), "prepare") == 0) {
            for (int i = 0; i < count; i++)
                close(fds[i]);
        } else if (count > 1) {
            do_job(json_string_value(json_object_get(message, "id")), json_object_get(message, "files"), fds, count);
        } else {
            say(json_pack("{s:s}", "type", "status"));
        }
        json_decref(message);
    }
}

/* ---- the tests ---- */

struct fixture {
    char folder[FOLDER];
    struct options options;
    struct log log;
    struct store *store;
    struct spool *spool;
    struct metrics *metrics;
    struct waiters *waiters;
    struct live *live;
    struct scheduler *scheduler;
    int64_t quota; /* bytes, of the sender of the next jobs; 0: the server's */
};

static inline struct core core_of(struct fixture *f)
{
    return (struct core){&f->options, &f->log, f->store, f->spool, f->metrics, f->waiters, f->live};
}

static inline void start(struct fixture *f)
{
    const struct core core = core_of(f);
    assert_int_equal(scheduler_create(&f->scheduler, &core), 0);
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char path[64];
    *state = f;
    options_init(&f->options);
    if (!folder_make(f->folder, "scheduler") || readlink("/proc/self/exe", f->options.worker, OPTION_TEXT - 1) < 0)
        return -1;
    /* On a machine that stands still for seconds, a worker that does answer is not given up. */
    f->options.cancel_grace = HANGS_SECONDS;
    f->options.worker_timeout = 600;
    /* Stderr must stay silent although these tests kill workers. */
    f->log.most = (enum log_level) - 1;
    snprintf(path, sizeof path, "%s/jobs.db", f->folder);
    if (spool_create(&f->spool, f->folder, 1 << 20, 0, 0) || store_create(&f->store, path) ||
        metrics_create(&f->metrics) || waiters_create(&f->waiters) || live_create(&f->live))
        return -1;
    start(f);
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    scheduler_free(f->scheduler);
    waiters_free(f->waiters);
    live_free(f->live);
    metrics_free(f->metrics);
    store_free(f->store);
    spool_free(f->spool);
    int result = folder_drop(f->folder);
    free(f);
    return result;
}

/* Submit a job that also asks for an image in `format` (NULL: none). */
static inline void submit_for(struct fixture *f, const char *what, const char *format, char id[JOB_ID])
{
    struct spool_file file;
    struct job job = {.parameters = json_object(), .formats = format ? json_pack("[s]", format) : json_array()};
    assert_int_equal(spool_begin(f->spool, -1, &file), 0);
    assert_int_equal(spool_append(&file, what, strlen(what)), 0);
    assert_int_equal(spool_finish(&file), 0);
    strcpy(job.id, file.id);
    job.bytes = (int64_t)strlen(what);
    job.quota.bytes = f->quota;
    strcpy(job.kind, "recon");
    assert_int_equal(store_submit(f->store, &job, 100), 0);
    job_clear(&job);
    strcpy(id, file.id);
    scheduler_wake(f->scheduler);
}

static inline void submit(struct fixture *f, const char *what, char id[JOB_ID])
{
    submit_for(f, what, NULL, id);
}

static inline void moment(void)
{
    const struct timespec time = {.tv_nsec = 5000000};
    nanosleep(&time, NULL);
}

/* Wait until the job is in `state`, and return it. `proving`: probe the disk meanwhile, as the housekeeper does. */
static inline struct job reach_while(struct fixture *f, const char *id, enum job_state state, bool proving)
{
    double end = clock_seconds() + HANGS_SECONDS;
    struct job job;
    for (;;) {
        if (proving) {
            spool_prove(f->spool);
            scheduler_wake(f->scheduler);
        }
        assert_int_equal(store_get(f->store, id, &job), 0);
        if (job.state == state)
            return job;
        if (clock_seconds() > end || job_state_is_final(job.state))
            fail_msg("the job is %s, not %s", job_state_name(job.state), job_state_name(state));
        job_clear(&job);
        moment();
    }
}

static inline struct job reach(struct fixture *f, const char *id, enum job_state state)
{
    return reach_while(f, id, state, false);
}

/* Check that a job ends in `state`, with `code` if it failed, and that its scan is kept if `scan`. */
static inline void ends(struct fixture *f, const char *what, enum job_state state, const char *code, int attempts)
{
    char id[JOB_ID], path[160];
    submit(f, what, id);
    struct job job = reach(f, id, state);
    if (code)
        assert_string_equal(json_string_value(json_object_get(job.error, "code")), code);
    assert_int_equal(job.attempts, attempts);
    snprintf(path, sizeof path, "%s/results/%s", f->folder, id);
    assert_int_equal(access(path, F_OK) == 0, state == JOB_SUCCEEDED);
    strcat(path, ".tmp");
    assert_int_not_equal(access(path, F_OK), 0);
    job_clear(&job);
}

static inline void restart(struct fixture *f)
{
    int requeued;
    scheduler_free(f->scheduler);
    f->scheduler = NULL;
    assert_int_equal(store_recover(f->store, &requeued), 0);
    start(f);
}

static inline void cancel(struct fixture *f, const char *id, enum job_state expected)
{
    enum job_state before, now;
    assert_int_equal(store_cancel(f->store, id, &before, &now), 0);
    assert_int_equal(now, expected);
    scheduler_wake(f->scheduler);
}

#define WITH_SCHEDULER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
