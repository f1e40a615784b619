/* Combining coils with maps estimated from their own images, and their phases. */
#include "recon/mri/maps.h"
#include "tests/unit/recon_fixture.h"

enum { COILS = 3, NX = 15, NY = 18, PIXELS = NX * NY, READOUTS = 4 };

static void scan_make(struct flat *flat)
{
    flat_init(flat, NX, NY, 1);
    for (int i = 0; i < READOUTS; i++)
        random_readout(flat, 100, COILS, 3, 2);
}

/* sum_c conj(map_c) image_c of the images that coils=none gives, in double precision. */
static void combine(struct flat *flat, enum maps_method method, double complex sum[PIXELS])
{
    struct job_outcome each = {0};
    const size_t bytes = (size_t)COILS * PIXELS * sizeof(struct c32);
    const struct maps_params params = maps_defaults(method, COILS, (const int[]){NX, NY, 1});
    struct c32 *images, *maps;
    succeed(flat, "coils=none output=complex", &each);
    assert_int_equal(dev_alloc(dev, bytes, (void **)&images), 0);
    assert_int_equal(dev_alloc(dev, bytes, (void **)&maps), 0);
    assert_int_equal(dev_upload(dev, images, images_of(&each)->data, bytes), 0);
    assert_int_equal(maps_estimate(dev, &params, images, maps, NULL), 0);
    for (int i = 0; i < PIXELS; i++) {
        sum[i] = 0;
        for (int c = 0; c < COILS; c++) {
            const struct c32 image = images[c * PIXELS + i], map = maps[c * PIXELS + i];
            sum[i] += (image.re + I * (double)image.im) * (map.re - I * (double)map.im);
        }
    }
    dev_release(dev, maps);
    dev_release(dev, images);
    drop(&each);
}

static void maps_weigh_the_coils(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum maps_method method;
    } cases[] = {{"adaptive", MAPS_WALSH}, {"sense", MAPS_ESPIRIT}};
    struct flat flat;
    scan_make(&flat);
    for (int i = 0; i < 2; i++) {
        double complex expected[PIXELS];
        double largest = 0;
        struct job_outcome out[3] = {{.results = 0}, {.results = 0}, {.results = 0}};
        static const char *const outputs[] = {"magnitude", "complex", "phase"};
        combine(&flat, cases[i].method, expected);
        for (int j = 0; j < 3; j++) {
            char parameters[64];
            snprintf(parameters, sizeof parameters, "coils=%s output=%s", cases[i].name, outputs[j]);
            succeed(&flat, parameters, &out[j]);
            assert_int_equal(images_of(&out[j])->channels, 1);
            assert_int_equal(images_of(&out[j])->complex_valued, j == 1);
            assert_int_equal(images_of(&out[j])->phases, j == 2);
            assert_string_equal(decided(&out[j], "coils"), cases[i].name);
        }
        for (int p = 0; p < PIXELS; p++)
            largest = fmax(largest, cabs(expected[p]));
        /* The same float32 images and maps, summed in float32. */
        for (int p = 0; p < PIXELS; p++) {
            const double magnitude = cabs(expected[p]), bound = 1e-6 * largest;
            const float *pixel = images_of(&out[1])->data + 2 * p;
            assert_true(cabs(pixel[0] + I * (double)pixel[1] - expected[p]) < bound);
            assert_true(fabs((double)images_of(&out[0])->data[p] - magnitude) < bound);
            const double complex turn = cexp(I * (double)images_of(&out[2])->data[p]);
            assert_true(cabs(magnitude * turn - expected[p]) < 2 * bound);
        }
        for (int j = 0; j < 3; j++)
            drop(&out[j]);
    }
    flat_free(&flat);
}

