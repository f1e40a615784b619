/* daemon/worker/worker_progress.h: the rate of progress messages to the daemon, and that messages continue while a step
 * makes no progress. */
#include "daemon/base/clock.h"
#include "daemon/wire.h"
#include "daemon/worker/worker_progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PLAN = 5, GRIDDING = 6 };

static int pair[2];
static struct reporter *reporter;

static int setup(void **state)
{
    (void)state;
    if (reporter == NULL) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        assert_int_equal(reporter_create(&reporter, pair[1]), 0);
    }
    reporter_begin(reporter, kind_find("recon"), "job");
    return 0;
}

static int tell(int step, double fraction, int64_t iteration, int64_t iterations)
{
    const struct step_progress now = {step, fraction, iteration, iterations};
    return reporter_tell(reporter, &now);
}

/* The next message, or NULL if none comes within `seconds`. */
static json_t *next(double seconds)
{
    struct pollfd fd = {.fd = pair[0], .events = POLLIN};
    json_t *message = NULL;
    int fds[WIRE_FDS], count;
    if (poll(&fd, 1, (int)(seconds * 1000)) == 1)
        assert_int_equal(wire_receive(pair[0], &message, fds, &count), 0);
    return message;
}

static void expect(double seconds, const char *step, json_int_t iteration)
{
    json_t *message = next(seconds);
    assert_non_null(message);
    assert_string_equal(json_string_value(json_object_get(message, "type")), "progress");
    assert_string_equal(json_string_value(json_object_get(message, "id")), "job");
    assert_string_equal(json_string_value(json_object_get(message, "step")), step);
    assert_int_equal(json_integer_value(json_object_get(message, "iteration")), iteration);
    json_decref(message);
}

static void a_burst_becomes_few_messages_that_end_with_the_newest(void **state)
{
    (void)state;
    double start = clock_seconds(), until = start + 0.45;
    int64_t said = 0;
    int messages = 0;
    json_int_t last = -1;
    while (clock_seconds() < until || said <= 100) {
        said++;
        assert_int_equal(tell(GRIDDING, 0.5, said, INT64_MAX), 0);
    }
    /* The newest comes, and then no more; a second is enough to see that more come. */
    for (json_t *message; (message = next(last < said ? 60 : 1)); messages++) {
        json_int_t iteration = json_integer_value(json_object_get(message, "iteration"));
        assert_true(iteration > last);
        last = iteration;
        json_decref(message);
    }
    assert_int_equal(last, said);
    assert_in_range(messages, 2, 1 + (int)((clock_seconds() - 1 - start) * 10) + 1);
    reporter_end(reporter);
}

static void progress_is_sent_at_once_and_again_while_a_step_stands_still(void **state)
{
    (void)state;
    tell(0, 0, 0, 0);
    tell(PLAN, 0.6, 0, 0); /* too soon after the first, so it is delayed */
    expect(0, "decode", 0);
    expect(60, "plan", 0);
    reporter_end(reporter);
}

static void progress_is_sent_once_and_not_after_the_end(void **state)
{
    (void)state;
    for (double taken = 1; taken > 0.09;) { /* some time later the next message is due */
        double start = clock_seconds();
        reporter_begin(reporter, kind_find("recon"), "job");
        tell(GRIDDING, 0.5, 1, 4);
        tell(GRIDDING, 0.5, 1, 4);
        tell(GRIDDING, 0.5, 2, 4);
        reporter_end(reporter); /* pending progress is dropped when the job ends */
        taken = clock_seconds() - start;
        tell(GRIDDING, 0.5, 3, 4);
        expect(0, "gridding", 1);
        for (json_t *late; taken > 0.09 && (late = next(0.3));)
            json_decref(late);
    }
    assert_null(next(0.3));
    reporter_begin(reporter, kind_find("recon"), "job");
    tell(GRIDDING, 0.5, 1, 4);
    expect(0, "gridding", 1);
    tell(GRIDDING, 0.5, 1, 4);
    assert_null(next(0.3));
    reporter_end(reporter);
}

static double part; /* of the watched step, under the lock of the test */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double part_of(const void *of)
{
    assert_ptr_equal(of, &part);
    pthread_mutex_lock(&lock);
    const double now = part;
    pthread_mutex_unlock(&lock);
    return now;
}

static void set_part(double to)
{
    pthread_mutex_lock(&lock);
    part = to;
    pthread_mutex_unlock(&lock);
}

/* The fraction of the next message. */
static double told(double seconds)
{
    json_t *message = next(seconds);
    assert_non_null(message);
    assert_string_equal(json_string_value(json_object_get(message, "step")), "gridding");
    const double fraction = json_number_value(json_object_get(message, "fraction"));
    json_decref(message);
    return fraction;
}

static void a_watched_step_is_asked_how_far_it_is_until_the_job_ends(void **state)
{
    (void)state;
    set_part(0);
    tell(GRIDDING, 0.5, 0, 0);
    assert_true(told(0) == 0.5);
    reporter_watch(reporter, part_of, &part);
    assert_null(next(0.3)); /* it stands still */
    set_part(0.5);
    assert_true(told(60) == 0.75);
    set_part(0.25); /* what has been done stays so */
    assert_null(next(0.3));
    set_part(1);
    assert_true(told(60) == 1);
    set_part(0);
    reporter_end(reporter);
    reporter_begin(reporter, kind_find("recon"), "job");
    tell(GRIDDING, 0.5, 0, 0);
    assert_true(told(60) == 0.5);
    set_part(1);
    assert_null(next(0.3));
    reporter_end(reporter);
}

static void a_closed_daemon_is_noticed(void **state)
{
    (void)state;
    close(pair[0]);
    assert_int_not_equal(tell(GRIDDING, 0.5, 1, 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_burst_becomes_few_messages_that_end_with_the_newest, setup),
        cmocka_unit_test_setup(progress_is_sent_at_once_and_again_while_a_step_stands_still, setup),
        cmocka_unit_test_setup(progress_is_sent_once_and_not_after_the_end, setup),
        cmocka_unit_test_setup(a_watched_step_is_asked_how_far_it_is_until_the_job_ends, setup),
        cmocka_unit_test_setup(a_closed_daemon_is_noticed, setup),
    };
    return cmocka_run_group_tests_name("worker progress", tests, NULL, NULL);
}
