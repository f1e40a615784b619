/* Preparation of samples before gridding: their weights, and coils decorrelated by their noise. */
#include "tests/unit/recon_fixture.h"

/* ---- weights ---- */

static void automatic_weights_are_reported(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 32, 32, 1);
    spokes(&flat, 50, 64, 1);
    succeed(&flat, "", &out);
    assert_string_equal(decided(&out, "dcf"), "analytic");
    drop(&out);
    succeed(&flat, "dcf=pipe dcf_iterations=3", &out);
    assert_string_equal(decided(&out, "dcf"), "pipe");
    drop(&out);
    refuse(&flat, "dcf=given", ERR_DCF_MISSING, -1);
    random_readout(&flat, 90, 1, 2, 2);
    succeed(&flat, "dcf_iterations=3", &out);
    assert_string_equal(decided(&out, "dcf"), "pipe");
    drop(&out);
    refuse(&flat, "dcf=analytic", ERR_DCF_INVALID, -1);
    flat_free(&flat);
}

/* Without a GPU nothing overflows, whatever the parameters say; the report says so if they were set. */
static void the_report_says_that_nothing_overflows_on_the_cpu(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome plain = {0}, out = {0};
    flat_init(&flat, 32, 32, 1);
    spokes(&flat, 50, 64, 1);
    succeed(&flat, "", &plain);
    assert_string_equal(decided(&plain, "overflow"), "");
    drop(&plain);
    /* A daemon passes on every parameter, including those at their default. */
    succeed(&flat, "bin_depth=auto overflow=split", &plain);
    assert_string_equal(decided(&plain, "overflow"), "");
    succeed(&flat, "bin_depth=3 overflow=cpu", &out);
    assert_string_equal(decided(&out, "overflow"), "none");
    const json_t *overflow = json_object_get(out.report, "overflow");
    assert_string_equal(json_string_value(json_object_get(overflow, "treatment")), "none");
    assert_true(json_is_null(json_object_get(overflow, "depth")));
    assert_true(json_is_integer(json_object_get(overflow, "samples")));
    assert_int_equal(json_integer_value(json_object_get(overflow, "samples")), 0);
    assert_true(json_is_null(json_object_get(overflow, "cpu_hidden")));
    assert_true(json_is_null(json_object_get(overflow, "gpu_seconds")));
    assert_true(json_equal(overflow, json_object_get(plain.report, "overflow")));
    assert_memory_equal(images_of(&out)->data, images_of(&plain)->data, 32 * 32 * sizeof(float));
    drop(&plain);
    drop(&out);
    flat_free(&flat);
}

/* A given width and oversampling are used, and the report states the error if it exceeds the tolerance. */
static void an_error_above_the_tolerance_is_a_warning(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 32, 32, 1);
    spokes(&flat, 50, 64, 1);
    succeed(&flat, "tolerance=1e-3 width=3 oversampling=1.25", &out);
    const json_t *warnings = json_object_get(out.report, "warnings");
    assert_int_equal(json_array_size(warnings), 1);
    assert_non_null(strstr(json_string_value(json_array_get(warnings, 0)), "more than the tolerance of 0.001"));
    assert_true(json_number_value(json_object_get(out.report, "expected_error")) > 1e-3);
    drop(&out);
    succeed(&flat, "tolerance=1e-3", &out);
    assert_int_equal(json_array_size(json_object_get(out.report, "warnings")), 0);
    assert_true(json_number_value(json_object_get(out.report, "expected_error")) <= 1e-3);
    drop(&out);
    flat_free(&flat);
}

/* A flat disc of radius 8 pixels, fully sampled: with computed weights its value is 1, for any size of the image. */
static void computed_weights_give_the_objects_values(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 32, 32, 1);
    spokes(&flat, 80, 64, 1);
    for (size_t r = 0; r < 80; r++)
        for (size_t s = 0; s < 64; s++) {
            const float *k = flat.traj + flat.readouts[r].traj + 2 * s;
            double radius = hypot((double)k[0], (double)k[1]);
            double value = radius > 0 ? 8 * j1(2 * M_PI * 8 * radius) / radius : M_PI * 64;
            flat.data[flat.readouts[r].data + s] = (struct c32){(float)value, 0};
        }
    flat.encodings[0].recon_matrix[0] = 16;
    flat.encodings[0].recon_fov_mm[0] = 32;
    static const char *const ways[] = {"dcf=analytic", "dcf=pipe"};
    for (int w = 0; w < 2; w++) {
        succeed(&flat, ways[w], &out);
        /* The ringing of a sharp edge decays towards the centre: at this resolution the mean over radius 4 is accurate
         * to 5 %. */
        double sum = 0;
        int count = 0;
        for (int y = -4; y <= 4; y++)
            for (int x = -4; x <= 4; x++, count++)
                sum += images_of(&out)->data[(y + 16) * 16 + x + 8];
        assert_true(fabs(sum / count - 1) < 0.05);
        drop(&out);
    }
    flat_free(&flat);
}

