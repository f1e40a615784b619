/* The pipeline from a decoded scan to images, against direct sums in double. */
#include "recon/image.h"
#include "recon/recon_steps.h"
#include "tests/unit/flat_scan.h"

#include "gridding/base/err.h"

#include <complex.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct dev *dev;

static int device_open(void **state)
{
    (void)state;
    return dev_create(&dev, DEV_CPU, 0, 2);
}

static int device_close(void **state)
{
    (void)state;
    dev_free(dev);
    return 0;
}

/* ---- scans ---- */

static uint64_t random_state = 1;

static int random_reset(void **state)
{
    (void)state;
    random_state = 1;
    return 0;
}

/* -1 .. 1 */
static double noise(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(int64_t)random_state / 9.3e18;
}

/* A readout with k uniform in the encoded k-space, weights (where there is a column more than `dim`) in 0.5 .. 1.5, and
 * random data. */
static struct scan_readout *random_readout(struct flat *flat, unsigned samples, unsigned coils, unsigned columns,
                                           unsigned dim)
{
    struct scan_readout *readout = flat_add(flat, samples, coils, columns);
    float *k = flat->traj + readout->traj;
    struct c32 *data = flat->data + readout->data;
    for (unsigned s = 0; s < samples; s++)
        for (unsigned c = 0; c < columns; c++)
            k[s * columns + c] = (float)(c < dim ? 0.4999 * noise() : 1 + 0.5 * noise());
    for (unsigned i = 0; i < samples * coils; i++)
        data[i] = (struct c32){(float)noise(), (float)noise()};
    return readout;
}

/* Straight spokes through 0, golden angle. */
static void spokes(struct flat *flat, unsigned count, unsigned samples, unsigned coils)
{
    for (unsigned r = 0; r < count; r++) {
        struct scan_readout *readout = random_readout(flat, samples, coils, 2, 2);
        double angle = r * 111.246117975 * M_PI / 180;
        for (unsigned s = 0; s < samples; s++) {
            double radius = ((double)s - samples / 2) / samples;
            flat->traj[readout->traj + 2 * s] = (float)(radius * cos(angle));
            flat->traj[readout->traj + 2 * s + 1] = (float)(radius * sin(angle));
        }
    }
}

/* ---- the oracle ---- */

/* image[r] = sum w d exp(2 pi i k . r) over the readouts of `mask` (bit i: readout i), r = -floor(N/2).. in steps of
 * `step` pixels of the encoding; one coil. `column` of the trajectory holds the weights (-1: 1). */
static double complex *direct(const struct flat *flat, uint64_t mask, int coil, int dim, int column, const int n[3],
                              const double step[3])
{
    double complex *image = calloc((size_t)(n[0] * n[1] * n[2]), sizeof *image);
    for (size_t i = 0; i < flat->header.readouts; i++) {
        const struct scan_readout *readout = &flat->readouts[i];
        if (!(mask >> i & 1))
            continue;
        for (int s = readout->discard_pre; s < readout->samples - readout->discard_post; s++) {
            const float *k = flat->traj + readout->traj + (size_t)s * readout->traj_dims;
            struct c32 d = flat->data[readout->data + (size_t)coil * readout->samples + (size_t)s];
            double complex value = (d.re + I * d.im) * (column < 0 ? 1.0 : (double)k[column]);
            for (int z = 0; z < n[2]; z++)
                for (int y = 0; y < n[1]; y++)
                    for (int x = 0; x < n[0]; x++) {
                        double phase = k[0] * step[0] * (x - n[0] / 2) + k[1] * step[1] * (y - n[1] / 2);
                        phase += dim == 3 ? k[2] * step[2] * (z - n[2] / 2) : 0;
                        image[(z * n[1] + y) * n[0] + x] += value * cexp(2 * M_PI * I * phase);
                    }
        }
    }
    return image;
}

static const double whole[3] = {1, 1, 1};

