/* recon/mri/recon_ahead.h: series of several slices, whose images are computed and shown while the scan arrives. */
#include "tests/unit/stream_fixture.h"

#define SLICES "<slice><maximum>%d</maximum></slice>"
#define VIEWS  "<kspace_encoding_step_1><maximum>19</maximum></kspace_encoding_step_1>"

static void limits_of(char text[200], int slices, bool views)
{
    snprintf(text, 200, SLICES "%s", slices - 1, views ? VIEWS : "");
}

/* A stream whose blocks of SPOKES readouts are these slices of these repetitions, in this order. */
static void blocks_begin(struct stream *s, const char *limits, const unsigned (*block)[2], unsigned count)
{
    stream_begin_of(s, limits, SPOKES, SAMPLES, count);
    for (unsigned i = 0; i < count * SPOKES; i++)
        place(s, i, block[i / SPOKES][0], block[i / SPOKES][1]);
}

/* Slices one after the other: each is complete with its last readout by the flags, or with as many as the header
 * announces, as soon as the next one begins. */
static void slices_one_after_the_other_are_computed(void **state)
{
    (void)state;
    static const unsigned block[][2] = {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}};
    for (int views = 0; views < 3; views++) {
        struct stream s;
        struct job job;
        char limits[200];
        limits_of(limits, 3, views == 1);
        blocks_begin(&s, limits, block, 6);
        for (unsigned i = SPOKES - 1; views == 0 && i < 6 * SPOKES; i += SPOKES)
            s.flat.readouts[i].flags |= UINT64_C(1) << (SCAN_LAST_IN_SLICE - 1);
        job_begin(&job, &s, "coils", "rss");
        for (unsigned i = 0; i < 6; i++) {
            stream_put(&s, i * SPOKES + 1);
            assert_false(job_step(&job));
            assert_int_equal(job.shown, views == 2 ? i / 3 * 3 : i); /* without either, by repetitions */
            stream_put(&s, (i + 1) * SPOKES);
            assert_false(job_step(&job));
        }
        stream_close(&s);
        assert_true(job_step(&job));
        assert_int_equal(job.shown, 6);
        job_check(&job, &s, 6);
        stream_end(&s);
    }
}

/* Readouts of all slices in turn: an image is complete with its repetition. */
static void interleaved_slices_wait_for_their_repetition(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    char limits[200];
    limits_of(limits, 2, true);
    stream_begin_of(&s, limits, SPOKES, SAMPLES, 4);
    for (unsigned i = 0; i < 4 * SPOKES; i++)
        place(&s, i, i / (2 * SPOKES), i % 2);
    job_begin(&job, &s, "coils", "rss");
    stream_put(&s, 2);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 0);
    stream_put(&s, 2 * SPOKES);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 0);
    stream_put(&s, 2 * SPOKES + 1);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 2);
    stream_close(&s);
    assert_true(job_step(&job));
    job_check(&job, &s, 4);
    stream_end(&s);
}

/* All repetitions of a slice before the next slice: an image whose place is behind one that is not there yet is
 * computed, and shown after that one. */
static void images_are_shown_in_their_places(void **state)
{
    (void)state;
    static const unsigned block[][2] = {{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1}, {2, 1}};
    static const size_t shown[] = {0, 1, 1, 1, 3, 5};
    struct stream s;
    struct job job;
    char limits[200];
    limits_of(limits, 2, false);
    blocks_begin(&s, limits, block, 6);
    job_begin(&job, &s, "coils", "none");
    for (unsigned i = 0; i < 6; i++) {
        stream_put(&s, i * SPOKES + 1);
        assert_false(job_step(&job));
        assert_int_equal(job.shown, shown[i] - (i == 5)); /* (2, 0) is complete with the stream alone */
    }
    stream_close(&s);
    assert_true(job_step(&job));
    job_check(&job, &s, 6);
    stream_end(&s);
}

/* The header announces a second slice that never comes: the first image has its place all the same. */
static void slices_that_do_not_come_hold_the_others_back(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    char limits[200];
    limits_of(limits, 2, false);
    stream_begin(&s, limits);
    job_begin(&job, &s, "dcf", "auto");
    stream_put(&s, 2 * SPOKES + 5);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 1);
    stream_close(&s);
    assert_true(job_step(&job));
    assert_int_equal(job.shown, 3);
    job_check(&job, &s, 3);
    stream_end(&s);
}

