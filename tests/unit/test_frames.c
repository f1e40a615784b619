/* Sorting readouts into images. */
#include "recon/mri/frames.h"
#include "tests/unit/flat_scan.h"

#include "gridding/base/err.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static uint64_t flag(int n)
{
    return UINT64_C(1) << (n - 1);
}

static void readouts_with_the_nine_flags_are_not_image_data(void **state)
{
    (void)state;
    static const int none[] = {SCAN_NOISE,      SCAN_PARALLEL_CALIBRATION, SCAN_NAVIGATION,
                               SCAN_PHASECORR,  SCAN_HPFEEDBACK,           SCAN_DUMMY,
                               SCAN_RTFEEDBACK, SCAN_PHASE_STAB_REFERENCE, SCAN_PHASE_STAB};
    assert_int_equal(sizeof none / sizeof *none, FRAMES_REASONS);
    int ignored = 0;
    for (int n = 1; n <= 64; n++) {
        bool image = true;
        for (int i = 0; i < FRAMES_REASONS; i++)
            image = image && none[i] != n;
        assert_int_equal(frames_ignore(flag(n)) < 0, image);
        ignored += frames_ignore(flag(n)) >= 0;
    }
    assert_int_equal(ignored, FRAMES_REASONS);
    assert_int_equal(frames_ignore(flag(SCAN_REVERSE) | flag(SCAN_LAST_IN_REPETITION)), -1);
    assert_int_equal(frames_ignore(flag(SCAN_CALIBRATION_AND_IMAGING) | flag(SCAN_PARALLEL_CALIBRATION)), -1);
    assert_int_equal(frames_ignore(flag(SCAN_CALIBRATION_AND_IMAGING) | flag(SCAN_NAVIGATION)), FRAMES_NAVIGATION);
}

/* Repetitions, slices and averages, interleaved: 2 x 3 x 2, two readouts each. */
static void flat_interleaved(struct flat *flat)
{
    flat_init(flat, 16, 16, 1);
    for (int line = 0; line < 2; line++)
        for (int average = 0; average < 2; average++)
            for (int slice = 2; slice >= 0; slice--)
                for (int repetition = 0; repetition < 2; repetition++) {
                    struct scan_readout *readout = flat_add(flat, 8u + (unsigned)slice, 3, 2);
                    readout->idx[SCAN_AVERAGE] = (uint16_t)(5 * average);
                    readout->idx[SCAN_SLICE] = (uint16_t)slice;
                    readout->idx[SCAN_REPETITION] = (uint16_t)(7 * repetition);
                    readout->idx[SCAN_STEP1] = (uint16_t)line;
                    readout->discard_pre = 2;
                    readout->discard_post = 1;
                }
}

static void every_repetition_and_slice_is_an_image(void **state)
{
    (void)state;
    struct flat flat;
    struct frames *frames = NULL;
    flat_interleaved(&flat);
    assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, false, NULL), 0);
    assert_int_equal(frames->count, 6);
    assert_int_equal(frames->used, 24);
    for (size_t f = 0; f < 6; f++) {
        const struct frame *frame = &frames->frame[f];
        assert_int_equal(frame->first, 4 * f);
        assert_int_equal(frame->count, 4);
        assert_int_equal(frame->coils, 3);
        assert_int_equal(frame->averages, 2);
        assert_int_equal(frame->samples, 4 * (5 + f % 3));
        assert_true(frame->one_place);
        for (size_t i = 0; i < 4; i++) {
            const struct scan_readout *readout = &flat.readouts[frames->readouts[frame->first + i]];
            assert_int_equal(readout->idx[SCAN_REPETITION], 7 * (f / 3));
            assert_int_equal(readout->idx[SCAN_SLICE], f % 3);
            /* In the file's order. */
            assert_true(i == 0 || frames->readouts[frame->first + i] > frames->readouts[frame->first + i - 1]);
        }
    }
    frames_free(frames);
    frames = NULL;
    assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, true, NULL), 0);
    assert_int_equal(frames->count, 12);
    assert_int_equal(frames->frame[0].averages, 1);
    frames_free(frames);
    flat_free(&flat);
}