/* Spirals that the file divides into three acquisitions have the weights of undivided ones. */
static void segments_of_a_readout_are_one_curve(void **state)
{
    (void)state;
    enum { ARMS = 12, LONG = 300, PARTS = 3 };
    struct job_outcome out[2] = {{.results = 0}, {.results = 0}};
    for (int cut = 0; cut < 2; cut++) {
        struct flat flat;
        flat_init(&flat, 32, 32, 1);
        random_state = 7;
        for (int arm = 0; arm < ARMS; arm++)
            for (int part = 0; part < (cut ? PARTS : 1); part++) {
                int samples = cut ? LONG / PARTS : LONG;
                struct scan_readout *readout = random_readout(&flat, (unsigned)samples, 1, 2, 2);
                readout->idx[SCAN_STEP1] = (uint16_t)arm;
                readout->idx[SCAN_SEGMENT] = (uint16_t)part;
                for (int s = 0; s < samples; s++) {
                    double t = (double)(part * samples + s) / LONG, angle = 2 * M_PI * (2 * t + (double)arm / ARMS);
                    flat.traj[readout->traj + 2 * (size_t)s] = (float)(0.49 * t * cos(angle));
                    flat.traj[readout->traj + 2 * (size_t)s + 1] = (float)(0.49 * t * sin(angle));
                    flat.data[readout->data + (size_t)s] = (struct c32){(float)cos(40 * t + arm), (float)(t - 0.3)};
                }
            }
        succeed(&flat, "", &out[cut]);
        assert_string_equal(decided(&out[cut], "dcf"), "analytic");
        flat_free(&flat);
    }
    for (int i = 0; i < 32 * 32; i++)
        assert_true(images_of(&out[0])->data[i] == images_of(&out[1])->data[i]);
    drop(&out[0]);
    drop(&out[1]);
}

static void an_ambiguous_column_is_not_guessed(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    flat_init(&flat, 24, 20, 1);
    random_readout(&flat, 60, 1, 3, 2);
    random_readout(&flat, 60, 1, 3, 2);
    float *weight = &flat.traj[flat.readouts[1].traj + 3 * 17 + 2];
    *weight = -0.25f;
    refuse(&flat, "", ERR_DCF_AMBIGUOUS, 1);
    refuse(&flat, "dcf=given", ERR_DCF_INVALID, 1);
    succeed(&flat, "dcf=none", &out);
    assert_string_equal(decided(&out, "trajectory column"), "ignored");
    drop(&out);
    *weight = NAN;
    refuse(&flat, "", ERR_DCF_INVALID, 1);
    succeed(&flat, "dcf=none", &out);
    drop(&out);
    /* A third column of zeros is the kz of a 2-D trajectory. */
    for (int s = 0; s < 120; s++)
        flat.traj[3 * s + 2] = 0;
    succeed(&flat, "dcf_iterations=2", &out);
    assert_string_equal(decided(&out, "dcf"), "pipe");
    drop(&out);
    refuse(&flat, "dcf=given", ERR_DCF_INVALID, -1);
    flat_free(&flat);
}

/* ---- noise ---- */

