/* recon/mri/recon_ahead.h and recon/scan/scan_live.h: images computed while their scan arrives are bit-identical to
 * those of the whole scan, and memory that changes under the reader causes no invalid access. */
#include "recon/mri/recon_made.h"
#include "tests/unit/stream_fixture.h"

#include <pthread.h>

static void complete_repetitions_are_computed(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    stream_begin(&s, "");
    job_begin(&job, &s, "coils", "rss");
    assert_false(job_step(&job));
    stream_put(&s, SPOKES);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 0); /* more readouts of it may follow */
    stream_put(&s, SPOKES + 1);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 1);
    stream_put(&s, 2 * SPOKES + 5);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 2);
    stream_close(&s);
    assert_true(job_step(&job));
    assert_int_equal(job.shown, 3);
    job_check(&job, &s, 3);
    stream_end(&s);
}

static void images_of_single_coils_are_taken_from_the_start_of_a_scan(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    stream_begin(&s, "");
    job_begin(&job, &s, "coils", "none");
    stream_put(&s, SPOKES + 3);
    assert_false(job_step(&job));
    job_check(&job, &s, 1);
    stream_end(&s);
}

/* Each look at a stream reads the trajectories of its new readouts only, whether they make images complete or not. */
static void each_readout_is_looked_at_once(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"coils", "rss"}, {"frame_readouts", "6"}};
    for (size_t i = 0; i < 2; i++) {
        struct stream s;
        struct job job;
        stream_begin(&s, "");
        job_begin(&job, &s, rows[i][0], rows[i][1]);
        for (size_t count = 1; count <= s.flat.header.readouts; count++) {
            stream_put(&s, count);
            assert_false(job_step(&job));
            assert_int_equal(recon_begun_of(job.ahead)->seen.looked, count); /* nothing is left for CLOSE */
        }
        stream_close(&s);
        assert_true(job_step(&job));
        assert_int_equal(job.shown, i == 0 ? REPETITIONS : SPOKES * REPETITIONS / 6);
        assert_int_equal(recon_begun_of(job.ahead)->seen.looked, SPOKES * REPETITIONS);
        if (i == 0) /* nor are readouts of images by their counters joined again */
            assert_int_equal(recon_begun_of(job.ahead)->seen.joined, SPOKES * REPETITIONS);
        job_check(&job, &s, (int64_t)job.shown);
        stream_end(&s);
    }
}

static void images_of_a_given_number_of_readouts_are_computed(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    stream_begin(&s, "");
    job_begin(&job, &s, "frame_readouts", "12");
    stream_put(&s, 11);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 0);
    stream_put(&s, 30);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 2);
    stream_close(&s);
    assert_true(job_step(&job));
    assert_int_equal(job.shown, 5);
    job_check(&job, &s, 5);
    stream_end(&s);
}

/* An image of an iterative method depends on its own readouts; in a series, on those of its window of 4 images, of
 * which the 2 in the middle are kept, or of 9, of which 7 are kept. */
