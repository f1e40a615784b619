/* daemon/store/store.h: every state transition, refusals, changes from many threads. Reopening a store:
 * test_store_open.c. */
#include "tests/unit/store_fixture.h"

#include <pthread.h>

static void jobs_are_claimed_in_order_and_keep_their_columns(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    char id[JOB_ID];
    bool found = true;
    struct job job;
    for (int i = 7; i > 4; i--)
        assert_int_equal(submit(store, i, 10), 0);
    take(store, 7);
    take(store, 6);
    assert_int_equal(store_get(store, id_of(6, id), &job), 0);
    assert_true(job.bytes == 1006 && job.attempts == 1 && job.deaths == 0 && job.started >= job.created);
    assert_string_equal(json_string_value(json_object_get(job.parameters, "dcf")), "given");
    assert_string_equal(json_string_value(json_array_get(job.formats, 0)), "png");
    assert_true(!job.error && !job.results && !job.report && job.finished == 0);
    job_clear(&job);
    take(store, 5);
    assert_int_equal(store_claim(store, NULL, NULL, &job, &found), 0);
    assert_false(found);
}

static void a_full_queue_refuses_jobs(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    int64_t counts[JOB_STATES], oldest;
    assert_int_equal(submit(store, 1, 2), 0);
    assert_int_equal(submit(store, 2, 2), 0);
    assert_int_equal(submit(store, 3, 2), ERR_QUEUE_FULL);
    take(store, 1);
    assert_int_equal(submit(store, 3, 2), 0); /* a running job does not count as waiting */
    assert_int_equal(store_counts(store, counts, &oldest), 0);
    assert_true(counts[JOB_QUEUED] == 2 && counts[JOB_RUNNING] == 1 && oldest > 0);
    assert_int_equal(submit(store, 3, 10), ERR_STORE); /* the same id */
}

static void ends_are_stored_and_final(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    char id[JOB_ID];
    struct job job;
    json_t *results = json_pack("[{s:s, s:i}]", "name", "image.h5", "bytes", 7),
           *report = json_pack("{s:i}", "samples", 9);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(submit(store, i, 10), 0);
        take(store, i);
    }
    assert_int_equal(store_succeed(store, id_of(1, id), results, report), 0);
    err_set_acquisition(ERR_TRAJ_RANGE, 12, "It leaves the k-space.");
    assert_int_equal(store_fail(store, id_of(2, id), err_last()), 0);
    assert_int_equal(store_canceled(store, id_of(3, id)), 0);
    assert_int_equal(store_get(store, id_of(1, id), &job), 0);
    assert_true(job.state == JOB_SUCCEEDED && job.finished > 0 && json_equal(job.results, results) &&
                json_equal(job.report, report));
    job_clear(&job);
    assert_int_equal(store_get(store, id_of(2, id), &job), 0);
    assert_int_equal(job.state, JOB_FAILED);
    assert_string_equal(json_string_value(json_object_get(job.error, "code")), "trajectory-out-of-range");
    assert_int_equal(json_integer_value(json_object_get(job.error, "acquisition_index")), 12);
    job_clear(&job);
    for (int i = 1; i <= 3; i++) {
        enum job_state before = state_of(store, i);
        assert_int_equal(store_succeed(store, id_of(i, id), results, report), ERR_CONFLICT);
        assert_int_equal(store_fail(store, id, err_last()), ERR_CONFLICT);
        assert_int_equal(store_requeue(store, id, REQUEUE_STOPPED), ERR_CONFLICT);
        assert_int_equal(state_of(store, i), before);
    }
    json_decref(results);
    json_decref(report);
}

