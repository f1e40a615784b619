/* recon/mri/recon_ahead.h and recon/scan/scan_live.h: images computed while their scan arrives are bit-identical to
 * those of the whole scan, and memory that changes under the reader causes no invalid access. */
#include "tests/unit/stream_fixture.h"

/* Run the job on the whole scan, without and with what was computed ahead: the bits are the same, and `ahead` images
 * come from what was computed ahead. */
static void job_check(struct job *job, struct stream *s, int64_t ahead)
{
    struct job_outcome plain = {0}, quick = {0};
    job->request.show = NULL;
    assert_int_equal(recon_run_scan(&plain, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    job->request.ahead = job->ahead;
    assert_int_equal(recon_run_scan(&quick, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    const struct image_series *a = images_of(&plain), *b = images_of(&quick);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->info, b->info, a->count * sizeof *a->info);
    assert_memory_equal(a->data, b->data,
                        a->count * a->channels * a->size[0] * a->size[1] * (a->complex_valued ? 8 : 4));
    assert_int_equal(reported(&quick, "images_ahead"), ahead);
    assert_true(json_equal(json_object_get(plain.report, "decisions"), json_object_get(quick.report, "decisions")));
    assert_true(json_equal(json_object_get(plain.report, "warnings"), json_object_get(quick.report, "warnings")));
    const char *name;
    json_t *value;
    json_object_foreach (plain.report, name, value)
        if (strcmp(name, "stages") != 0 && strcmp(name, "seconds") != 0 &&
            !json_equal(value, json_object_get(quick.report, name)))
            fail_msg("the report's %s", name);
    drop(&plain);
    drop(&quick);
    recon_ahead_free(job->ahead);
}

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
        size_t before, later;
    } rows[] = {{"cg-sense", "all", 7, 9}, {"temporal-tv", "4", 5, 7}, {"llr", "4", 5, 7}, {"llr", "9", 0, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct stream s;
        struct job job;
        const struct kind *kind = kind_find("recon");
        stream_begin(&s, "");
        job_begin(&job, &s, "frame_readouts", "6");
        assert_int_equal(param_values_set(kind, &job.values, "method", rows[i].method), 0);
        assert_int_equal(param_values_set(kind, &job.values, "window_frames", rows[i].window), 0);
        assert_int_equal(param_values_set(kind, &job.values, "iterations", "5"), 0);
        stream_put(&s, 17);
        assert_false(job_step(&job));
        assert_int_equal(job.shown, i == 0 ? 2 : 0);
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
    } rows[] = {{"frames", "4", 4}, {"method", "temporal-tv", 0}, {"dcf", "auto", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct stream s;
        struct job job;
        stream_begin(&s, i == 2 ? "<slice><maximum>1</maximum></slice>" : ""); /* the scan has only one slice */
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
        cmocka_unit_test_setup(images_of_a_given_number_of_readouts_are_computed, random_reset),
        cmocka_unit_test_setup(iterative_images_are_computed, random_reset),
        cmocka_unit_test_setup(compressed_coils_of_a_series_do_not_wait, random_reset),
        cmocka_unit_test_setup(compressed_coils_wait, random_reset),
        cmocka_unit_test_setup(methods_that_need_the_whole_scan_wait, random_reset),
        cmocka_unit_test_setup(repetitions_out_of_order_wait, random_reset),
        cmocka_unit_test_setup(results_are_dropped_if_decisions_change, random_reset),
        cmocka_unit_test_setup(computation_resumes_after_a_stop, random_reset),
        cmocka_unit_test_setup(forged_memory_is_refused_or_harmless, random_reset),
        cmocka_unit_test_setup(a_scan_larger_than_the_room_is_not_computed_ahead, random_reset),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
