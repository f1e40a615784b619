/* Series in time: readouts divided into images, and methods that reconstruct a series as a whole. */
#include "recon/mri/series_window.h"
#include "tests/unit/iterative_fixture.h"

enum {
    SIZE = 48,
    COILS = 4,
    FRAMES = 8,
    SPOKES = 10,
    SAMPLES = 96
}; /* a sixth of the spokes that full sampling needs */

static const char *const methods[] = {"temporal-tv", "llr"};

/* Golden-angle spokes of a phantom that goes through one cycle of motion, all in one repetition;
 * truth[FRAMES][SIZE][SIZE] is the object in the middle of each of FRAMES parts. */
static void moving(struct flat *flat, double cycles, float scale, float *truth)
{
    const int n[3] = {SIZE, SIZE, 1};
    flat_init(flat, SIZE, SIZE, 1);
    spokes(flat, FRAMES * SPOKES, SAMPLES, COILS);
    for (int r = 0; r < FRAMES * SPOKES; r++) {
        const struct scan_readout *readout = &flat->readouts[r];
        struct phantom *phantom = NULL;
        assert_int_equal(
            phantom_create_moved(&phantom, PHANTOM_SHEPP_LOGAN, 2, n, NAN, COILS, cycles * r / (FRAMES * SPOKES)), 0);
        phantom_readout(flat, readout, phantom, 0.2, scale);
        phantom_free(phantom);
    }
    for (int f = 0; f < FRAMES && truth; f++) {
        struct phantom *phantom = NULL;
        assert_int_equal(
            phantom_create_moved(&phantom, PHANTOM_SHEPP_LOGAN, 2, n, NAN, COILS, cycles * (f + 0.5) / FRAMES), 0);
        assert_int_equal(phantom_truth(phantom, false, truth + (size_t)f * SIZE * SIZE), 0);
        phantom_free(phantom);
    }
}

/* The largest error over the images of the series. */
static double worst(const struct job_outcome *out, const float *truth)
{
    double most = 0;
    for (size_t f = 0; f < FRAMES; f++)
        most = fmax(most, distance(images_of(out)->data + f * SIZE * SIZE, 1, truth + f * SIZE * SIZE, SIZE * SIZE));
    return most;
}

static void run_method(struct flat *flat, const char *method, const char *more, struct job_outcome *out)
{
    char parameters[160];
    snprintf(parameters, sizeof parameters, "method=%s frames=8 %s", method, more);
    succeed(flat, parameters, out);
}

/* image[a] - image[b] of SIZE^2 pixels: the motion alone. */
static void change(const float *images, size_t a, size_t b, float *out)
{
    for (size_t i = 0; i < SIZE * SIZE; i++)
        out[i] = images[a * SIZE * SIZE + i] - images[b * SIZE * SIZE + i];
}

/* Every image of the series, including the first and last, is twice as close to its truth as tv's image, which uses
 * only its own data (measured: 0.29; at most 0.10). The object moves: between the extremes of the motion the images
 * change as the truths do, where a single mean image would have an error of 1 (measured: at most 0.36). */
static void test_each_image_gains_from_the_others(void **state)
{
    (void)state;
    float truth[FRAMES * SIZE * SIZE];
    float moved[SIZE * SIZE], expected[SIZE * SIZE];
    struct flat flat;
    struct job_outcome out = {0};
    moving(&flat, 1, 1, truth);
    change(truth, 1, 5, expected);
    run_method(&flat, "tv", "", &out);
    const double alone = worst(&out, truth);
    drop(&out);
    for (int m = 0; m < 2; m++) {
        run_method(&flat, methods[m], "", &out);
        change(images_of(&out)->data, 1, 5, moved);
        const double error = worst(&out, truth), motion = distance(moved, 1, expected, SIZE * SIZE);
        if (!(error < alone / 2 && motion < 0.6))
            fail_msg("%s has an error of %g, its change of %g; tv of %g", methods[m], error, motion, alone);
        assert_string_equal(decided(&out, "time"), "repetition");
        assert_string_equal(decided(&out, "coils"), "sense");
        assert_string_equal(decided(&out, "k-space"), "ellipse");
        drop(&out);
    }
    flat_free(&flat);
}

/* The windows of a series: every image is kept once, in order; each has its margin on both sides, except at the ends of
 * the series; and windows that are complete before the end are the same as those of the whole series. */
