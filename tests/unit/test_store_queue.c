/* daemon/store/store.h: the order of jobs, admission. */
#include "daemon/base/clock.h"
#include "tests/unit/store_fixture.h"

#include <math.h>
#include <pthread.h>
#include <sqlite3.h>

static void urgent_comes_before_normal_before_batch(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    const enum job_priority priority[] = {PRIORITY_BATCH, PRIORITY_NORMAL, PRIORITY_URGENT,
                                          PRIORITY_BATCH, PRIORITY_URGENT, PRIORITY_NORMAL};
    int64_t waiting[PRIORITIES];
    struct job job;
    bool found;
    char id[JOB_ID];
    for (int i = 1; i <= 6; i++)
        assert_int_equal(submit_of(store, i, 10, i % 2 ? "a" : "b", priority[i - 1], 1000), 0);
    store_waiting(store, waiting);
    assert_true(waiting[PRIORITY_URGENT] == 2 && waiting[PRIORITY_NORMAL] == 2 && waiting[PRIORITY_BATCH] == 2);
    /* The next job is already being prefetched by a worker: another of its priority is returned, but none of a lower
     * one. */
    json_t *avoid = json_pack("[s]", id_of(3, id));
    assert_int_equal(store_claim(store, avoid, NULL, &job, &found), 0);
    assert_true(found);
    assert_string_equal(job.id, id_of(5, id));
    job_clear(&job);
    assert_int_equal(store_claim(store, avoid, NULL, &job, &found), 0);
    assert_string_equal(job.id, id_of(3, id));
    assert_int_equal(job.priority, PRIORITY_URGENT);
    assert_string_equal(job.client, "a");
    job_clear(&job);
    json_decref(avoid);
    /* After that both clients have had two turns, and the oldest job is next. */
    taken_in_order(store, (const int[]){2, 6, 1, 4}, 4);
}

static void clients_share_by_the_weight_of_their_jobs(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    const int64_t mib = 1 << 20;
    for (int i = 1; i <= 6; i++)
        assert_int_equal(submit_of(store, i, 100, "many", PRIORITY_NORMAL, 1000), 0);
    for (int i = 11; i <= 13; i++)
        assert_int_equal(submit_of(store, i, 100, "few", PRIORITY_NORMAL, 1000), 0);
    for (int i = 21; i <= 22; i++)
        assert_int_equal(submit_of(store, i, 100, "large", PRIORITY_NORMAL, 3 * mib), 0);
    /* Small jobs count as 1 MiB; the large one as three. */
    taken_in_order(store, (const int[]){1, 11, 21, 2, 12, 3, 13, 4, 22, 5, 6}, 11);
    /* A new client is not owed the time before it came, and a client's debt is not forgiven while it is away. */
    assert_int_equal(submit_of(store, 31, 100, "large", PRIORITY_NORMAL, 1000), 0);
    assert_int_equal(submit_of(store, 32, 100, "new", PRIORITY_NORMAL, 1000), 0);
    assert_int_equal(submit_of(store, 33, 100, "new", PRIORITY_NORMAL, 1000), 0);
    taken_in_order(store, (const int[]){32, 31, 33}, 3);
}

static int64_t ahead_of(struct store *store, int i)
{
    struct job job;
    char id[JOB_ID];
    int64_t ahead = -1;
    assert_int_equal(store_get(store, id_of(i, id), &job), 0);
    assert_int_equal(store_ahead(store, &job, &ahead), 0);
    job_clear(&job);
    return ahead;
}

/* The reported number of jobs ahead of a job equals the number that then start before it. */
static void a_job_knows_how_many_are_ahead(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    const int64_t mib = 1 << 20;
    char id[JOB_ID];
    const int order[] = {31, 33, 32, 1, 11, 21, 2, 12, 3, 13, 4, 22, 5, 6, 41};
    for (int i = 1; i <= 6; i++)
        assert_int_equal(submit_of(store, i, 100, "many", PRIORITY_NORMAL, 1000), 0);
    for (int i = 11; i <= 13; i++)
        assert_int_equal(submit_of(store, i, 100, "few", PRIORITY_NORMAL, 1000), 0);
    for (int i = 21; i <= 22; i++)
        assert_int_equal(submit_of(store, i, 100, "large", PRIORITY_NORMAL, 3 * mib), 0);
    assert_int_equal(ahead_of(store, 1), 0);
    assert_int_equal(ahead_of(store, 6), 10);
    for (int i = 31; i <= 33; i++)
        assert_int_equal(submit_of(store, i, 100, i < 33 ? "quick" : "quicker", PRIORITY_URGENT, 1000), 0);
    assert_int_equal(submit_of(store, 41, 100, "late", PRIORITY_BATCH, 1000), 0);
    for (int i = 0; i < 15; i++)
        assert_int_equal(ahead_of(store, order[i]), i);
    for (int i = 0; i < 3; i++) {
        struct job job;
        bool found;
        assert_int_equal(store_claim(store, NULL, NULL, &job, &found), 0);
        assert_true(found);
        assert_string_equal(job.id, id_of(order[i], id));
        job_clear(&job);
    }
    for (int i = 3; i < 15; i++)
        assert_int_equal(ahead_of(store, order[i]), i - 3);
    taken_in_order(store, order + 3, 12);
}

