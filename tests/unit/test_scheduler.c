/* daemon/scheduler.h with a worker of our own: this program, run with "serve", does what the scan's text tells it. */
#include "daemon/clock.h"
#include "daemon/scheduler.h"
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

enum { HANGS_SECONDS = 60 }; /* after which a test says that something hangs */

/* ---- the worker ---- */

static void say(json_t *message)
{
    if (wire_send(WIRE_FD, message, NULL, 0))
        _exit(0);
    json_decref(message);
}

/* The path of `name` in the folder of the test, seen from a scan in its spool. */
static void path_find(char path[160], int scan, const char *name)
{
    char link[48];
    snprintf(link, sizeof link, "/proc/self/fd/%d", scan);
    ssize_t length = readlink(link, path, 120);
    path[length > 0 ? length : 0] = '\0';
    for (int up = 0; up < 2 && strrchr(path, '/'); up++)
        *strrchr(path, '/') = '\0';
    strcat(strcat(path, "/"), name);
}

/* Write "job ID", "prepare ID" or "forget ID" into a file beside the spool's folder, once that is known. */
static void note(const json_t *message, int scan)
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

/* Wait for a cancel; the daemon's end is ours. `dies`: so is another job's scan. */
static void wait_for_cancel(const char *id, bool dies)
{
    for (;;) {
        int fds[WIRE_FDS], count;
        json_t *message = NULL;
        if (wire_receive(WIRE_FD, &message, fds, &count))
            _exit(0);
        bool cancel = strcmp(json_string_value(json_object_get(message, "type")), "cancel") == 0;
        note(message, count > 0 ? fds[0] : -1);
        json_decref(message);
        if (count == 1 && dies)
            _exit(4);
        if (count == 1)
            close(fds[0]);
        if (cancel)
            break;
        say(json_pack("{s:s}", "type", "status"));
    }
    say(json_pack("{s:s, s:s, s:{s:s, s:s}, s:b}", "type", "failed", "id", id, "error", "code", "canceled", "detail",
                  "Canceled.", "fatal", 0));
}

static void do_job(const char *id, const json_t *formats, const int *fds, int fd_count)
{
    char what[32] = "", mark[160], fault[160];
    int scan = fds[0];
    if (read(scan, what, sizeof what - 1) < 0)
        _exit(9);
    /* Of these the second tells nothing new, and the third and fourth are no progress of this kind. */
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
        path_find(mark, scan, "mark"); /* of the first try */
        if (open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0)
            raise(SIGKILL);
    }
    /* The device is broken as long as this lies beside the state folder's results. */
    path_find(fault, scan, "broken");
    bool broken = strcmp(what, "device") == 0 && access(fault, F_OK) == 0;
    if (strcmp(what, "fatal") == 0 || broken) {
        say(json_pack("{s:s, s:s, s:{s:s, s:s}, s:b}", "type", "failed", "id", id, "error", "code", "device-failed",
                      "detail", "The device is gone.", "fatal", 1));
        pause();
    }
    if (strcmp(what, "hang") == 0)
        for (;;)
            pause();
    if (strcmp(what, "wait") == 0 || strcmp(what, "wait, allergic") == 0) {
        wait_for_cancel(id, strcmp(what, "wait") != 0);
        return;
    }
    if (strcmp(what, "fail") == 0) {
        say(json_pack("{s:s, s:s, s:{s:s, s:s, s:i}, s:b}", "type", "failed", "id", id, "error", "code",
                      "data-nonfinite", "detail", "NaN.", "acquisition_index", 7, "fatal", 0));
        return;
    }
    if (strcmp(what, "nonsense") == 0) {
        if (send(WIRE_FD, "{", 1, 0) < 0)
            _exit(9);
        pause();
    }
    /* Each result says its form. */
    for (int i = 1; i < fd_count && strcmp(what, "empty") != 0; i++) {
        const char *format = json_string_value(json_array_get(formats, (size_t)i - 1));
        if (!format || dprintf(fds[i], "as %s", format) < 0)
            _exit(9);
        if (strcmp(what, "first only") == 0)
            break;
    }
    if (strcmp(what, "other job") == 0)
        id = "00000000000000000000000000";
    say(json_pack("{s:s, s:s, s:{s:i, s:{s:f}}}", "type", "done", "id", id, "report", "samples", 5, "stages", "fft",
                  0.5));
}

