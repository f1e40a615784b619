/* The report's warnings, and cases without any: columns that are not weights, stacks without kz, coils without
 * signal.
 */
#include "tests/unit/recon_fixture.h"

/* The first warning of the report that contains `word`, or "". */
static const char *warned(const struct job_outcome *out, const char *word)
{
    size_t i;
    json_t *entry;
    json_array_foreach (json_object_get(out->report, "warnings"), i, entry) {
        if (strstr(json_string_value(entry), word) != NULL)
            return json_string_value(entry);
    }
    return "";
}

static size_t warnings(const struct job_outcome *out)
{
    return json_array_size(json_object_get(out->report, "warnings"));
}

/* ---- the column after the coordinates ---- */

enum { SPOKES = 80, SAMPLES = 64 };

/* Spokes with a third column, which value(k, spoke) fills. */
static void weighted_spokes(struct flat *flat, double (*value)(double k, unsigned spoke))
{
    flat_init(flat, 32, 32, 1);
    for (unsigned r = 0; r < SPOKES; r++) {
        struct scan_readout *readout = random_readout(flat, SAMPLES, 1, 3, 2);
        double angle = r * M_PI / SPOKES;
        for (unsigned s = 0; s < SAMPLES; s++) {
            double k = ((double)s - SAMPLES / 2) / SAMPLES;
            float *row = flat->traj + readout->traj + (size_t)3 * s;
            row[0] = (float)(k * cos(angle));
            row[1] = (float)(k * sin(angle));
            row[2] = (float)value(k, r);
        }
    }
}

static double ones(double k, unsigned spoke)
{
    (void)k;
    (void)spoke;
    return 1;
}

static double plane(double k, unsigned spoke)
{
    (void)k;
    (void)spoke;
    return -0.125;
}

static double partitions(double k, unsigned spoke)
{
    (void)k;
    return (spoke % 8) / 8.0 - 0.5;
}

static double positive_partitions(double k, unsigned spoke)
{
    (void)k;
    return spoke % 8;
}

static double ball(double k, unsigned spoke)
{
    return k * sin(spoke);
}

static double ramp(double k, unsigned spoke)
{
    (void)spoke;
    return fabs(k) + 1e-3;
}

static double hann(double k, unsigned spoke)
{
    return ramp(k, spoke) * pow(cos(M_PI * k), 2);
}

static double time_of_sample(double k, unsigned spoke)
{
    (void)spoke;
    return 1 + 0.1 * k;
}

/* Weights that are all equal are ignored, and a constant kz means a single plane: the density is computed as without
 * the column. */
static void a_constant_column_is_not_taken_for_weights(void **state)
{
    (void)state;
    double (*const constant[])(double, unsigned) = {ones, plane};
    for (int c = 0; c < 2; c++) {
        struct flat flat;
        struct job_outcome out = {0}, formula = {0};
        weighted_spokes(&flat, constant[c]);
        succeed(&flat, "", &out);
        succeed(&flat, "dcf=analytic", &formula);
        assert_string_equal(decided(&out, "trajectory column"), "ignored");
        assert_string_equal(decided(&out, "dcf"), "analytic");
        assert_memory_equal(images_of(&out)->data, images_of(&formula)->data, 32 * 32 * sizeof(float));
        drop(&out);
        drop(&formula);
        flat_free(&flat);
    }
    /* If they are requested, they are used. */
    struct flat flat;
    struct job_outcome out = {0}, none = {0};
    weighted_spokes(&flat, ones);
    succeed(&flat, "dcf=given", &out);
    succeed(&flat, "dcf=none", &none);
    assert_string_equal(decided(&out, "dcf"), "given");
    assert_memory_equal(images_of(&out)->data, images_of(&none)->data, 32 * 32 * sizeof(float));
    drop(&out);
    drop(&none);
    flat_free(&flat);
}

