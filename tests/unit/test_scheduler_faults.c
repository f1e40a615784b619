/* daemon/queue/scheduler.h: workers that die, hang or violate the protocol, and devices that fail every job. */
#include "tests/unit/scheduler_fixture.h"

#include <stdatomic.h>
#include <sys/syscall.h>

static void a_worker_that_dies_gets_one_more_try(void **state)
{
    ends(*state, "die once", JOB_SUCCEEDED, NULL, 2);
    ends(*state, "die", JOB_FAILED, "worker-died", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

/* The worker had not yet received the job, so its death does not count as one of the job's two attempts. */
static void a_worker_that_dies_without_the_job_costs_no_attempt(void **state)
{
    ends(*state, "last words", JOB_SUCCEEDED, NULL, 1);
    ends(*state, "die once", JOB_SUCCEEDED, NULL, 3);
}

static void a_lost_device_gets_one_more_try(void **state)
{
    ends(*state, "fatal", JOB_FAILED, "device-failed", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

/* The device is lost while a prefetched job is computed: a job sent in the meantime fails with it. */
static void a_device_lost_before_the_job_began_fails_it(void **state)
{
    ends(*state, "fatal, before it began", JOB_FAILED, "device-failed", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void a_worker_that_violates_the_protocol_is_replaced(void **state)
{
    ends(*state, "nonsense", JOB_FAILED, "worker-died", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
    ends(*state, "report", JOB_FAILED, "worker-died", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
    ends(*state, "other job", JOB_FAILED, "worker-died", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void a_result_that_a_worker_can_still_write_is_refused(void **state)
{
    ends(*state, "keeps once", JOB_SUCCEEDED, NULL, 2);
    ends(*state, "keeps", JOB_FAILED, "worker-died", 2);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void a_silent_worker_is_killed(void **state)
{
    struct fixture *f = *state;
    f->options.worker_timeout = 1;
    restart(f);
    ends(f, "hang", JOB_FAILED, "worker-died", 2);
}

/* A process that hangs in the kernel cannot be killed: while `deaf`, SIGKILL has no effect on one process. */
static atomic_bool deaf;
static _Atomic pid_t missed;

int kill(pid_t pid, int number)
{
    if (deaf && number == SIGKILL) {
        missed = pid;
        return 0;
    }
    return (int)syscall(SYS_kill, pid, number);
}

static struct worker_status status_wait(struct fixture *f, int index, enum worker_state state, const char *note)
{
    struct worker_status status[WORKERS_MAX];
    double end = clock_seconds() + HANGS_SECONDS;
    do {
        moment();
        scheduler_status(f->scheduler, status);
    } while ((status[index].state != state || !strstr(status[index].note, note)) && clock_seconds() < end);
    assert_int_equal(status[index].state, state);
    assert_non_null(strstr(status[index].note, note));
    return status[index];
}

static void a_worker_that_cannot_be_killed_does_not_block_others(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    enum job_state before, now;
    strcpy(f->options.devices, "cpu,cpu");
    restart(f);
    status_wait(f, 0, WORKER_IDLE, "");
    status_wait(f, 1, WORKER_IDLE, "");
    submit(f, "hang", id);
    struct worker_status status[WORKERS_MAX] = {{.job = ""}};
    int hung = 0; /* the worker that has the job */
    for (double end = clock_seconds() + HANGS_SECONDS; strcmp(status[hung].job, id) != 0 && clock_seconds() < end;) {
        moment();
        scheduler_status(f->scheduler, status);
        hung = strcmp(status[1].job, id) == 0;
    }
    assert_string_equal(status[hung].job, id);
    f->options.cancel_grace = 1;
    deaf = true;
    assert_int_equal(store_cancel(f->store, id, &before, &now), 0);
    scheduler_wake(f->scheduler);
    struct job job = reach(f, id, JOB_CANCELED);
    job_clear(&job);
    status_wait(f, hung, WORKER_DOWN, "does not end although it was killed");
    ends(f, "good", JOB_SUCCEEDED, NULL, 1);
    deaf = false;
    assert_int_equal(kill(missed, SIGKILL), 0);
    status_wait(f, hung, WORKER_IDLE, "");
}

static void a_worker_that_cannot_be_started_is_reported(void **state)
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

/* Wait until a worker's back-off has begun or ended. */
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

static void a_device_that_fails_every_job_fails_none_of_them(void **state)
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
        for (int i = 0; i < 3; i++) { /* none fails, however often it is tried */
            assert_int_equal(store_get(f->store, ids[i], &job), 0);
            assert_true(job.state == JOB_QUEUED || job.state == JOB_RUNNING);
            assert_true(job.deaths <= (i == 0));
            attempts += job.attempts;
            job_clear(&job);
        }
    }
    assert_true(attempts >= 3);
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
    submit(f, "good", ids[3]); /* without a job that succeeds, the last one would be kept and retried */
    job = reach(f, ids[3], JOB_SUCCEEDED);
    job_clear(&job);
    job = reach(f, ids[2], JOB_FAILED);
    job_clear(&job);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return worker();
    const struct CMUnitTest tests[] = {
        WITH_SCHEDULER(a_worker_that_dies_gets_one_more_try),
        WITH_SCHEDULER(a_worker_that_dies_without_the_job_costs_no_attempt),
        WITH_SCHEDULER(a_lost_device_gets_one_more_try),
        WITH_SCHEDULER(a_device_lost_before_the_job_began_fails_it),
        WITH_SCHEDULER(a_worker_that_violates_the_protocol_is_replaced),
        WITH_SCHEDULER(a_result_that_a_worker_can_still_write_is_refused),
        WITH_SCHEDULER(a_silent_worker_is_killed),
        WITH_SCHEDULER(a_worker_that_cannot_be_killed_does_not_block_others),
        WITH_SCHEDULER(a_worker_that_cannot_be_started_is_reported),
        WITH_SCHEDULER(a_device_that_fails_every_job_fails_none_of_them),
        WITH_SCHEDULER(two_jobs_that_kill_every_worker_fail_where_others_succeed),
    };
    return cmocka_run_group_tests_name("scheduler faults", tests, NULL, NULL);
}