static void maps_are_a_result(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome both = {0}, alone = {0}, each = {0};
    const struct maps_params params = maps_defaults(MAPS_ESPIRIT, COILS, (const int[]){NX, NY, 1});
    const size_t bytes = (size_t)COILS * PIXELS * sizeof(struct c32);
    struct c32 *images;
    scan_make(&flat);
    succeed(&flat, "coils=none output=complex", &each);
    assert_int_equal(dev_alloc(dev, bytes, (void **)&images), 0);
    assert_int_equal(dev_upload(dev, images, images_of(&each)->data, bytes), 0);
    assert_int_equal(maps_estimate(dev, &params, images, images, NULL), 0);
    succeed(&flat, "coils=sense results=image,maps", &both);
    succeed(&flat, "coils=sense results=maps", &alone);
    assert_int_equal(both.results, 2);
    assert_int_equal(alone.results, 1);
    assert_non_null(images_of(&both));
    for (int i = 0; i < 2; i++) {
        const struct image_series *maps = job_outcome_find(i ? &alone : &both, "maps")->of;
        assert_true(maps->complex_valued && maps->count == 1 && maps->channels == COILS);
        assert_memory_equal(maps->data, dev_direct(dev, images), bytes);
        assert_memory_equal(maps->info, images_of(&both)->info, sizeof *maps->info);
    }
    dev_release(dev, images);
    drop(&alone);
    drop(&both);
    drop(&each);
    refuse(&flat, "results=maps", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "results=image,maps coils=none", ERR_BAD_PARAMETER, -1);
    flat_free(&flat);
}

static void single_coils_have_phases(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome values = {0}, phases = {0};
    scan_make(&flat);
    succeed(&flat, "coils=none output=complex", &values);
    succeed(&flat, "coils=none output=phase", &phases);
    assert_int_equal(images_of(&phases)->channels, COILS);
    for (int i = 0; i < COILS * PIXELS; i++) {
        const float *value = images_of(&values)->data + 2 * i;
        assert_true(fabsf(images_of(&phases)->data[i] - atan2f(value[1], value[0])) < 1e-6f);
    }
    drop(&phases);
    drop(&values);
    refuse(&flat, "output=phase", ERR_BAD_PARAMETER, -1);
    flat_free(&flat);
}

static int stop_late(void *context, const struct step_progress *now)
{
    double *last = context;
    const bool back = now->fraction < *last;
    *last = back ? 2 : now->fraction;
    return back || now->fraction > 0.85; /* in the second half, which is the maps' */
}

static void maps_can_be_canceled(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    double last = 0;
    const struct job_listener listener = {&last, stop_late};
    scan_make(&flat);
    assert_int_equal(run(&flat, "coils=sense", &out, &listener), ERR_CANCELED);
    assert_true(last <= 1);
    assert_int_equal(out.results, 0);
    flat_free(&flat);
}

static double distance(const struct job_outcome *a, const struct job_outcome *b)
{
    double square = 0, norm = 0;
    for (int i = 0; i < PIXELS; i++) {
        square += pow((double)images_of(a)->data[i] - (double)images_of(b)->data[i], 2);
        norm += pow((double)images_of(b)->data[i], 2);
    }
    return sqrt(square / norm);
}

/* A scan with `coils` coils that are combinations of three, except for the last, which has no signal. */
static void dependent_make(struct flat *flat, int coils)
{
    flat_init(flat, NX, NY, 1);
    for (int i = 0; i < READOUTS; i++) {
        const struct scan_readout *readout = random_readout(flat, 100, (unsigned)coils, 3, 2);
        struct c32 *data = flat->data + readout->data;
        for (int c = 3; c < coils; c++)
            for (int s = 0; s < 100; s++) {
                const struct c32 a = data[c % 3 * 100 + s], b = data[(c + 1) % 3 * 100 + s];
                const float share = (float)c / (float)coils;
                data[c * 100 + s] =
                    c == coils - 1 ? (struct c32){0, 0} : (struct c32){share * a.re - b.im, share * a.im + b.re};
            }
    }
}

/* 40 coils, whose covariance threads share: the same bits for any number of threads. */
static void compression_by_threads(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome first = {0};
    struct dev *own = dev;
    dependent_make(&flat, 40);
    for (int threads = 1; threads <= 3; threads++) {
        struct job_outcome now = {0};
        assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
        succeed(&flat, "virtual_coils=2", threads == 1 ? &first : &now);
        if (threads > 1) {
            assert_memory_equal(images_of(&now)->data, images_of(&first)->data, PIXELS * sizeof(float));
            drop(&now);
        }
        dev_free(dev);
    }
    dev = own;
    drop(&first);
    flat_free(&flat);
}