static void a_column_like_kz_is_refused_with_advice(void **state)
{
    (void)state;
    double (*const kz[])(double, unsigned) = {partitions, positive_partitions, ball};
    for (int c = 0; c < 3; c++) {
        struct flat flat;
        struct job_outcome out = {0};
        weighted_spokes(&flat, kz[c]);
        assert_int_equal(run(&flat, "", &out, NULL), ERR_DCF_AMBIGUOUS);
        assert_non_null(strstr(err_last()->text, "set the encoded matrix's z"));
        succeed(&flat, "dcf=analytic", &out);
        drop(&out);
        flat_free(&flat);
    }
    /* In 3-D nothing is lost by ignoring the column; the report mentions it. */
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 12, 10, 9);
    random_readout(&flat, 100, 2, 4, 3);
    flat.traj[4 * 17 + 3] = -0.25f;
    succeed(&flat, "dcf_iterations=2", &out);
    assert_string_equal(decided(&out, "dcf"), "pipe");
    assert_non_null(strstr(warned(&out, "Column 4"), "has negative values"));
    drop(&out);
    flat_free(&flat);
}

static void doubtful_weights_are_reported(void **state)
{
    (void)state;
    static const struct {
        double (*value)(double, unsigned);
        const char *parameters;
        bool told;
    } cases[] = {
        {ramp, "", false}, {hann, "", false}, {time_of_sample, "", true}, {time_of_sample, "dcf=given", false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct flat flat;
        struct job_outcome out = {0};
        weighted_spokes(&flat, cases[c].value);
        succeed(&flat, cases[c].parameters, &out);
        assert_string_equal(decided(&out, "dcf"), "given");
        assert_int_equal(warnings(&out), cases[c].told);
        assert_int_equal(*warned(&out, "weight the centre of k-space") != '\0', cases[c].told);
        drop(&out);
        flat_free(&flat);
    }
}

/* ---- partitions ---- */

/* 8 partitions of 6 spokes, counted by kspace_encode_step_2 if `counted`. */
static void stack(struct flat *flat, unsigned nz, unsigned columns, bool counted)
{
    flat_init(flat, 16, 16, nz);
    for (unsigned r = 0; r < 48; r++) {
        struct scan_readout *readout = random_readout(flat, 32, 1, columns, 2);
        readout->idx[SCAN_STEP2] = counted ? (uint16_t)(r / 6) : 0;
        for (unsigned s = 0; s < 32 && columns == 3; s++)
            flat->traj[readout->traj + (size_t)3 * s + 2] = 0;
    }
}

static void a_stack_without_kz_is_refused_with_advice(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    /* A centre that places partitions outside k-space. */
    stack(&flat, 8, 2, true);
    flat.encodings[0].partition_centre = 2;
    refuse(&flat, "", ERR_TRAJ_RANGE, 42);
    assert_non_null(strstr(err_last()->text, "partition 7"));
    flat_free(&flat);
    stack(&flat, 8, 2, false);
    refuse(&flat, "", ERR_TRAJ_DIMENSIONS, 0);
    assert_non_null(strstr(err_last()->text, "its encoded matrix has z = 1"));
    flat_free(&flat);
    /* kz was never filled in. */
    stack(&flat, 8, 3, true);
    refuse(&flat, "", ERR_TRAJ_MISSING, -1);
    assert_non_null(strstr(err_last()->text, "count 8 partitions"));
    flat_free(&flat);
    /* If the scan is declared 2-D, they become one image, and the report says so. */
    for (unsigned columns = 2; columns <= 3; columns++) {
        stack(&flat, 1, columns, true);
        succeed(&flat, "dcf_iterations=2", &out);
        assert_non_null(strstr(warned(&out, "8 partitions"), "summed into one image"));
        drop(&out);
        flat_free(&flat);
    }
    stack(&flat, 1, 2, false);
    succeed(&flat, "dcf_iterations=2", &out);
    assert_int_equal(warnings(&out), 0);
    drop(&out);
    flat_free(&flat);
}

/* Partitions counted by the readouts are used as kz: the image equals that of the same scan with kz as third column. */
static void a_stack_of_counted_partitions_is_3d(void **state)
{
    (void)state;
    struct flat counted, told;
    struct job_outcome a = {0}, b = {0};
    stack(&counted, 8, 2, true);
    counted.encodings[0].partition_centre = 3; /* 0.5 is as far out as -0.5 */
    flat_init(&told, 16, 16, 8);
    for (unsigned r = 0; r < 48; r++) {
        struct scan_readout *from = &counted.readouts[r], *to = flat_add(&told, 32, 1, 3);
        to->idx[SCAN_STEP2] = from->idx[SCAN_STEP2];
        memcpy(told.data + to->data, counted.data + from->data, 32 * sizeof *told.data);
        for (size_t s = 0; s < 32; s++) {
            memcpy(told.traj + to->traj + 3 * s, counted.traj + from->traj + 2 * s, 2 * sizeof(float));
            told.traj[to->traj + 3 * s + 2] = ((float)(r / 6) - 3) / 8;
        }
    }
    succeed(&counted, "dcf=none traj_units=pixel", &a);
    succeed(&told, "dcf=none traj_units=pixel", &b);
    assert_memory_equal(images_of(&a)->data, images_of(&b)->data, 16 * 16 * 8 * sizeof(float));
    drop(&a);
    drop(&b);
    flat_free(&counted);
    flat_free(&told);
}

/* ---- coils ---- */

static void coils_without_signal_are_reported(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    enum { COILS = 6 };
    flat_init(&flat, 16, 14, 1);
    for (int r = 0; r < 2; r++)
        random_readout(&flat, 90, COILS, 3, 2)->idx[SCAN_REPETITION] = (uint16_t)r;
    succeed(&flat, "", &out);
    assert_int_equal(warnings(&out), 0);
    drop(&out);
    /* A coil that is silent in only one image is not reported. */
    for (size_t d = 0; d < 90; d++)
        flat.data[flat.readouts[1].data + 90 + d] = (struct c32){0, 0};
    succeed(&flat, "", &out);
    assert_int_equal(warnings(&out), 0);
    drop(&out);
    for (int r = 0; r < 2; r++)
        for (size_t d = 0; d < 90; d++) {
            flat.data[flat.readouts[r].data + 90 + d] = (struct c32){0, -0.0f};
            flat.data[flat.readouts[r].data + 4 * 90 + d] = (struct c32){0, 0};
        }
    succeed(&flat, "", &out);
    assert_int_equal(warnings(&out), 1);
    assert_non_null(strstr(warned(&out, "2 of 6 coils"), "number 1, 4, counted from 0"));
    drop(&out);
    memset(flat.data, 0, flat.header.data_count * sizeof *flat.data);
    succeed(&flat, "", &out);
    assert_int_equal(warnings(&out), 1);
    assert_true(*warned(&out, "All samples of all coils are 0"));
    drop(&out);
    flat_free(&flat);
}

/* ESPIRiT finds no object in noise of many coils. */
static void an_image_of_zeros_is_reported(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 16, 16, 1);
    spokes(&flat, 12, 16, 64);
    succeed(&flat, "coils=sense", &out);
    assert_true(*warned(&out, "All pixels are 0, although the k-space is not"));
    drop(&out);
    succeed(&flat, "coils=adaptive", &out);
    assert_int_equal(warnings(&out), 0);
    drop(&out);
    flat_free(&flat);
}

