/* The pipeline from a decoded scan to images, compared with direct sums in double precision; refused scans;
 * progress. */
#include "tests/unit/recon_fixture.h"

/* ---- images ---- */

static void coils_weights_and_discards_as_the_direct_sum(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    static const int n[3] = {24, 20, 1};
    flat_init(&flat, 24, 20, 1);
    random_readout(&flat, 61, 3, 3, 2);
    random_readout(&flat, 50, 3, 3, 2)->flags = UINT64_C(1) << (SCAN_NAVIGATION - 1);
    struct scan_readout *cut = random_readout(&flat, 83, 3, 3, 2);
    cut->discard_pre = 7;
    cut->discard_post = 11;
    /* Discarded samples must not be read. */
    flat.traj[cut->traj + 1] = NAN;
    flat.data[cut->data + 82] = (struct c32){INFINITY, 0};
    random_readout(&flat, 40, 3, 3, 2)->flags = UINT64_C(1) << (SCAN_REVERSE - 1);
    succeed(&flat, "", &out);
    assert_int_equal(images_of(&out)->count, 1);
    assert_int_equal(images_of(&out)->channels, 1);
    assert_false(images_of(&out)->complex_valued);
    assert_string_equal(images_of(&out)->xml, "<ismrmrdHeader/>");
    assert_true(rss_error(&flat, 13, 3, 2, 2, n, whole, images_of(&out)->data) < TOLERANCE);
    assert_string_equal(decided(&out, "dcf"), "given");
    assert_string_equal(decided(&out, "trajectory unit"), "pixel");
    assert_int_equal(reported(&out, "samples"), 61 + 65 + 40);
    json_t *readouts = json_object_get(out.report, "readouts");
    assert_int_equal(json_integer_value(json_object_get(readouts, "used")), 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(readouts, "ignored"), "navigation")), 1);
    drop(&out);
    /* Without weights: the plain sum. */
    succeed(&flat, "dcf=none", &out);
    assert_true(rss_error(&flat, 13, 3, 2, -1, n, whole, images_of(&out)->data) < TOLERANCE);
    drop(&out);
    flat_free(&flat);
}

static void single_coils_keep_their_phase(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0}, magnitudes = {0};
    static const int n[3] = {15, 18, 1};
    enum { COILS = 19, PIXELS = 15 * 18 }; /* more coils than are gridded at a time */
    flat_init(&flat, 15, 18, 1);
    random_readout(&flat, 120, COILS, 3, 2);
    succeed(&flat, "coils=none output=complex", &out);
    succeed(&flat, "coils=none", &magnitudes);
    assert_int_equal(images_of(&out)->channels, COILS);
    assert_true(images_of(&out)->complex_valued);
    for (int c = 0; c < COILS; c++) {
        double complex *expected = direct(&flat, 1, c, 2, 2, n, whole);
        const float *seen = images_of(&out)->data + 2 * c * PIXELS;
        assert_true(error_of(seen, (const double *)expected, 2 * PIXELS) < TOLERANCE);
        for (int i = 0; i < PIXELS; i++) {
            float magnitude = images_of(&magnitudes)->data[c * PIXELS + i];
            assert_true(fabsf(magnitude - hypotf(seen[2 * i], seen[2 * i + 1])) <= 1e-6f * magnitude);
        }
        free(expected);
    }
    drop(&out);
    drop(&magnitudes);
    refuse(&flat, "output=complex", ERR_BAD_PARAMETER, -1);
    flat_free(&flat);
}

static void three_dimensions(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    static const int n[3] = {12, 10, 9};
    flat_init(&flat, 12, 10, 9);
    for (int i = 0; i < 3; i++)
        random_readout(&flat, 100, 2, 4, 3);
    succeed(&flat, "", &out);
    assert_true(rss_error(&flat, 7, 2, 3, 3, n, whole, images_of(&out)->data) < TOLERANCE);
    assert_int_equal(images_of(&out)->size[2], 9);
    assert_true(images_of(&out)->info[0].fov_mm[2] == 36);
    drop(&out);
    flat_free(&flat);
}