/* || seen - expected || / || expected ||. No scale is fitted: the scale is part of the contract. */
static double error_of(const float *seen, const double *expected, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (seen[i] - expected[i]) * (seen[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return sqrt(difference / norm);
}

/* Root of the sum of squares of the coils' direct sums, against the image of a series. */
static double rss_error(const struct flat *flat, uint64_t mask, int coils, int dim, int column, const int n[3],
                        const double step[3], const float *seen)
{
    size_t pixels = (size_t)(n[0] * n[1] * n[2]);
    double *expected = calloc(pixels, sizeof *expected);
    for (int c = 0; c < coils; c++) {
        double complex *image = direct(flat, mask, c, dim, column, n, step);
        for (size_t i = 0; i < pixels; i++)
            expected[i] += creal(image[i]) * creal(image[i]) + cimag(image[i]) * cimag(image[i]);
        free(image);
    }
    for (size_t i = 0; i < pixels; i++)
        expected[i] = sqrt(expected[i]);
    double error = error_of(seen, expected, pixels);
    free(expected);
    return error;
}

/* ---- running ---- */

/* Asked for 1e-5, gridding errs by that on average over images; the few random samples of these tests put more than
 * usual at an image's edge, where it errs most: up to twice as much. A wrong sample, weight or sign shows at 1e-2 and
 * more. */
#define TOLERANCE 3e-5

static struct recon_cache *cache; /* of the jobs that are run; NULL: none */

/* Run with "NAME=VALUE ..." on top of tolerance=1e-5. */
static int run(struct flat *flat, const char *parameters, struct recon_outcome *out,
               const struct recon_listener *listener)
{
    const struct kind *kind = recon_kind_find("recon");
    struct param_values values;
    char text[256], *rest = text;
    param_values_init(kind, &values);
    assert_int_equal(param_values_set(kind, &values, "tolerance", "1e-5"), 0);
    snprintf(text, sizeof text, "%s", parameters);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        assert_int_equal(param_values_set(kind, &values, word, value), 0);
    }
    const struct recon_request request = {.kind = kind, .values = &values, .input = -1, .cache = cache};
    return recon_run_scan(out, dev, &request, listener, flat_scan(flat));
}

static void succeed(struct flat *flat, const char *parameters, struct recon_outcome *out)
{
    int rc = run(flat, parameters, out, NULL);
    if (rc != 0)
        fail_msg("%s: %s", err_name(rc), err_last()->text);
}

static void drop(struct recon_outcome *out)
{
    image_series_free(out->images);
    json_decref(out->report);
}

static void refuse(struct flat *flat, const char *parameters, int code, int64_t acquisition)
{
    struct recon_outcome out = {0};
    int rc = run(flat, parameters, &out, NULL);
    if (rc != code)
        fail_msg("%s instead of %s: %s", err_name(rc), err_name(code), rc ? err_last()->text : "");
    assert_int_equal(err_last()->acquisition, acquisition);
    assert_true(strlen(err_last()->text) > 30);
    assert_null(out.images);
}

/* The value of a decision in the report, "" where there is none. */
static const char *decided(const struct recon_outcome *out, const char *what)
{
    size_t i;
    json_t *entry;
    json_array_foreach (json_object_get(out->report, "decisions"), i, entry) {
        if (strcmp(json_string_value(json_object_get(entry, "what")), what) == 0)
            return json_string_value(json_object_get(entry, "value"));
    }
    return "";
}

static int64_t reported(const struct recon_outcome *out, const char *name)
{
    return json_integer_value(json_object_get(out->report, name));
}

/* ---- images ---- */

static void coils_weights_and_discards_as_the_direct_sum(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome out = {0};
    static const int n[3] = {24, 20, 1};
    flat_init(&flat, 24, 20, 1);
    random_readout(&flat, 61, 3, 3, 2);
    random_readout(&flat, 50, 3, 3, 2)->flags = UINT64_C(1) << (SCAN_NAVIGATION - 1);
    struct scan_readout *cut = random_readout(&flat, 83, 3, 3, 2);
    cut->discard_pre = 7;
    cut->discard_post = 11;
    /* What is cut away must not be looked at. */
    flat.traj[cut->traj + 1] = NAN;
    flat.data[cut->data + 82] = (struct c32){INFINITY, 0};
    random_readout(&flat, 40, 3, 3, 2)->flags = UINT64_C(1) << (SCAN_REVERSE - 1);
    succeed(&flat, "", &out);
    assert_int_equal(out.images->count, 1);
    assert_int_equal(out.images->channels, 1);
    assert_false(out.images->complex_valued);
    assert_string_equal(out.images->xml, "<ismrmrdHeader/>");
    assert_true(rss_error(&flat, 13, 3, 2, 2, n, whole, out.images->data) < TOLERANCE);
    assert_string_equal(decided(&out, "dcf"), "given");
    assert_string_equal(decided(&out, "trajectory unit"), "pixel");
    assert_int_equal(reported(&out, "samples"), 61 + 65 + 40);
    json_t *readouts = json_object_get(out.report, "readouts");
    assert_int_equal(json_integer_value(json_object_get(readouts, "used")), 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(readouts, "ignored"), "navigation")), 1);
    drop(&out);
    /* Without the weights: the bare sum. */
    succeed(&flat, "dcf=none", &out);
    assert_true(rss_error(&flat, 13, 3, 2, -1, n, whole, out.images->data) < TOLERANCE);
    drop(&out);
    flat_free(&flat);
}

