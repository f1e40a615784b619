/* daemon/queue/scheduler.h: prefetching scans before their jobs begin. */
#include "daemon/queue/jobs.h"
#include "tests/unit/scheduler_fixture.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

/* The scheduler's thread pauses before each lock while `slow`, so that its turn has moments that a test can meet. */
enum { MOMENTS = 40, PAUSE_NS = 2000000 };
static atomic_bool slow;
static _Thread_local bool is_test;

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*next)(pthread_mutex_t *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (slow && !is_test)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    return next(mutex);
}

/* While `asleep`, the scheduler is not woken. */
static atomic_bool asleep;

int eventfd_write(int fd, eventfd_t value)
{
    return asleep || write(fd, &value, sizeof value) == sizeof value ? 0 : -1;
}

/* An upload that is retracted and then committed when the scheduler, about to claim a job, looks at the disk. */
static struct {
    atomic_bool armed;
    struct fixture *f;
    struct job *job;
    int rc;
} retracting;

int fstatvfs(int fd, struct statvfs *disk)
{
    int (*next)(int, struct statvfs *);
    *(void **)&next = dlsym(RTLD_NEXT, "fstatvfs");
    if (atomic_exchange(&retracting.armed, false)) {
        scheduler_retract(retracting.f->scheduler, retracting.job->id);
        retracting.rc = store_submit(retracting.f->store, retracting.job, 100);
    }
    return next(fd, disk);
}

/* Wait until the worker has recorded this message so many times. */
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

/* Start with two workers, and wait until both are idle. */
static void two_workers(struct fixture *f)
{
    struct worker_status status[WORKERS_MAX];
    strcpy(f->options.devices, "cpu,cpu");
    restart(f);
    do
        moment();
    while (scheduler_status(f->scheduler, status) != 2 || status[0].state != WORKER_IDLE ||
           status[1].state != WORKER_IDLE);
}

static void the_next_scan_is_prefetched_and_stays_queued(void **state)
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
    cancel(f, second, JOB_CANCELED); /* canceled at once, like any waiting job */
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