static void a_client_that_returns_begins_level(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    assert_int_equal(submit_of(store, 1, 100, "back", PRIORITY_NORMAL, 1000), 0);
    taken_in_order(store, (const int[]){1}, 1);
    for (int i = 2; i <= 7; i++)
        assert_int_equal(submit_of(store, i, 100, "stays", PRIORITY_NORMAL, 1000), 0);
    taken_in_order(store, (const int[]){2, 3, 4, 5, 6, 7}, 6);
    /* "back" has had one turn and "stays" six: once both have jobs again, they alternate. */
    for (int i = 11; i <= 13; i++)
        assert_int_equal(submit_of(store, i, 100, "stays", PRIORITY_NORMAL, 1000), 0);
    for (int i = 21; i <= 23; i++)
        assert_int_equal(submit_of(store, i, 100, "back", PRIORITY_NORMAL, 1000), 0);
    taken_in_order(store, (const int[]){21, 11, 22, 12, 23, 13}, 6);
}

static void clients_shares_survive_a_restart(void **state)
{
    struct fixture *f = *state;
    const int64_t gib = 1 << 30; /* large enough that the milliseconds for which job 0 holds a worker are negligible */
    char id[JOB_ID];
    int requeued;
    json_t *results = json_array();
    /* a gets 4.5 GiB; b, which waits meanwhile, has 5 turns of 1 GiB before a has its next. */
    assert_int_equal(submit_of(f->store, 0, 100, "a", PRIORITY_NORMAL, 9 * gib / 2), 0);
    assert_int_equal(submit_of(f->store, 1, 100, "a", PRIORITY_NORMAL, gib), 0);
    for (int i = 2; i < 10; i++)
        assert_int_equal(submit_of(f->store, i, 100, "b", PRIORITY_NORMAL, gib), 0);
    moments_pass(2);
    take(f->store, 0);
    assert_int_equal(store_succeed(f->store, id_of(0, id), results, NULL), 0);
    json_decref(results);
    moments_pass(2);
    take(f->store, 2);
    moments_pass(2);
    /* A new client starts level with b, and is not owed what a and b had before. */
    assert_int_equal(submit_of(f->store, 10, 100, "c", PRIORITY_NORMAL, gib), 0);
    assert_int_equal(submit_of(f->store, 11, 100, "c", PRIORITY_NORMAL, gib), 0);
    store_free(f->store);
    assert_int_equal(store_create(&f->store, f->path), 0);
    assert_int_equal(store_recover(f->store, &requeued), 0);
    assert_int_equal(requeued, 1); /* job 2, which never ran */
    taken_in_order(f->store, (const int[]){2, 10, 3, 11, 4, 5, 6, 1, 7, 8, 9}, 11);
}

/* One second of a worker counts as 64 MiB, so 100 ms count as 6.4 jobs of 1 MiB. The time counts however the job ends,
 * and also after a restart. */
static void worker_time_counts_towards_a_clients_share(void **state)
{
    struct fixture *f = *state;
    char id[JOB_ID];
    enum job_state before, now;
    int requeued;
    const struct err failure = {.code = ERR_LIMIT, .text = "It took too long."};
    for (int way = 0; way < 3; way++) {
        char holds[8], waits[8];
        int first = 100 * (way + 1);
        snprintf(holds, sizeof holds, "holds%d", way);
        snprintf(waits, sizeof waits, "waits%d", way);
        assert_int_equal(submit_of(f->store, first, 100, holds, PRIORITY_NORMAL, 1000), 0);
        take(f->store, first);
        if (way == 2)
            assert_int_equal(store_cancel(f->store, id_of(first, id), &before, &now), 0);
        moments_pass(100);
        if (way == 0)
            assert_int_equal(store_fail(f->store, id_of(first, id), &failure), 0);
        else if (way == 1)
            assert_int_equal(store_requeue(f->store, id_of(first, id), true), 0);
        else
            assert_int_equal(store_canceled(f->store, id_of(first, id)), 0);
        /* Both clients wait for the first time; the later one has six turns before the other has its second. */
        if (way != 1)
            assert_int_equal(submit_of(f->store, first + 1, 100, holds, PRIORITY_NORMAL, 1000), 0);
        for (int i = 2; i < 9; i++)
            assert_int_equal(submit_of(f->store, first + i, 100, waits, PRIORITY_NORMAL, 1000), 0);
        if (way == 0) {
            store_free(f->store);
            assert_int_equal(store_create(&f->store, f->path), 0);
            assert_int_equal(store_recover(f->store, &requeued), 0);
        }
        for (int i = 2; i < 8; i++)
            take(f->store, first + i);
        struct job job;
        for (bool found = true; found;) { /* the remaining jobs */
            assert_int_equal(store_claim(f->store, NULL, NULL, &job, &found), 0);
            if (found)
                job_clear(&job);
        }
    }
}