static int worker(void)
{
    say(json_pack("{s:s, s:i, s:s, s:b, s:s, s:b, s:i}", "type", "hello", "version", WIRE_VERSION, "device", "fake",
                  "gpu", 0, "note", "", "landlock", 1, "pid", (int)getpid()));
    for (;;) {
        int fds[WIRE_FDS], count = 0;
        json_t *message = NULL;
        if (wire_receive(WIRE_FD, &message, fds, &count))
            return 0;
        note(message, count > 0 ? fds[0] : -1);
        if (count == 1) {
            close(fds[0]);
        } else if (count > 1) {
            do_job(json_string_value(json_object_get(message, "id")), json_object_get(message, "formats"), fds, count);
            for (int i = 0; i < count; i++)
                close(fds[i]);
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
    struct scheduler *scheduler;
};

static void start(struct fixture *f)
{
    const struct scheduler_parts parts = {&f->options, &f->log, f->store, f->spool, f->metrics, f->waiters};
    assert_int_equal(scheduler_create(&f->scheduler, &parts), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char path[64];
    *state = f;
    options_init(&f->options);
    if (!folder_make(f->folder, "scheduler") || readlink("/proc/self/exe", f->options.worker, OPTION_TEXT - 1) < 0)
        return -1;
    f->options.cancel_grace = 1;
    /* Stderr is to stay silent: workers that die are what this is about. */
    f->log.most = (enum log_level) - 1;
    snprintf(path, sizeof path, "%s/jobs.db", f->folder);
    if (spool_create(&f->spool, f->folder, 1 << 20, 0, 0) || store_create(&f->store, path) ||
        metrics_create(&f->metrics) || waiters_create(&f->waiters))
        return -1;
    start(f);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    scheduler_free(f->scheduler);
    waiters_free(f->waiters);
    metrics_free(f->metrics);
    store_free(f->store);
    spool_free(f->spool);
    int result = folder_drop(f->folder);
    free(f);
    return result;
}

/* A job of which an image as `format`, too, is wanted (NULL: none). */
static void submit_for(struct fixture *f, const char *what, const char *format, char id[JOB_ID])
{
    struct spool_file file;
    struct job job = {.parameters = json_object(), .formats = format ? json_pack("[s]", format) : json_array()};
    assert_int_equal(spool_begin(f->spool, -1, &file), 0);
    assert_int_equal(spool_append(&file, what, strlen(what)), 0);
    assert_int_equal(spool_finish(&file), 0);
    strcpy(job.id, file.id);
    strcpy(job.kind, "recon");
    assert_int_equal(store_submit(f->store, &job, 100), 0);
    job_clear(&job);
    strcpy(id, file.id);
    scheduler_wake(f->scheduler);
}

static void submit(struct fixture *f, const char *what, char id[JOB_ID])
{
    submit_for(f, what, NULL, id);
}

static void moment(void)
{
    const struct timespec time = {.tv_nsec = 5000000};
    nanosleep(&time, NULL);
}

/* Wait until the job is in `state`, and give it. */
static struct job reach(struct fixture *f, const char *id, enum job_state state)
{
    double end = clock_seconds() + HANGS_SECONDS;
    struct job job;
    for (;;) {
        assert_int_equal(store_get(f->store, id, &job), 0);
        if (job.state == state)
            return job;
        if (clock_seconds() > end || job_state_is_final(job.state))
            fail_msg("the job is %s, not %s", job_state_name(job.state), job_state_name(state));
        job_clear(&job);
        moment();
    }
}

/* That a job ends in `state`, with `code` where it failed, and leaves its scan where `scan`. */
static void ends(struct fixture *f, const char *what, enum job_state state, const char *code, int attempts)
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

static void success_has_results_and_a_report(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    submit(f, "good", id);
    struct job job = reach(f, id, JOB_SUCCEEDED);
    assert_int_equal(json_array_size(job.results), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(job.results, 0), "bytes")), 5);
    assert_int_equal(json_integer_value(json_object_get(job.report, "samples")), 5);
    job_clear(&job);
    for (double end = clock_seconds() + HANGS_SECONDS; f->spool->used > 0 && clock_seconds() < end;)
        moment();
    assert_true(f->spool->used == 0); /* the scan is not kept */
}

static void failure_keeps_its_reason_and_the_worker_lives(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    submit(f, "fail", id);
    struct job job = reach(f, id, JOB_FAILED);
    assert_string_equal(json_string_value(json_object_get(job.error, "code")), "data-nonfinite");
    assert_int_equal(json_integer_value(json_object_get(job.error, "acquisition_index")), 7);
    job_clear(&job);
    ends(f, "good", JOB_SUCCEEDED, NULL, 1);
}

static void each_form_has_a_file_of_its_own(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID], name[SPOOL_NAME], expected[16], held[16] = "";
    int fd;
    int64_t bytes, stamp;
    static const char *const asked[] = {"png", "nii.gz", "npy", "h5"};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        submit_for(f, "good", asked[i], id);
        struct job job = reach(f, id, JOB_SUCCEEDED);
        /* The image file is there in any case. */
        assert_int_equal(json_array_size(job.results), strcmp(asked[i], "h5") == 0 ? 1 : 2);
        job_clear(&job);
        snprintf(name, sizeof name, "image.%s", asked[i]);
        snprintf(expected, sizeof expected, "as %s", asked[i]);
        assert_int_equal(spool_result_open(f->spool, id, name, &fd, &bytes, &stamp), 0);
        assert_int_equal(read(fd, held, sizeof held - 1), (int)strlen(expected));
        assert_memory_equal(held, expected, strlen(expected));
        close(fd);
    }
}