static void readouts_left_out_are_counted(void **state)
{
    (void)state;
    struct flat flat;
    struct frames *frames = NULL;
    flat_init(&flat, 16, 16, 1);
    flat.header.encodings = 2;
    flat_add(&flat, 8, 2, 0)->encoding = 1;
    flat_add(&flat, 8, 2, 0)->flags = flag(SCAN_NOISE);
    flat_add(&flat, 8, 2, 0)->flags = flag(SCAN_NOISE) | flag(SCAN_DUMMY);
    flat_add(&flat, 8, 5, 2)->flags = flag(SCAN_NAVIGATION);
    flat_add(&flat, 8, 2, 2)->flags = flag(SCAN_REVERSE);
    flat_add(&flat, 8, 2, 2)->position[1] = 3;
    /* Encoding 1 comes first, but has no trajectory. */
    assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, false, NULL), 0);
    assert_int_equal(frames->encoding, 0);
    assert_int_equal(frames->used, 2);
    assert_int_equal(frames->ignored[FRAMES_NOISE], 2);
    assert_int_equal(frames->ignored[FRAMES_NAVIGATION], 1);
    assert_int_equal(frames->ignored[FRAMES_DUMMY], 0);
    assert_int_equal(frames->elsewhere, 1);
    assert_false(frames->frame[0].one_place);
    frames_free(frames);
    frames = NULL;
    assert_int_equal(frames_create(&frames, flat_scan(&flat), 1, false, NULL), 0);
    assert_int_equal(frames->used, 1);
    assert_int_equal(frames->elsewhere, 2);
    frames_free(frames);
    flat_free(&flat);
}

static void scans_without_images_are_refused(void **state)
{
    (void)state;
    struct flat flat;
    struct frames *frames = NULL;
    flat_init(&flat, 16, 16, 1);
    assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, false, NULL), ERR_NO_IMAGE_DATA);
    flat_add(&flat, 8, 2, 2)->flags = flag(SCAN_NOISE);
    assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, false, NULL), ERR_NO_IMAGE_DATA);
    assert_non_null(strstr(err_last()->text, "1 noise"));
    assert_int_equal(frames_create(&frames, flat_scan(&flat), 1, false, NULL), ERR_BAD_PARAMETER);
    flat.header.encodings = 2;
    flat_add(&flat, 8, 2, 2);
    assert_int_equal(frames_create(&frames, flat_scan(&flat), 1, false, NULL), ERR_NO_IMAGE_DATA);
    flat_add(&flat, 8, 3, 2);
    assert_int_equal(frames_create(&frames, flat_scan(&flat), 0, false, NULL), ERR_COILS_DIFFER);
    assert_int_equal(err_last()->acquisition, 2);
    flat.readouts[2].coils = 2;
    flat.readouts[1].discard_pre = 5;
    flat.readouts[1].discard_post = 3;
    assert_int_equal(frames_create(&frames, flat_scan(&flat), 0, false, NULL), ERR_ENCODING_INVALID);
    assert_int_equal(err_last()->acquisition, 1);
    assert_null(frames);
    flat_free(&flat);
}

/* ---- series divided in time ---- */

/* `count` readouts of two alternating slices, each readout its own repetition, at times 0, 2, 4, .. with a pause of 100
 * before readout `pause`. */
static void flat_series(struct flat *flat, unsigned count, unsigned pause)
{
    flat_init(flat, 16, 16, 1);
    for (unsigned i = 0; i < count; i++)
        for (unsigned slice = 0; slice < 2; slice++) {
            struct scan_readout *readout = flat_add(flat, 8, 2, 2);
            readout->idx[SCAN_SLICE] = (uint16_t)slice;
            readout->idx[SCAN_REPETITION] = readout->idx[SCAN_AVERAGE] = (uint16_t)i;
            readout->time_stamp = 2 * i + (i >= pause ? 100 : 0);
        }
}

/* Frame f consists of `count` readouts from `first` on, counted in its slice's own series. */
static void frame_is(const struct flat *flat, const struct frames *frames, size_t f, unsigned first, unsigned count)
{
    const struct frame *frame = &frames->frame[f];
    assert_int_equal(frame->count, count);
    assert_int_equal(frame->repetition, f / 2);
    assert_int_equal(frame->averages, 1);
    assert_int_equal(frame->samples, 8 * count);
    for (unsigned i = 0; i < count; i++) {
        const struct scan_readout *readout = &flat->readouts[frames->readouts[frame->first + i]];
        assert_int_equal(readout->idx[SCAN_REPETITION], first + i);
        assert_int_equal(readout->idx[SCAN_SLICE], f % 2);
    }
}