static void test_windows(void **state)
{
    (void)state;
    for (size_t most = 4; most < 40; most++)
        for (size_t images = 1; images < 130; images++) {
            const size_t margin = most < 16 ? 1 : most / 8;
            struct series_window w = {.until = 0};
            for (size_t done = 0; done < images; done = w.until) {
                assert_true(series_window(&w, done, images, most, false));
                assert_true(w.from == done && w.until > w.from && w.until <= images);
                assert_int_equal(w.count, most < images ? most : images);
                assert_true(most < images || w.until == images);
                assert_true(w.first + w.count <= images && w.first <= w.from && w.until <= w.first + w.count);
                assert_true(w.from == 0 || w.from >= w.first + margin);
                assert_true(w.until == images || w.until + margin <= w.first + w.count);
            }
            struct series_window early = {.until = 0}, late = {.until = 0};
            while (series_window(&early, early.until, images, most, true)) {
                assert_true(early.first + early.count <= images);
                assert_true(series_window(&late, early.from, images + 30, most, false));
                assert_memory_equal(&early, &late, sizeof early);
            }
            assert_int_equal(series_complete(images, most), early.until);
        }
    struct series_window all;
    assert_true(series_window(&all, 0, 9, 0, false));
    assert_true(all.first == 0 && all.count == 9 && all.from == 0 && all.until == 9);
    assert_false(series_window(&all, 0, 9, 0, true));
    assert_int_equal(series_complete(100, 0), 0);
}

/* Windows of at least as many images as the series has equal the whole; shorter ones have slightly larger errors, and
 * differ from the whole by less than its error. */
static void test_windows_are_near_the_whole(void **state)
{
    (void)state;
    float truth[FRAMES * SIZE * SIZE];
    struct flat flat;
    moving(&flat, 1, 1, truth);
    for (int m = 0; m < 2; m++) {
        struct job_outcome all = {0}, out = {0};
        run_method(&flat, methods[m], "", &all);
        run_method(&flat, methods[m], "window_frames=9", &out);
        assert_memory_equal(images_of(&out)->data, images_of(&all)->data, sizeof truth);
        drop(&out);
        run_method(&flat, methods[m], "window_frames=6", &out);
        const double error = worst(&out, truth), least = worst(&all, truth);
        const double apart = distance(images_of(&out)->data, 1, images_of(&all)->data, FRAMES * SIZE * SIZE);
        print_message("# %s: windows err by %g, the whole by %g, and differ by %g\n", methods[m], error, least, apart);
        if (!(error < 1.3 * least && apart < least))
            fail_msg("%s: windows err by %g, the whole by %g, and differ by %g", methods[m], error, least, apart);
        drop(&out);
        drop(&all);
    }
    refuse(&flat, "method=tv frames=8 window_frames=6", ERR_BAD_PARAMETER, -1);
    flat_free(&flat);
}

/* 1,024 times the data gives 1,024 times the images; the same bits for any number of threads; zeros give zeros. */
static void test_scale_and_bits(void **state)
{
    (void)state;
    struct flat one, thousand;
    moving(&one, 1, 1, NULL);
    random_state = 1;
    moving(&thousand, 1, 1024, NULL);
    for (int m = 0; m < 2; m++) {
        struct job_outcome a = {0}, b = {0}, c = {0};
        struct dev *shared = dev;
        run_method(&one, methods[m], "iterations=3", &a);
        run_method(&thousand, methods[m], "iterations=3", &b);
        assert_int_equal(dev_create(&dev, DEV_CPU, 0, 3), 0);
        run_method(&one, methods[m], "iterations=3", &c);
        dev_free(dev);
        dev = shared;
        const float *scaled = images_of(&b)->data;
        const size_t all = FRAMES * SIZE * SIZE;
        assert_memory_equal(images_of(&a)->data, images_of(&c)->data, all * sizeof(float));
        assert_true(distance(scaled, 1024, images_of(&a)->data, all) < 1e-4);
        drop(&a);
        drop(&b);
        drop(&c);
    }
    memset(one.data, 0, one.header.data_count * sizeof *one.data);
    for (int m = 0; m < 2; m++) {
        struct job_outcome out = {0};
        run_method(&one, methods[m], "", &out);
        for (size_t i = 0; i < FRAMES * SIZE * SIZE; i++)
            assert_true(images_of(&out)->data[i] == 0);
        drop(&out);
    }
    flat_free(&one);
    flat_free(&thousand);
}

/* With a huge weight, temporal-tv gives the same image at all times, up to float32 rounding and the dual's remaining
 * error; llr gives zeros. */
static void test_huge_weights(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    moving(&flat, 1, 1, NULL);
    run_method(&flat, "temporal-tv", "lambda=1000 iterations=60 stop_tolerance=0", &out);
    for (size_t f = 1; f < FRAMES; f++)
        assert_true(distance(images_of(&out)->data + f * SIZE * SIZE, 1, images_of(&out)->data, SIZE * SIZE) < 0.01);
    assert_true(images_of(&out)->data[SIZE * SIZE / 2 + SIZE / 2] > 0);
    drop(&out);
    run_method(&flat, "llr", "lambda=1000", &out);
    for (size_t i = 0; i < FRAMES * SIZE * SIZE; i++)
        assert_true(images_of(&out)->data[i] == 0);
    drop(&out);
    flat_free(&flat);
}