/* A job that failed before it was queued: it is never claimed, and keeps its scan as others do. */
static void a_job_may_be_inserted_as_failed(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    char id[JOB_ID];
    int64_t counts[JOB_STATES], oldest;
    bool found = true;
    struct kept kept;
    struct job job = {.id = ""}, kept_job;
    store_set_kept_scans(store, true, false);
    memcpy(job.id, id_of(1, id), sizeof job.id);
    strcpy(job.kind, "recon");
    strcpy(job.client, "scanner");
    job.bytes = 77;
    job.parameters = json_object();
    job.formats = json_array();
    err_set(ERR_TRUNCATED, "It broke off.");
    const struct err failure = *err_last();
    assert_int_equal(store_submit_failed(store, &job, &failure, 1), 0);
    assert_true(job.state == JOB_FAILED && job.created > 0 && job.sequence > 0);
    assert_int_equal(store_claim(store, NULL, NULL, &kept_job, &found), 0);
    assert_false(found);
    assert_int_equal(store_counts(store, counts, &oldest), 0);
    assert_true(counts[JOB_QUEUED] == 0 && counts[JOB_FAILED] == 1 && oldest == 0);
    assert_int_equal(store_get(store, id, &kept_job), 0);
    assert_true(kept_job.state == JOB_FAILED && kept_job.finished > 0 && kept_job.started == 0);
    assert_string_equal(json_string_value(json_object_get(kept_job.error, "code")), "truncated-file");
    job_clear(&kept_job);
    store_kept(store, &kept);
    assert_true(kept.scans == 1 && kept.scan_bytes == 77);
    assert_int_equal(submit(store, 2, 1), 0);
    memcpy(job.id, id_of(3, id), sizeof job.id);
    assert_int_equal(store_submit_failed(store, &job, &failure, 1), ERR_QUEUE_FULL);
    assert_int_equal(store_get(store, id, &kept_job), ERR_NOT_FOUND);
    job_clear(&job);
}

static void cancel_depends_on_the_state(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    char id[JOB_ID];
    enum job_state before, now;
    assert_int_equal(submit(store, 1, 10), 0);
    assert_int_equal(submit(store, 2, 10), 0);
    take(store, 1);
    assert_int_equal(store_cancel(store, id_of(2, id), &before, &now), 0);
    assert_int_equal(now, JOB_CANCELED);
    assert_int_equal(store_cancel(store, id, &before, &now), 0); /* a second cancel is no conflict */
    assert_int_equal(now, JOB_CANCELED);
    assert_int_equal(store_cancel(store, id_of(1, id), &before, &now), 0);
    assert_int_equal(now, JOB_CANCELING);
    assert_int_equal(store_requeue(store, id, REQUEUE_DIED), ERR_CONFLICT); /* a canceled job is not run again */
    assert_int_equal(store_canceled(store, id), 0);
    assert_int_equal(submit(store, 3, 10), 0);
    take(store, 3);
    assert_int_equal(store_succeed(store, id_of(3, id), NULL, NULL), 0);
    assert_int_equal(store_cancel(store, id, &before, &now), ERR_CONFLICT);
    assert_int_equal(store_cancel(store, "nothing", &before, &now), ERR_NOT_FOUND);
}

static void delete_takes_only_ended_jobs(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    char id[JOB_ID];
    struct job job;
    assert_int_equal(submit(store, 1, 10), 0);
    assert_int_equal(store_delete(store, id_of(1, id)), ERR_CONFLICT);
    take(store, 1);
    assert_int_equal(store_delete(store, id), ERR_CONFLICT);
    assert_int_equal(store_canceled(store, id), 0);
    assert_int_equal(store_delete(store, id), 0);
    assert_int_equal(store_delete(store, id), ERR_NOT_FOUND);
    assert_int_equal(store_get(store, id, &job), ERR_NOT_FOUND);
    /* Several jobs: a missing one is skipped; one that has not ended keeps all of them from being deleted. */
    char ids[3][JOB_ID];
    int removed = -1;
    int64_t counts[JOB_STATES], oldest;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(submit(store, i + 2, 10), 0);
        take(store, i + 2);
        id_of(i + 2, ids[i]);
    }
    assert_int_equal(store_canceled(store, ids[0]), 0);
    assert_int_equal(store_canceled(store, ids[1]), 0);
    assert_int_equal(store_delete_all(store, ids, 3, &removed), ERR_CONFLICT);
    assert_int_equal(removed, 0);
    assert_int_equal(state_of(store, 2), JOB_CANCELED);
    assert_int_equal(store_delete(store, ids[0]), 0);
    assert_int_equal(store_delete_all(store, ids, 2, &removed), 0);
    assert_int_equal(removed, 1);
    assert_int_equal(store_get(store, ids[1], &job), ERR_NOT_FOUND);
    assert_int_equal(store_counts(store, counts, &oldest), 0);
    assert_true(counts[JOB_CANCELED] == 0 && counts[JOB_RUNNING] == 1);
}