static void single_coils_keep_their_phase(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome out = {0}, magnitudes = {0};
    static const int n[3] = {15, 18, 1};
    enum { COILS = 19, PIXELS = 15 * 18 }; /* more coils than are handed over at a time */
    flat_init(&flat, 15, 18, 1);
    random_readout(&flat, 120, COILS, 3, 2);
    succeed(&flat, "coils=none output=complex", &out);
    succeed(&flat, "coils=none", &magnitudes);
    assert_int_equal(out.images->channels, COILS);
    assert_true(out.images->complex_valued);
    for (int c = 0; c < COILS; c++) {
        double complex *expected = direct(&flat, 1, c, 2, 2, n, whole);
        const float *seen = out.images->data + 2 * c * PIXELS;
        assert_true(error_of(seen, (const double *)expected, 2 * PIXELS) < TOLERANCE);
        for (int i = 0; i < PIXELS; i++) {
            float magnitude = magnitudes.images->data[c * PIXELS + i];
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
    struct recon_outcome out = {0};
    static const int n[3] = {12, 10, 9};
    flat_init(&flat, 12, 10, 9);
    for (int i = 0; i < 3; i++)
        random_readout(&flat, 100, 2, 4, 3);
    succeed(&flat, "", &out);
    assert_true(rss_error(&flat, 7, 2, 3, 3, n, whole, out.images->data) < TOLERANCE);
    assert_int_equal(out.images->size[2], 9);
    assert_true(out.images->info[0].fov_mm[2] == 36);
    drop(&out);
    flat_free(&flat);
}

/* 2 repetitions x 3 slices; each image has data of its own, on one trajectory, then on two. */
static void every_image_of_a_series_has_its_own_data_and_place(void **state)
{
    (void)state;
    for (int trajectories = 1; trajectories <= 2; trajectories++) {
        struct flat flat;
        struct recon_outcome out = {0};
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
        assert_int_equal(out.images->count, 6);
        assert_int_equal(reported(&out, "plans"), trajectories);
        assert_true(out.images->slice_spacing_mm == 10);
        for (int i = 0; i < 6; i++) {
            const struct image_info *info = &out.images->info[i];
            assert_true(rss_error(&flat, UINT64_C(1) << i, 2, 2, 2, n, whole, out.images->data + i * 16 * 14) <
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

static void averages_are_averaged_or_kept_apart(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome one = {0}, both = {0}, apart = {0};
    flat_init(&flat, 16, 14, 1);
    random_readout(&flat, 90, 2, 3, 2);
    succeed(&flat, "", &one);
    struct scan_readout *again = flat_add(&flat, 90, 2, 3);
    again->idx[SCAN_AVERAGE] = 1;
    memcpy(flat.traj + again->traj, flat.traj + flat.readouts[0].traj, 270 * sizeof(float));
    memcpy(flat.data + again->data, flat.data + flat.readouts[0].data, 180 * sizeof(struct c32));
    succeed(&flat, "", &both);
    succeed(&flat, "averages=separate", &apart);
    assert_int_equal(both.images->count, 1);
    assert_int_equal(apart.images->count, 2);
    assert_string_equal(decided(&both, "averages"), "combine");
    for (int i = 0; i < 16 * 14; i++) {
        /* The same sum, with every term in two halves: float rounding only. */
        assert_true(fabsf(both.images->data[i] - one.images->data[i]) < 1e-4f * (1 + one.images->data[i]));
        assert_true(apart.images->data[i] == one.images->data[i]);
        assert_true(apart.images->data[16 * 14 + i] == one.images->data[i]);
    }
    drop(&one);
    drop(&both);
    drop(&apart);
    flat_free(&flat);
}

/* reconSpace: the centre cut out; smaller voxels; larger voxels, which leave out what their k-space does not hold. */
static void recon_space_chooses_the_points_of_the_same_sum(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome out = {0};
    struct scan_encoding *e;
    flat_init(&flat, 24, 20, 1);
    e = &flat.encodings[0];
    random_readout(&flat, 150, 2, 3, 2);

    e->recon_matrix[0] = 11;
    e->recon_fov_mm[0] = 22;
    succeed(&flat, "", &out);
    assert_int_equal(out.images->size[0], 11);
    assert_true(out.images->info[0].fov_mm[0] == 22);
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){11, 20, 1}, whole, out.images->data) < 2 * TOLERANCE);
    drop(&out);
    succeed(&flat, "matrix=encoded", &out);
    assert_int_equal(out.images->size[0], 24);
    assert_true(out.images->info[0].fov_mm[0] == 48);
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){24, 20, 1}, whole, out.images->data) < TOLERANCE);
    drop(&out);

    e->recon_matrix[0] = 48;
    e->recon_fov_mm[0] = 48;
    succeed(&flat, "", &out);
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){48, 20, 1}, (const double[]){0.5, 1, 1}, out.images->data) <
                TOLERANCE);
    drop(&out);

    e->recon_matrix[0] = 12;
    succeed(&flat, "", &out);
    for (size_t s = 0; s < 150; s++)
        if (fabsf(flat.traj[3 * s]) > 0.25f)
            flat.traj[3 * s + 2] = 0;
    assert_true(rss_error(&flat, 1, 2, 2, 2, (const int[]){12, 20, 1}, (const double[]){2, 1, 1}, out.images->data) <
                TOLERANCE);
    assert_string_equal(decided(&out, "resolution"), "reconSpace");
    drop(&out);
    flat_free(&flat);
}