/* 2 repetitions x 3 slices; each image has its own data, first on one trajectory, then on two. */
static void every_image_of_a_series_has_its_own_data_and_position(void **state)
{
    (void)state;
    for (int trajectories = 1; trajectories <= 2; trajectories++) {
        struct flat flat;
        struct job_outcome out = {0};
        static const int n[3] = {16, 14, 1};
        flat_init(&flat, 16, 14, 1);
        for (int i = 0; i < 6; i++) {
            struct scan_readout *readout = random_readout(&flat, 90, 2, 3, 2);
            readout->idx[SCAN_SLICE] = (uint16_t)(i % 3);
            readout->idx[SCAN_REPETITION] = (uint16_t)(i / 3);
            readout->position[2] = 10.0f * (float)(i % 3);
            readout->position[0] = -5;
            readout->time_stamp = 100u + (unsigned)i;
            memcpy(flat.traj + readout->traj, flat.traj + flat.readouts[i % trajectories].traj, 270 * sizeof(float));
        }
        succeed(&flat, "", &out);
        assert_int_equal(images_of(&out)->count, 6);
        assert_int_equal(reported(&out, "plans"), trajectories);
        assert_true(images_of(&out)->slice_spacing_mm == 10);
        for (int i = 0; i < 6; i++) {
            const struct image_info *info = &images_of(&out)->info[i];
            assert_true(rss_error(&flat, UINT64_C(1) << i, 2, 2, 2, n, whole, images_of(&out)->data + i * 16 * 14) <
                        TOLERANCE);
            assert_int_equal(info->slice, i % 3);
            assert_int_equal(info->repetition, i / 3);
            assert_int_equal(info->time_stamp, 100 + i);
            assert_int_equal(info->index, i + 1);
            assert_true(info->position[2] == 10.0f * (float)(i % 3) && info->position[0] == -5);
            assert_true(info->fov_mm[0] == 32 && info->fov_mm[1] == 42);
        }
        drop(&out);
        flat_free(&flat);
    }
}

static void averages_are_combined_or_kept_separate(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome one = {0}, both = {0}, apart = {0};
    flat_init(&flat, 16, 14, 1);
    random_readout(&flat, 90, 2, 3, 2);
    succeed(&flat, "", &one);
    struct scan_readout *again = flat_add(&flat, 90, 2, 3);
    again->idx[SCAN_AVERAGE] = 1;
    memcpy(flat.traj + again->traj, flat.traj + flat.readouts[0].traj, 270 * sizeof(float));
    memcpy(flat.data + again->data, flat.data + flat.readouts[0].data, 180 * sizeof(struct c32));
    succeed(&flat, "", &both);
    succeed(&flat, "averages=separate", &apart);
    assert_int_equal(images_of(&both)->count, 1);
    assert_int_equal(images_of(&apart)->count, 2);
    assert_string_equal(decided(&both, "averages"), "combine");
    for (int i = 0; i < 16 * 14; i++) {
        /* The same sum with every term split in two: only float rounding differs. */
        assert_true(fabsf(images_of(&both)->data[i] - images_of(&one)->data[i]) <
                    1e-4f * (1 + images_of(&one)->data[i]));
        assert_true(images_of(&apart)->data[i] == images_of(&one)->data[i]);
        assert_true(images_of(&apart)->data[16 * 14 + i] == images_of(&one)->data[i]);
    }
    drop(&one);
    drop(&both);
    drop(&apart);
    flat_free(&flat);
}

/* reconSpace cuts out the centre, or has smaller voxels, or larger ones, which leave out samples beyond their own
 * k-space. */
