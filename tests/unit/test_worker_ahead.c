/* daemon/worker/worker_ahead.h: what is computed before a job begins, and how often a live stream is looked at. The
 * reader of inputs and the kind are this test's. */
#include "daemon/worker/worker_ahead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- the reader of inputs ---- */

static struct {
    bool known, arrives; /* the input is being prefetched; and has begun to arrive */
    bool complete;       /* its decoder has ended */
    int completed;       /* calls of fetcher_complete() */
} input;

bool fetcher_live(struct fetcher *fetcher, const char *id, int *memory)
{
    (void)fetcher;
    (void)id;
    *memory = input.arrives ? memfd_create("stream", MFD_CLOEXEC) : -1;
    input.arrives = false;
    return input.known;
}

bool fetcher_complete(struct fetcher *fetcher, const char *id)
{
    (void)fetcher;
    (void)id;
    input.completed++;
    return input.complete;
}

bool fetcher_take_ahead(struct fetcher *fetcher, const char *id, const struct job_listener *listener, void **out)
{
    (void)fetcher;
    (void)id;
    (void)listener;
    (void)out;
    return false;
}

void fetcher_poke(struct fetcher *fetcher)
{
    (void)fetcher;
}

/* ---- the kind ---- */

static struct {
    int looks, freed;
    int more, over; /* numbers of looks that find more, from now on; the look after which nothing more comes, 0: none */
    int rc;
    bool shows; /* the last look could show images */
} stream;

static int ahead_create_(void **ahead, int memory)
{
    close(memory);
    *ahead = &stream;
    return 0;
}

static int ahead_go_(void *ahead, struct dev *dev, const struct job_request *request,
                     const struct job_listener *listener, bool *more, bool *over)
{
    (void)ahead;
    (void)dev;
    stream.looks++;
    stream.shows = request->show != NULL;
    *more = stream.more > 0;
    stream.more -= *more;
    *over = stream.over && stream.looks >= stream.over;
    /* A computation stops when its listener says so. */
    return stream.rc ? stream.rc : listener->progress(listener->context, &(struct step_progress){0}) ? ERR_CANCELED : 0;
}

static void ahead_free_(void *ahead)
{
    (void)ahead;
    stream.freed++;
}

static struct kind_run run = {.ahead_create = ahead_create_, .ahead_go = ahead_go_, .ahead_free = ahead_free_};

/* ---- the worker ---- */

static struct ahead *ahead;

static int tell(void *context, const char *id, const struct kind *kind, const struct step_progress *now)
{
    (void)context;
    (void)id;
    (void)kind;
    (void)now;
    return 0;
}

static void end(void *context)
{
    (void)context;
}

static int setup(void **state)
{
    static const struct worker_options options = {.threads = 1};
    static const struct ahead_listener listener = {NULL, tell, end};
    (void)state;
    memset(&input, 0, sizeof input);
    memset(&stream, 0, sizeof stream);
    input.known = input.arrives = true;
    run.kind = kind_find("recon");
    return ahead_create(&ahead, NULL, &options, -1, &listener);
}

static int teardown(void **state)
{
    (void)state;
    ahead_forget(ahead, "job");
    ahead_of(ahead, "", &(int64_t){-1}); /* drops what was forgotten */
    free(ahead);
    return 0;
}

static void expect(bool arriving, bool live)
{
    struct expected expected = {
        .id = "job", .run = &run, .arriving = arriving, .live = live ? memfd_create("live", MFD_CLOEXEC) : -1};
    param_values_init(run.kind, &expected.values);
    ahead_expect(ahead, &expected);
    ahead_resume(ahead);
}

/* One look, as the main thread does between jobs. */
static void look(void)
{
    assert_ptr_equal(ahead_kind(ahead), &run);
    assert_int_equal(ahead_turn(ahead, NULL, NULL), 0);
}

/* While readouts come, a stream is looked at as often as a look may find more; when they do not, less and less often,
 * and after a while without any much less often: a stream that rests for minutes takes no processor time that counts.
 */
static void a_stream_that_rests_is_looked_at_less_often(void **state)
{
    (void)state;
    expect(true, true);
    input.arrives = false;
    look(); /* nothing has begun to arrive */
    assert_int_equal(stream.looks, 0);
    const double soon = ahead_pause(ahead);
    input.arrives = true;
    stream.more = 1;
    look();
    const double least = ahead_pause(ahead);
    assert_true(least < soon);
    stream.more = 3;
    for (int i = 0; i < 3; i++) {
        look();
        assert_true(ahead_pause(ahead) == least);
    }
    for (double before = least; ahead_pause(ahead) < soon; before = ahead_pause(ahead)) {
        look();
        assert_true(ahead_pause(ahead) == 2 * before);
    }
    for (int i = 0; i < 400; i++) {
        look();
        assert_true(ahead_pause(ahead) == soon);
    }
    for (int i = 0; i < 100; i++)
        look();
    const double most = ahead_pause(ahead);
    assert_true(most > soon);
    stream.more = 1;
    look();
    assert_true(ahead_pause(ahead) == least);
}

