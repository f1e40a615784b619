/* How coils become images: by maps of the coils' own images, and as phases. */
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
    struct recon_outcome each = {0};
    const size_t bytes = (size_t)COILS * PIXELS * sizeof(struct c32);
    const struct maps_params params = maps_defaults(method, COILS, (const int[]){NX, NY, 1});
    struct c32 *images, *maps;
    succeed(flat, "coils=none output=complex", &each);
    assert_int_equal(dev_alloc(dev, bytes, (void **)&images), 0);
    assert_int_equal(dev_alloc(dev, bytes, (void **)&maps), 0);
    assert_int_equal(dev_upload(dev, images, each.images->data, bytes), 0);
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
        struct recon_outcome out[3] = {{0}};
        static const char *const outputs[] = {"magnitude", "complex", "phase"};
        combine(&flat, cases[i].method, expected);
        for (int j = 0; j < 3; j++) {
            char parameters[64];
            snprintf(parameters, sizeof parameters, "coils=%s output=%s", cases[i].name, outputs[j]);
            succeed(&flat, parameters, &out[j]);
            assert_int_equal(out[j].images->channels, 1);
            assert_int_equal(out[j].images->complex_valued, j == 1);
            assert_int_equal(out[j].images->phases, j == 2);
            assert_string_equal(decided(&out[j], "coils"), cases[i].name);
        }
        for (int p = 0; p < PIXELS; p++)
            largest = fmax(largest, cabs(expected[p]));
        /* The same float32 images and maps, summed in float32. */
        for (int p = 0; p < PIXELS; p++) {
            const double magnitude = cabs(expected[p]), bound = 1e-6 * largest;
            const float *pixel = out[1].images->data + 2 * p;
            assert_true(cabs(pixel[0] + I * (double)pixel[1] - expected[p]) < bound);
            assert_true(fabs((double)out[0].images->data[p] - magnitude) < bound);
            const double complex turn = cexp(I * (double)out[2].images->data[p]);
            assert_true(cabs(magnitude * turn - expected[p]) < 2 * bound);
        }
        for (int j = 0; j < 3; j++)
            drop(&out[j]);
    }
    flat_free(&flat);
}

static void single_coils_have_phases(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome values = {0}, phases = {0};
    scan_make(&flat);
    succeed(&flat, "coils=none output=complex", &values);
    succeed(&flat, "coils=none output=phase", &phases);
    assert_int_equal(phases.images->channels, COILS);
    for (int i = 0; i < COILS * PIXELS; i++) {
        const float *value = values.images->data + 2 * i;
        assert_true(fabsf(phases.images->data[i] - atan2f(value[1], value[0])) < 1e-6f);
    }
    drop(&phases);
    drop(&values);
    refuse(&flat, "output=phase", ERR_BAD_PARAMETER, -1);
    flat_free(&flat);
}

static int stop_late(void *context, const struct recon_progress *now)
{
    double *last = context;
    const bool back = now->fraction < *last;
    *last = back ? 2 : now->fraction;
    return back || now->fraction > 0.85; /* of what gridding and maps take, maps are the second half */
}

static void maps_can_be_canceled(void **state)
{
    (void)state;
    struct flat flat;
    struct recon_outcome out = {0};
    double last = 0;
    const struct recon_listener listener = {&last, stop_late};
    scan_make(&flat);
    assert_int_equal(run(&flat, "coils=sense", &out, &listener), ERR_CANCELED);
    assert_true(last <= 1);
    assert_null(out.images);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(maps_weigh_the_coils, random_reset),
        cmocka_unit_test_setup(single_coils_have_phases, random_reset),
        cmocka_unit_test_setup(maps_can_be_canceled, random_reset),
    };
    return cmocka_run_group_tests_name("recon_coils", tests, device_open, device_close);
}