static void every_unit_gives_the_same_image(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome pixel = {0}, other = {0};
    flat_init(&flat, 24, 20, 1);
    random_readout(&flat, 150, 2, 3, 2);
    succeed(&flat, "", &pixel);
    static const char *const names[] = {"grid", "radians", "per_metre"};
    const double factors[3][2] = {{24, 20}, {2 * M_PI, 2 * M_PI}, {1000.0 / 2, 1000.0 / 3}};
    float *k = malloc(450 * sizeof *k);
    memcpy(k, flat.traj, 450 * sizeof *k);
    for (int u = 0; u < 3; u++) {
        for (int s = 0; s < 150; s++)
            for (int d = 0; d < 2; d++)
                flat.traj[3 * s + d] = (float)(k[3 * s + d] * factors[u][d]);
        char parameters[64];
        snprintf(parameters, sizeof parameters, "traj_units=%s", names[u]);
        for (int asked = 0; asked < 2; asked++) {
            succeed(&flat, asked ? parameters : "", &other);
            assert_string_equal(decided(&other, "trajectory unit"), names[u]);
            double difference = 0, norm = 0;
            for (int i = 0; i < 480; i++) {
                difference += pow(other.images->data[i] - pixel.images->data[i], 2);
                norm += pow(pixel.images->data[i], 2);
            }
            /* k rounded to float32 twice, 6e-8 of 0.5 cycles over 12 pixels: 2e-6 radians; and two tolerances. */
            assert_true(sqrt(difference / norm) < 3 * TOLERANCE);
            drop(&other);
        }
    }
    refuse(&flat, "traj_units=pixel", ERR_TRAJ_RANGE, 0);
    free(k);
    drop(&pixel);
    flat_free(&flat);
}

/* ---- weights ---- */

