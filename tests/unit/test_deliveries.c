/* The outbox's rows: inserted when a job ends, claimed in turn, retried, sent again, kept across restarts and clock
 * changes; and converting the store of an earlier version. */
#include "daemon/store/deliveries.h"
#include "tests/unit/store_fixture.h"

#include <sqlite3.h>

static json_t *route_two(void *context, const struct job_end *end)
{
    (void)context;
    assert_string_equal(end->kind, "recon");
    assert_string_equal(end->client, "one");
    return end->state == JOB_SUCCEEDED ? json_pack("[s, s]", "a", "b") : json_pack("[s]", "b");
}

/* Job number `i`, ended. */
static void job_end(struct fixture *f, int i, bool succeeds)
{
    char id[JOB_ID];
    assert_int_equal(submit(f->store, i, 10), 0);
    take(f->store, i);
    if (succeeds) {
        assert_int_equal(store_succeed(f->store, id_of(i, id), NULL, NULL), 0);
    } else {
        err_set(ERR_TRUNCATED, "The file ends early.");
        assert_int_equal(store_fail(f->store, id_of(i, id), err_last()), 0);
    }
}

static struct delivery claimed(struct fixture *f, json_t *busy, bool expected)
{
    struct delivery delivery = {.job = ""};
    bool found;
    assert_int_equal(store_delivery_claim(f->store, busy, &delivery, &found), 0);
    assert_int_equal(found, expected);
    return delivery;
}

static int listed(struct fixture *f, int state)
{
    struct delivery list[16];
    const struct delivery_filter filter = {.state = state};
    int count;
    assert_int_equal(store_deliveries(f->store, &filter, list, 16, &count), 0);
    return count;
}

static void the_end_of_a_job_inserts_its_deliveries(void **state)
{
    struct fixture *f = *state;
    job_end(f, 1, true);
    assert_int_equal(listed(f, -1), 0); /* no router yet */
    store_route(f->store, (struct store_router){route_two, NULL});
    job_end(f, 2, true);
    job_end(f, 3, false);
    assert_int_equal(listed(f, DELIVERY_PENDING), 3);
    struct delivery_counts counts;
    assert_int_equal(store_delivery_counts(f->store, &counts), 0);
    assert_int_equal(counts.pending, 3);
    assert_true(counts.oldest > 0);
}

static void busy_destinations_are_skipped(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    store_route(f->store, (struct store_router){route_two, NULL});
    job_end(f, 1, true);
    json_t *busy = json_pack("[s]", "a");
    struct delivery one = claimed(f, busy, true);
    assert_string_equal(one.destination, "b");
    assert_string_equal(one.job, id_of(1, id));
    assert_string_equal(one.client, "one");
    assert_int_equal(one.attempts, 1);
    claimed(f, busy, false);
    assert_string_equal(claimed(f, NULL, true).destination, "a");
    claimed(f, NULL, false);
    json_decref(busy);
}

static void a_failed_delivery_backs_off_and_a_dead_one_can_be_sent_again(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    int64_t due = 0;
    store_route(f->store, (struct store_router){route_two, NULL});
    job_end(f, 1, false);
    struct delivery one = claimed(f, NULL, true);
    assert_int_equal(store_delivery_send(f->store, id_of(1, id), "b"), ERR_CONFLICT); /* it is being sent */
    assert_int_equal(store_delivery_end(f->store, &one, DELIVERY_PENDING, 3600000, "later"), 0);
    claimed(f, NULL, false);
    assert_int_equal(store_delivery_next(f->store, NULL, &due), 0);
    assert_true(due > one.due);
    assert_int_equal(store_delivery_send(f->store, id_of(1, id), "b"), 0); /* sent again at once */
    one = claimed(f, NULL, true);
    assert_int_equal(one.attempts, 1);
    assert_int_equal(store_delivery_end(f->store, &one, DELIVERY_DEAD, 0, "no"), 0);
    assert_int_equal(listed(f, DELIVERY_DEAD), 1);
    assert_int_equal(store_delivery_send(f->store, id_of(1, id), "c"), 0); /* a new destination */
    assert_int_equal(listed(f, -1), 2);
    assert_int_equal(submit(f->store, 2, 10), 0);
    assert_int_equal(store_delivery_send(f->store, id_of(2, id), "b"), ERR_CONFLICT); /* the job has not ended */
    assert_int_equal(store_delivery_send(f->store, id_of(9, id), "b"), ERR_NOT_FOUND);
}

static void delivering_noted(void *context, const char *id, const char *client)
{
    assert_string_equal(client, "one");
    assert_int_equal(atoi(id), 1);
    ++*(int *)context;
}

static void the_listener_is_called_for_every_change(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    int told = 0;
    store_listen(f->store, (struct store_listener){NULL, delivering_noted, &told});
    job_end(f, 1, true);
    assert_int_equal(told, 0); /* it is sent nowhere */
    assert_int_equal(store_delivery_send(f->store, id_of(1, id), "a"), 0);
    assert_int_equal(told, 1);
    struct delivery one = claimed(f, NULL, true);
    assert_int_equal(told, 2);
    assert_int_equal(store_delivery_send(f->store, id, "a"), ERR_CONFLICT);
    assert_int_equal(told, 2);
    assert_int_equal(store_delivery_end(f->store, &one, DELIVERY_DEAD, 0, "no"), 0);
    assert_int_equal(told, 3);
    assert_int_equal(store_delivery_end(f->store, &one, DELIVERY_DEAD, 0, "no"), ERR_NOT_FOUND);
    assert_int_equal(told, 3);
    store_listen(f->store, (struct store_listener){.told = NULL});
}

