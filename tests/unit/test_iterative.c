/* Iterative methods from the scan to the image, on phantoms with exact k-space; the part of k-space that a trajectory
 * covers. */
#include "gridding/nufft/normal.h"
#include "recon/mri/band.h"
#include "tests/unit/iterative_fixture.h"

enum { SIZE = 64, COILS = 6, SPOKES = 20, SAMPLES = 128 }; /* a fifth of the spokes that full sampling needs */

static const char *const methods[] = {"cg-sense", "l1-wavelet", "tv"};
enum { METHODS = 3 };

/* Golden-angle spokes of the phantom, times `scale`; the truth in truth[SIZE][SIZE]. */
static void scan_make(struct flat *flat, unsigned size, float scale, double noise_most, float *truth)
{
    struct phantom *phantom = NULL;
    assert_int_equal(phantom_create(&phantom, PHANTOM_SHEPP_LOGAN, 2, (const int[]){SIZE, SIZE, 1}, NAN, COILS), 0);
    flat_init(flat, size, size, 1);
    spokes(flat, SPOKES, SAMPLES, COILS);
    for (size_t r = 0; r < SPOKES; r++)
        phantom_readout(flat, &flat->readouts[r], phantom, noise_most, scale);
    if (truth)
        assert_int_equal(phantom_truth(phantom, false, truth), 0);
    phantom_free(phantom);
}

static double truth_error(const struct job_outcome *out, const float *truth)
{
    return distance(images_of(out)->data, 1, truth, SIZE * SIZE);
}

static void run_method(struct flat *flat, const char *method, const char *more, struct job_outcome *out)
{
    char parameters[128];
    snprintf(parameters, sizeof parameters, "method=%s %s", method, more);
    succeed(flat, parameters, out);
}

/* Images are in the object's units, and each method is closer to the truth than those with less prior knowledge. The
 * bounds are a third above the measured errors (0.183, 0.101 and 0.109; adjoint: 0.56). */
static void test_methods_improve_on_the_adjoint(void **state)
{
    (void)state;
    static const double most[METHODS] = {0.24, 0.135, 0.145};
    float truth[SIZE * SIZE];
    struct flat flat;
    struct job_outcome out = {0};
    scan_make(&flat, SIZE, 1, 0.2, truth);
    run_method(&flat, "adjoint", "", &out);
    const double adjoint = truth_error(&out, truth);
    assert_true(adjoint > 0.4);
    drop(&out);
    for (int m = 0; m < METHODS; m++) {
        run_method(&flat, methods[m], "", &out);
        const double error = truth_error(&out, truth);
        if (!(error <= most[m]))
            fail_msg("%s has an error of %g, allowed %g (adjoint %g)", methods[m], error, most[m], adjoint);
        assert_true(reported(&out, "iterations") > 1);
        assert_string_equal(decided(&out, "coils"), "sense");
        assert_string_equal(decided(&out, "k-space"), "ellipse");
        assert_string_equal(decided(&out, "weights"), "limited");
        assert_true(*decided(&out, "lambda") && *decided(&out, "iterations"));
        drop(&out);
    }
    flat_free(&flat);
}

/* 1,000 times the data gives 1,000 times the image; every run gives the same bits, for any number of threads. */
static void test_scale_and_bits(void **state)
{
    (void)state;
    struct flat one, thousand;
    scan_make(&one, SIZE, 1, 0, NULL);
    scan_make(&thousand, SIZE, 1024, 0, NULL);
    for (int m = 0; m < METHODS; m++) {
        struct job_outcome a = {0}, b = {0}, c = {0};
        struct dev *shared = dev, *several = NULL;
        run_method(&one, methods[m], "iterations=3", &a);
        run_method(&thousand, methods[m], "iterations=3", &b);
        assert_int_equal(dev_create(&several, DEV_CPU, 0, 3), 0);
        dev = several;
        run_method(&one, methods[m], "iterations=3", &c);
        dev = shared;
        assert_memory_equal(images_of(&a)->data, images_of(&c)->data, SIZE * SIZE * sizeof(float));
        assert_true(distance(images_of(&b)->data, 1024, images_of(&a)->data, SIZE * SIZE) < 1e-4);
        drop(&a);
        drop(&b);
        drop(&c);
        dev_free(several);
    }
    flat_free(&one);
    flat_free(&thousand);
}

/* With lambda = 0 the result differs little from least squares; a huge lambda leaves nothing (l1-wavelet) or a constant
 * (tv); the object is at the header's position even if the image is smaller than the encoded field of view; zeros give
 * zeros. */