static void waiting_earns_priority(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    struct job job;
    char id[JOB_ID];
    assert_int_equal(submit_of(store, 1, 10, "a", PRIORITY_BATCH, 1000), 0);
    moments_pass(30);
    assert_int_equal(submit_of(store, 2, 10, "a", PRIORITY_NORMAL, 1000), 0);
    assert_int_equal(submit_of(store, 3, 10, "a", PRIORITY_URGENT, 1000), 0);
    /* With an hour per step of ageing the order is that without ageing. */
    store_set_ageing(store, 3600000);
    bool found;
    assert_int_equal(store_peek(store, NULL, &job, &found), 0);
    assert_string_equal(job.id, id_of(3, id));
    job_clear(&job);
    /* In 30 ms the batch job has aged by two steps of 15 ms, and is the oldest urgent job. */
    store_set_ageing(store, 15);
    take(store, 1);
    store_set_ageing(store, 0);
    taken_in_order(store, (const int[]){3, 2}, 2);
    /* No job ages beyond urgent: at that priority the clients take turns again, and b has not had one yet. */
    assert_int_equal(submit_of(store, 4, 10, "a", PRIORITY_BATCH, 1000), 0);
    moments_pass(30);
    assert_int_equal(submit_of(store, 5, 10, "b", PRIORITY_URGENT, 1000), 0);
    store_set_ageing(store, 5);
    taken_in_order(store, (const int[]){5, 4}, 2);
}

struct hasty {
    struct store *store;
    int number, result;
    pthread_t thread;
};

static void *submit_one(void *context)
{
    struct hasty *hasty = context;
    hasty->result = submit_of(hasty->store, hasty->number, 100, "a", PRIORITY_NORMAL, 1000);
    return NULL;
}

/* Another connection blocks the writer, so that these submissions are committed in one transaction; each must see those
 * before it. */