static void divided(struct flat *flat, struct frames_division division, size_t count, size_t left_over,
                    const unsigned (*spans)[2])
{
    struct frames *frames = NULL;
    assert_int_equal(frames_create(&frames, flat_scan(flat), -1, false, &division), 0);
    assert_int_equal(frames->count, 2 * count);
    assert_int_equal(frames->left_over, left_over);
    assert_int_equal(frames->used + left_over, flat->header.readouts);
    for (size_t f = 0; f < 2 * count; f++)
        frame_is(flat, frames, f, spans[f / 2][0], spans[f / 2][1]);
    frames_free(frames);
}

static void a_series_is_divided_by_count(void **state)
{
    (void)state;
    struct flat flat;
    flat_series(&flat, 11, 99);
    divided(&flat, (struct frames_division){.images = 3, .window = 1}, 3, 0,
            (const unsigned[][2]){{0, 3}, {3, 4}, {7, 4}});
    divided(
        &flat, (struct frames_division){.images = 11, .window = 1}, 11, 0,
        (const unsigned[][2]){{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {8, 1}, {9, 1}, {10, 1}});
    divided(&flat, (struct frames_division){.readouts = 4, .window = 1}, 2, 6, (const unsigned[][2]){{0, 4}, {4, 4}});
    /* Windows overlap, are shifted inwards at the ends, and are never wider than the series. */
    divided(&flat, (struct frames_division){.readouts = 2, .window = 2}, 5, 0,
            (const unsigned[][2]){{0, 4}, {1, 4}, {3, 4}, {5, 4}, {7, 4}});
    divided(&flat, (struct frames_division){.images = 2, .window = 50}, 2, 0, (const unsigned[][2]){{0, 11}, {0, 11}});
    flat_free(&flat);
}

static void a_series_is_divided_by_time(void **state)
{
    (void)state;
    struct flat flat;
    struct frames *frames = NULL;
    /* Times 0, 2, .. 10, then 112, .. 118: two windows of 65.6, of which the first has six readouts. */
    flat_series(&flat, 10, 6);
    struct frames_division division = {.images = 2, .by_time = true, .window = 1};
    divided(&flat, division, 2, 0, (const unsigned[][2]){{0, 6}, {6, 4}});
    division.images = 4;
    assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, false, &division), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "Image 1 of 4"));
    flat.readouts[9].time_stamp = 1;
    assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, false, &division), ERR_ENCODING_INVALID);
    assert_int_equal(err_last()->acquisition, 9);
    for (size_t i = 0; i < flat.header.readouts; i++)
        flat.readouts[i].time_stamp = 7;
    assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, false, &division), ERR_ENCODING_INVALID);
    flat_free(&flat);
    flat_series(&flat, 12, 99);
    division = (struct frames_division){.images = 3, .by_time = true, .window = 2};
    divided(&flat, division, 3, 0, (const unsigned[][2]){{0, 8}, {2, 8}, {4, 8}});
    flat_free(&flat);
}

static void divisions_that_leave_an_image_empty_are_refused(void **state)
{
    (void)state;
    struct flat flat;
    struct frames *frames = NULL;
    const struct frames_division refused[] = {{.images = 6, .window = 1}, {.readouts = 6, .window = 1}};
    flat_series(&flat, 5, 99);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(frames_create(&frames, flat_scan(&flat), -1, false, &refused[i]), ERR_BAD_PARAMETER);
        assert_non_null(strstr(err_last()->text, "5 readouts"));
    }
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_series_is_divided_by_count),
        cmocka_unit_test(a_series_is_divided_by_time),
        cmocka_unit_test(divisions_that_leave_an_image_empty_are_refused),
        cmocka_unit_test(readouts_with_the_nine_flags_are_not_image_data),
        cmocka_unit_test(every_repetition_and_slice_is_an_image),
        cmocka_unit_test(readouts_left_out_are_counted),
        cmocka_unit_test(scans_without_images_are_refused),
    };
    return cmocka_run_group_tests_name("frames", tests, NULL, NULL);
}