static void test_lambda_and_sizes(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0}, part = {0};
    scan_make(&flat, SIZE, 1, 0, NULL);
    run_method(&flat, "l1-wavelet", "lambda=1000", &out);
    for (size_t i = 0; i < SIZE * SIZE; i++)
        assert_true(images_of(&out)->data[i] == 0);
    drop(&out);
    run_method(&flat, "tv", "output=complex", &out);
    flat.encodings[0].recon_matrix[0] = SIZE / 2;
    flat.encodings[0].recon_fov_mm[0] /= 2;
    run_method(&flat, "tv", "output=complex", &part);
    assert_int_equal(images_of(&part)->size[0], SIZE / 2);
    assert_true(images_of(&part)->complex_valued);
    for (size_t y = 0; y < SIZE; y++)
        assert_memory_equal(images_of(&part)->data + y * SIZE, images_of(&out)->data + 2 * (y * SIZE + SIZE / 4),
                            SIZE * sizeof(float));
    drop(&out);
    drop(&part);
    memset(flat.data, 0, flat.header.data_count * sizeof *flat.data);
    for (int m = 0; m < METHODS; m++) {
        run_method(&flat, methods[m], "", &out);
        for (size_t i = 0; i < SIZE * SIZE / 2; i++)
            assert_true(images_of(&out)->data[i] == 0);
        drop(&out);
    }
    flat_free(&flat);
}

/* The coil maps that an iterative method saves, in the image's field of view: their squares sum to 1 in the support. */
static void test_maps_are_a_result(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    scan_make(&flat, SIZE, 1, 0, NULL);
    flat.encodings[0].recon_matrix[0] = SIZE / 2;
    flat.encodings[0].recon_fov_mm[0] /= 2;
    run_method(&flat, "cg-sense", "results=image,maps iterations=2", &out);
    const struct job_result *result = job_outcome_find(&out, "maps");
    assert_non_null(result);
    const struct image_series *maps = result->of;
    const size_t pixels = SIZE * SIZE / 2;
    size_t support = 0;
    assert_int_equal(maps->channels, COILS);
    assert_int_equal(maps->size[0], SIZE / 2);
    for (size_t i = 0; i < pixels; i++) {
        double sum = 0;
        for (size_t c = 0; c < COILS; c++)
            sum += pow(maps->data[2 * (c * pixels + i)], 2) + pow(maps->data[2 * (c * pixels + i) + 1], 2);
        assert_true(sum == 0 || fabs(sum - 1) < 1e-4);
        support += sum > 0;
        /* Without a map, a pixel has no signal. */
        assert_true(sum > 0 || images_of(&out)->data[i] < 0.1);
    }
    assert_true(support > pixels / 3);
    drop(&out);
    flat_free(&flat);
}

/* A field of view of 63 pixels has no wavelet levels: a larger image is solved for, and cropped. */
static void test_odd_sizes(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    scan_make(&flat, 63, 1, 0, NULL);
    for (int m = 0; m < METHODS; m++) {
        run_method(&flat, methods[m], "iterations=3", &out);
        assert_int_equal(images_of(&out)->size[0], 63);
        drop(&out);
    }
    flat_free(&flat);
}

/* Progress never falls and counts iterations; the job can be canceled at every call of the listener. */
static void test_progress_and_cancel(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    struct progress_count all = {0};
    scan_make(&flat, SIZE, 1, 0, NULL);
    const struct job_listener listener = {&all, progress_count};
    assert_int_equal(run(&flat, "method=tv iterations=4 stop_tolerance=0", &out, &listener), 0);
    assert_true(all.solving >= 4);
    drop(&out);
    memset(&out, 0, sizeof out);
    for (int at = 1; at <= all.calls; at += 9) {
        struct progress_count one = {.stop_at = at};
        const struct job_listener canceling = {&one, progress_count};
        assert_int_equal(run(&flat, "method=tv iterations=4 stop_tolerance=0", &out, &canceling), ERR_CANCELED);
        assert_int_equal(one.calls, at);
        assert_int_equal(out.results, 0);
    }
    flat_free(&flat);
}

static void test_refusals(void **state)
{
    (void)state;
    struct flat flat;
    scan_make(&flat, SIZE, 1, 0, NULL);
    refuse(&flat, "method=tv coils=none", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "iterations=5", ERR_BAD_PARAMETER, -1);
    assert_non_null(strstr(err_last()->text, "method=adjoint"));
    refuse(&flat, "lambda=0.1", ERR_BAD_PARAMETER, -1);
    flat.data[700].re = NAN;
    refuse(&flat, "method=cg-sense", ERR_DATA_NONFINITE, 0);
    flat_free(&flat);
}