static void a_quota_holds_within_a_transaction(void **state)
{
    enum { TOGETHER = 8 };
    struct fixture *f = *state;
    struct hasty hasty[TOGETHER];
    int64_t counts[JOB_STATES], oldest;
    sqlite3 *other;
    int accepted = 0, refused = 0;
    store_set_quota(f->store, 0, 3500);
    assert_int_equal(sqlite3_open(f->path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < TOGETHER; i++) {
        hasty[i] = (struct hasty){.store = f->store, .number = i + 1};
        assert_int_equal(pthread_create(&hasty[i].thread, NULL, submit_one, &hasty[i]), 0);
    }
    usleep(100000);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    for (int i = 0; i < TOGETHER; i++) {
        pthread_join(hasty[i].thread, NULL);
        accepted += hasty[i].result == 0;
        refused += hasty[i].result == ERR_QUOTA;
    }
    assert_int_equal(accepted, 3);
    assert_int_equal(refused, TOGETHER - 3);
    assert_int_equal(store_counts(f->store, counts, &oldest), 0);
    assert_int_equal(counts[JOB_QUEUED], 3);
}

static void each_client_has_a_quota(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    const struct quota none = {0, 0};
    assert_false(store_has_quota(store, none));
    store_set_quota(store, 2, 0);
    assert_true(store_has_quota(store, none));
    assert_int_equal(store_room(store, "a", none, (struct quota){1, 5000}, 1, 100),
                     0); /* uploads without a row count too */
    assert_int_equal(store_room(store, "a", none, (struct quota){2, 0}, 1, 100), ERR_QUOTA);
    for (int i = 1; i <= 2; i++)
        assert_int_equal(submit_of(store, i, 100, "a", PRIORITY_NORMAL, 1000), 0);
    assert_int_equal(submit_of(store, 3, 100, "a", PRIORITY_URGENT, 1000), ERR_QUOTA);
    assert_int_equal(store_room(store, "a", (struct quota){0, 0}, none, 1, 100), ERR_QUOTA);
    assert_int_equal(submit_of(store, 3, 100, "b", PRIORITY_NORMAL, 1000), 0);
    take(store, 1);
    assert_int_equal(submit_of(store, 4, 100, "a", PRIORITY_NORMAL, 1000), 0); /* job 1 is running */
    store_set_quota(store, 0, 3000);
    assert_int_equal(store_room(store, "a", (struct quota){0, 0}, none, 1000, 100), 0);
    assert_int_equal(store_room(store, "a", (struct quota){0, 0}, none, 1001, 100), ERR_QUOTA);
    assert_int_equal(err_last()->available, 1000);
    assert_int_equal(store_room(store, "a", none, (struct quota){1, 600}, 400, 100), 0);
    assert_int_equal(store_room(store, "a", none, (struct quota){1, 600}, 401, 100), ERR_QUOTA);
    assert_int_equal(store_room(store, "a", (struct quota){0, 0}, none, 1000, 3), ERR_QUEUE_FULL);
    assert_int_equal(submit_of(store, 5, 100, "a", PRIORITY_NORMAL, 1001), ERR_QUOTA);
    assert_int_equal(submit_of(store, 5, 100, "a", PRIORITY_NORMAL, 1000), 0);
    assert_int_equal(store_room(store, "new", (struct quota){0, 0}, none, 3001, 100), ERR_QUOTA);
    assert_int_equal(store_room(store, "new", (struct quota){0, 3001}, none, 3001, 100), 0); /* the token's own quota */
    assert_int_equal(store_room(store, "new", (struct quota){0, 10}, none, 11, 100), ERR_QUOTA);
}

static void retry_after_follows_the_pace_of_the_queue(void **state)
{
    struct store *store = ((struct fixture *)*state)->store;
    assert_int_equal(store_retry_seconds(store, ERR_QUEUE_FULL), 1); /* no interval was measured yet */
    assert_int_equal(store_retry_seconds(store, ERR_DRAINING), 0);   /* draining does not depend on the queue */
    for (int i = 0; i < 9; i++)
        assert_int_equal(submit_of(store, i, 100, (const char *[]){"a", "b", "c"}[i % 3], PRIORITY_NORMAL, 1000), 0);
    double before = clock_seconds();
    take(store, 0);
    usleep(1300000); /* the queue stands still */
    int full = store_retry_seconds(store, ERR_QUEUE_FULL), spool = store_retry_seconds(store, ERR_SPOOL_FULL);
    assert_in_range(full, 2, (int)ceil(clock_seconds() - before));
    assert_in_range(spool, full, (int)ceil(clock_seconds() - before));
    take(store, 1);
    full = store_retry_seconds(store, ERR_QUEUE_FULL); /* the interval measured last */
    assert_in_range(full, 2, (int)ceil(clock_seconds() - before));
    int quota = store_retry_seconds(store, ERR_QUOTA); /* three clients have waiting jobs */
    assert_in_range(quota, 3 * (full - 1) + 1, 3 * store_retry_seconds(store, ERR_QUEUE_FULL));
    for (int i = 2; i < 9; i++)
        take(store, i);
    enum { ENOUGH = 59, MOST = 1000 }; /* more rounds if this program itself stands still for a second */
    int seconds = 0;
    assert_int_equal(submit_of(store, 9, 100, "a", PRIORITY_NORMAL, 1000), 0);
    for (int i = 9; i < ENOUGH || (seconds != 1 && i < MOST); i++) {
        assert_int_equal(submit_of(store, i + 1, 100, "a", PRIORITY_NORMAL, 1000), 0);
        take(store, i);
        seconds = store_retry_seconds(store, ERR_QUOTA);
    }
    assert_int_equal(seconds, 1); /* the queue moves quickly again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(urgent_comes_before_normal_before_batch),
        WITH_STORE(clients_share_by_the_weight_of_their_jobs),
        WITH_STORE(a_job_knows_how_many_are_ahead),
        WITH_STORE(a_client_that_returns_begins_level),
        WITH_STORE(clients_shares_survive_a_restart),
        WITH_STORE(worker_time_counts_towards_a_clients_share),
        WITH_STORE(waiting_earns_priority),
        WITH_STORE(each_client_has_a_quota),
        WITH_STORE(a_quota_holds_within_a_transaction),
        WITH_STORE(retry_after_follows_the_pace_of_the_queue),
    };
    return cmocka_run_group_tests_name("store_queue", tests, NULL, NULL);
}
