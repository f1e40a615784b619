/* daemon/store/store.h: Idempotency-Keys, deadlines, retention. */
#include "daemon/store/deliveries.h"
#include "tests/unit/store_fixture.h"

/* Submit job `i` with a key, and a deadline so many milliseconds from now. */
static int submit_with(struct store *store, int i, const char *client, const char *key, int64_t patience)
{
    struct job job = {.bytes = 1000, .patience = patience, .parameters = json_object(), .formats = json_array()};
    snprintf(job.id, sizeof job.id, "%026d", i);
    strcpy(job.kind, "recon");
    strcpy(job.client, client);
    strcpy(job.key, key);
    strcpy(job.digest, *key ? "abc" : "");
    int result = store_submit(store, &job, 100);
    job_clear(&job);
    return result;
}

static void a_key_identifies_one_job_of_a_client(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    struct job job;
    char id[JOB_ID];
    assert_int_equal(submit_with(store, 1, "a", "k", 0), 0);
    assert_int_equal(submit_with(store, 2, "b", "k", 0), 0);
    assert_int_equal(submit_with(store, 3, "a", "", 0), 0);
    assert_int_equal(submit_with(store, 4, "a", "", 0), 0);
    assert_int_equal(submit_with(store, 5, "a", "k", 0), ERR_STORE);
    assert_int_equal(store_find_key(store, "b", "k", &job), 0);
    assert_string_equal(job.id, id_of(2, id));
    assert_string_equal(job.digest, "abc");
    job_clear(&job);
    assert_int_equal(store_find_key(store, "c", "k", &job), ERR_NOT_FOUND);
    assert_int_equal(store_find_key(store, "a", "", &job), ERR_NOT_FOUND);
}

