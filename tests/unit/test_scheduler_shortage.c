/* daemon/queue/scheduler.h: no job is lost when the server is short of resources of its own (SHORTAGES). */
#include "tests/unit/scheduler_fixture.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* If this is not 0, mkdir of a results folder fails with this error. */
static atomic_int mkdir_error;
static atomic_int mkdir_failed; /* number of failures */

int mkdirat(int folder, const char *name, mode_t mode)
{
    if (!mkdir_error || !strstr(name, ".tmp"))
        return (int)syscall(SYS_mkdirat, folder, name, mode);
    mkdir_failed++;
    errno = mkdir_error;
    return -1;
}

static bool scan_is_there(const struct fixture *f, const char *id)
{
    char path[160];
    snprintf(path, sizeof path, "%s/spool/%s", f->folder, id);
    return access(path, F_OK) == 0;
}

static void held_wait(struct fixture *f)
{
    double end = clock_seconds() + HANGS_SECONDS;
    while (!scheduler_is_held(f->scheduler) && clock_seconds() < end)
        moment();
    assert_true(scheduler_is_held(f->scheduler));
}

static void waits_out(struct fixture *f, int error)
{
    char ids[3][JOB_ID];
    mkdir_failed = 0;
    mkdir_error = error;
    for (int i = 0; i < 3; i++)
        submit(f, "good", ids[i]);
    held_wait(f);
    assert_int_not_equal(scheduler_held_check(f->scheduler), 0);
    assert_non_null(strstr(err_last()->text, "disk"));
    assert_true(mkdir_failed > 0);
    for (int i = 0; i < 3; i++) {
        struct job job = reach(f, ids[i], JOB_QUEUED);
        assert_int_equal(job.attempts, 0);
        assert_true(scan_is_there(f, ids[i]));
        job_clear(&job);
    }
    mkdir_error = 0;
    for (int i = 0; i < 3; i++) {
        struct job job = reach_while(f, ids[i], JOB_SUCCEEDED, true);
        assert_int_equal(job.attempts, 1);
        job_clear(&job);
    }
    assert_false(scheduler_is_held(f->scheduler));
    assert_int_equal(scheduler_held_check(f->scheduler), 0);
}

/* The reason is that of now, not of the scheduler's last turn: its numbers are those of the disk. */
static void the_reason_is_that_of_now(void **state)
{
    struct fixture *f = *state;
    const int64_t reserve = f->options.work_reserve;
    char id[JOB_ID];
    f->options.work_reserve = INT64_MAX;
    submit(f, "good", id);
    held_wait(f);
    f->options.work_reserve = INT64_MAX / 2;
    assert_int_equal(scheduler_held_check(f->scheduler), ERR_SPOOL_FULL);
    assert_non_null(strstr(err_last()->text, "at least 4611686018427.4 MB"));
    f->options.work_reserve = reserve;
    struct job job = reach_while(f, id, JOB_SUCCEEDED, true);
    job_clear(&job);
}

static void jobs_wait_for_room(void **state)
{
    waits_out(*state, ENOSPC);
}

static void jobs_wait_for_memory(void **state)
{
    waits_out(*state, ENOMEM);
}

static void jobs_wait_while_the_disk_fails(void **state)
{
    waits_out(*state, EIO);
}

static void shortage_set(struct fixture *f, bool is_short)
{
    char path[160];
    snprintf(path, sizeof path, "%s/short", f->folder);
    if (!is_short) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void a_job_without_room_for_results_is_requeued_and_blocks_no_other(void **state)
{
    struct fixture *f = *state;
    char large[JOB_ID], other[JOB_ID];
    shortage_set(f, true);
    submit(f, "short", large);
    held_wait(f);
    submit(f, "good", other);
    struct job job = reach_while(f, other, JOB_SUCCEEDED, true);
    job_clear(&job);
    job = reach(f, large, JOB_QUEUED);
    assert_int_equal(job.attempts, 0);
    assert_true(scan_is_there(f, large));
    job_clear(&job);
    shortage_set(f, false);
    job = reach_while(f, large, JOB_SUCCEEDED, true);
    assert_int_equal(job.attempts, 1);
    job_clear(&job);
}

static void a_requeued_job_can_be_canceled(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    shortage_set(f, true);
    submit(f, "short", id);
    held_wait(f);
    struct job job = reach(f, id, JOB_QUEUED);
    job_clear(&job);
    cancel(f, id, JOB_CANCELED);
}

static void the_scan_of_a_job_that_failed_with_a_disk_error_is_kept(void **state)
{
    struct fixture *f = *state;
    char broken[JOB_ID], good[JOB_ID];
    struct spool_cleaned cleaned;
    submit(f, "unreadable", broken);
    struct job job = reach(f, broken, JOB_FAILED);
    assert_string_equal(json_string_value(json_object_get(job.error, "code")), "io-error");
    job_clear(&job);
    submit(f, "good", good); /* after that, the steps that follow the other job's end are done too */
    job = reach_while(f, good, JOB_SUCCEEDED, true);
    job_clear(&job);
    assert_true(scan_is_there(f, broken));
    scheduler_free(f->scheduler);
    f->scheduler = NULL;
    assert_false(scan_is_there(f, good));
    assert_int_equal(spool_clean(f->spool, f->store, true, &cleaned), 0);
    assert_true(scan_is_there(f, broken)); /* also after a restart */
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return worker();
    const struct CMUnitTest tests[] = {
        WITH_SCHEDULER(the_reason_is_that_of_now),
        WITH_SCHEDULER(jobs_wait_for_room),
        WITH_SCHEDULER(jobs_wait_for_memory),
        WITH_SCHEDULER(jobs_wait_while_the_disk_fails),
        WITH_SCHEDULER(a_job_without_room_for_results_is_requeued_and_blocks_no_other),
        WITH_SCHEDULER(a_requeued_job_can_be_canceled),
        WITH_SCHEDULER(the_scan_of_a_job_that_failed_with_a_disk_error_is_kept),
    };
    return cmocka_run_group_tests_name("scheduler shortage", tests, NULL, NULL);
}