/* W covariance W^H = s^2 I, with s^2 the mean noise power. */
static void whitening_makes_noise_white(void **state)
{
    (void)state;
    enum { N = 5 };
    double complex mixing[N][N], covariance[N][N], product[N][N];
    double packed[N * N][2], trace = 0;
    struct c32 w[N * N];
    memset(w, 0, sizeof w);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            mixing[i][j] = noise() + I * noise() + (i == j ? 2 : 0);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            covariance[i][j] = 0;
            for (int k = 0; k < N; k++)
                covariance[i][j] += mixing[i][k] * conj(mixing[j][k]);
            packed[i * N + j][0] = j <= i ? creal(covariance[i][j]) : 99;
            packed[i * N + j][1] = j <= i ? cimag(covariance[i][j]) : 99;
            trace += i == j ? creal(covariance[i][j]) : 0;
        }
    assert_int_equal(recon_whitening(N, packed, w), 0);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            product[i][j] = 0;
            for (int a = 0; a < N; a++)
                for (int b = 0; b < N; b++)
                    product[i][j] += (w[i * N + a].re + I * w[i * N + a].im) * covariance[a][b] *
                                     (w[j * N + b].re - I * w[j * N + b].im);
            /* float32 entries: 1e-7 of sums of 25 terms of the order of the trace. */
            assert_true(cabs(product[i][j] - (i == j ? trace / N : 0)) < 1e-5 * trace);
            assert_true(j <= i || (w[i * N + j].re == 0 && w[i * N + j].im == 0));
        }
    /* The second coil equals the first: the covariance has no inverse. */
    double twin[4][2] = {{1, 0}, {0, 0}, {1, 0}, {1, 0}};
    assert_int_equal(recon_whitening(2, twin, w), 1);
}

/* Two coils whose noise is a and i a + b: whitening gives multiples of the first coil, and of the second minus i times
 * the first. */
static void noise_acquisitions_decorrelate_the_coils(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome white = {0}, plain = {0};
    static const int n[3] = {12, 10, 1};
    flat_init(&flat, 12, 10, 1);
    struct scan_readout *readout = flat_add(&flat, 4, 2, 0);
    readout->flags = UINT64_C(1) << (SCAN_NOISE - 1);
    static const struct c32 a[4] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}}, b[4] = {{2, 0}, {-2, 0}, {2, 0}, {-2, 0}};
    for (int i = 0; i < 4; i++) {
        flat.data[i] = a[i];
        flat.data[4 + i] = (struct c32){b[i].re - a[i].im, b[i].im + a[i].re};
    }
    random_readout(&flat, 80, 2, 3, 2);
    succeed(&flat, "", &plain);
    assert_int_equal(json_array_size(json_object_get(plain.report, "warnings")), 1); /* too few samples */
    assert_true(rss_error(&flat, 2, 2, 2, 2, n, whole, images_of(&plain)->data) < TOLERANCE);
    drop(&plain);
    for (int i = 0; i < 3; i++) { /* the same noise three more times */
        readout = flat_add(&flat, 4, 2, 0);
        readout->flags = UINT64_C(1) << (SCAN_NOISE - 1);
        memcpy(flat.data + readout->data, flat.data, 8 * sizeof *flat.data);
    }
    succeed(&flat, "coils=none output=complex", &white);
    assert_string_equal(decided(&white, "prewhitening"), "on");
    /* |a|^2 = 1, |b|^2 = 4, a b* sums to 0: mean power (1 + 5) / 2 = 3. L = [1 0; i 2], L^-1 = [1 0; -i/2 1/2]. */
    double complex *first = direct(&flat, 2, 0, 2, 2, n, whole), *second = direct(&flat, 2, 1, 2, 2, n, whole);
    for (int i = 0; i < 120; i++) {
        second[i] = sqrt(3) * (second[i] - I * first[i]) / 2;
        first[i] *= sqrt(3);
    }
    assert_true(error_of(images_of(&white)->data, (const double *)first, 240) < TOLERANCE);
    assert_true(error_of(images_of(&white)->data + 240, (const double *)second, 240) < TOLERANCE);
    free(first);
    free(second);
    drop(&white);
    succeed(&flat, "prewhiten=off", &plain);
    assert_true(rss_error(&flat, 2, 2, 2, 2, n, whole, images_of(&plain)->data) < TOLERANCE);
    drop(&plain);
    flat.data[3].re = NAN;
    refuse(&flat, "", ERR_DATA_NONFINITE, 0);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(automatic_weights_are_reported, random_reset),
        cmocka_unit_test_setup(the_report_says_that_nothing_overflows_on_the_cpu, random_reset),
        cmocka_unit_test_setup(an_error_above_the_tolerance_is_a_warning, random_reset),
        cmocka_unit_test_setup(computed_weights_give_the_objects_values, random_reset),
        cmocka_unit_test_setup(segments_of_a_readout_are_one_curve, random_reset),
        cmocka_unit_test_setup(an_ambiguous_column_is_not_guessed, random_reset),
        cmocka_unit_test_setup(whitening_makes_noise_white, random_reset),
        cmocka_unit_test_setup(noise_acquisitions_decorrelate_the_coils, random_reset),
    };
    return cmocka_run_group_tests_name("recon_weights", tests, device_open, device_close);
}