static void the_list_is_paged_newest_first(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    struct job jobs[4];
    int count, seen = 0;
    int64_t before = 0;
    for (int i = 1; i <= 10; i++)
        assert_int_equal(submit(store, i, 100), 0);
    do {
        assert_int_equal(store_list(store, &(struct job_filter){.before = before}, jobs, 4, &count), 0);
        for (int i = 0; i < count; i++) {
            char id[JOB_ID];
            assert_string_equal(jobs[i].id, id_of(10 - seen++, id));
            before = jobs[i].sequence;
            job_clear(&jobs[i]);
        }
    } while (count == 4);
    assert_int_equal(seen, 10);
    take(store, 1);
    assert_int_equal(store_list(store, &(struct job_filter){.states = 1 << JOB_RUNNING}, jobs, 4, &count), 0);
    assert_int_equal(count, 1);
    job_clear(&jobs[0]);
    /* The list of one client, and of its jobs in one state. */
    for (int i = 11; i <= 13; i++)
        assert_int_equal(submit_of(store, i, 100, "two", PRIORITY_URGENT, 1), 0);
    take(store, 11);
    const struct {
        const char *client;
        int64_t state, before, newest, count;
    } lists[] = {{"two", -1, 0, 13, 3},  {"two", JOB_QUEUED, 0, 13, 2}, {"two", JOB_RUNNING, 0, 11, 1},
                 {"two", -1, 13, 12, 2}, {"two", JOB_QUEUED, 12, 0, 0}, {"one", JOB_RUNNING, 0, 1, 1},
                 {"three", -1, 0, 0, 0}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char id[JOB_ID];
        const struct job_filter filter = {
            .before = lists[i].before,
            .states = lists[i].state < 0 ? 0 : 1u << lists[i].state,
            .client = lists[i].client,
        };
        assert_int_equal(store_list(store, &filter, jobs, 4, &count), 0);
        assert_int_equal(count, lists[i].count);
        for (int j = 0; j < count; j++) {
            assert_string_equal(jobs[j].client, lists[i].client);
            if (j == 0)
                assert_string_equal(jobs[j].id, id_of((int)lists[i].newest, id));
            job_clear(&jobs[j]);
        }
    }
}

/* Submit job `i` with this name. */
static void submit_named(struct store *store, int i, const char *client, const char *name)
{
    struct job job = {.bytes = i, .priority = PRIORITY_NORMAL};
    id_of(i, job.id);
    strcpy(job.kind, "recon");
    strcpy(job.client, client);
    strcpy(job.name, name);
    job.parameters = json_object();
    job.formats = json_array();
    assert_int_equal(store_submit(store, &job, 100), 0);
    job_clear(&job);
}