/* Readouts that come back to an image after it was complete: it is computed again. */
static void an_image_that_grows_is_not_reused(void **state)
{
    (void)state;
    static const unsigned block[][2] = {{0, 0}, {0, 1}, {0, 2}, {0, 1}};
    struct stream s;
    struct job job;
    char limits[200];
    limits_of(limits, 3, true);
    blocks_begin(&s, limits, block, 4);
    job_begin(&job, &s, "coils", "rss");
    stream_put(&s, 2 * SPOKES + 1);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 2);
    stream_put(&s, 4 * SPOKES);
    assert_false(job_step(&job));
    job.bytes /= 2; /* the second has changed */
    job.shown = 1;
    job.dropped = true;
    job_check(&job, &s, 1);
    stream_end(&s);
}

/* A series by the number of readouts, of slices one after the other: the first image of each slice has its place when
 * it is complete, the others when the last slice has as many. */
static void a_divided_series_of_slices_is_shown_in_its_places(void **state)
{
    (void)state;
    static const unsigned block[][2] = {{0, 0}, {0, 1}, {0, 2}};
    static const struct {
        unsigned put;
        size_t shown;
    } steps[] = {{5, 0}, {6, 1}, {20, 1}, {25, 1}, {26, 2}, {45, 2}, {46, 3}, {51, 3}, {52, 6}, {58, 9}, {59, 9}};
    struct stream s;
    struct job job;
    char limits[200];
    limits_of(limits, 3, false);
    blocks_begin(&s, limits, block, 3);
    job_begin(&job, &s, "frame_readouts", "6");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        stream_put(&s, steps[i].put);
        assert_false(job_step(&job));
        assert_int_equal(job.shown, steps[i].shown);
    }
    job_check(&job, &s, 9);
    stream_end(&s);
}

/* A slice with fewer readouts than the others ends the series of all. */
static void a_divided_series_ends_with_its_shortest_slice(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    char limits[200];
    limits_of(limits, 2, false);
    stream_begin_of(&s, limits, SPOKES, SAMPLES, 3);
    for (unsigned i = 0; i < 3 * SPOKES; i++)
        place(&s, i, 0, i >= 2 * SPOKES + 4);
    job_begin(&job, &s, "frame_readouts", "8"); /* 5 images of the first slice, 2 of the second */
    stream_put(&s, 2 * SPOKES + 4);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 1);
    stream_put(&s, 3 * SPOKES - 1);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 2);
    stream_close(&s);
    assert_true(job_step(&job));
    assert_int_equal(job.shown, 4);
    job.dropped = true;
    job_check(&job, &s, 4);
    stream_end(&s);
}

/* Slices in turn of a series by the number of readouts: each image as soon as it is complete, in its place. */
static void a_divided_series_of_interleaved_slices(void **state)
{
    (void)state;
    struct stream s;
    struct job job;
    stream_begin(&s, "");
    for (unsigned i = 0; i < 3 * SPOKES; i++)
        place(&s, i, 0, i % 2);
    job_begin(&job, &s, "frame_readouts", "10");
    stream_put(&s, 19);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 0);
    stream_put(&s, 20);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 2);
    stream_put(&s, 59);
    assert_false(job_step(&job));
    assert_int_equal(job.shown, 4);
    job_check(&job, &s, 5);
    stream_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(slices_one_after_the_other_are_computed, random_reset),
        cmocka_unit_test_setup(interleaved_slices_wait_for_their_repetition, random_reset),
        cmocka_unit_test_setup(images_are_shown_in_their_places, random_reset),
        cmocka_unit_test_setup(slices_that_do_not_come_hold_the_others_back, random_reset),
        cmocka_unit_test_setup(an_image_that_grows_is_not_reused, random_reset),
        cmocka_unit_test_setup(a_divided_series_of_slices_is_shown_in_its_places, random_reset),
        cmocka_unit_test_setup(a_divided_series_ends_with_its_shortest_slice, random_reset),
        cmocka_unit_test_setup(a_divided_series_of_interleaved_slices, random_reset),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