static void automatic_weights_say_what_they_are(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome out = {0};
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

/* Without a GPU nothing overflows, whatever is asked for, and the report says so where it was asked for. */
static void the_report_tells_that_nothing_overflows_on_the_cpu(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome plain = {0}, out = {0};
    flat_init(&flat, 32, 32, 1);
    spokes(&flat, 50, 64, 1);
    succeed(&flat, "", &plain);
    assert_string_equal(decided(&plain, "overflow"), "");
    succeed(&flat, "bin_depth=3 overflow=cpu", &out);
    assert_string_equal(decided(&out, "overflow"), "none");
    const json_t *overflow = json_object_get(out.report, "overflow");
    assert_string_equal(json_string_value(json_object_get(overflow, "treatment")), "none");
    assert_true(json_is_null(json_object_get(overflow, "depth")));
    assert_true(json_is_integer(json_object_get(overflow, "samples")));
    assert_int_equal(json_integer_value(json_object_get(overflow, "samples")), 0);
    assert_true(json_is_null(json_object_get(overflow, "cpu_hidden")));
    assert_true(json_equal(overflow, json_object_get(plain.report, "overflow")));
    assert_memory_equal(out.images->data, plain.images->data, 32 * 32 * sizeof(float));
    drop(&plain);
    drop(&out);
    flat_free(&flat);
}

/* A width and oversampling that are given are taken, and what they miss the tolerance by is said. */
static void an_error_above_the_tolerance_is_a_warning(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome out = {0};
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

/* A flat disc of radius 8 pixels, fully sampled: computed weights give 1 inside, whatever the size of the image. */
static void computed_weights_give_the_object_in_its_own_units(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome out = {0};
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
        /* Ringing of a sharp edge at this resolution dies out towards the centre: the mean over radius 4 is good to 5
         * %. */
        double sum = 0;
        int count = 0;
        for (int y = -4; y <= 4; y++)
            for (int x = -4; x <= 4; x++, count++)
                sum += out.images->data[(y + 16) * 16 + x + 8];
        assert_true(fabs(sum / count - 1) < 0.05);
        drop(&out);
    }
    flat_free(&flat);
}

/* Spirals that the file cuts into three acquisitions each have the weights of whole ones. */
static void segments_are_one_curve(void **state)
{
    (void)state;
    enum { ARMS = 12, LONG = 300, PARTS = 3 };
    struct recon_outcome out[2] = {{0}};
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
        assert_true(out[0].images->data[i] == out[1].images->data[i]);
    drop(&out[0]);
    drop(&out[1]);
}

static void a_column_that_may_be_weights_is_not_guessed(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome out = {0};
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
    /* A third column of zeros: a 2-D trajectory stored with its kz. */
    for (int s = 0; s < 120; s++)
        flat.traj[3 * s + 2] = 0;
    succeed(&flat, "dcf_iterations=2", &out);
    assert_string_equal(decided(&out, "dcf"), "pipe");
    drop(&out);
    refuse(&flat, "dcf=given", ERR_DCF_INVALID, -1);
    flat_free(&flat);
}

/* ---- what is refused ---- */

static void scans_that_cannot_be_are_refused_by_acquisition(void **state)
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
    /* The second coil is the first: no inverse. */
    double twin[4][2] = {{1, 0}, {0, 0}, {1, 0}, {1, 0}};
    assert_int_equal(recon_whitening(2, twin, w), 1);
}

/* Two coils whose noise is a and i a + b: whitening gives multiples of the first coil, and of the second without i
 * times it. */