static void iterative_images_are_computed(void **state)
{
    (void)state;
    static const struct {
        const char *method, *window;
        unsigned x; /* fewer than those that are solved for: cut from the encoded field of view */
        size_t before, later;
    } rows[] = {{"cg-sense", "all", 16, 7, 9},
                {"cg-sense", "all", 8, 7, 9},
                {"temporal-tv", "4", 16, 5, 7},
                {"llr", "4", 8, 5, 7},
                {"llr", "9", 16, 0, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct stream s;
        struct job job;
        const struct kind *kind = kind_find("recon");
        images_x = rows[i].x;
        stream_begin(&s, "");
        images_x = 16;
        job_begin(&job, &s, "frame_readouts", "6");
        assert_int_equal(param_values_set(kind, &job.values, "method", rows[i].method), 0);
        assert_int_equal(param_values_set(kind, &job.values, "window_frames", rows[i].window), 0);
        assert_int_equal(param_values_set(kind, &job.values, "iterations", "5"), 0);
        stream_put(&s, 17);
        assert_false(job_step(&job));
        assert_int_equal(job.shown, i < 2 ? 2 : 0);
        stream_put(&s, 45);
        assert_false(job_step(&job));
        assert_int_equal(job.shown, rows[i].before);
        stream_put(&s, 57);
        assert_false(job_step(&job));
        assert_int_equal(job.shown, rows[i].later);
        stream_close(&s);
        assert_true(job_step(&job));
        assert_int_equal(job.shown, 10);
        job_check(&job, &s, 10);
        stream_end(&s);
    }
}

/* Virtual coils of a series in windows depend on the data of its first window alone, here of the first 24 readouts:
 * images of a beginning are reused. */
static void compressed_coils_of_a_series_do_not_wait(void **state)
{
    (void)state;
    static const int64_t ends[] = {3, 7, 10}; /* images made ahead when the job begins */
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const int64_t ahead = ends[i];
        struct stream s;
        struct job job;
        const struct kind *kind = kind_find("recon");
        stream_begin(&s, "");
        job_begin(&job, &s, "frame_readouts", "6");
        assert_int_equal(param_values_set(kind, &job.values, "method", "temporal-tv"), 0);
        assert_int_equal(param_values_set(kind, &job.values, "window_frames", "4"), 0);
        assert_int_equal(param_values_set(kind, &job.values, "iterations", "5"), 0);
        assert_int_equal(param_values_set(kind, &job.values, "virtual_coils", "1"), 0);
        stream_put(&s, 23);
        assert_false(job_step(&job));
        assert_int_equal(job.shown, 0);
        stream_put(&s, 24);
        assert_false(job_step(&job));
        assert_int_equal(job.shown, 3);
        if (ahead > 3) {
            stream_put(&s, 57);
            assert_false(job_step(&job));
            assert_int_equal(job.shown, 7);
        }
        if (ahead > 7) {
            stream_close(&s);
            assert_true(job_step(&job));
            assert_int_equal(job.shown, 10);
        }
        job_check(&job, &s, ahead);
        stream_end(&s);
    }
}

/* Those of other images depend on the data of all readouts. */
static void compressed_coils_wait(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    stream_begin(&s, "");
    job_begin(&job, &s, "coils", "sense");
    assert_int_equal(param_values_set(kind_find("recon"), &job.values, "virtual_coils", "1"), 0);
    stream_put(&s, 2 * SPOKES + 5);
    assert_true(job_step(&job));
    assert_int_equal(job.shown, 0);
    stream_close(&s);
    job_check(&job, &s, 0);
    stream_end(&s);
}

/* Anything that divides the whole scan, or is solved for as a whole, waits for the scan's end. */
static void methods_that_need_the_whole_scan_wait(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        size_t at_the_end;
    } rows[] = {{"frames", "4", 4}, {"method", "temporal-tv", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct stream s;
        struct job job;
        stream_begin(&s, "");
        job_begin(&job, &s, rows[i].name, rows[i].value);
        stream_put(&s, 2 * SPOKES + 5);
        job_step(&job);
        assert_int_equal(job.shown, 0);
        stream_close(&s);
        assert_true(job_step(&job));
        assert_int_equal(job.shown, rows[i].at_the_end);
        job_check(&job, &s, (int64_t)rows[i].at_the_end);
        stream_end(&s);
    }
}

/* Windows that are wider than the time from one image to the next: the first ones begin with the same readout. */
static void images_of_overlapping_windows_are_reused(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    stream_begin(&s, "");
    for (unsigned i = 0; i < 3 * SPOKES; i++)
        place(&s, i, 0, 0);
    job_begin(&job, &s, "frame_readouts", "10");
    assert_int_equal(param_values_set(job.request.kind, &job.values, "frame_window", "3"), 0);
    stream_put(&s, 3 * SPOKES);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 0);
    stream_close(&s);
    assert_true(job_step(&job));
    assert_int_equal(job.shown, 6);
    job_check(&job, &s, 6);
    stream_end(&s);
}

static void repetitions_out_of_order_wait(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    stream_begin(&s, "");
    s.flat.readouts[SPOKES + 2].idx[SCAN_REPETITION] = 0;
    job_begin(&job, &s, "coils", "rss");
    stream_put(&s, 2 * SPOKES + 5);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 0);
    stream_close(&s);
    assert_true(job_step(&job));
    job_check(&job, &s, 3);
    stream_end(&s);
}