static void a_prefetched_scan_survives_its_worker(void **state)
{
    struct fixture *f = *state;
    char first[JOB_ID], second[JOB_ID];
    submit(f, "wait, allergic", first);
    submit(f, "good", second);
    /* The prefetch hint kills it. The running job is run again; the hint is not repeated. */
    struct job job = {.deaths = 0};
    for (double end = clock_seconds() + HANGS_SECONDS; job.deaths < 1 && clock_seconds() < end;) {
        job_clear(&job);
        moment();
        assert_int_equal(store_get(f->store, first, &job), 0);
    }
    job_clear(&job);
    job = reach(f, second, JOB_SUCCEEDED); /* the running job first, then the one whose prefetch killed the worker */
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

/* A scan that arrives while the worker is idle: its file, and a second descriptor of it for an announcement. */
static int arriving(struct fixture *f, struct job *job, struct spool_file *file)
{
    struct worker_status status[WORKERS_MAX];
    int scan;
    *job = (struct job){.parameters = json_object(), .formats = json_array()};
    do
        moment();
    while (scheduler_status(f->scheduler, status) != 1 || status[0].state != WORKER_IDLE);
    assert_int_equal(spool_begin(f->spool, -1, file), 0);
    assert_int_equal(spool_append(file, "good", 4), 0);
    strcpy(job->id, file->id);
    strcpy(job->kind, "recon");
    assert_int_equal(spool_reopen(file, &scan), 0);
    return scan;
}

/* The announced upload is complete: its row is committed, and the job runs, once. */
static void completes(struct fixture *f, struct job *job, struct spool_file *file)
{
    assert_int_equal(spool_finish(file), 0);
    assert_int_equal(store_submit(f->store, job, 100), 0);
    scheduler_wake(f->scheduler);
    struct job done = reach(f, job->id, JOB_SUCCEEDED);
    job_clear(&done);
    noted(f, "job", job->id, 1);
}

static void an_upload_is_prefetched_before_its_row_is_committed(void **state)
{
    struct fixture *f = *state;
    for (int commits = 0; commits < 2; commits++) {
        struct spool_file file;
        struct job job;
        const int scan = arriving(f, &job, &file);
        scheduler_announce(f->scheduler, &job, scan, ARRIVING_NOT);
        noted(f, "prepare", job.id, 1);
        noted(f, "job", job.id, 0);
        if (commits) {
            completes(f, &job, &file);
            noted(f, "forget", job.id, 0);
        } else {
            scheduler_retract(f->scheduler, job.id);
            spool_abort(&file);
            noted(f, "forget", job.id, 1);
        }
        job_clear(&job);
    }
}

/* Open the job's result file in results/ID or results/ID.tmp; -1: there is none. */
static int result_open(const struct fixture *f, const char *id, const char *ending)
{
    char path[160];
    snprintf(path, sizeof path, "%s/results/%s%s/image.h5", f->folder, id, ending);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* The result files of a prefetched job are made before it begins, and are those that it writes; none is left of a job
 * that is retracted. */
static void result_files_are_ready_before_the_job(void **state)
{
    struct fixture *f = *state;
    for (int commits = 0; commits < 2; commits++) {
        struct spool_file file;
        struct stat before, after;
        struct job job;
        int made, left, scan = arriving(f, &job, &file);
        scheduler_announce(f->scheduler, &job, scan, ARRIVING_NOT);
        const double end = clock_seconds() + HANGS_SECONDS;
        while ((made = result_open(f, job.id, ".tmp")) < 0 && clock_seconds() < end)
            moment();
        assert_int_equal(fstat(made, &before), 0);
        if (commits) {
            completes(f, &job, &file);
            left = result_open(f, job.id, "");
            assert_int_equal(fstat(left, &after), 0);
            assert_true(after.st_ino == before.st_ino);
            close(left);
        } else {
            scheduler_retract(f->scheduler, job.id);
            spool_abort(&file);
        }
        while ((left = result_open(f, job.id, ".tmp")) >= 0 && clock_seconds() < end) {
            close(left);
            moment();
        }
        assert_int_equal(left, -1);
        close(made); /* open until now, so that no other file got its number */
        job_clear(&job);
    }
}

/* Announce a file that has arrived, for an idle worker; its row is not committed yet. */
static void announced(struct fixture *f, struct job *job, struct spool_file *file)
{
    int scan;
    *job = (struct job){.parameters = json_object(), .formats = json_array()};
    assert_int_equal(spool_begin(f->spool, -1, file), 0);
    assert_int_equal(spool_append(file, "good", 4), 0);
    strcpy(job->id, file->id);
    strcpy(job->kind, "recon");
    assert_int_equal(spool_reopen(file, &scan), 0);
    scheduler_announce(f->scheduler, job, scan, ARRIVING_NOT);
    noted(f, "prepare", job->id, 1);
}

/* A scan that one worker forgets, since it is given another job, and another worker prefetches in the same turn: the
 * files are those of the second one, and are there when the job begins. */
static void result_files_are_those_of_the_last_worker(void **state)
{
    struct fixture *f = *state;
    struct spool_file files[2];
    struct job jobs[2];
    char first[JOB_ID], second[JOB_ID];
    two_workers(f);
    for (int i = 0; i < 2; i++) /* one for each worker */
        announced(f, &jobs[i], &files[i]);
    asleep = true;
    submit(f, "wait", first);
    submit(f, "wait", second);
    assert_int_equal(spool_finish(&files[1]), 0);
    assert_int_equal(store_submit(f->store, &jobs[1], 100), 0);
    asleep = false;
    scheduler_wake(f->scheduler);
    noted(f, "prepare", jobs[1].id, 2);
    cancel(f, first, JOB_CANCELING);
    struct job job = reach(f, jobs[1].id, JOB_SUCCEEDED);
    job_clear(&job);
    noted(f, "job", jobs[1].id, 1); /* a job whose results are not there is put back, and sent again */
    cancel(f, second, JOB_CANCELING);
    job = reach(f, second, JOB_CANCELED);
    job_clear(&job);
    scheduler_retract(f->scheduler, jobs[0].id);
    spool_abort(&files[0]);
    for (int i = 0; i < 2; i++)
        job_clear(&jobs[i]);
}

/* Whenever in the scheduler's turn a scan is announced, a worker that is idle gets it. */
static void an_announcement_at_any_moment_reaches_an_idle_worker(void **state)
{
    struct fixture *f = *state;
    is_test = true;
    for (int i = 0; i < MOMENTS; i++) {
        struct spool_file file;
        struct job job;
        const int scan = arriving(f, &job, &file);
        slow = true;
        scheduler_wake(f->scheduler);
        nanosleep(&(struct timespec){.tv_nsec = i * PAUSE_NS / 4}, NULL);
        scheduler_announce(f->scheduler, &job, scan, ARRIVING_NOT);
        slow = false;
        noted(f, "prepare", job.id, 1);
        scheduler_retract(f->scheduler, job.id);
        noted(f, "forget", job.id, 1);
        spool_abort(&file);
        job_clear(&job);
    }
}

/* Who stops the service waits for the jobs that run, also for one that was claimed this moment. */
static void a_job_that_runs_in_the_store_keeps_the_scheduler_busy(void **state)
{
    struct fixture *f = *state;
    struct job job = {.state = JOB_QUEUED};
    char id[JOB_ID];
    is_test = true;
    slow = true;
    submit(f, "wait", id);
    for (double end = clock_seconds() + HANGS_SECONDS; job.state == JOB_QUEUED && clock_seconds() < end;) {
        job_clear(&job);
        assert_int_equal(store_get(f->store, id, &job), 0);
    }
    const bool idle = scheduler_is_idle(f->scheduler);
    slow = false;
    assert_int_equal(job.state, JOB_RUNNING);
    assert_false(idle);
    job_clear(&job);
}

/* A stream is announced when it begins to arrive, and when it is complete. Its job may be claimed before the scheduler
 * has looked at the second announcement: the worker, which has begun the job, is not told to prepare it again. */
static void a_job_that_has_begun_is_not_prepared_again(void **state)
{
    struct fixture *f = *state;
    struct spool_file file;
    struct job job;
    int scan = arriving(f, &job, &file);
    scheduler_announce(f->scheduler, &job, scan, ARRIVING_STREAM);
    noted(f, "prepare", job.id, 1);
    assert_int_equal(spool_reopen(&file, &scan), 0);
    asleep = true;
    scheduler_announce(f->scheduler, &job, scan, ARRIVING_NOT);
    assert_int_equal(spool_finish(&file), 0);
    assert_int_equal(store_submit(f->store, &job, 100), 0);
    asleep = false;
    scheduler_wake(f->scheduler);
    struct job done = reach(f, job.id, JOB_SUCCEEDED);
    job_clear(&done);
    noted(f, "job", job.id, 1);
    noted(f, "prepare", job.id, 1);
    job_clear(&job);
}

/* An idle worker reads a file that arrives, until one is complete: that one is first. */
static void a_file_that_arrives_gives_way_to_one_that_is_there(void **state)
{
    struct fixture *f = *state;
    struct spool_file slow_file, file;
    struct job late, job;
    int scan = arriving(f, &late, &slow_file);
    scheduler_announce(f->scheduler, &late, scan, ARRIVING_FILE);
    noted(f, "prepare", late.id, 1);
    scan = arriving(f, &job, &file);
    scheduler_announce(f->scheduler, &job, scan, ARRIVING_FILE); /* another one that arrives does not displace it */
    scheduler_wake(f->scheduler);
    assert_int_equal(spool_reopen(&file, &scan), 0);
    scheduler_announce(f->scheduler, &job, scan, ARRIVING_NOT);
    noted(f, "prepare", job.id, 1);
    completes(f, &job, &file);
    noted(f, "prepare", late.id, 1);
    scheduler_retract(f->scheduler, late.id);
    spool_abort(&slow_file);
    job_clear(&late);
    job_clear(&job);
}

/* A worker that dies before it reports anything of the job that it is given may have died of the one that it computed
 * ahead: the job is not charged with that, once. */
static void a_job_is_not_charged_with_what_was_computed_ahead(void **state)
{
    struct fixture *f = *state;
    const struct {
        const char *what;
        enum job_state state;
        int attempts, deaths;
    } cases[] = {{"silent once", JOB_SUCCEEDED, 2, 0}, {"silent", JOB_FAILED, 3, 1}};
    for (int i = 0; i < 2; i++) {
        struct spool_file file;
        struct job ahead;
        char id[JOB_ID];
        const int scan = arriving(f, &ahead, &file);
        scheduler_announce(f->scheduler, &ahead, scan, ARRIVING_NOT);
        noted(f, "prepare", ahead.id, 1);
        submit(f, cases[i].what, id);
        struct job job = reach(f, id, cases[i].state);
        assert_int_equal(job.attempts, cases[i].attempts);
        assert_int_equal(job.deaths, cases[i].deaths);
        job_clear(&job);
        noted(f, "prepare", ahead.id, 1);
        scheduler_retract(f->scheduler, ahead.id);
        spool_abort(&file);
        job_clear(&ahead);
    }
}

/* An upload that arrives while a job ends and the next begins does not displace the prefetch of the one after that. */
static void queued_scans_are_prefetched_before_announced_ones(void **state)
{
    struct fixture *f = *state;
    char first[JOB_ID], second[JOB_ID], third[JOB_ID], path[64];
    enum job_state before, now;
    sqlite3 *other;
    struct job late = {.parameters = json_object(), .formats = json_array()};
    submit(f, "wait", first);
    submit(f, "wait", second);
    submit(f, "good", third);
    noted(f, "prepare", second, 1);
    /* The scheduler, about to claim the second job, finds the store locked by another thread. */
    assert_int_equal(store_cancel(f->store, first, &before, &now), 0);
    snprintf(path, sizeof path, "%s/jobs.db", f->folder);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    scheduler_wake(f->scheduler);
    noted(f, "cancel", first, 1);
    assert_int_equal(spool_new_id(late.id), 0);
    strcpy(late.kind, "recon");
    int scan;
    assert_int_equal(spool_open(f->spool, third, &scan), 0);
    scheduler_announce(f->scheduler, &late, scan, ARRIVING_NOT);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    noted(f, "job", second, 1);
    noted(f, "prepare", third, 1);
    noted(f, "prepare", late.id, 0);
    job_clear(&late);
    cancel(f, second, JOB_CANCELING);
    struct job job = reach(f, third, JOB_SUCCEEDED);
    job_clear(&job);
    noted(f, "forget", third, 0);
}

/* Two workers: each prefetches its own next scan; a free worker claims any job, whoever has prefetched it. */
static void a_free_worker_claims_a_job_that_another_prefetched(void **state)
{
    struct fixture *f = *state;
    char ids[4][JOB_ID];
    two_workers(f);
    submit(f, "wait", ids[0]);
    submit(f, "wait", ids[1]);
    submit(f, "good", ids[2]);
    noted(f, "prepare", ids[2], 1);
    submit(f, "good", ids[3]);
    noted(f, "prepare", ids[3], 1);
    /* Each worker has the files of the job that it prefetched; another one gets new ones. */
    int prepared[2], others = 0;
    struct stat before[2], after;
    for (int i = 0; i < 2; i++) {
        prepared[i] = result_open(f, ids[2 + i], ".tmp");
        assert_int_equal(fstat(prepared[i], &before[i]), 0);
    }
    cancel(f, ids[0], JOB_CANCELING);
    for (int i = 2; i < 4; i++) {
        struct job job = reach(f, ids[i], JOB_SUCCEEDED);
        assert_int_equal(job.attempts, 1);
        job_clear(&job);
        noted(f, "job", ids[i], 1);
    }
    for (int i = 0; i < 2; i++) {
        const int left = result_open(f, ids[2 + i], "");
        assert_int_equal(fstat(left, &after), 0);
        others += after.st_ino != before[i].st_ino;
        close(left);
        close(prepared[i]);
    }
    assert_int_equal(others, 1);
    cancel(f, ids[1], JOB_CANCELING);
    struct job job = reach(f, ids[1], JOB_CANCELED);
    job_clear(&job);
}

/* A job whose announcement is retracted just before it is claimed: the worker forgets the scan before it begins. */
static void a_retracted_scan_is_not_that_of_the_job(void **state)
{
    struct fixture *f = *state;
    struct spool_file file;
    struct job job;
    const int scan = arriving(f, &job, &file);
    scheduler_announce(f->scheduler, &job, scan, ARRIVING_NOT);
    noted(f, "prepare", job.id, 1);
    assert_int_equal(spool_finish(&file), 0);
    retracting.f = f;
    retracting.job = &job;
    retracting.armed = true;
    scheduler_wake(f->scheduler);
    noted(f, "job", job.id, 1);
    assert_int_equal(retracting.rc, 0);
    struct job done = reach(f, job.id, JOB_SUCCEEDED);
    job_clear(&done);
    noted(f, "forget", job.id, 1);
    job_clear(&job);
}

/* Two announced uploads, whose workers have their scans: the commit of one fails; the other becomes a job that is
 * canceled and deleted. All of that happens between two iterations of the scheduler. */
static void uploads_that_are_gone_in_the_next_turn_are_both_forgotten(void **state)
{
    struct fixture *f = *state;
    const struct core core = core_of(f);
    struct spool_file files[2];
    struct job jobs[2];
    enum job_state now;
    two_workers(f);
    for (int i = 0; i < 2; i++)
        announced(f, &jobs[i], &files[i]);
    asleep = true;
    scheduler_retract(f->scheduler, jobs[0].id);
    assert_int_equal(spool_finish(&files[1]), 0);
    assert_int_equal(store_submit(f->store, &jobs[1], 100), 0);
    assert_int_equal(job_cancel(&core, f->scheduler, jobs[1].id, &now), 0);
    assert_int_equal(store_delete(f->store, jobs[1].id), 0);
    asleep = false;
    scheduler_wake(f->scheduler);
    for (int i = 0; i < 2; i++) {
        noted(f, "forget", jobs[i].id, 1);
        job_clear(&jobs[i]);
    }
    spool_abort(&files[0]);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return worker();
    const struct CMUnitTest tests[] = {
        WITH_SCHEDULER(the_next_scan_is_prefetched_and_stays_queued),
        WITH_SCHEDULER(a_prefetched_scan_survives_its_worker),
        WITH_SCHEDULER(an_upload_is_prefetched_before_its_row_is_committed),
        WITH_SCHEDULER(result_files_are_ready_before_the_job),
        WITH_SCHEDULER(result_files_are_those_of_the_last_worker),
        WITH_SCHEDULER(an_announcement_at_any_moment_reaches_an_idle_worker),
        WITH_SCHEDULER(a_job_that_runs_in_the_store_keeps_the_scheduler_busy),
        WITH_SCHEDULER(a_job_that_has_begun_is_not_prepared_again),
        WITH_SCHEDULER(a_file_that_arrives_gives_way_to_one_that_is_there),
        WITH_SCHEDULER(a_job_is_not_charged_with_what_was_computed_ahead),
        WITH_SCHEDULER(queued_scans_are_prefetched_before_announced_ones),
        WITH_SCHEDULER(a_free_worker_claims_a_job_that_another_prefetched),
        WITH_SCHEDULER(a_retracted_scan_is_not_that_of_the_job),
        WITH_SCHEDULER(uploads_that_are_gone_in_the_next_turn_are_both_forgotten),
    };
    return cmocka_run_group_tests_name("scheduler ahead", tests, NULL, NULL);
}
