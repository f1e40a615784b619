/* Pipe-Menon weights computed with the engine: level, scale, and the error of an image (a direct double-precision
 * adjoint). */
#include "gridding/nufft/nufft.h"
#include "tests/unit/dcf_fixture.h"

static double sum_of(size_t count, const float *values)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

/* Measured: radial 0.021, golden 0.025, spiral 0.026, kooshball 0.052, cones 0.056, stack 0.078 at these small
 * matrices, where few samples make the kernel's shape matter; scales within 4 %. Without weights the error is 0.5 to
 * 0.7. */
static void test_images(void **state)
{
    struct dev *dev = *state;
    static const struct {
        enum traj_kind kind;
        int n;
        double most;
    } cases[] = {{TRAJ_RADIAL, 64, 0.04}, {TRAJ_GOLDEN, 64, 0.04},    {TRAJ_SPIRAL, 64, 0.04},
                 {TRAJ_CONES, 24, 0.07},  {TRAJ_KOOSHBALL, 24, 0.06}, {TRAJ_STACK_OF_STARS, 24, 0.09}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = cases[i].n;
        struct scan scan;
        scan_make(&scan, make(cases[i].kind, n, 0, 0), n, cases[i].kind == TRAJ_STACK_OF_STARS);
        const struct traj *traj = scan.traj;
        assert_int_equal(
            dcf_pipe(dev, traj->dim, (int[]){n, n, n}, scan.samples, traj->k, NULL, 10, scan.weights, NULL, NULL), 0);
        double scale, error = nrmse(&scan, &scale);
        print_message("%s, N %d, %zu x %zu, pipe 10: NRMSE %.4f, scale %.4f, sum %.4f\n", traj_kind_name(cases[i].kind),
                      n, traj->readouts, traj->samples, error, scale, area(&scan));
        assert_true(error < cases[i].most);
        assert_true(fabs(scale - 1) < 0.05);
        scan_free(&scan);
    }
}

/* Iterations continue from the given weights, whatever their scale, in place or not. */
static void test_start(void **state)
{
    struct dev *dev = *state;
    static const int n[] = {48, 48, 1};
    struct traj *traj = make(TRAJ_SPIRAL, 48, 0, 0);
    const size_t samples = traj->readouts * traj->samples;
    float *start = claim(samples * sizeof *start), *all = claim(samples * sizeof *all);
    assert_int_equal(dcf_pipe(dev, 2, n, samples, traj->k, NULL, 7, all, NULL, NULL), 0);
    assert_int_equal(dcf_pipe(dev, 2, n, samples, traj->k, NULL, 4, start, NULL, NULL), 0);
    for (size_t m = 0; m < samples; m++)
        start[m] *= 100;
    assert_int_equal(dcf_pipe(dev, 2, n, samples, traj->k, start, 3, start, NULL, NULL), 0);
    for (size_t m = 0; m < samples; m++) /* float32 sums of some hundred samples */
        assert_true(fabsf(start[m] / all[m] - 1) < 1e-4f);
    free(all);
    free(start);
    traj_free(traj);
}

/* On a Cartesian grid all weights are equal, except where rounding puts a sample inside or outside the kernel's edge,
 * where the kernel is 1/1094 of its height. They are near 1 / (NX NY): summed over points 1 / N apart that lie on the
 * plan's grid of 2N, C exceeds its integral by four times the square of the kernel's transform at N, 0.108, per axis:
 * (1 + 4 * 0.0117)^2 = 1.096. More iterations make C w more level. */
static void test_level(void **state)
{
    struct dev *dev = *state;
    enum { NX = 24, NY = 16 };
    float k[NX * NY][2], weights[NX * NY];
    for (int i = 0; i < NX * NY; i++) {
        k[i][0] = (float)((double)(i % NX) / NX - 0.5);
        k[i][1] = (float)((double)(i / NX) / NY - 0.5);
    }
    assert_int_equal(dcf_pipe(dev, 2, (int[]){NX, NY, 1}, NX * NY, &k[0][0], NULL, 5, weights, NULL, NULL), 0);
    for (int i = 0; i < NX * NY; i++) /* k-space is periodic: there is no edge */
        assert_true(fabs(weights[i] * NX * NY - 1 / 1.096) < 0.01 && fabs(weights[i] / weights[0] - 1) < 5e-3);

    struct traj *traj = make(TRAJ_SPIRAL, 48, 0, 0);
    size_t samples = traj->readouts * traj->samples;
    float *few = claim(samples * sizeof *few), *many = claim(samples * sizeof *many),
          *convolved = claim(samples * sizeof *convolved);
    assert_int_equal(dcf_pipe(dev, 2, (int[]){48, 48, 1}, samples, traj->k, NULL, 1, few, NULL, NULL), 0);
    assert_int_equal(dcf_pipe(dev, 2, (int[]){48, 48, 1}, samples, traj->k, NULL, 20, many, NULL, NULL), 0);
    struct nufft *plan = NULL;
    struct nufft_params params = {
        .dim = 2, .n = {48, 48, 1}, .tolerance = 1e-2, .width = 4, .oversampling = 2, .batch = 1};
    assert_int_equal(nufft_create(&plan, dev, &params, samples, traj->k), 0);
    double off[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nufft_convolve(plan, i == 0 ? few : many, convolved), 0);
        double mean = sum_of(samples, convolved) / (double)samples, squares = 0;
        for (size_t m = 0; m < samples; m++)
            squares += pow(convolved[m] / mean - 1, 2);
        off[i] = sqrt(squares / (double)samples);
    }
    nufft_free(plan);
    print_message("spiral: C w off level by %.4f after 1, %.5f after 20 iterations\n", off[0], off[1]);
    assert_true(off[1] < off[0] / 5 && off[1] < 0.01);
    free(few);
    free(many);
    free(convolved);
    traj_free(traj);
}

static int stop_at_half(void *context, int done)
{
    int *calls = context;
    *calls += 1;
    assert_int_equal(done, *calls);
    return done == 5;
}

static void test_bad(void **state)
{
    struct dev *dev = *state;
    float k[] = {0.1f, 0.2f, -0.3f, 0.1f}, weights[2] = {7, 7};
    int calls = 0, n[3] = {16, 16, 1};
    assert_int_equal(dcf_pipe(dev, 2, n, 2, k, NULL, 10, weights, stop_at_half, &calls), ERR_CANCELED);
    assert_int_equal(calls, 5);
    assert_int_equal(dcf_pipe(dev, 2, n, 0, k, NULL, 10, weights, NULL, NULL), ERR_BAD_PARAMETER);
    assert_int_equal(dcf_pipe(dev, 2, n, 2, k, NULL, 0, weights, NULL, NULL), ERR_BAD_PARAMETER);
    k[2] = NAN;
    assert_int_equal(dcf_pipe(dev, 2, n, 2, k, NULL, 10, weights, NULL, NULL), ERR_TRAJ_NONFINITE);
    assert_true(weights[0] == 7);
}

static int open_device(void **state)
{
    struct dev *dev = NULL;
    int code = dev_create(&dev, DEV_CPU, 0, 2);
    *state = dev;
    return code;
}

static int close_device(void **state)
{
    dev_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_level),
        cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