/* What arrives is computed for any job; its images are shown where a session waits for them. */
static void images_are_shown_to_a_session_only(void **state)
{
    (void)state;
    expect(true, true);
    look();
    assert_true(stream.shows);
    input.arrives = true;
    expect(true, false);
    look();
    assert_false(stream.shows);
    assert_int_equal(stream.freed, 1); /* what was made of the first */
}

/* A complete input whose images are sent as they are made is not computed before its job begins: its results would come
 * all at once. */
static void a_whole_job_with_a_session_waits(void **state)
{
    (void)state;
    expect(false, true);
    assert_null(ahead_kind(ahead));
    expect(false, false);
    assert_ptr_equal(ahead_kind(ahead), &run);
}

/* A job that begins while its stream is computed: the rest of that is, if a session waits for its images. */
static void a_job_that_begins_lets_a_session_s_stream_finish(void **state)
{
    (void)state;
    int64_t shown = -1;
    expect(true, true);
    look();
    stream.over = 5;
    assert_int_equal(ahead_finish(ahead, "job", NULL, NULL), 0);
    assert_int_equal(stream.looks, 5);
    assert_int_equal(input.completed, 4); /* the decoder's time is limited from then on */
    assert_ptr_equal(ahead_of(ahead, "job", &shown), &stream);
    ahead_end(ahead, "job");
    assert_int_equal(stream.freed, 1);
}

static void without_a_session_the_job_computes_itself(void **state)
{
    (void)state;
    expect(true, false);
    look();
    assert_int_equal(ahead_finish(ahead, "job", NULL, NULL), 0);
    assert_int_equal(ahead_finish(ahead, "another", NULL, NULL), 0);
    assert_int_equal(stream.looks, 1);
}

/* The decoder may end without CLOSE having been seen: it died, or the end is there and was not looked at. */
static void a_stream_whose_decoder_has_ended_is_looked_at_once_more(void **state)
{
    (void)state;
    expect(true, true);
    look();
    input.complete = true;
    assert_int_equal(ahead_finish(ahead, "job", NULL, NULL), 0);
    assert_int_equal(stream.looks, 2);
}

/* Another job begins: the computation stops, and goes on afterwards. */
static void another_job_interrupts_and_a_failure_ends_it(void **state)
{
    (void)state;
    expect(true, true);
    look();
    ahead_interrupt(ahead, "another");
    assert_int_equal(ahead_finish(ahead, "job", NULL, NULL), 0);
    assert_int_equal(stream.looks, 1);
    look(); /* canceled: not over */
    ahead_resume(ahead);
    look();
    assert_int_equal(stream.looks, 3);
    stream.rc = ERR_DECODER_DIED; /* the job will say why */
    look();
    assert_null(ahead_kind(ahead));
}

static void a_job_that_is_forgotten_is_dropped(void **state)
{
    (void)state;
    int64_t shown = -1;
    expect(true, true);
    look();
    ahead_forget(ahead, "job");
    assert_null(ahead_of(ahead, "job", &shown));
    assert_int_equal(stream.freed, 1);
    assert_null(ahead_kind(ahead));
}

/* The daemon takes a result that this process has open for one that still changes: files that were prepared for a job,
 * and were not used, are closed when it begins, whether the prepared job was looked at or not. */
static void prepared_files_are_closed_when_the_job_begins(void **state)
{
    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        struct ahead_job made;
        struct expected expected = {.id = "job", .run = &run, .arriving = true, .written_count = 1, .live = -1};
        const int file = expected.written[0] = memfd_create("result", MFD_CLOEXEC);
        param_values_init(run.kind, &expected.values);
        ahead_expect(ahead, &expected);
        ahead_resume(ahead);
        if (looks)
            look();
        assert_true(fcntl(file, F_GETFD) >= 0);
        ahead_take(ahead, "job", &made);
        assert_int_equal(fcntl(file, F_GETFD), -1);
        ahead_forget(ahead, "job");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stream_that_rests_is_looked_at_less_often, setup, teardown),
        cmocka_unit_test_setup_teardown(images_are_shown_to_a_session_only, setup, teardown),
        cmocka_unit_test_setup_teardown(a_whole_job_with_a_session_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_that_begins_lets_a_session_s_stream_finish, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_session_the_job_computes_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stream_whose_decoder_has_ended_is_looked_at_once_more, setup, teardown),
        cmocka_unit_test_setup_teardown(another_job_interrupts_and_a_failure_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_that_is_forgotten_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(prepared_files_are_closed_when_the_job_begins, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