/* Multiply all data of the scan. */
static void data_scale(struct flat *flat, float by)
{
    for (size_t d = 0; d < flat->header.data_count; d++)
        flat->data[d] = (struct c32){by * flat->data[d].re, by * flat->data[d].im};
}

/* The root of the sum of squares and the wavelets' thresholds take squares in float32; the others do not. */
static void data_beyond_single_precision_are_reported(void **state)
{
    (void)state;
    static const char word[] = "squares of values beyond";
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 16, 14, 1);
    random_readout(&flat, 90, 2, 3, 2);
    data_scale(&flat, 1e-30f);
    succeed(&flat, "", &out);
    assert_non_null(strstr(warned(&out, word), "largest value is 0."));
    drop(&out);
    succeed(&flat, "method=l1-wavelet", &out);
    assert_true(*warned(&out, "or the k-space data are below 1e-16"));
    drop(&out);
    succeed(&flat, "coils=none", &out);
    assert_int_equal(warnings(&out), 0);
    drop(&out);
    data_scale(&flat, 1e30f);
    data_scale(&flat, 1e16f); /* the image's largest value is about a hundred times that of the data */
    succeed(&flat, "", &out);
    assert_true(*warned(&out, word));
    drop(&out);
    data_scale(&flat, 1e14f);
    assert_int_equal(run(&flat, "", &out, NULL), ERR_DATA_NONFINITE);
    assert_non_null(strstr(err_last()->text, "too large for single precision"));
    drop(&out);
    flat_free(&flat);
}