static void recon_space_selects_the_points_of_the_sum(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    struct scan_encoding *e;
    flat_init(&flat, 24, 20, 1);
    e = &flat.encodings[0];
    random_readout(&flat, 150, 2, 3, 2);

    e->recon_matrix[0] = 11;
    e->recon_fov_mm[0] = 22;
    succeed(&flat, "", &out);
    assert_int_equal(images_of(&out)->size[0], 11);
    assert_true(images_of(&out)->info[0].fov_mm[0] == 22);
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){11, 20, 1}, whole, images_of(&out)->data) < 2 * TOLERANCE);
    drop(&out);
    succeed(&flat, "matrix=encoded", &out);
    assert_int_equal(images_of(&out)->size[0], 24);
    assert_true(images_of(&out)->info[0].fov_mm[0] == 48);
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){24, 20, 1}, whole, images_of(&out)->data) < TOLERANCE);
    drop(&out);

    e->recon_matrix[0] = 48;
    e->recon_fov_mm[0] = 48;
    succeed(&flat, "", &out);
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){48, 20, 1}, (const double[]){0.5, 1, 1},
                          images_of(&out)->data) < TOLERANCE);
    drop(&out);

    e->recon_matrix[0] = 12;
    succeed(&flat, "", &out);
    for (size_t s = 0; s < 150; s++)
        if (fabsf(flat.traj[3 * s]) > 0.25f)
            flat.traj[3 * s + 2] = 0;
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){12, 20, 1}, (const double[]){2, 1, 1},
                          images_of(&out)->data) < TOLERANCE);
    assert_string_equal(decided(&out, "resolution"), "reconSpace");
    drop(&out);
    flat_free(&flat);
}

static void every_unit_gives_the_same_image(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome pixel = {0}, other = {0};
    flat_init(&flat, 24, 20, 1);
    random_readout(&flat, 150, 2, 3, 2);
    succeed(&flat, "", &pixel);
    static const struct {
        const char *name;
        double factor[2];
        bool automatic; /* with voxels of 2 x 3 mm the unit is unambiguous */
    } units[] = {
        {"grid", {24, 20}, false},
        {"radians", {2 * M_PI, 2 * M_PI}, false},
        {"per_metre", {1000.0 / 2, 1000.0 / 3}, true},
        {"per_cm", {10.0 / 2, 10.0 / 3}, false},
        {"per_mm", {1.0 / 2, 1.0 / 3}, false},
        {"radians_per_metre", {2000 * M_PI / 2, 2000 * M_PI / 3}, true},
        {"radians_per_cm", {20 * M_PI / 2, 20 * M_PI / 3}, true},
        {"radians_per_mm", {2 * M_PI / 2, 2 * M_PI / 3}, false},
    };
    float *k = malloc(450 * sizeof *k);
    memcpy(k, flat.traj, 450 * sizeof *k);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        for (int s = 0; s < 150; s++)
            for (int d = 0; d < 2; d++)
                flat.traj[3 * s + d] = (float)(k[3 * s + d] * units[u].factor[d]);
        char parameters[64];
        snprintf(parameters, sizeof parameters, "traj_units=%s", units[u].name);
        for (int asked = !units[u].automatic; asked < 2; asked++) {
            succeed(&flat, asked ? parameters : "traj_units=auto", &other);
            assert_string_equal(decided(&other, "trajectory unit"), units[u].name);
            double difference = 0, norm = 0;
            for (int i = 0; i < 480; i++) {
                difference += pow(images_of(&other)->data[i] - images_of(&pixel)->data[i], 2);
                norm += pow(images_of(&pixel)->data[i], 2);
            }
            /* k is rounded to float32 twice: 6e-8 of 0.5 cycles over 12 pixels is 2e-6 radians; plus two tolerances. */
            assert_true(sqrt(difference / norm) < 3 * TOLERANCE);
            drop(&other);
        }
    }
    refuse(&flat, "", ERR_TRAJ_RANGE, 0);
    free(k);
    drop(&pixel);
    flat_free(&flat);
}

/* ---- refusals ---- */