/* Noise that arrives late changes the coils of all images, so none of those computed before is used. */
static void results_are_dropped_if_decisions_change(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    stream_begin(&s, "");
    for (unsigned i = 2 * SPOKES + 1; i < 2 * SPOKES + 9; i++)
        s.flat.readouts[i].flags = UINT64_C(1) << (SCAN_NOISE - 1);
    job_begin(&job, &s, "coils", "rss");
    stream_put(&s, 2 * SPOKES + 1);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 2);
    job.shown = 0; /* they were other ones */
    free(job.sent);
    job_check(&job, &s, 0);
    stream_end(&s);
}

static int stop_now(void *context, const struct step_progress *now)
{
    (void)now;
    return --*(int *)context <= 0;
}

static void computation_resumes_after_a_stop(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    bool over, more;
    stream_begin(&s, "");
    job_begin(&job, &s, "coils", "rss");
    stream_close(&s);
    for (int after = 1; after < 12; after += 2) {
        int left = after;
        const struct job_listener listener = {&left, stop_now};
        assert_int_equal(recon_ahead_go(job.ahead, dev, &job.request, &listener, &more, &over), ERR_CANCELED);
        assert_false(over);
        job.shown = 0;
    }
    assert_true(job_step(&job));
    job_check(&job, &s, 3);
    stream_end(&s);
}

/* A job on a longer beginning takes the memory of the images of a shorter one, and gives it back if it is stopped. */
static void images_of_a_beginning_outlive_a_stop(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    bool over, more;
    int stops = 0, rc = ERR_CANCELED;
    stream_begin(&s, "");
    job_begin(&job, &s, "coils", "rss");
    stream_put(&s, SPOKES + 1);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 1);
    stream_put(&s, 2 * SPOKES + 1);
    for (int after = 1; rc == ERR_CANCELED; after++) {
        int left = after;
        const struct job_listener listener = {&left, stop_now};
        job.request.show = NULL;
        rc = recon_ahead_go(job.ahead, dev, &job.request, &listener, &more, &over);
        stops += rc == ERR_CANCELED;
    }
    assert_int_equal(rc, 0);
    assert_true(stops > 4); /* while the second image was made, too */
    job_check(&job, &s, 2);
    stream_end(&s);
}

/* ---- memory that a hijacked decoder writes ---- */

static double sum_of(const struct scan *scan)
{
    double sum = 0;
    for (uint64_t i = 0; i < scan->header->readouts; i++) {
        const struct scan_readout *r = &scan->readouts[i];
        for (size_t j = 0; j < (size_t)r->samples * r->traj_dims; j++)
            sum += scan->traj[r->traj + j] > 0;
        for (size_t j = 0; j < (size_t)r->samples * r->coils; j++)
            sum += scan->data[r->data + j].re > 0;
    }
    return sum + (double)strlen(scan->xml);
}

/* Read the memory once, and again after it has changed; everything that is accepted can be read. */
static int looks(int memory, const char *changed, size_t bytes)
{
    struct scan_live *live;
    uint64_t readouts = 0;
    bool closed;
    assert_int_equal(scan_live_open(&live, fcntl(memory, F_DUPFD_CLOEXEC, 0)), 0);
    int rc = scan_live_look(live, CAP, &readouts, &closed);
    for (int again = 0; again < 2 && rc == 0 && readouts > 0; again++) {
        const struct scan scan = scan_live_part(live, readouts);
        assert_true(sum_of(&scan) >= 0);
        if (again == 0 && changed) {
            assert_int_equal(pwrite(memory, changed, bytes, 0), (ssize_t)bytes);
            rc = scan_live_look(live, CAP, &readouts, &closed);
        }
    }
    scan_live_free(live);
    return rc;
}

