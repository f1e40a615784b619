/* daemon/queue/scheduler.h: how jobs run and end. */
#include "tests/unit/scheduler_fixture.h"

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

static void a_failure_keeps_its_reason_and_the_worker_runs_on(void **state)
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

static void each_format_has_a_file_of_its_own(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID], name[SPOOL_NAME], expected[16], held[16] = "";
    int fd;
    int64_t bytes, stamp;
    static const char *const asked[] = {"png", "nii.gz", "npy", "h5"};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        submit_for(f, "good", asked[i], id);
        struct job job = reach(f, id, JOB_SUCCEEDED);
        /* The HDF5 file exists in any case. */
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
    /* A further format in which the image cannot be written is left out. */
    submit_for(f, "first only", "png", id);
    struct job job = reach(f, id, JOB_SUCCEEDED);
    assert_int_equal(json_array_size(job.results), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(job.results, 0), "name")), "image.h5");
    job_clear(&job);
    ends(*state, "empty", JOB_FAILED, "internal", 1);
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

static void results_beyond_the_limit_are_a_fault_of_the_worker(void **state)
{
    struct fixture *f = *state;
    f->options.result_limit = 5; /* "as h5" */
    ends(f, "good", JOB_SUCCEEDED, NULL, 1);
    f->options.result_limit = 4;
    ends(f, "good", JOB_FAILED, "internal", 1);
    f->options.result_limit = 0;
    ends(f, "good", JOB_SUCCEEDED, NULL, 1);
    f->options.client_bytes = 4;
    ends(f, "good", JOB_FAILED, "internal", 1);
    f->quota = 5; /* a client's own quota counts instead of the option */
    ends(f, "good", JOB_SUCCEEDED, NULL, 1);
    f->quota = 4;
    f->options.client_bytes = 0;
    ends(f, "good", JOB_FAILED, "internal", 1);
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
    struct fixture *f = *state;
    cancel_job(f, "wait");
    f->options.cancel_grace = 1;
    cancel_job(f, "hang");
    ends(*state, "good", JOB_SUCCEEDED, NULL, 1);
}

/* An endless series of jobs: when the scheduler's thread logs the end of one, the next has already ended. */
static struct storm {
    struct fixture *f;
    char canceled[JOB_ID]; /* jobs continue until this one, of the other worker, is canceled */
    int jobs;
    _Atomic bool over;
} storm;

static int lines_count(const struct fixture *f, const char *start)
{
    char path[80], line[80];
    int count = 0;
    snprintf(path, sizeof path, "%s/notes", f->folder);
    FILE *notes = fopen(path, "re");
    while (notes && fgets(line, sizeof line, notes))
        count += strncmp(line, start, strlen(start)) == 0;
    if (notes)
        fclose(notes);
    return count;
}

static bool storm_goes_on(int syslog, const struct log_about *about, const char *message)
{
    struct job job = {.state = JOB_QUEUED};
    char id[JOB_ID];
    enum job_state before, now;
    (void)syslog;
    (void)about;
    if (!strstr(message, "succeeded") || store_get(storm.f->store, storm.canceled, &job) != 0)
        return true;
    if (job.state == JOB_RUNNING)
        store_cancel(storm.f->store, storm.canceled, &before, &now);
    if (!job_state_is_final(job.state) && !storm.over) {
        while (lines_count(storm.f, "done ") < storm.jobs)
            moment();
        submit(storm.f, "noted", id);
        storm.jobs++;
    }
    job_clear(&job);
    return true;
}

static void jobs_in_quick_succession_do_not_delay_a_cancel(void **state)
{
    struct fixture *f = *state;
    const int64_t reserve = f->options.work_reserve;
    char id[JOB_ID];
    f->options.work_reserve = INT64_MAX; /* no job begins until all are queued */
    f->log.send = storm_goes_on;
    strcpy(f->options.devices, "cpu,cpu");
    restart(f);
    storm = (struct storm){.f = f, .jobs = 2};
    submit(f, "wait", storm.canceled);
    submit(f, "noted", id);
    submit(f, "noted", id);
    f->log.most = LOG_LEVEL_INFO;
    f->options.work_reserve = reserve;
    scheduler_wake(f->scheduler);
    double end = clock_seconds() + HANGS_SECONDS;
    struct job job = {.state = JOB_QUEUED};
    while (job.state != JOB_CANCELED && clock_seconds() < end) {
        moment();
        job_clear(&job);
        assert_int_equal(store_get(f->store, storm.canceled, &job), 0);
    }
    storm.over = true;
    assert_int_equal(job.state, JOB_CANCELED);
    job_clear(&job);
}

static void a_job_over_its_time_is_stopped(void **state)
{
    struct fixture *f = *state;
    f->options.job_time_limit = f->options.cancel_grace = 1;
    restart(f);
    ends(f, "wait", JOB_FAILED, "time-limit", 1);
    ends(f, "hang", JOB_FAILED, "time-limit", 1);
    f->options.job_time_limit = 0; /* for any speed of this machine */
    ends(f, "good", JOB_SUCCEEDED, NULL, 1);
}

static void jobs_running_at_a_stop_run_again(void **state)
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
    job = reach(f, first, JOB_RUNNING); /* it runs before the one submitted later */
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
    assert_string_equal(kind_find("recon")->steps[status[0].progress.step].name, "gridding");
    assert_string_equal(status[0].device, "fake");
    assert_true(status[0].progress.fraction == 0.25); /* progress never falls */
    assert_int_equal(status[0].progress.iteration, 4);
    assert_int_equal(status[0].progress.iterations, 8);
    assert_int_equal(status[0].progress.told, 2);
    assert_int_equal(status[0].state, WORKER_BUSY);
}

static void the_plan_of_devices_is_checked(void **state)
{
    struct worker plan[WORKERS_MAX];
    int count;
    (void)state;
    assert_int_equal(workers_plan(plan, &count, "gpu:0,gpu:12,cpu"), 0);
    assert_int_equal(count, 3);
    assert_string_equal(plan[1].wanted, "gpu:12");
    static const char *const bad[] = {"", "gpu", "gpu:", "gpu:x", "gpu:0 ", "cpu,,cpu", "tpu", ","};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (workers_plan(plan, &count, bad[i]) != ERR_BAD_PARAMETER)
            fail_msg("\"%s\" was taken", bad[i]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return worker();
    const struct CMUnitTest tests[] = {
        WITH_SCHEDULER(success_has_results_and_a_report),
        WITH_SCHEDULER(a_failure_keeps_its_reason_and_the_worker_runs_on),
        WITH_SCHEDULER(each_format_has_a_file_of_its_own),
        WITH_SCHEDULER(success_without_an_image_is_a_failure),
        WITH_SCHEDULER(results_beyond_the_limit_are_a_fault_of_the_worker),
        WITH_SCHEDULER(cancel_stops_a_job_and_kills_what_does_not_stop),
        WITH_SCHEDULER(jobs_in_quick_succession_do_not_delay_a_cancel),
        WITH_SCHEDULER(a_job_over_its_time_is_stopped),
        WITH_SCHEDULER(jobs_running_at_a_stop_run_again),
        WITH_SCHEDULER(progress_is_seen_while_a_job_runs),
        cmocka_unit_test(the_plan_of_devices_is_checked),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
