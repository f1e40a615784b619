/* Gradient delays: simulated in a radial scan, estimated by RING, and corrected. */
#include "clients/phantom.h"
#include "tests/unit/recon_fixture.h"

enum { N = 64, SAMPLES = 128, COILS = 4 };

static const double zero[3] = {0, 0, 0};

/* `count` golden-angle spokes of a phantom, with data sampled at the delayed positions; the trajectory contains the
 * delays if `told`. */
static void scan_make(struct flat *flat, int count, const double delay[3], bool told, double noisy)
{
    struct phantom *phantom = NULL;
    assert_int_equal(phantom_create(&phantom, PHANTOM_ASYMMETRIC, 2, (const int[]){N, N, 1}, NAN, COILS), 0);
    flat_init(flat, N, N, 1);
    for (int i = 0; i < count; i++) {
        const struct scan_readout *readout = flat_add(flat, SAMPLES, COILS, 2);
        const double angle = i * M_PI * (sqrt(5) - 1) / 2, a = cos(angle), b = sin(angle), step = 1.0 / SAMPLES;
        float *k = flat->traj + readout->traj, there[2 * SAMPLES];
        struct c32 *data = flat->data + readout->data;
        for (int m = 0; m < SAMPLES; m++) {
            k[2 * m] = (float)((m - SAMPLES / 2) * step * a);
            k[2 * m + 1] = (float)((m - SAMPLES / 2) * step * b);
            there[2 * m] = k[2 * m] + (float)(step * (delay[0] * a + delay[2] * b));
            there[2 * m + 1] = k[2 * m + 1] + (float)(step * (delay[2] * a + delay[1] * b));
        }
        phantom_kspace(phantom, SAMPLES, there, SAMPLES, data);
        for (int s = 0; s < COILS * SAMPLES; s++) {
            data[s].re += (float)(noisy * noise());
            data[s].im += (float)(noisy * noise());
        }
        if (told)
            memcpy(k, there, sizeof there);
    }
    phantom_free(phantom);
}

static void ring_finds_simulated_delays(void **state)
{
    (void)state;
    static const struct {
        int spokes;
        double delay[3], noisy, bound;
    } cases[] = {
        {5, {0.3, -0.1, 0.2}, 0, 0.005},
        {34, {0.3, -0.1, 0.2}, 0, 0.005},
        {34, {-0.2, 0.4, -0.15}, 0, 0.005},
        {34, {0, 0, 0}, 0, 0.005},
        /* Samples near k = 0 are in the hundreds; noise of 1 % moves a crossing by 0.01 samples. */
        {34, {0.3, -0.1, 0.2}, 2, 0.02},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct flat flat;
        struct job_outcome out = {0};
        double found[3];
        scan_make(&flat, cases[i].spokes, cases[i].delay, false, cases[i].noisy);
        succeed(&flat, "gradient_delay=ring", &out);
        assert_int_equal(recon_delay_parse(decided(&out, "gradient_delay"), found), 0);
        for (int d = 0; d < 3; d++)
            if (!(fabs(found[d] - cases[i].delay[d]) < cases[i].bound))
                fail_msg("case %zu: %s", i, decided(&out, "gradient_delay"));
        drop(&out);
        flat_free(&flat);
    }
}

/* A scan with a correct trajectory gives the same image as a scan whose trajectory is corrected by given delays. */
static void given_delays_move_the_samples(void **state)
{
    (void)state;
    static const double delay[3] = {0.3, -0.1, 0.2};
    struct flat nominal, right;
    struct job_outcome told = {0}, off = {0}, expected = {0};
    scan_make(&nominal, 34, delay, false, 0);
    scan_make(&right, 34, delay, true, 0);
    succeed(&right, "dcf=none", &expected);
    succeed(&nominal, "dcf=none gradient_delay=0.3,-0.1,0.2", &told);
    succeed(&nominal, "dcf=none", &off);
    double wrong = 0, near = 0, norm = 0;
    for (int i = 0; i < N * N; i++) {
        const double e = (double)images_of(&expected)->data[i];
        near += pow((double)images_of(&told)->data[i] - e, 2);
        wrong += pow((double)images_of(&off)->data[i] - e, 2);
        norm += e * e;
    }
    assert_true(sqrt(near / norm) < TOLERANCE && sqrt(wrong / norm) > 0.01);
    assert_string_equal(decided(&off, "gradient_delay"), "");
    drop(&told);
    drop(&off);
    drop(&expected);
    /* Density weights are computed from the nominal spokes, so the analytic formula recognises them. */
    succeed(&nominal, "gradient_delay=ring", &told);
    assert_string_equal(decided(&told, "dcf"), "analytic");
    drop(&told);
    flat_free(&right);
    flat_free(&nominal);
}

static void scans_other_than_radial_are_refused(void **state)
{
    (void)state;
    struct flat flat;
    scan_make(&flat, 12, zero, false, 0);
    refuse(&flat, "gradient_delay=rings", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "gradient_delay=0.1,0.2", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "gradient_delay=0.1,0.2,nan", ERR_BAD_PARAMETER, -1);
    refuse(&flat, "gradient_delay=0.1,0.2,0.3,", ERR_BAD_PARAMETER, -1);
    flat.traj[flat.readouts[3].traj + 40] += 0.01f;
    refuse(&flat, "gradient_delay=ring", ERR_BAD_PARAMETER, 3);
    flat_free(&flat);
    /* The same spoke twice has no unique crossing. */
    scan_make(&flat, 1, zero, false, 0);
    refuse(&flat, "gradient_delay=ring", ERR_BAD_PARAMETER, -1);
    flat.data[70].re = NAN;
    refuse(&flat, "gradient_delay=ring", ERR_DATA_NONFINITE, 0);
    flat_free(&flat);
    random_reset(NULL);
    flat_init(&flat, 12, 10, 9);
    random_readout(&flat, 100, 2, 3, 3);
    refuse(&flat, "gradient_delay=ring", ERR_BAD_PARAMETER, 0);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ring_finds_simulated_delays, random_reset),
        cmocka_unit_test_setup(given_delays_move_the_samples, random_reset),
        cmocka_unit_test_setup(scans_other_than_radial_are_refused, random_reset),
    };
    return cmocka_run_group_tests_name("recon_delay", tests, device_open, device_close);
}