static void noise_acquisitions_decorrelate_the_coils(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome white = {0}, plain = {0};
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
    assert_int_equal(json_array_size(json_object_get(plain.report, "warnings")), 1); /* 4 samples are too few */
    assert_true(rss_error(&flat, 2, 2, 2, 2, n, whole, plain.images->data) < TOLERANCE);
    drop(&plain);
    for (int i = 0; i < 3; i++) { /* the same noise three times more */
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
    assert_true(error_of(white.images->data, (const double *)first, 240) < TOLERANCE);
    assert_true(error_of(white.images->data + 240, (const double *)second, 240) < TOLERANCE);
    free(first);
    free(second);
    drop(&white);
    succeed(&flat, "prewhiten=off", &plain);
    assert_true(rss_error(&flat, 2, 2, 2, 2, n, whole, plain.images->data) < TOLERANCE);
    drop(&plain);
    flat.data[3].re = NAN;
    refuse(&flat, "", ERR_DATA_NONFINITE, 0);
    flat_free(&flat);
}

/* ---- progress ---- */

struct watcher {
    double last;
    int calls, stop_at;
};

static int watch(void *context, double fraction, const char *stage)
{
    struct watcher *watcher = context;
    assert_true(fraction >= watcher->last && fraction <= 1);
    assert_true(*stage);
    watcher->last = fraction;
    return ++watcher->calls == watcher->stop_at;
}

static void progress_rises_and_every_call_can_stop_the_job(void **state)
{
    (void)state;
    struct flat flat;
    flat_init(&flat, 24, 20, 1);
    for (int i = 0; i < 4; i++)
        random_readout(&flat, 60, 20, 2, 2)->idx[SCAN_REPETITION] = (uint16_t)i;
    int calls = 1000;
    for (int stop_at = 0; stop_at <= calls; stop_at++) {
        struct watcher watcher = {.stop_at = stop_at};
        const struct recon_listener listener = {&watcher, watch};
        struct recon_outcome out = {0};
        int rc = run(&flat, "dcf=pipe dcf_iterations=3", &out, &listener);
        if (stop_at == 0) {
            assert_int_equal(rc, 0);
            calls = watcher.calls;
            assert_true(calls > 4 * (3 + 2) && watcher.last > 0.8);
            drop(&out);
        } else {
            assert_int_equal(rc, ERR_CANCELED);
            assert_int_equal(watcher.calls, stop_at);
        }
    }
    flat_free(&flat);
}

/* ---- plans kept from job to job ---- */

/* Run with the cache; the image and the decisions are those of a job without, and the plan is the last job's where
 * `same`. */
static void run_cached(struct flat *flat, struct recon_cache *with, const char *parameters, bool same)
{
    struct recon_outcome kept = {0}, fresh = {0};
    cache = with;
    succeed(flat, parameters, &kept);
    cache = NULL;
    succeed(flat, parameters, &fresh);
    if ((reported(&kept, "plans") == 0) != same)
        fail_msg("\"%s\": %lld plans were made", parameters, (long long)reported(&kept, "plans"));
    assert_true(reported(&fresh, "plans") > 0);
    assert_int_equal(reported(&kept, "bins"), reported(&fresh, "bins"));
    assert_true(json_equal(json_object_get(kept.report, "decisions"), json_object_get(fresh.report, "decisions")));
    const struct image_series *a = kept.images, *b = fresh.images;
    assert_int_equal(a->count * a->channels * a->size[0] * a->size[1],
                     b->count * b->channels * b->size[0] * b->size[1]);
    assert_memory_equal(a->data, b->data, a->count * a->channels * a->size[0] * a->size[1] * sizeof(float));
    drop(&kept);
    drop(&fresh);
}

static int stop_late(void *context, double fraction, const char *stage)
{
    (void)context;
    (void)fraction;
    return strcmp(stage, "gridding") == 0;
}

static void the_next_job_has_the_plan_of_the_last_where_all_is_the_same(void **state)
{
    (void)state;
    static const char *const others[] = {
        "tolerance=1e-3", "dcf=none",       "dcf=pipe",       "dcf=pipe dcf_iterations=3",
        "width=7",        "oversampling=2", "matrix=encoded", "averages=separate"};
    struct recon_cache *with = NULL;
    struct flat flat;
    flat_init(&flat, 24, 20, 1);
    flat.encodings[0].recon_matrix[0] = 12;
    flat.encodings[0].recon_fov_mm[0] = flat.encodings[0].fov_mm[0];
    for (int i = 0; i < 3; i++)
        random_readout(&flat, 40, 2, 3, 2);
    assert_int_equal(recon_cache_create(&with), 0);
    run_cached(&flat, with, "", false);
    run_cached(&flat, with, "", true);
    flat.data[17].re += 1; /* other data, the same trajectory */
    run_cached(&flat, with, "", true);
    run_cached(&flat, with, "coils=none", true);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        run_cached(&flat, with, others[i], strcmp(others[i], "averages=separate") == 0);
        run_cached(&flat, with, others[i], true);
        run_cached(&flat, with, "", strcmp(others[i], "averages=separate") == 0);
    }
    flat.traj[3 * 60] += 0.01f; /* a sample */
    run_cached(&flat, with, "", false);
    run_cached(&flat, with, "", true);
    flat.traj[3 * 60 + 2] += 0.25f; /* a weight */
    run_cached(&flat, with, "", false);
    flat.readouts[2].coils = 1; /* fewer coils at a time */
    flat.readouts[0].coils = flat.readouts[1].coils = 1;
    run_cached(&flat, with, "", false);
    flat.readouts[1].discard_post = 1; /* a sample less */
    run_cached(&flat, with, "", false);
    /* A job that stops half-way leaves a plan that is whole. */
    struct recon_outcome out = {0};
    const struct recon_listener listener = {NULL, stop_late};
    cache = with;
    assert_int_equal(run(&flat, "dcf=none", &out, &listener), ERR_CANCELED);
    cache = NULL;
    run_cached(&flat, with, "dcf=none", true);
    recon_cache_free(with);
    flat_free(&flat);
}