static void compression_keeps_the_coils_information(void **state)
{
    (void)state;
    enum { MANY = 17 };
    struct flat flat;
    struct job_outcome all = {0}, same = {0}, few = {0}, own = {0}, automatic = {0}, one = {0}, one_step = {0};
    dependent_make(&flat, MANY);
    succeed(&flat, "", &all);
    succeed(&flat, "virtual_coils=17", &same);
    succeed(&flat, "virtual_coils=3", &few);
    succeed(&flat, "virtual_coils=1", &one);
    assert_string_equal(decided(&all, "virtual_coils"), "");
    assert_string_equal(decided(&few, "virtual_coils"), "3");
    /* Float32 products of 17 coils in a different order. */
    assert_true(distance(&same, &all) < 2e-6 && distance(&few, &all) < 2e-6);
    assert_true(distance(&one, &all) > 0.05);
    succeed(&flat, "coils=adaptive", &automatic);
    succeed(&flat, "method=cg-sense iterations=1 stop_tolerance=0", &one_step);
    assert_string_equal(decided(&one_step, "virtual_coils"), "3");
    drop(&one_step);
    succeed(&flat, "coils=adaptive virtual_coils=none", &own);
    assert_string_equal(decided(&automatic, "virtual_coils"), "3");
    assert_string_equal(decided(&own, "virtual_coils"), "");
    assert_true(distance(&automatic, &own) < 1e-3); /* maps are estimated at a residual of 1e-3 */
    struct job_outcome *const outcomes[] = {&all, &same, &few, &one, &automatic, &own};
    for (int i = 0; i < 6; i++) {
        const json_t *warnings = json_object_get(outcomes[i]->report, "warnings");
        assert_non_null(strstr(json_string_value(json_array_get(warnings, 0)), "1 of 17 coils contain only zeros"));
        assert_int_equal(reported(outcomes[i], "coils"), MANY);
        drop(outcomes[i]);
    }
    refuse(&flat, "coils=none virtual_coils=2", ERR_BAD_PARAMETER, -1);
    flat.data[flat.readouts[2].data + 5 * 100 + 7].im = NAN;
    refuse(&flat, "virtual_coils=3", ERR_DATA_NONFINITE, 2);
    flat_free(&flat);
}

/* Noise is white in the virtual coils too, because compression follows whitening. */
static void compression_follows_whitening(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome white = {0}, both = {0};
    scan_make(&flat);
    struct scan_readout *readout = random_readout(&flat, 200, COILS, 0, 2);
    readout->flags = UINT64_C(1) << (SCAN_NOISE - 1);
    for (int s = 0; s < 200; s++)
        flat.data[readout->data + (size_t)s].re += flat.data[readout->data + 200 + (size_t)s].im;
    succeed(&flat, "", &white);
    succeed(&flat, "virtual_coils=3", &both);
    assert_string_equal(decided(&both, "prewhitening"), "on");
    assert_true(distance(&both, &white) < 2e-6);
    drop(&both);
    drop(&white);
    flat_free(&flat);
}

/* maps given with the scan */

enum { GIVEN = 12, GIVEN_COILS = 3, GIVEN_PIXELS = GIVEN * GIVEN };

/* Random maps with a corner without maps. */
static void given_make(struct flat *flat, struct c32 *maps)
{
    flat_init(flat, GIVEN, GIVEN, 1);
    for (int r = 0; r < 8; r++)
        random_readout(flat, 40, GIVEN_COILS, 2, 2);
    for (int i = 0; i < GIVEN_COILS * GIVEN * GIVEN; i++)
        maps[i] = i % (GIVEN * GIVEN) < 5 ? (struct c32){0, 0} : (struct c32){(float)noise(), (float)(3 * noise())};
    flat->maps = maps;
    flat->header.map_coils = GIVEN_COILS;
}

/* coils=sense is sum conj(S) c / sqrt(sum |S|^2) of the coils' direct sums; the maps are returned scaled; a unitary mix
 * of samples and maps (as many virtual coils as coils) leaves the magnitude unchanged. */