static void invalid_scans_are_refused_by_acquisition(void **state)
{
    (void)state;
    struct flat flat;
    flat_init(&flat, 24, 20, 1);
    random_readout(&flat, 60, 2, 3, 2);
    random_readout(&flat, 60, 2, 3, 2);
    random_readout(&flat, 60, 2, 3, 2);
    size_t k = flat.readouts[2].traj + 3 * 30 + 1, d = flat.readouts[1].data + 60 + 59;
    float k_was = flat.traj[k];
    struct c32 d_was = flat.data[d];
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        flat.traj[k] = bad[i];
        refuse(&flat, "", ERR_TRAJ_NONFINITE, 2);
        flat.traj[k] = k_was;
        flat.data[d].im = bad[i];
        refuse(&flat, "", ERR_DATA_NONFINITE, 1);
        flat.data[d] = d_was;
    }
    flat.traj[k] = 0.7f;
    refuse(&flat, "traj_units=pixel", ERR_TRAJ_RANGE, 2);
    flat.traj[k] = 1e9f;
    refuse(&flat, "", ERR_TRAJ_RANGE, 2);
    flat.traj[k] = k_was;
    flat.readouts[1].traj_dims = 2;
    refuse(&flat, "", ERR_TRAJ_DIMENSIONS, 1);
    flat.readouts[1].traj_dims = 0;
    refuse(&flat, "", ERR_TRAJ_MISSING, 1);
    flat.readouts[1].traj_dims = 3;
    flat.encodings[0].matrix[2] = flat.encodings[0].recon_matrix[2] = 8;
    for (int i = 0; i < 3; i++)
        flat.readouts[i].traj_dims = 2;
    refuse(&flat, "", ERR_TRAJ_DIMENSIONS, 0);
    flat_free(&flat);

    flat_init(&flat, 24, 20, 1);
    flat_add(&flat, 24, 2, 0);
    flat.encodings[0].trajectory = SCAN_CARTESIAN;
    refuse(&flat, "", ERR_TRAJ_MISSING, 0);
    assert_non_null(strstr(err_last()->text, "Cartesian"));
    flat_free(&flat);

    flat_init(&flat, 24, 20, 1);
    flat_add(&flat, 24, 2, 2);
    refuse(&flat, "", ERR_TRAJ_MISSING, -1);
    flat_free(&flat);
}

static void images_larger_than_memory_are_refused_with_numbers(void **state)
{
    (void)state;
    struct flat flat;
    flat_init(&flat, 2048, 2048, 2048);
    for (int i = 0; i < 3000; i++) {
        struct scan_readout *readout = random_readout(&flat, 2, 1, 4, 3);
        readout->idx[SCAN_REPETITION] = (uint16_t)i;
    }
    refuse(&flat, "dcf=given", ERR_NO_MEMORY, -1);
    assert_true(err_last()->required >= INT64_C(3000) * 2048 * 2048 * 2048 * 4);
    assert_true(err_last()->available > 0);
    flat_free(&flat);
}

/* ---- progress ---- */

struct watcher {
    struct step_progress last;
    int calls, stop_at, density, coils; /* density: iterations reported; coils: the last number reported */
};

static int watch(void *context, const struct step_progress *now)
{
    struct watcher *watcher = context;
    const struct kind *kind = kind_find("recon");
    assert_true(now->fraction >= watcher->last.fraction && now->fraction <= 1);
    assert_true(now->step >= 0 && now->step < kind_steps(kind) - 1); /* the worker itself reports the writing step */
    assert_true(now->iteration >= 0 && now->iteration <= now->iterations);
    if (now->iterations > 0)
        assert_non_null(kind->steps[now->step].unit);
    if (now->step == RECON_STEP_DENSITY && now->iteration > 0) {
        assert_int_equal(now->iterations, 3);
        watcher->density++;
    }
    if (now->step == RECON_STEP_GRIDDING) {
        assert_true(now->iteration >= watcher->coils && now->iterations == 4 * 20);
        watcher->coils = (int)now->iteration;
    }
    watcher->last = *now;
    return ++watcher->calls == watcher->stop_at;
}

/* With one thread: of several, the share that the asking one has of a loop differs from run to run, and with it the
 * number of calls. */