static void forged_memory_is_refused_or_harmless(void **state)
{
    (void)state;
    struct stream s;
    stream_begin(&s, "");
    stream_put(&s, 3);
    const size_t bytes = (size_t)s.builder.data.at;
    char *sound = malloc(bytes), *mutant = malloc(bytes);
    int refused = 0;
    assert_int_equal(pread(s.memory, sound, bytes, 0), (ssize_t)bytes);
    assert_int_equal(looks(s.memory, NULL, 0), 0);
    for (int i = 0; i < 20000; i++) {
        memcpy(mutant, sound, bytes);
        for (int change = 0; change < 1 + i % 3; change++) {
            random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const size_t at = (size_t)(random_state >> 33) % (i % 2 ? sizeof(struct scan_header) : bytes - 8);
            const uint64_t value = random_state >> 20 & 1 ? random_state : UINT64_MAX >> (random_state >> 40 & 63);
            memcpy(mutant + at, &value, 1 + (random_state >> 60 & 7));
        }
        if (i % 8 > 0) /* else the header is taken for one that is being written, unless it is as before */
            ((struct scan_header *)(void *)mutant)->told = scan_told((struct scan_header *)(void *)mutant);
        const char *first = i % 4 < 2 ? mutant : sound;
        assert_int_equal(pwrite(s.memory, first, bytes, 0), (ssize_t)bytes);
        const int rc = looks(s.memory, first == sound ? mutant : NULL, bytes);
        assert_true(rc == 0 || rc == ERR_DECODER_DIED || rc == ERR_LIMIT);
        refused += rc != 0;
    }
    assert_true(refused > 2000);
    free(sound);
    free(mutant);
    stream_end(&s);
}

/* Reports each readout after its bytes, as the decoder does. */
static void *teller(void *of)
{
    struct stream *s = of;
    for (size_t i = 1; i <= s->flat.header.readouts; i++)
        stream_put(s, i);
    stream_close(s);
    return NULL;
}

/* A header is several cache lines: a look may have some of them from before and some from after a write. How often it
 * has varies; other builds than the sanitized one, which takes ten times as long for a turn, look for it. */
#ifdef __SANITIZE_ADDRESS__
enum { TURNS = 1 };
#else
enum { TURNS = 20 };
#endif

static void a_look_while_the_header_is_written_is_no_error(void **state)
{
    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        struct stream s;
        struct scan_live *live;
        pthread_t thread;
        uint64_t readouts = 0;
        bool closed = false;
        stream_begin_of(&s, "", 4000, 1, 1);
        assert_int_equal(scan_live_open(&live, fcntl(s.memory, F_DUPFD_CLOEXEC, 0)), 0);
        assert_int_equal(pthread_create(&thread, NULL, teller, &s), 0);
        int rc = 0;
        while (rc == 0 && !closed)
            rc = scan_live_look(live, CAP, &readouts, &closed);
        pthread_join(thread, NULL);
        if (rc != 0)
            fail_msg("after %llu readouts: %s", (unsigned long long)readouts, err_last()->text);
        assert_int_equal(readouts, 4000);
        scan_live_free(live);
        stream_end(&s);
    }
}

static void a_scan_larger_than_the_room_is_not_computed_ahead(void **state)
{
    (void)state;
    struct stream s;
    struct scan_live *live;
    uint64_t readouts;
    bool closed;
    stream_begin(&s, "");
    stream_put(&s, SPOKES);
    assert_int_equal(scan_live_open(&live, fcntl(s.memory, F_DUPFD_CLOEXEC, 0)), 0);
    assert_int_equal(scan_live_look(live, 1000, &readouts, &closed), ERR_LIMIT);
    scan_live_free(live);
    stream_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(complete_repetitions_are_computed, random_reset),
        cmocka_unit_test_setup(images_of_single_coils_are_taken_from_the_start_of_a_scan, random_reset),
        cmocka_unit_test_setup(each_readout_is_looked_at_once, random_reset),
        cmocka_unit_test_setup(images_of_a_given_number_of_readouts_are_computed, random_reset),
        cmocka_unit_test_setup(iterative_images_are_computed, random_reset),
        cmocka_unit_test_setup(compressed_coils_of_a_series_do_not_wait, random_reset),
        cmocka_unit_test_setup(compressed_coils_wait, random_reset),
        cmocka_unit_test_setup(methods_that_need_the_whole_scan_wait, random_reset),
        cmocka_unit_test_setup(images_of_overlapping_windows_are_reused, random_reset),
        cmocka_unit_test_setup(repetitions_out_of_order_wait, random_reset),
        cmocka_unit_test_setup(results_are_dropped_if_decisions_change, random_reset),
        cmocka_unit_test_setup(computation_resumes_after_a_stop, random_reset),
        cmocka_unit_test_setup(images_of_a_beginning_outlive_a_stop, random_reset),
        cmocka_unit_test_setup(forged_memory_is_refused_or_harmless, random_reset),
        cmocka_unit_test_setup(a_look_while_the_header_is_written_is_no_error, random_reset),
        cmocka_unit_test_setup(a_scan_larger_than_the_room_is_not_computed_ahead, random_reset),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