/* The band's shape, and its kernel compared with sums over a fine grid of k-space. */
static void test_band(void **state)
{
    (void)state;
    enum { FINE = 100 };
    const float disc[] = {0.4f, 0, 0, 0.2f, -0.28f, 0.14f}, square[] = {0.4f, 0.3f, -0.4f, 0.3f, 0.4f, -0.3f, 0.7f, 0};
    const float ball[] = {0.4f, 0, 0, 0, 0.3f, 0, 0, 0, 0.5f}, stack[] = {0.4f, 0, 0.5f, 0, 0.4f, 0.5f, -0.4f, 0, 0};
    const struct band bands[] = {band_find(2, 3, disc), band_find(2, 4, square), band_find(3, 3, ball),
                                 band_find(3, 3, stack)};
    const char *const names[] = {"ellipse", "box", "ellipsoid", "cylinder"};
    const double l[3] = {1.5, -2, 0.7};
    for (int b = 0; b < 4; b++) {
        const struct band *band = &bands[b];
        const int deep = band->dim == 3 ? FINE : 1;
        double sum = 0, volume = 0;
        assert_string_equal(band_name(band), names[b]);
        for (int i = 0; i < FINE * FINE * deep; i++) {
            const double k[3] = {(i % FINE + 0.5) / FINE - 0.5, (i / FINE % FINE + 0.5) / FINE - 0.5,
                                 band->dim == 3 ? (i / FINE / FINE + 0.5) / FINE - 0.5 : 0};
            double radius = 0;
            for (int d = 0; d < (band->shape == BAND_CYLINDER ? 2 : band->dim); d++)
                radius += pow(k[d] / band->edge[d], 2);
            bool in = band->shape == BAND_BOX ? fabs(k[0]) < band->edge[0] && fabs(k[1]) < band->edge[1] : radius < 1;
            in = in && (band->shape != BAND_CYLINDER || fabs(k[2]) < band->edge[2]);
            volume += in;
            sum += in ? cos(2 * M_PI * (k[0] * l[0] + k[1] * l[1] + (band->dim == 3 ? k[2] * l[2] : 0))) : 0;
        }
        const double cell = pow(FINE, -band->dim);
        /* The volume of a region 100 cells across is exact to a fraction of a cell along its edge. */
        assert_true(fabs(volume * cell - band_volume(band)) < 2e-3);
        assert_true(fabs(sum * cell - band_kernel(band, l)) < 2e-3);
    }
    assert_true(fabs(bands[1].edge[0] - 0.4) < 1e-6); /* the sample at 0.7 is ignored */
}

/* Waves inside the band pass through the convolution and waves outside are removed. Cutting the kernel at the field of
 * view limits this to 1/pi^2 of a few tens of pixels, away from the image's edge. */
static void test_band_limits(void **state)
{
    (void)state;
    const struct band band = {.shape = BAND_ELLIPSOID, .dim = 2, .edge = {0.25, 0.25, 0}};
    const struct nufft_params params = {.dim = 2, .n = {SIZE, SIZE, 1}, .batch = 1};
    struct normal *limit = NULL;
    struct c32 image[SIZE * SIZE];
    assert_int_equal(normal_create_even(&limit, dev, &params, band_kernel, &band, NULL), 0);
    for (int outside = 0; outside < 2; outside++) {
        const double k[2] = {outside ? 0.3 : 0.1, outside ? 0.2 : -0.05};
        for (int i = 0; i < SIZE * SIZE; i++) {
            const double phase = 2 * M_PI * (k[0] * (i % SIZE) + k[1] * (i / SIZE));
            image[i] = (struct c32){(float)cos(phase), (float)sin(phase)};
        }
        assert_int_equal(normal_apply(limit, 1, image, image), 0);
        for (int y = SIZE / 4; y < SIZE * 3 / 4; y++)
            for (int x = SIZE / 4; x < SIZE * 3 / 4; x++) {
                const double size = hypot(image[y * SIZE + x].re, image[y * SIZE + x].im);
                assert_true(outside ? size < 0.06 : fabs(size - 1) < 0.06);
            }
    }
    normal_free(limit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_methods_improve_on_the_adjoint, random_reset),
        cmocka_unit_test_setup(test_scale_and_bits, random_reset),
        cmocka_unit_test_setup(test_lambda_and_sizes, random_reset),
        cmocka_unit_test_setup(test_maps_are_a_result, random_reset),
        cmocka_unit_test_setup(test_odd_sizes, random_reset),
        cmocka_unit_test_setup(test_progress_and_cancel, random_reset),
        cmocka_unit_test_setup(test_refusals, random_reset),
        cmocka_unit_test(test_band),
        cmocka_unit_test(test_band_limits),
    };
    return cmocka_run_group_tests(tests, single_open, device_close);
}