static void a_job_still_waiting_at_its_deadline_fails(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    struct job jobs[2], job;
    char id[JOB_ID];
    int count = -1;
    assert_int_equal(submit_with(store, 1, "a", "", 60000), 0);
    take(store, 1); /* claimed in time */
    assert_int_equal(submit_with(store, 2, "a", "", 3600000), 0);
    assert_int_equal(submit_with(store, 5, "a", "", 0), 0);
    assert_int_equal(store_expire(store, jobs, 2, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(submit_with(store, 3, "a", "", 1), 0);
    assert_int_equal(submit_with(store, 4, "a", "", 20), 0);
    moments_pass(30);
    assert_int_equal(store_expire(store, jobs, 2, &count), 0);
    assert_int_equal(count, 2);
    assert_string_equal(jobs[0].id, id_of(3, id));
    assert_string_equal(jobs[1].id, id_of(4, id));
    job_clear(&jobs[0]);
    job_clear(&jobs[1]);
    assert_int_equal(store_get(store, id, &job), 0);
    assert_true(job.state == JOB_FAILED && job.deadline == job.created + 20 && job.finished > job.deadline);
    assert_string_equal(json_string_value(json_object_get(job.error, "code")), "deadline-passed");
    job_clear(&job);
    assert_int_equal(state_of(store, 1), JOB_RUNNING);
    assert_int_equal(submit_with(store, 6, "a", "", 1), 0);
    moments_pass(5); /* the deadline has passed: the job is not claimed any more */
    taken_in_order(store, (const int[]){2, 5}, 2);
    assert_int_equal(state_of(store, 6), JOB_QUEUED);
}

static void bytes_kept_by_ended_jobs_are_counted(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID], ended[4][JOB_ID];
    int count;
    json_t *results = json_pack("[{s:i}, {s:i}]", "bytes", 700, "bytes", 30);
    store_set_kept_scans(f->store, true, false);
    for (int i = 1; i <= 6; i++)
        assert_int_equal(submit(f->store, i, 10), 0);
    for (int i = 1; i <= 3; i++)
        take(f->store, i);
    assert_int_equal(kept_bytes(f->store), 0);
    assert_int_equal(store_succeed(f->store, id_of(1, id), results, NULL), 0);
    assert_int_equal(kept_bytes(f->store), 730);
    moments_pass(2);
    assert_int_equal(store_fail(f->store, id_of(2, id), err_last()), 0);
    assert_int_equal(kept_bytes(f->store), 730 + 1002);
    assert_int_equal(store_ended(f->store, INT64_MAX, -1, ended, 4, &count), 0);
    assert_int_equal(count, 2);
    assert_string_equal(ended[0], id_of(1, id));
    assert_int_equal(store_ended(f->store, INT64_MAX, JOB_FAILED, ended, 4, &count), 0);
    assert_int_equal(count, 1);
    assert_string_equal(ended[0], id_of(2, id));
    assert_int_equal(store_ended(f->store, 1000, -1, ended, 4, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(store_delete(f->store, id_of(1, id)), 0);
    assert_int_equal(kept_bytes(f->store), 1002);
    store_free(f->store);
    assert_int_equal(store_create(&f->store, f->path), 0);
    assert_int_equal(kept_bytes(f->store), 1002);
    json_decref(results);
    /* An image in another format. */
    assert_int_equal(store_kept_add(f->store, id_of(2, id), 50), 0);
    assert_int_equal(store_kept_add(f->store, id_of(1, id), 50), ERR_NOT_FOUND);
    assert_int_equal(kept_bytes(f->store), 1002 + 50);
    assert_int_equal(store_delete(f->store, id_of(2, id)), 0);
    assert_int_equal(kept_bytes(f->store), 0);
    /* Jobs that were canceled while they waited, and while they ran when the daemon died. */
    enum job_state before, now;
    int requeued;
    store_set_kept_scans(f->store, true, false);
    take(f->store, 4);
    assert_int_equal(store_cancel(f->store, id_of(4, id), &before, &now), 0);
    assert_int_equal(store_cancel(f->store, id_of(5, id), &before, &now), 0);
    assert_int_equal(now, JOB_CANCELED);
    assert_int_equal(kept_bytes(f->store), 1005);
    assert_int_equal(store_recover(f->store, &requeued), 0);
    assert_int_equal(state_of(f->store, 4), JOB_CANCELED);
    assert_int_equal(kept_bytes(f->store), 1005 + 1004);
    store_set_kept_scans(f->store, false, false);
    assert_int_equal(store_cancel(f->store, id_of(6, id), &before, &now), 0);
    assert_int_equal(kept_bytes(f->store), 1005 + 1004);
}

static void kept_scans_are_counted_apart_from_results(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID], scans[4][JOB_ID];
    int count;
    struct kept kept;
    json_t *results = json_pack("[{s:i}]", "bytes", 700);
    store_set_kept_scans(f->store, true, false);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(submit(f->store, i, 10), 0);
    for (int i = 1; i <= 3; i++)
        take(f->store, i);
    assert_int_equal(store_fail(f->store, id_of(2, id), err_last()), 0);
    moments_pass(2);
    assert_int_equal(store_fail(f->store, id_of(1, id), err_last()), 0);
    assert_int_equal(store_succeed(f->store, id_of(3, id), results, NULL), 0);
    json_decref(results);
    const struct err disk = {.code = ERR_SPOOL_FULL, .acquisition = -1, .required = -1, .available = -1};
    assert_int_equal(submit(f->store, 4, 10), 0);
    assert_int_equal(store_fail(f->store, id_of(4, id), &disk), 0); /* its scan must not be removed */
    store_free(f->store);
    assert_int_equal(store_create(&f->store, f->path), 0);
    store_kept(f->store, &kept);
    assert_int_equal(kept.scans, 3);
    assert_int_equal(kept.scan_bytes, 1001 + 1002 + 1004);
    assert_int_equal(kept.result_bytes, 700);
    assert_int_equal(store_kept_scans(f->store, scans, 4, &count), 0);
    assert_int_equal(count, 2);
    assert_string_equal(scans[0], id_of(2, id)); /* the job that ended first */
    for (int i = 0; i < 2; i++) {                /* the second time there is nothing to remove */
        assert_int_equal(store_scan_drop(f->store, id_of(2, id)), 0);
        store_kept(f->store, &kept);
        assert_int_equal(kept.scans, 2);
        assert_int_equal(kept.scan_bytes, 1001 + 1004);
        assert_int_equal(kept.result_bytes, 700);
    }
    assert_int_equal(state_of(f->store, 2), JOB_FAILED);
    assert_int_equal(store_kept_scans(f->store, scans, 4, &count), 0);
    assert_int_equal(count, 1);
    assert_string_equal(scans[0], id_of(1, id));
    assert_int_equal(store_scan_drop(f->store, id_of(5, id)), ERR_NOT_FOUND);
    assert_int_equal(store_delete(f->store, id_of(1, id)), 0);
    assert_int_equal(store_delete(f->store, id_of(3, id)), 0);
    assert_int_equal(store_kept_scans(f->store, scans, 4, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(store_delete(f->store, id_of(4, id)), 0);
    store_kept(f->store, &kept);
    assert_int_equal(kept.scans + kept.scan_bytes + kept.result_bytes, 0);
}

/* End a client's job with results of so many bytes. */
static void keep(struct store *store, int i, const char *client, int64_t bytes)
{
    char id[JOB_ID];
    json_t *results = json_pack("[{s:I}]", "bytes", (json_int_t)bytes);
    assert_int_equal(submit_of(store, i, 10, client, PRIORITY_NORMAL, 1000), 0);
    take(store, i);
    assert_int_equal(store_succeed(store, id_of(i, id), results, NULL), 0);
    json_decref(results);
    moments_pass(2); /* each job ends at a time of its own */
}

static void deliver(struct store *store)
{
    struct delivery delivery;
    bool found;
    assert_int_equal(store_delivery_claim(store, NULL, &delivery, &found), 0);
    assert_true(found);
    assert_int_equal(store_delivery_end(store, &delivery, DELIVERY_DELIVERED, 0, "taken"), 0);
}

static void the_client_that_keeps_most_makes_room_first(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    struct kept_first first;
    char id[JOB_ID];
    assert_int_equal(store_kept_first(store, &first), 0);
    assert_string_equal(first.id, "");
    keep(store, 1, "quiet", 700); /* the oldest of all */
    keep(store, 2, "busy", 0);    /* its removal would free nothing */
    for (int i = 3; i <= 5; i++)
        keep(store, i, "busy", 400);
    const int expected[] = {3, 4, 1, 5}; /* busy: 1200, 800; quiet: 700; busy: 400 */
    const int64_t kept[] = {1200, 800, 700, 400};
    for (int i = 0; i < 4; i++) {
        if (i == 1) { /* a job that is still to be delivered stays */
            assert_int_equal(store_delivery_send(store, id_of(4, id), "somewhere"), 0);
            assert_int_equal(store_kept_first(store, &first), 0);
            assert_string_equal(first.id, id_of(5, id));
            assert_int_equal(store_delivery_send(store, id_of(5, id), "somewhere"), 0);
            assert_int_equal(store_kept_first(store, &first), 0);
            assert_string_equal(first.client, "quiet");
            deliver(store);
            deliver(store);
        }
        assert_int_equal(store_kept_first(store, &first), 0);
        assert_string_equal(first.id, id_of(expected[i], id));
        assert_int_equal(first.kept, kept[i]);
        assert_int_equal(store_delete(store, first.id), 0);
    }
    assert_int_equal(store_kept_first(store, &first), 0);
    assert_string_equal(first.id, "");
    assert_int_equal(state_of(store, 2), JOB_SUCCEEDED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(a_key_identifies_one_job_of_a_client),        WITH_STORE(a_job_still_waiting_at_its_deadline_fails),
        WITH_STORE(bytes_kept_by_ended_jobs_are_counted),        WITH_STORE(kept_scans_are_counted_apart_from_results),
        WITH_STORE(the_client_that_keeps_most_makes_room_first),
    };
    return cmocka_run_group_tests_name("store_kept", tests, NULL, NULL);
}