static void success_without_an_image_is_a_failure(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    submit_for(f, "first only", "png", id);
    struct job job = reach(f, id, JOB_FAILED);
    assert_string_equal(json_string_value(json_object_get(job.error, "code")), "internal");
    job_clear(&job);
    ends(*state, "empty", JOB_FAILED, "internal", 1);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void a_worker_that_dies_gets_one_more_try(void **state)
{
    ends(*state, "die once", JOB_SUCCEEDED, NULL, 2);
    ends(*state, "die", JOB_FAILED, "worker-died", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void a_lost_device_gets_one_more_try(void **state)
{
    ends(*state, "fatal", JOB_FAILED, "device-failed", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void a_worker_that_breaks_the_rules_is_replaced(void **state)
{
    ends(*state, "nonsense", JOB_FAILED, "worker-died", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
    ends(*state, "other job", JOB_FAILED, "worker-died", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void cancel_job(struct fixture *f, const char *what)
{
    char id[JOB_ID];
    enum job_state before, now;
    submit(f, what, id);
    struct job job = reach(f, id, JOB_RUNNING);
    job_clear(&job);
    assert_int_equal(store_cancel(f->store, id, &before, &now), 0);
    assert_int_equal(now, JOB_CANCELING);
    scheduler_wake(f->scheduler);
    job = reach(f, id, JOB_CANCELED);
    assert_null(job.error);
    job_clear(&job);
}

static void cancel_stops_a_job_and_kills_what_does_not_stop(void **state)
{
    cancel_job(*state, "wait");
    cancel_job(*state, "hang");
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void restart(struct fixture *f)
{
    int requeued;
    scheduler_free(f->scheduler);
    f->scheduler = NULL;
    assert_int_equal(store_recover(f->store, &requeued), 0);
    start(f);
}

static void a_job_over_its_time_is_stopped(void **state)
{
    struct fixture *f = *state;
    f->options.job_time_limit = 1;
    restart(f);
    ends(f, "wait", JOB_FAILED, "time-limit", 1);
    ends(f, "hang", JOB_FAILED, "time-limit", 1);
    ends(f, "good", JOB_SUCCEEDED, NULL, 1);
}

static void a_silent_worker_is_killed(void **state)
{
    struct fixture *f = *state;
    f->options.worker_timeout = 1;
    restart(f);
    ends(f, "hang", JOB_FAILED, "worker-died", 2);
}

static void what_runs_at_the_stop_runs_again(void **state)
{
    struct fixture *f = *state;
    char first[JOB_ID], second[JOB_ID];
    submit(f, "wait", first);
    struct job job = reach(f, first, JOB_RUNNING);
    job_clear(&job);
    submit(f, "good", second);
    assert_false(scheduler_is_idle(f->scheduler));
    scheduler_drain(f->scheduler);
    scheduler_free(f->scheduler);
    f->scheduler = NULL;
    job = reach(f, first, JOB_QUEUED);
    assert_true(job.deaths == 0 && job.attempts == 1);
    job_clear(&job);
    start(f);
    job = reach(f, first, JOB_RUNNING); /* before the one that came later */
    job_clear(&job);
    job = reach(f, second, JOB_QUEUED);
    job_clear(&job);
}

static void progress_is_seen_while_a_job_runs(void **state)
{
    struct fixture *f = *state;
    struct worker_status status[WORKERS_MAX];
    char id[JOB_ID];
    submit(f, "wait", id);
    double end = clock_seconds() + HANGS_SECONDS;
    do {
        moment();
        assert_int_equal(scheduler_status(f->scheduler, status), 1);
    } while (status[0].progress.told < 2 && clock_seconds() < end);
    assert_string_equal(status[0].job, id);
    assert_string_equal(recon_kind_find("recon")->steps[status[0].progress.step].name, "gridding");
    assert_string_equal(status[0].device, "fake");
    assert_true(status[0].progress.fraction == 0.25); /* never less than before */
    assert_int_equal(status[0].progress.iteration, 4);
    assert_int_equal(status[0].progress.iterations, 8);
    assert_int_equal(status[0].progress.told, 2);
    assert_int_equal(status[0].state, WORKER_BUSY);
}

static void a_worker_that_cannot_be_started_is_told(void **state)
{
    struct fixture *f = *state;
    struct worker_status status[WORKERS_MAX];
    strcpy(f->options.worker, "/nonexistent/worker");
    restart(f);
    double end = clock_seconds() + HANGS_SECONDS;
    do {
        moment();
        assert_int_equal(scheduler_status(f->scheduler, status), 1);
    } while (!*status[0].note && clock_seconds() < end);
    assert_int_equal(status[0].state, WORKER_DOWN);
    assert_non_null(strstr(status[0].note, "/nonexistent/worker"));
}

/* Wait until the worker has noted this. */
static void noted(struct fixture *f, const char *type, const char *id, int times)
{
    char path[96], line[64], wanted[64];
    snprintf(path, sizeof path, "%s/notes", f->folder);
    snprintf(wanted, sizeof wanted, "%s %s\n", type, id);
    for (double end = clock_seconds() + HANGS_SECONDS; clock_seconds() < end; moment()) {
        FILE *file = fopen(path, "re");
        int found = 0;
        while (file && fgets(line, sizeof line, file))
            found += strcmp(line, wanted) == 0;
        if (file)
            fclose(file);
        if (found == times)
            return;
    }
    fail_msg("the worker was not told \"%s %s\" %d times", type, id, times);
}

static void cancel(struct fixture *f, const char *id, enum job_state expected)
{
    enum job_state before, now;
    assert_int_equal(store_cancel(f->store, id, &before, &now), 0);
    assert_int_equal(now, expected);
    scheduler_wake(f->scheduler);
}

static void the_next_scan_is_read_ahead_and_stays_queued(void **state)
{
    struct fixture *f = *state;
    char first[JOB_ID], second[JOB_ID], third[JOB_ID];
    submit(f, "wait", first);
    submit(f, "good", second);
    submit(f, "good", third);
    noted(f, "prepare", second, 1);
    struct job job = reach(f, second, JOB_QUEUED);
    assert_int_equal(job.attempts, 0);
    job_clear(&job);
    cancel(f, second, JOB_CANCELED); /* at once, as any job that waits */
    noted(f, "forget", second, 1);
    noted(f, "prepare", third, 1);
    cancel(f, first, JOB_CANCELING);
    job = reach(f, third, JOB_SUCCEEDED);
    assert_int_equal(job.attempts, 1);
    job_clear(&job);
    noted(f, "forget", second, 1);
    noted(f, "job", second, 0);
    noted(f, "job", third, 1);
}

static void a_scan_read_ahead_neither_runs_nor_dies_with_its_worker(void **state)
{
    struct fixture *f = *state;
    char first[JOB_ID], second[JOB_ID];
    submit(f, "wait, allergic", first);
    submit(f, "good", second);
    /* It dies of the hint. The job that ran is run again; the hint is not given again. */
    struct job job = {.deaths = 0};
    for (double end = clock_seconds() + HANGS_SECONDS; job.deaths < 1 && clock_seconds() < end;) {
        job_clear(&job);
        moment();
        assert_int_equal(store_get(f->store, first, &job), 0);
    }
    job_clear(&job);
    job = reach(f, second, JOB_SUCCEEDED); /* before the one that a worker died of */
    assert_int_equal(job.attempts, 1);
    assert_int_equal(job.deaths, 0);
    job_clear(&job);
    job = reach(f, first, JOB_RUNNING);
    assert_int_equal(job.deaths, 1);
    assert_int_equal(job.attempts, 2);
    job_clear(&job);
    noted(f, "job", first, 2);
    cancel(f, first, JOB_CANCELING);
    job = reach(f, first, JOB_CANCELED);
    job_clear(&job);
    noted(f, "prepare", second, 1);
    noted(f, "job", second, 1);
}

static void an_upload_is_read_while_its_row_is_to_come(void **state)
{
    struct fixture *f = *state;
    struct worker_status status[WORKERS_MAX];
    for (int commits = 0; commits < 2; commits++) {
        struct spool_file file;
        struct job job = {.parameters = json_object(), .formats = json_array()};
        do
            moment();
        while (scheduler_status(f->scheduler, status) != 1 || status[0].state != WORKER_IDLE);
        assert_int_equal(spool_begin(f->spool, -1, &file), 0);
        assert_int_equal(spool_append(&file, "good", 4), 0);
        strcpy(job.id, file.id);
        strcpy(job.kind, "recon");
        int scan;
        assert_int_equal(spool_open(f->spool, job.id, &scan), 0);
        scheduler_announce(f->scheduler, &job, scan);
        noted(f, "prepare", job.id, 1);
        noted(f, "job", job.id, 0);
        if (commits) {
            assert_int_equal(spool_finish(&file), 0);
            assert_int_equal(store_submit(f->store, &job, 100), 0);
            scheduler_wake(f->scheduler);
            struct job done = reach(f, job.id, JOB_SUCCEEDED);
            job_clear(&done);
            noted(f, "job", job.id, 1);
            noted(f, "forget", job.id, 0);
        } else {
            scheduler_retract(f->scheduler, job.id);
            spool_abort(&file);
            noted(f, "forget", job.id, 1);
        }
        job_clear(&job);
    }
}

/* Two workers: each reads its own next scan; one that is free takes any job, whoever has read it. */
static void a_free_worker_takes_a_job_that_another_has_read(void **state)
{
    struct fixture *f = *state;
    char ids[4][JOB_ID];
    struct worker_status status[WORKERS_MAX];
    strcpy(f->options.devices, "cpu,cpu");
    restart(f);
    do
        moment();
    while (scheduler_status(f->scheduler, status) != 2 || status[0].state != WORKER_IDLE ||
           status[1].state != WORKER_IDLE);
    submit(f, "wait", ids[0]);
    submit(f, "wait", ids[1]);
    submit(f, "good", ids[2]);
    noted(f, "prepare", ids[2], 1);
    submit(f, "good", ids[3]);
    noted(f, "prepare", ids[3], 1);
    cancel(f, ids[0], JOB_CANCELING);
    for (int i = 2; i < 4; i++) {
        struct job job = reach(f, ids[i], JOB_SUCCEEDED);
        assert_int_equal(job.attempts, 1);
        job_clear(&job);
        noted(f, "job", ids[i], 1);
    }
    cancel(f, ids[1], JOB_CANCELING);
    struct job job = reach(f, ids[1], JOB_CANCELED);
    job_clear(&job);
}

static void device_breaks(struct fixture *f, bool broken)
{
    char path[96];
    snprintf(path, sizeof path, "%s/broken", f->folder);
    if (!broken) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* Wait until a worker rests, or does no longer. */
static void rests(struct fixture *f, int index, bool expected)
{
    struct worker_status status[WORKERS_MAX];
    double end = clock_seconds() + HANGS_SECONDS;
    do {
        moment();
        scheduler_status(f->scheduler, status);
    } while (status[index].resting != expected && clock_seconds() < end);
    assert_int_equal(status[index].resting, expected);
    if (expected) {
        assert_false(worker_is_ready(&status[index]));
        assert_non_null(strstr(status[index].note, "The device is gone."));
    }
}

static void a_device_that_fails_every_job_costs_none_of_them(void **state)
{
    struct fixture *f = *state;
    char ids[3][JOB_ID];
    int64_t attempts = 0;
    device_breaks(f, true);
    for (int i = 0; i < 3; i++)
        submit(f, "device", ids[i]);
    rests(f, 0, true);
    struct job job;
    for (double end = clock_seconds() + HANGS_SECONDS; attempts < 3 && clock_seconds() < end; moment()) {
        attempts = 0;
        for (int i = 0; i < 3; i++) { /* none fails, by however many it is tried */
            assert_int_equal(store_get(f->store, ids[i], &job), 0);
            assert_true(job.state == JOB_QUEUED || job.state == JOB_RUNNING);
            assert_true(job.deaths <= (i == 0));
            attempts += job.attempts;
            job_clear(&job);
        }
    }
    assert_int_equal(attempts, 3);
    device_breaks(f, false);
    for (int i = 0; i < 3; i++) {
        job = reach(f, ids[i], JOB_SUCCEEDED);
        job_clear(&job);
    }
    rests(f, 0, false);
}

static void two_jobs_that_kill_every_worker_fail_where_others_succeed(void **state)
{
    struct fixture *f = *state;
    char ids[4][JOB_ID];
    submit(f, "wait", ids[0]);
    submit(f, "die", ids[1]);
    submit(f, "die", ids[2]);
    submit(f, "good", ids[3]);
    struct job job = reach(f, ids[0], JOB_RUNNING);
    job_clear(&job);
    cancel(f, ids[0], JOB_CANCELING);
    job = reach(f, ids[3], JOB_SUCCEEDED);
    assert_int_equal(job.attempts, 1);
    job_clear(&job);
    job = reach(f, ids[1], JOB_FAILED);
    assert_string_equal(json_string_value(json_object_get(job.error, "code")), "worker-died");
    job_clear(&job);
    submit(f, "good", ids[3]); /* without it the last one would be kept, and tried at times */
    job = reach(f, ids[3], JOB_SUCCEEDED);
    job_clear(&job);
    job = reach(f, ids[2], JOB_FAILED);
    job_clear(&job);
}

static void devices_are_planned(void **state)
{
    struct worker plan[WORKERS_MAX];
    int count;
    (void)state;
    assert_int_equal(workers_plan(plan, &count, "gpu:0,gpu:12,cpu"), 0);
    assert_int_equal(count, 3);
    assert_string_equal(plan[1].wanted, "gpu:12");
    static const char *const bad[] = {"", "gpu", "gpu:", "gpu:x", "gpu:0 ", "cpu,,cpu", "tpu", ",", "auto,"};
    for (size_t i = 0; i + 1 < sizeof bad / sizeof *bad; i++)
        if (workers_plan(plan, &count, bad[i]) != ERR_BAD_PARAMETER)
            fail_msg("\"%s\" was taken", bad[i]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return worker();
#define WITH_SCHEDULER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SCHEDULER(success_has_results_and_a_report),
        WITH_SCHEDULER(failure_keeps_its_reason_and_the_worker_lives),
        WITH_SCHEDULER(each_form_has_a_file_of_its_own),
        WITH_SCHEDULER(success_without_an_image_is_a_failure),
        WITH_SCHEDULER(a_worker_that_dies_gets_one_more_try),
        WITH_SCHEDULER(a_lost_device_gets_one_more_try),
        WITH_SCHEDULER(a_worker_that_breaks_the_rules_is_replaced),
        WITH_SCHEDULER(cancel_stops_a_job_and_kills_what_does_not_stop),
        WITH_SCHEDULER(a_job_over_its_time_is_stopped),
        WITH_SCHEDULER(a_silent_worker_is_killed),
        WITH_SCHEDULER(what_runs_at_the_stop_runs_again),
        WITH_SCHEDULER(progress_is_seen_while_a_job_runs),
        WITH_SCHEDULER(a_worker_that_cannot_be_started_is_told),
        WITH_SCHEDULER(the_next_scan_is_read_ahead_and_stays_queued),
        WITH_SCHEDULER(a_scan_read_ahead_neither_runs_nor_dies_with_its_worker),
        WITH_SCHEDULER(an_upload_is_read_while_its_row_is_to_come),
        WITH_SCHEDULER(a_free_worker_takes_a_job_that_another_has_read),
        WITH_SCHEDULER(a_device_that_fails_every_job_costs_none_of_them),
        WITH_SCHEDULER(two_jobs_that_kill_every_worker_fail_where_others_succeed),
        cmocka_unit_test(devices_are_planned),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