static void a_place_that_is_not_finite_is_reported(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 16, 14, 1);
    struct scan_readout *readout = random_readout(&flat, 90, 1, 3, 2);
    readout->position[1] = NAN;
    readout->read_dir[0] = INFINITY;
    succeed(&flat, "", &out);
    assert_true(*warned(&out, "The position or a direction of an image is not finite"));
    const struct image_series *series = images_of(&out);
    for (int d = 0; d < 3; d++)
        assert_true(series->info[0].position[d] == 0 && series->info[0].read_dir[d] == 0);
    drop(&out);
    flat_free(&flat);
}

/* Density weights of |k| make small eigenvalues, which an inaccurate gridding makes negative. */
static void a_tolerance_too_large_for_the_method_is_named(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    weighted_spokes(&flat, ramp);
    assert_int_equal(
        run(&flat, "method=cg-sense lambda=1e-6 tolerance=0.1 iterations=500 stop_tolerance=0", &out, NULL),
        ERR_DIVERGED);
    assert_non_null(strstr(err_last()->text, "not positive"));
    assert_non_null(strstr(err_last()->text, "tolerance=0.1, and lambda=1e-06"));
    drop(&out);
    flat_free(&flat);
}

static void noise_of_other_coils_is_reported(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 16, 14, 1);
    flat_add(&flat, 400, 3, 0)->flags = UINT64_C(1) << (SCAN_NOISE - 1);
    random_readout(&flat, 90, 2, 3, 2);
    succeed(&flat, "", &out);
    assert_int_equal(warnings(&out), 1);
    assert_true(*warned(&out, "none of the 1 noise acquisitions has samples of the images' 2 coils"));
    drop(&out);
    flat_free(&flat);
}

/* Spokes through k = 0, or starting from it, at multiples of `step` half turns. */
static void fan(struct flat *flat, unsigned count, double step, bool from_centre)
{
    flat_init(flat, 16, 16, 1);
    for (unsigned r = 0; r < count; r++) {
        const struct scan_readout *readout = random_readout(flat, 32, 1, 2, 2);
        for (unsigned s = 0; s < 32; s++) {
            const double radius = from_centre ? s / 64.0 : (s - 16.0) / 32;
            flat->traj[readout->traj + 2 * s] = (float)(radius * cos(M_PI * step * r));
            flat->traj[readout->traj + 2 * s + 1] = (float)(radius * sin(M_PI * step * r));
        }
    }
}