static void test_given_maps_combine(void **state)
{
    (void)state;
    struct flat flat;
    struct c32 maps[GIVEN_COILS * GIVEN_PIXELS];
    struct job_outcome out = {0}, mixed = {0};
    double complex sum[GIVEN_PIXELS] = {0};
    double squares[GIVEN_PIXELS] = {0}, expected[GIVEN_PIXELS];
    const int n[3] = {GIVEN, GIVEN, 1};
    given_make(&flat, maps);
    for (int c = 0; c < GIVEN_COILS; c++) {
        double complex *image = direct(&flat, 0xff, c, 2, -1, n, whole);
        for (int i = 0; i < GIVEN_PIXELS; i++) {
            const double complex map = maps[c * GIVEN_PIXELS + i].re + I * maps[c * GIVEN_PIXELS + i].im;
            sum[i] += conj(map) * image[i];
            squares[i] += creal(map) * creal(map) + cimag(map) * cimag(map);
        }
        free(image);
    }
    for (int i = 0; i < GIVEN_PIXELS; i++)
        expected[i] = squares[i] > 0 ? cabs(sum[i]) / sqrt(squares[i]) : 0;
    succeed(&flat, "coils=sense dcf=none results=image,maps", &out);
    assert_true(error_of(images_of(&out)->data, expected, GIVEN_PIXELS) < TOLERANCE);
    assert_string_equal(decided(&out, "coils"), "given");
    const struct image_series *told = job_outcome_find(&out, "maps")->of;
    for (int i = 0; i < GIVEN_COILS * GIVEN_PIXELS; i++) {
        const double by = squares[i % GIVEN_PIXELS] > 0 ? 1 / sqrt(squares[i % GIVEN_PIXELS]) : 0;
        assert_true(fabs(told->data[2 * i] - by * maps[i].re) < 1e-6);
        assert_true(fabs(told->data[2 * i + 1] - by * maps[i].im) < 1e-6);
    }
    succeed(&flat, "coils=sense dcf=none virtual_coils=3", &mixed);
    assert_string_equal(decided(&mixed, "coils"), "given");
    assert_true(error_of(images_of(&mixed)->data, expected, GIVEN_PIXELS) < TOLERANCE);
    drop(&out);
    drop(&mixed);
    succeed(&flat, "coils=adaptive dcf=none", &out);
    assert_string_equal(decided(&out, "coils"), "adaptive");
    drop(&out);
    flat_free(&flat);
}

/* An iterative method on images that the wavelets enlarge: the maps stay aligned with the object. Bad maps are
 * refused. */
static void test_given_maps_iterate(void **state)
{
    (void)state;
    struct flat flat;
    struct c32 maps[GIVEN_COILS * GIVEN * GIVEN];
    struct job_outcome out = {0};
    given_make(&flat, maps);
    for (int m = 0; m < 2; m++) {
        succeed(&flat, m ? "method=l1-wavelet iterations=2" : "method=cg-sense iterations=2", &out);
        assert_string_equal(decided(&out, "coils"), "given");
        assert_true(images_of(&out)->data[4] < 0.2 * images_of(&out)->data[5 * GIVEN]);
        drop(&out);
    }
    maps[100].im = NAN;
    refuse(&flat, "method=cg-sense", ERR_DATA_NONFINITE, -1);
    assert_non_null(strstr(err_last()->text, "pixel 4, 8, 0"));
    maps[100].im = 0;
    flat.header.map_coils = 2;
    refuse(&flat, "coils=sense", ERR_COILS_DIFFER, -1);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(maps_weigh_the_coils, random_reset),
        cmocka_unit_test_setup(maps_are_a_result, random_reset),
        cmocka_unit_test_setup(single_coils_have_phases, random_reset),
        cmocka_unit_test_setup(maps_can_be_canceled, random_reset),
        cmocka_unit_test_setup(compression_keeps_the_coils_information, random_reset),
        cmocka_unit_test_setup(compression_by_threads, random_reset),
        cmocka_unit_test_setup(compression_follows_whitening, random_reset),
        cmocka_unit_test_setup(test_given_maps_combine, random_reset),
        cmocka_unit_test_setup(test_given_maps_iterate, random_reset),
    };
    return cmocka_run_group_tests_name("recon_coils", tests, device_open, device_close);
}