static void jobs_are_found_by_name_and_time(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    struct job jobs[4];
    char id[JOB_ID];
    int64_t later, end;
    int count;
    submit_named(store, 1, "one", "Knee 1.h5");
    submit_named(store, 2, "two", "knee 2.h5");
    submit_named(store, 3, "one", "hip%_.h5");
    submit_named(store, 4, "one", "");
    moments_pass(3);
    assert_int_equal(store_time(store, &later), 0);
    take(store, 1);
    assert_int_equal(store_fail(store, id_of(1, id), err_last()), 0);
    submit_named(store, 5, "one", "KNEE");
    moments_pass(3);
    assert_int_equal(store_time(store, &end), 0);
    const struct {
        struct job_filter filter;
        int found[4]; /* newest first, terminated by 0 */
    } lists[] = {
        {{.name = "knee"}, {5, 2, 1}},
        {{.name = "knee", .before = 5}, {2, 1}},
        {{.name = "knee", .client = "one"}, {5, 1}},
        {{.states = 1 << JOB_QUEUED, .name = "knee"}, {5, 2}},
        {{.states = 1 << JOB_FAILED, .name = "knee", .client = "two"}, {0}},
        {{.name = "%"}, {3}}, /* a literal character, not a pattern */
        {{.name = "p%_.h"}, {3}},
        {{.name = "ankle"}, {0}},
        {{.since = later}, {5, 1}}, /* accepted, and ended */
        {{.states = 1 << JOB_FAILED, .since = later}, {1}},
        {{.since = later, .name = "1"}, {1}},
        {{.since = 1}, {5, 4, 3, 2}},
        {{.since = end}, {0}},
        {{.kind = "recon", .name = "knee"}, {5, 2, 1}},
        {{.kind = "recon", .brief = true, .before = 3}, {2, 1}},
        {{.kind = "other"}, {0}},
        {{.client = "on", .client_begins = true}, {5, 4, 3, 1}},
        {{.client = "on"}, {0}},
        {{.client = "t", .client_begins = true, .brief = true}, {2}},
        {{.client = "ne", .client_begins = true}, {0}},
        {{.client = "o", .client_begins = true, .name = "hip"}, {3}},
        {{.states = 1 << JOB_FAILED | 1 << JOB_QUEUED, .name = "1"}, {1}},
        {{.states = 1 << JOB_FAILED | 1 << JOB_RUNNING}, {1}},
        {{.states = 1 << JOB_FAILED | 1 << JOB_QUEUED, .client = "two", .brief = true}, {2}},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_int_equal(store_list(store, &lists[i].filter, jobs, 4, &count), 0);
        for (int j = 0; j < 4; j++)
            assert_string_equal(j < count ? jobs[j].id : "none",
                                lists[i].found[j] ? id_of(lists[i].found[j], id) : "none");
        for (int j = 0; j < count; j++)
            job_clear(&jobs[j]);
    }
}

/* Calls of a listener. */
static void note(void *context, const char *id, const char *client, int from, int to)
{
    char *text = context;
    assert_string_equal(client, "one");
    sprintf(text + strlen(text), "%d:%d>%d ", atoi(id), from, to);
}

static void a_listener_is_called_for_committed_changes(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    char told[256] = "", id[JOB_ID];
    assert_int_equal(submit(store, 1, 100), 0); /* before it listens */
    store_listen(store, (struct store_listener){note, NULL, told});
    assert_int_equal(submit(store, 2, 100), 0);
    assert_int_equal(submit(store, 2, 100), ERR_STORE); /* the id exists: nothing changed */
    take(store, 1);
    assert_int_equal(store_fail(store, id_of(1, id), err_last()), 0);
    assert_int_equal(store_kept_add(store, id_of(1, id), 5), 0); /* this changes no state */
    assert_int_equal(store_delete(store, id_of(1, id)), 0);
    assert_string_equal(told, "2:-1>0 1:0>1 1:1>4 1:4>-1 ");
}

/* ---- changes that are committed together ---- */

enum { THREADS = 16, EACH = 40, LIMIT = 500 };

struct submitter {
    struct store *store;
    int number, accepted, refused, same_id;
    pthread_t thread;
};