static void a_series_of_wedges_gives_a_warning(void **state)
{
    (void)state;
    static const struct {
        unsigned count;
        double step;
        bool from_centre;
        const char *parameters;
        int told; /* number of images with a warning */
    } cases[] = {
        {40, 1 / 40.0, false, "frames=4", 4},          {40, 1 / 40.0, false, "frames=1", 0},
        {40, 1 / 10.0, false, "frame_readouts=10", 0}, /* whole turns: no wedge is missing */
        {40, 0.618034, false, "frames=8", 0},          {40, 2 / 40.0, true, "frames=4", 4},
        {40, 2 / 10.0, true, "frame_readouts=10", 0},  {40, 1 / 40.0, false, "frames=scan", 0},
        {40, 1 / 400.0, false, "frames=4", 0}, /* all images lack the same wedge, so the division is not the cause */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct flat flat;
        struct job_outcome out = {0};
        char told[64];
        fan(&flat, cases[i].count, cases[i].step, cases[i].from_centre);
        succeed(&flat, cases[i].parameters, &out);
        snprintf(told, sizeof told, "%d of %d images lack a wedge", cases[i].told, cases[i].told);
        if ((*warned(&out, "lack a wedge") != '\0') != (cases[i].told > 0) ||
            (cases[i].told > 0 && !*warned(&out, told)))
            fail_msg("case %zu: \"%s\"", i, warned(&out, "lack a wedge"));
        drop(&out);
        flat_free(&flat);
    }
}

/* ---- warnings that would be wrong ---- */

static void a_wider_image_gives_no_warning_of_repetition(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 24, 20, 1);
    random_readout(&flat, 150, 2, 3, 2);
    flat.encodings[0].recon_matrix[0] = 36;
    flat.encodings[0].recon_fov_mm[0] = 72;
    succeed(&flat, "", &out);
    assert_int_equal(warnings(&out), 1);
    assert_non_null(strstr(warned(&out, "wider than its encodedSpace (48 x 60 x 4 mm)"), "matrix=encoded"));
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){36, 20, 1}, whole, images_of(&out)->data) < 2 * TOLERANCE);
    drop(&out);
    succeed(&flat, "matrix=encoded", &out);
    assert_int_equal(warnings(&out), 0);
    drop(&out);
    flat_free(&flat);
}

/* Without a GPU, running on the CPU is a decision in the report, not a warning in every job. */
static void a_machine_without_a_gpu_gives_no_warning(void **state)
{
    (void)state;
    struct dev *cpu = dev, *any = NULL;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 16, 14, 1);
    random_readout(&flat, 90, 2, 3, 2);
    assert_int_equal(dev_create(&any, DEV_AUTO, 0, 2), 0);
    dev = any;
    succeed(&flat, "", &out);
    dev = cpu;
    assert_int_equal(warnings(&out), 0);
    assert_string_equal(decided(&out, "device"), *dev_note(any) ? "cpu" : "");
    drop(&out);
    dev_free(any);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_constant_column_is_not_taken_for_weights, random_reset),
        cmocka_unit_test_setup(a_column_like_kz_is_refused_with_advice, random_reset),
        cmocka_unit_test_setup(doubtful_weights_are_reported, random_reset),
        cmocka_unit_test_setup(a_stack_without_kz_is_refused_with_advice, random_reset),
        cmocka_unit_test_setup(a_stack_of_counted_partitions_is_3d, random_reset),
        cmocka_unit_test_setup(coils_without_signal_are_reported, random_reset),
        cmocka_unit_test_setup(an_image_of_zeros_is_reported, random_reset),
        cmocka_unit_test_setup(data_beyond_single_precision_are_reported, random_reset),
        cmocka_unit_test_setup(a_place_that_is_not_finite_is_reported, random_reset),
        cmocka_unit_test_setup(a_tolerance_too_large_for_the_method_is_named, random_reset),
        cmocka_unit_test_setup(noise_of_other_coils_is_reported, random_reset),
        cmocka_unit_test_setup(a_series_of_wedges_gives_a_warning, random_reset),
        cmocka_unit_test_setup(a_wider_image_gives_no_warning_of_repetition, random_reset),
        cmocka_unit_test_setup(a_machine_without_a_gpu_gives_no_warning, random_reset),
    };
    return cmocka_run_group_tests_name("recon_warnings", tests, device_open, device_close);
}