static void progress_rises_and_every_call_can_cancel_the_job(void **state)
{
    (void)state;
    struct dev *several = dev;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    struct flat flat;
    flat_init(&flat, 24, 20, 1);
    for (int i = 0; i < 4; i++)
        random_readout(&flat, 60, 20, 2, 2)->idx[SCAN_REPETITION] = (uint16_t)i;
    int calls = 1000;
    for (int stop_at = 0; stop_at <= calls; stop_at++) {
        struct watcher watcher = {.stop_at = stop_at};
        const struct job_listener listener = {&watcher, watch};
        struct job_outcome out = {0};
        int rc = run(&flat, "dcf=pipe dcf_iterations=3", &out, &listener);
        if (stop_at == 0) {
            assert_int_equal(rc, 0);
            calls = watcher.calls;
            assert_true(calls > 4 * (3 + 2) && watcher.last.fraction > 0.9);
            assert_int_equal(watcher.density, 4 * 3); /* four images, each with weights of its own */
            assert_int_equal(watcher.coils, 4 * 20);
            drop(&out);
        } else {
            assert_int_equal(rc, ERR_CANCELED);
            assert_int_equal(watcher.calls, stop_at);
        }
    }
    flat_free(&flat);
    dev_free(dev);
    dev = several;
}

/* The report's "frames" of a scan with one image for each of `count` (contrast, set). */
static char *frames_told(const uint16_t (*places)[2], int count)
{
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 12, 10, 1);
    for (int i = 0; i < count; i++) {
        struct scan_readout *r = random_readout(&flat, 20, 1, 2, 2);
        r->idx[SCAN_CONTRAST] = places[i][0];
        r->idx[SCAN_SET] = places[i][1];
    }
    succeed(&flat, "dcf=none", &out);
    const json_t *told = json_object_get(out.report, "frames");
    char *text = told ? json_dumps(told, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    drop(&out);
    flat_free(&flat);
    return text;
}

/* Counters of which each combination occurs are axes of the frames; else each frame is named. */
static void frames_are_named(void **state)
{
    (void)state;
    static const uint16_t grid[][2] = {{5, 1}, {0, 4}, {5, 4}, {0, 1}}, gap[][2] = {{5, 1}, {0, 4}, {5, 4}};
    char *text = frames_told(grid, 4);
    assert_string_equal(text, "{\"axes\":[{\"counter\":\"contrast\",\"size\":2,\"values\":[0,5]},"
                              "{\"counter\":\"set\",\"size\":2,\"values\":[1,4]}],\"count\":4}");
    free(text);
    text = frames_told(gap, 3);
    assert_string_equal(text, "{\"count\":3,\"each\":[{\"contrast\":0,\"set\":4},{\"contrast\":5,\"set\":1},"
                              "{\"contrast\":5,\"set\":4}]}");
    free(text);
    assert_null(frames_told(gap, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(coils_weights_and_discards_as_the_direct_sum, random_reset),
        cmocka_unit_test_setup(single_coils_keep_their_phase, random_reset),
        cmocka_unit_test_setup(three_dimensions, random_reset),
        cmocka_unit_test_setup(every_image_of_a_series_has_its_own_data_and_position, random_reset),
        cmocka_unit_test_setup(averages_are_combined_or_kept_separate, random_reset),
        cmocka_unit_test_setup(recon_space_selects_the_points_of_the_sum, random_reset),
        cmocka_unit_test_setup(every_unit_gives_the_same_image, random_reset),
        cmocka_unit_test_setup(invalid_scans_are_refused_by_acquisition, random_reset),
        cmocka_unit_test_setup(images_larger_than_memory_are_refused_with_numbers, random_reset),
        cmocka_unit_test_setup(frames_are_named, random_reset),
        cmocka_unit_test_setup(progress_rises_and_every_call_can_cancel_the_job, random_reset),
    };
    return cmocka_run_group_tests_name("recon", tests, device_open, device_close);
}