/* Every tenth submission of a thread has an id that is taken: it fails, and no other does. */
static void *submit_many(void *context)
{
    struct submitter *submitter = context;
    for (int i = 0; i < EACH; i++) {
        int result = submit(submitter->store, i % 10 == 9 ? 1 : 1000 * (submitter->number + 1) + i, LIMIT);
        submitter->accepted += result == 0;
        submitter->refused += result == ERR_QUEUE_FULL;
        submitter->same_id += result == ERR_STORE;
    }
    return NULL;
}

static void failed_changes_of_one_thread_do_not_affect_others(void **state)
{
    struct fixture *f = *state;
    struct submitter submitter[THREADS];
    int64_t counts[JOB_STATES], oldest;
    int accepted = 1, refused = 0, same_id = 0;
    assert_int_equal(submit(f->store, 1, LIMIT), 0);
    for (int i = 0; i < THREADS; i++) {
        submitter[i] = (struct submitter){.store = f->store, .number = i};
        assert_int_equal(pthread_create(&submitter[i].thread, NULL, submit_many, &submitter[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(submitter[i].thread, NULL);
        accepted += submitter[i].accepted;
        refused += submitter[i].refused;
        same_id += submitter[i].same_id;
    }
    assert_int_equal(accepted, LIMIT);
    assert_int_equal(accepted - 1 + refused + same_id, THREADS * EACH);
    assert_true(same_id > 0 && refused > 0);
    /* The counters in memory equal those computed from the rows. */
    assert_int_equal(store_counts(f->store, counts, &oldest), 0);
    assert_int_equal(counts[JOB_QUEUED], LIMIT);
    store_free(f->store);
    assert_int_equal(store_create(&f->store, f->path), 0);
    assert_int_equal(store_counts(f->store, counts, &oldest), 0);
    assert_int_equal(counts[JOB_QUEUED], LIMIT);
}

static void counts_follow_every_transition(void **state)
{
    struct fixture *f = *state;
    int64_t counts[JOB_STATES], again[JOB_STATES], oldest;
    char id[JOB_ID];
    enum job_state before, now;
    for (int i = 1; i <= 9; i++)
        assert_int_equal(submit(f->store, i, 100), 0);
    for (int i = 1; i <= 6; i++)
        take(f->store, i);
    assert_int_equal(store_succeed(f->store, id_of(1, id), NULL, NULL), 0);
    assert_int_equal(store_fail(f->store, id_of(2, id), err_last()), 0);
    assert_int_equal(store_cancel(f->store, id_of(3, id), &before, &now), 0);
    assert_int_equal(store_requeue(f->store, id_of(4, id), REQUEUE_DIED), 0);
    assert_int_equal(store_cancel(f->store, id_of(9, id), &before, &now), 0);
    assert_int_equal(store_delete(f->store, id_of(2, id)), 0);
    assert_int_equal(store_counts(f->store, counts, &oldest), 0);
    const int64_t expected[JOB_STATES] = {
        [JOB_QUEUED] = 3, [JOB_RUNNING] = 2, [JOB_CANCELING] = 1, [JOB_SUCCEEDED] = 1, [JOB_CANCELED] = 1};
    assert_memory_equal(counts, expected, sizeof expected);
    store_free(f->store);
    assert_int_equal(store_create(&f->store, f->path), 0);
    assert_int_equal(store_counts(f->store, again, &oldest), 0);
    assert_memory_equal(again, expected, sizeof expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(jobs_are_claimed_in_order_and_keep_their_columns),
        WITH_STORE(a_full_queue_refuses_jobs),
        WITH_STORE(ends_are_stored_and_final),
        WITH_STORE(a_job_may_be_inserted_as_failed),
        WITH_STORE(cancel_depends_on_the_state),
        WITH_STORE(delete_takes_only_ended_jobs),
        WITH_STORE(the_list_is_paged_newest_first),
        WITH_STORE(jobs_are_found_by_name_and_time),
        WITH_STORE(a_listener_is_called_for_committed_changes),
        WITH_STORE(failed_changes_of_one_thread_do_not_affect_others),
        WITH_STORE(counts_follow_every_transition),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
