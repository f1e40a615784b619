/* daemon/queue/feed.h: the order of changes, losses of slow readers, cached texts, and the limits of readers. */
#include "daemon/queue/feed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct waiters *waiters;
    struct readers *readers;
    struct feed *feed;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    return waiters_create(&f->waiters) || readers_create(&f->readers, "streams of events", 2, 3) ||
           feed_create(&f->feed, f->waiters, f->readers);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    feed_free(f->feed);
    readers_free(f->readers);
    waiters_free(f->waiters);
    free(f);
    return 0;
}

static void add(struct feed *feed, int i, const char *client, int to)
{
    char id[JOB_ID];
    snprintf(id, sizeof id, "%026d", i);
    feed_add(feed, id, client, to);
}

static void clients_get_their_own_changes_in_order(void **state)
{
    struct feed *feed = ((struct fixture *)*state)->feed;
    struct feed_entry entry;
    assert_int_equal(feed_next(feed, 0, NULL, &entry), FEED_END);
    add(feed, 1, "one", JOB_RUNNING);
    add(feed, 2, "two", -1);
    add(feed, 3, "one", JOB_FAILED);
    assert_int_equal(feed_newest(feed), 3);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(feed_next(feed, i - 1, NULL, &entry), FEED_NEXT);
        assert_true(entry.number == i && atoi(entry.id) == i && (entry.what == FEED_REMOVED) == (i == 2) &&
                    !entry.text);
    }
    assert_int_equal(feed_next(feed, 1, "one", &entry), FEED_NEXT);
    assert_int_equal(entry.number, 3);
    /* The returned end skips changes of other clients, so that they are not read again. */
    assert_int_equal(feed_next(feed, 2, "two", &entry), FEED_END);
    assert_int_equal(entry.number, 3);
    assert_int_equal(feed_next(feed, 0, "three", &entry), FEED_END);
    assert_int_equal(feed_next(feed, 4, NULL, &entry), FEED_LOST);
    assert_int_equal(feed_next(feed, -1, NULL, &entry), FEED_LOST);
    assert_int_equal(entry.number, 3);
}

static void only_a_jobs_newest_change_is_delivered(void **state)
{
    struct feed *feed = ((struct fixture *)*state)->feed;
    struct feed_entry entry;
    add(feed, 1, "one", JOB_QUEUED);
    add(feed, 2, "one", JOB_QUEUED);
    add(feed, 1, "one", JOB_RUNNING);
    add(feed, 1, "one", -1);
    assert_int_equal(feed_next(feed, 0, NULL, &entry), FEED_NEXT);
    assert_int_equal(entry.number, 2);
    assert_int_equal(feed_next(feed, 2, NULL, &entry), FEED_NEXT);
    assert_true(entry.number == 4 && entry.what == FEED_REMOVED);
    assert_int_equal(feed_next(feed, 4, NULL, &entry), FEED_END);
}

static void changes_of_deliveries_are_reported_beside_those_of_the_job(void **state)
{
    struct feed *feed = ((struct fixture *)*state)->feed;
    struct feed_entry entry;
    char id[JOB_ID];
    snprintf(id, sizeof id, "%026d", 1);
    feed_add_deliveries(feed, id, "one");
    add(feed, 1, "one", JOB_FAILED);
    feed_add_deliveries(feed, id, "one"); /* replaces the first */
    assert_int_equal(feed_next(feed, 0, "one", &entry), FEED_NEXT);
    assert_true(entry.number == 2 && entry.what == FEED_JOB);
    assert_int_equal(feed_next(feed, 2, "two", &entry), FEED_END);
    assert_int_equal(feed_next(feed, 2, "one", &entry), FEED_NEXT);
    assert_true(entry.number == 3 && entry.what == FEED_DELIVERIES);
    add(feed, 1, "one", -1); /* a removed job has no deliveries */
    assert_int_equal(feed_next(feed, 0, NULL, &entry), FEED_NEXT);
    assert_true(entry.number == 4 && entry.what == FEED_REMOVED);
}

static void changes_that_left_the_ring_are_reported_as_lost(void **state)
{
    struct feed *feed = ((struct fixture *)*state)->feed;
    struct feed_entry entry;
    for (int i = 1; i <= FEED_ENTRIES; i++)
        add(feed, i, "one", JOB_RUNNING);
    feed_keep(feed, 1, "first");
    assert_int_equal(feed_next(feed, 0, NULL, &entry), FEED_NEXT);
    assert_string_equal(entry.text, "first");
    free(entry.text);
    add(feed, FEED_ENTRIES + 1, "one", JOB_RUNNING); /* overwrites the first */
    assert_int_equal(feed_next(feed, 0, NULL, &entry), FEED_LOST);
    assert_int_equal(entry.number, FEED_ENTRIES + 1);
    assert_int_equal(feed_next(feed, 1, NULL, &entry), FEED_NEXT);
    assert_true(entry.number == 2 && atoi(entry.id) == 2);
    feed_keep(feed, 1, "late"); /* text for a change that was overwritten: it must not be stored for the new one */
    assert_int_equal(feed_next(feed, FEED_ENTRIES, NULL, &entry), FEED_NEXT);
    assert_null(entry.text);
    feed_keep(feed, FEED_ENTRIES + 1, "new");
    feed_keep(feed, FEED_ENTRIES + 1, "again");
    assert_int_equal(feed_next(feed, FEED_ENTRIES, NULL, &entry), FEED_NEXT);
    assert_string_equal(entry.text, "new");
    free(entry.text);
}

static void readers_are_limited_per_client_and_in_total(void **state)
{
    struct readers *readers = ((struct fixture *)*state)->readers;
    assert_int_equal(readers_join(readers, "one"), 0);
    assert_int_equal(readers_join(readers, "one"), 0);
    assert_int_equal(readers_join(readers, "one"), ERR_QUOTA);
    assert_string_equal(err_last()->text,
                        "You have 2 streams of events open, as many as one client may have. Close one first.");
    assert_int_equal(readers_join(readers, "two"), 0);
    assert_int_equal(readers_join(readers, "three"), ERR_CONNECTIONS);
    assert_int_equal(readers_count(readers), 3);
    readers_leave(readers, "one");
    assert_int_equal(readers_join(readers, "three"), 0);
    readers_leave(readers, "two");
    readers_leave(readers, "three");
    assert_int_equal(readers_join(readers, "two"), 0);
    assert_int_equal(readers_count(readers), 2); /* which do not leave before the end */
}

static void feeds_have_different_names(void **state)
{
    struct fixture *f = *state;
    struct feed *other;
    assert_int_equal(feed_create(&other, f->waiters, f->readers), 0);
    assert_int_equal(strlen(feed_name(other)), FEED_NAME - 1);
    assert_string_not_equal(feed_name(other), feed_name(f->feed));
    feed_free(other);
}

#define WITH_FEED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FEED(clients_get_their_own_changes_in_order),
        WITH_FEED(only_a_jobs_newest_change_is_delivered),
        WITH_FEED(changes_of_deliveries_are_reported_beside_those_of_the_job),
        WITH_FEED(changes_that_left_the_ring_are_reported_as_lost),
        WITH_FEED(readers_are_limited_per_client_and_in_total),
        WITH_FEED(feeds_have_different_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