/* The same samples, cut into readouts otherwise: analytic weights see other curves. */
static void another_division_into_readouts_is_another_trajectory(void **state)
{
    (void)state;
    struct recon_cache *with = NULL;
    assert_int_equal(recon_cache_create(&with), 0);
    for (unsigned cut = 1; cut <= 2; cut++) {
        struct flat flat;
        flat_init(&flat, 32, 32, 1);
        spokes(&flat, 48, 64, 1);
        for (uint64_t i = 0; cut == 2 && i < 2; i++)
            flat.readouts[i].samples = i == 0 ? 60 : 68;
        if (cut == 2) {
            flat.readouts[1].traj -= 4 * flat.readouts[1].traj_dims;
            flat.readouts[1].data -= 4;
        }
        run_cached(&flat, with, "dcf=auto dcf_iterations=2", false);
        run_cached(&flat, with, "dcf=auto dcf_iterations=2", true);
        flat_free(&flat);
    }
    recon_cache_free(with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(coils_weights_and_discards_as_the_direct_sum, random_reset),
        cmocka_unit_test_setup(single_coils_keep_their_phase, random_reset),
        cmocka_unit_test_setup(three_dimensions, random_reset),
        cmocka_unit_test_setup(every_image_of_a_series_has_its_own_data_and_place, random_reset),
        cmocka_unit_test_setup(averages_are_averaged_or_kept_apart, random_reset),
        cmocka_unit_test_setup(recon_space_chooses_the_points_of_the_same_sum, random_reset),
        cmocka_unit_test_setup(every_unit_gives_the_same_image, random_reset),
        cmocka_unit_test_setup(the_next_job_has_the_plan_of_the_last_where_all_is_the_same, random_reset),
        cmocka_unit_test_setup(another_division_into_readouts_is_another_trajectory, random_reset),
        cmocka_unit_test_setup(automatic_weights_say_what_they_are, random_reset),
        cmocka_unit_test_setup(the_report_tells_that_nothing_overflows_on_the_cpu, random_reset),
        cmocka_unit_test_setup(an_error_above_the_tolerance_is_a_warning, random_reset),
        cmocka_unit_test_setup(computed_weights_give_the_object_in_its_own_units, random_reset),
        cmocka_unit_test_setup(segments_are_one_curve, random_reset),
        cmocka_unit_test_setup(a_column_that_may_be_weights_is_not_guessed, random_reset),
        cmocka_unit_test_setup(scans_that_cannot_be_are_refused_by_acquisition, random_reset),
        cmocka_unit_test_setup(images_larger_than_memory_are_refused_with_numbers, random_reset),
        cmocka_unit_test_setup(whitening_makes_noise_white, random_reset),
        cmocka_unit_test_setup(noise_acquisitions_decorrelate_the_coils, random_reset),
        cmocka_unit_test_setup(progress_rises_and_every_call_can_stop_the_job, random_reset),
    };
    return cmocka_run_group_tests_name("recon", tests, device_open, device_close);
}
