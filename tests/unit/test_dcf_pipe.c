/* Pipe-Menon weights over the engine: level, scaled, and good for an image (a direct double-precision adjoint). */
#include "clients/phantom.h"
#include "gridding/base/err.h"
#include "gridding/nufft/nufft.h"
#include "gridding/traj/traj.h"

#include <complex.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *claim(size_t bytes)
{
    void *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

static struct traj *make(enum traj_kind kind, int n, int readouts)
{
    struct traj *traj = NULL;
    struct traj_params params = {.kind = kind, .n = {n, n, n}, .readouts = readouts};
    assert_int_equal(traj_create(&traj, &params), 0);
    return traj;
}

static double sum_of(size_t count, const float *values)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

/* NRMSE inside the inscribed disc or ball between the Shepp-Logan phantom and the magnitude of its adjoint, with one
 * scale fitted. */
static double nrmse(const struct traj *traj, int n, bool cylinder, const float *weights, double *scale)
{
    size_t samples = traj->readouts * traj->samples;
    int dim = traj->dim, size[3] = {n, n, dim == 2 ? 1 : n}, rows = n * size[2];
    struct phantom *phantom = NULL;
    assert_int_equal(phantom_create(&phantom, PHANTOM_SHEPP_LOGAN, dim, size, NAN, 1), 0);
    struct c32 *data = claim(samples * sizeof *data);
    float *truth = claim((size_t)(n * rows) * sizeof *truth);
    phantom_kspace(phantom, samples, traj->k, samples, data);
    assert_int_equal(phantom_truth(phantom, cylinder, truth), 0);
    phantom_free(phantom);
    double cross = 0, square = 0, norm = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : cross, square, norm)
    for (int r = 0; r < rows; r++) {
        int y = r % n - n / 2, z = r / n - size[2] / 2;
        double re[64] = {0}, im[64] = {0};
        for (size_t m = 0; m < samples; m++) {
            const float *k = traj->k + m * (size_t)dim;
            double phase = (double)k[0] * -(n / 2) + (double)k[1] * y + (dim == 3 ? (double)k[2] * z : 0);
            double complex term = weights[m] * (data[m].re + I * data[m].im) * cexp(2 * M_PI * I * phase);
            double a = creal(term), b = cimag(term), c = cos(2 * M_PI * k[0]), s = sin(2 * M_PI * k[0]);
            for (int x = 0; x < n; x++) {
                re[x] += a;
                im[x] += b;
                double turned = a * c - b * s;
                b = a * s + b * c;
                a = turned;
            }
        }
        for (int x = 0; x < n; x++) {
            double expected = truth[r * n + x], got = hypot(re[x], im[x]);
            if ((x - n / 2) * (x - n / 2) + y * y + z * z < n * n / 4) {
                cross += got * expected;
                square += got * got;
                norm += expected * expected;
            }
        }
    }
    free(truth);
    free(data);
    *scale = square / cross;
    return sqrt(1 - cross * cross / (square * norm));
}

/* Measured: radial 0.021, golden 0.025, spiral 0.026, kooshball 0.052, cones 0.056, stack 0.078 at these small
 * matrices, whose few samples leave much to the kernel; scales within 4 %. Without weights the error is 0.5 to 0.7. */
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
        struct traj *traj = make(cases[i].kind, n, 0);
        size_t samples = traj->readouts * traj->samples;
        float *weights = claim(samples * sizeof *weights);
        assert_int_equal(dcf_pipe(dev, traj->dim, (int[]){n, n, n}, samples, traj->k, NULL, 10, weights, NULL, NULL),
                         0);
        double scale, error = nrmse(traj, n, cases[i].kind == TRAJ_STACK_OF_STARS, weights, &scale);
        print_message("%s, N %d, %zu x %zu, pipe 10: NRMSE %.4f, scale %.4f, sum %.4f\n", traj_kind_name(cases[i].kind),
                      n, traj->readouts, traj->samples, error, scale, sum_of(samples, weights));
        assert_true(error < cases[i].most);
        assert_true(fabs(scale - 1) < 0.05);
        free(weights);
        traj_free(traj);
    }
}

/* Iterations go on from what they are given, whatever its scale, in place or not. */
static void test_start(void **state)
{
    struct dev *dev = *state;
    static const int n[] = {48, 48, 1};
    struct traj *traj = make(TRAJ_SPIRAL, 48, 0);
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

/* On a Cartesian grid all weights are the same, but for samples that rounding puts in or out of the kernel's edge,
 * where it is 1/1094 of its height; and near 1 / (NX NY): summed over points 1 / N apart that lie on the plan's grid of
 * 2N, C exceeds its integral by four times the square of the kernel's transform at N, 0.108, per axis: (1 + 4 *
 * 0.0117)^2 = 1.096. More iterations make C w more level. */
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

    struct traj *traj = make(TRAJ_SPIRAL, 48, 0);
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