/* Two slices are two series: each equals the result of the slice alone, bit for bit. Images on the same trajectory
 * share a kernel even if images of other trajectories lie between them. With a single repetition, the phases are the
 * time. */
static void test_slices_and_shared_trajectories(void **state)
{
    (void)state;
    struct flat both, alone;
    struct job_outcome all = {0}, one = {0};
    moving(&alone, 1, 1, NULL);
    /* Frames 0, 2, 4, .. on one trajectory, 1, 3, 5, .. on another. */
    for (int r = 2 * SPOKES; r < FRAMES * SPOKES; r++)
        memcpy(alone.traj + alone.readouts[r].traj, alone.traj + alone.readouts[r - 2 * SPOKES].traj,
               2 * SAMPLES * sizeof(float));
    for (int r = 0; r < FRAMES * SPOKES; r++)
        alone.readouts[r].idx[SCAN_PHASE] = (uint16_t)(r / SPOKES);
    flat_init(&both, SIZE, SIZE, 1);
    for (int slice = 0; slice < 2; slice++)
        for (int r = 0; r < FRAMES * SPOKES; r++) {
            const struct scan_readout *from = &alone.readouts[r];
            struct scan_readout *to = flat_add(&both, SAMPLES, COILS, 2);
            memcpy(to->idx, from->idx, sizeof to->idx);
            to->idx[SCAN_SLICE] = (uint16_t)slice;
            memcpy(both.traj + to->traj, alone.traj + from->traj, 2 * SAMPLES * sizeof(float));
            for (int i = 0; i < SAMPLES * COILS; i++) {
                const struct c32 value = alone.data[from->data + (size_t)i];
                both.data[to->data + (size_t)i] = slice ? value : (struct c32){value.im, 2 * value.re};
            }
        }
    succeed(&alone, "method=llr iterations=4", &one);
    assert_string_equal(decided(&one, "time"), "phase");
    assert_int_equal(reported(&one, "plans"), 2); /* of two trajectories, whose coil images are kept */
    succeed(&both, "method=llr iterations=4", &all);
    assert_int_equal(images_of(&all)->count, 2 * FRAMES);
    for (size_t f = 0; f < FRAMES; f++) {
        assert_int_equal(images_of(&all)->info[2 * f + 1].slice, 1);
        assert_memory_equal(images_of(&all)->data + (2 * f + 1) * SIZE * SIZE, images_of(&one)->data + f * SIZE * SIZE,
                            SIZE * SIZE * sizeof(float));
    }
    drop(&one);
    drop(&all);
    flat_free(&both);
    flat_free(&alone);
}

/* Progress never falls and counts iterations; the job can be canceled at every call of the listener, within each
 * image's coils and within the proximal operator, so more often than once per image and iteration. */
static void test_progress_and_cancel(void **state)
{
    (void)state;
    struct flat flat;
    moving(&flat, 1, 1, NULL);
    for (int m = 0; m < 2; m++) {
        struct job_outcome out = {0};
        struct progress_count all = {0};
        const struct job_listener listener = {&all, progress_count};
        char parameters[96];
        snprintf(parameters, sizeof parameters, "method=%s frames=8 iterations=3 stop_tolerance=0", methods[m]);
        assert_int_equal(run(&flat, parameters, &out, &listener), 0);
        assert_true(all.solving > 2 * FRAMES);
        drop(&out);
        memset(&out, 0, sizeof out);
        for (int at = 1; at <= all.calls; at += 23) {
            struct progress_count one = {.stop_at = at};
            const struct job_listener canceling = {&one, progress_count};
            assert_int_equal(run(&flat, parameters, &out, &canceling), ERR_CANCELED);
            assert_int_equal(one.calls, at);
            assert_int_equal(out.results, 0);
        }
    }
    flat_free(&flat);
}

static void test_refusals(void **state)
{
    (void)state;
    struct flat flat;
    moving(&flat, 1, 1, NULL);
    refuse(&flat, "method=llr", ERR_BAD_PARAMETER, -1);
    assert_non_null(strstr(err_last()->text, "frames=N"));
    refuse(&flat, "method=temporal-tv frames=8 coils=none", ERR_BAD_PARAMETER, -1);
    flat.data[flat.readouts[70].data + 5].re = NAN;
    refuse(&flat, "method=temporal-tv frames=8", ERR_DATA_NONFINITE, 70);
    flat_free(&flat);
}