static void a_jobs_end_reports_its_deliveries(void **state)
{
    struct fixture *f = *state;
    int told = 0;
    store_route(f->store, (struct store_router){route_two, NULL});
    store_listen(f->store, (struct store_listener){NULL, delivering_noted, &told});
    job_end(f, 1, true);
    assert_int_equal(told, 1);
    store_listen(f->store, (struct store_listener){.told = NULL});
}

static void a_job_stays_until_it_is_delivered_and_takes_its_deliveries_with_it(void **state)
{
    struct fixture *f = *state;
    char ids[4][JOB_ID], id[JOB_ID];
    int count;
    store_route(f->store, (struct store_router){route_two, NULL});
    job_end(f, 1, false);
    assert_int_equal(store_ended(f->store, INT64_MAX, -1, ids, 4, &count), 0);
    assert_int_equal(count, 0);
    struct delivery one = claimed(f, NULL, true);
    assert_int_equal(store_ended(f->store, INT64_MAX, -1, ids, 4, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(store_delivery_end(f->store, &one, DELIVERY_DELIVERED, 0, "yes"), 0);
    assert_int_equal(store_ended(f->store, INT64_MAX, -1, ids, 4, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(store_delete(f->store, id_of(1, id)), 0);
    assert_int_equal(listed(f, -1), 0);
    assert_int_equal(store_delivery_end(f->store, &one, DELIVERY_DELIVERED, 0, "late"), ERR_NOT_FOUND);
}

static void a_job_that_retention_has_chosen_stays_if_it_is_to_be_sent_again(void **state)
{
    struct fixture *f = *state;
    char ids[4][JOB_ID], id[JOB_ID];
    int count, removed;
    job_end(f, 1, true);
    job_end(f, 2, true);
    assert_int_equal(store_ended(f->store, INT64_MAX, -1, ids, 4, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(store_delivery_send(f->store, id_of(1, id), "a"), 0);
    assert_int_equal(store_delete_all(f->store, ids, 2, &removed), 0);
    assert_int_equal(removed, 1);
    assert_int_equal(state_of(f->store, 1), JOB_SUCCEEDED);
    assert_int_equal(listed(f, DELIVERY_PENDING), 1);
    for (int i = 0; i < 2; i++) /* only the files of the other one may be removed */
        assert_true(!*ids[i] || strcmp(ids[i], id_of(2, id)) == 0);
}

static void deliveries_being_sent_are_pending_after_a_restart(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    enum job_state before, now;
    int requeued;
    store_route(f->store, (struct store_router){route_two, NULL});
    job_end(f, 1, true);
    claimed(f, NULL, true);
    assert_int_equal(submit(f->store, 2, 10), 0);
    take(f->store, 2);
    assert_int_equal(store_cancel(f->store, id_of(2, id), &before, &now), 0);
    assert_int_equal(now, JOB_CANCELING);
    store_free(f->store);
    assert_int_equal(store_create(&f->store, f->path), 0);
    store_route(f->store, (struct store_router){route_two, NULL});
    assert_int_equal(store_recover(f->store, &requeued), 0);
    assert_int_equal(state_of(f->store, 2), JOB_CANCELED);
    assert_int_equal(listed(f, DELIVERY_PENDING), 3); /* two deliveries of the first job, one of the canceled job */
    for (int i = 1; i <= 2; i++)
        claimed(f, NULL, true);
}

/* The tables as they were before the outbox. */
static void an_earlier_store_is_converted(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    sqlite3 *db;
    job_end(f, 1, true);
    store_free(f->store);
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "DROP TABLE delivery; DROP INDEX job_kept; ALTER TABLE job DROP COLUMN quota; "
                                  "ALTER TABLE job DROP COLUMN asked; PRAGMA user_version = 6",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_create(&f->store, f->path), 0);
    assert_int_equal(state_of(f->store, 1), JOB_SUCCEEDED);
    assert_int_equal(store_delivery_send(f->store, id_of(1, id), "a"), 0);
    assert_string_equal(claimed(f, NULL, true).destination, "a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(the_end_of_a_job_inserts_its_deliveries),
        WITH_STORE(busy_destinations_are_skipped),
        WITH_STORE(a_failed_delivery_backs_off_and_a_dead_one_can_be_sent_again),
        WITH_STORE(the_listener_is_called_for_every_change),
        WITH_STORE(a_jobs_end_reports_its_deliveries),
        WITH_STORE(a_job_stays_until_it_is_delivered_and_takes_its_deliveries_with_it),
        WITH_STORE(a_job_that_retention_has_chosen_stays_if_it_is_to_be_sent_again),
        WITH_STORE(deliveries_being_sent_are_pending_after_a_restart),
        WITH_STORE(an_earlier_store_is_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