/* Each image is the direct sum of its own readouts, and is numbered in time. */
static void test_a_series_is_divided(void **state)
{
    (void)state;
    enum { SIDE = 12, READOUTS = 14 };
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, SIDE, SIDE, 1);
    for (unsigned r = 0; r < READOUTS; r++)
        random_readout(&flat, 40, 2, 2, 2)->idx[SCAN_REPETITION] = (uint16_t)r;
    succeed(&flat, "frame_readouts=4 frame_window=1.5 dcf=none", &out);
    static const uint64_t masks[] = {0x3f, 0x1f8, 0x1f80};
    const struct image_series *images = images_of(&out);
    assert_int_equal(images->count, 3);
    assert_int_equal(reported(&out, "images"), 3);
    assert_string_equal(decided(&out, "frames"), "3");
    for (size_t f = 0; f < 3; f++) {
        const int n[3] = {SIDE, SIDE, 1};
        assert_int_equal(images->info[f].repetition, f);
        assert_true(rss_error(&flat, masks[f], 2, 2, -1, n, whole, images->data + f * SIDE * SIDE) < TOLERANCE);
    }
    drop(&out);
    refuse(&flat, "frames=15", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "frames=3 frame_readouts=4", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "frame_by=time", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "frame_window=2", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "frames=2 averages=separate", ERR_BAD_PARAMETER, -1);
    flat_free(&flat);
}

/* The weight falls to its final value during the first iterations (recon/mri/recon_methods.c): after half of the
 * iterations the error is 1.02 times that after all. With the final weight from the start, llr ends at 3.2 times that
 * error. */
static void test_the_falling_weight_halves_the_iterations(void **state)
{
    (void)state;
    static const char *const stops[] = {"iterations=40 stop_tolerance=0", "iterations=20 stop_tolerance=0"};
    float truth[FRAMES * SIZE * SIZE];
    double error[2];
    struct flat flat;
    struct job_outcome out = {0};
    moving(&flat, 1, 1, truth);
    for (int half = 0; half < 2; half++) {
        run_method(&flat, "llr", stops[half], &out);
        error[half] = worst(&out, truth);
        drop(&out);
    }
    if (!(error[1] < 1.3 * error[0]))
        fail_msg("an error of %g after 20 iterations, %g after 40", error[1], error[0]);
    flat_free(&flat);
}

/* The most memory that this process has used since peak_reset(), in bytes. */
static size_t peak_memory(void)
{
    char line[128];
    size_t kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "VmHWM: %zu kB", &kilobytes);
    fclose(file);
    return kilobytes * 1024;
}

static size_t peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    assert_non_null(file);
    assert_true(fputs("5", file) >= 0);
    assert_int_equal(fclose(file), 0);
    return peak_memory();
}

/* 2,000 images take no more memory than the job requested before it began. */
static void test_memory_stays_within_the_estimate(void **state)
{
    (void)state;
    enum { IMAGES = 2000, SMALL = 24, EACH = 3, LINE = 24 };
    struct flat flat;
    struct job_outcome out = {0};
#ifdef __SANITIZE_ADDRESS__
    skip(); /* the sanitizer's own memory is several times as large */
#endif
    flat_init(&flat, SMALL, SMALL, 1);
    spokes(&flat, IMAGES * EACH, LINE, 2);
    const size_t before = peak_reset();
    succeed(&flat, "method=temporal-tv frames=2000 iterations=2", &out);
    const double taken = (double)(peak_memory() - before), promised = (double)reported(&out, "memory_bytes");
    assert_int_equal(images_of(&out)->count, IMAGES);
    /* A vector of all images is 9 MB. */
    if (!(taken < promised && promised < 2 * taken))
        fail_msg("%.1f MB used, %.1f estimated", taken / 1e6, promised / 1e6);
    drop(&out);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_series_is_divided, random_reset),
        cmocka_unit_test_setup(test_each_image_gains_from_the_others, random_reset),
        cmocka_unit_test_setup(test_the_falling_weight_halves_the_iterations, random_reset),
        cmocka_unit_test_setup(test_windows, random_reset),
        cmocka_unit_test_setup(test_windows_are_near_the_whole, random_reset),
        cmocka_unit_test_setup(test_scale_and_bits, random_reset),
        cmocka_unit_test_setup(test_huge_weights, random_reset),
        cmocka_unit_test_setup(test_slices_and_shared_trajectories, random_reset),
        cmocka_unit_test_setup(test_progress_and_cancel, random_reset),
        cmocka_unit_test_setup(test_refusals, random_reset),
        cmocka_unit_test_setup(test_memory_stays_within_the_estimate, random_reset),
    };
    return cmocka_run_group_tests(tests, single_open, device_close);
}
