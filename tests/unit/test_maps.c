/* Estimated coil maps compared with the maps that the images were simulated with. */
#include "clients/phantom.h"
#include "gridding/base/err.h"
#include "recon/mri/maps_inner.h"
#include "tests/maps_oracle.h"
#include "tests/maps_scene.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Coil images of a phantom: object times map, with noise. */
struct scene {
    int coils, n[3];
    size_t pixels;
    double complex *truth; /* [coils][pixels] */
    struct c32 *images, *maps;
    bool *inside; /* [pixels]: inside the object */
};

static const enum maps_method methods[] = {MAPS_ESPIRIT, MAPS_WALSH, MAPS_INATI};

static void scene_create(struct scene *s, int dim, int n, int coils, double noise)
{
    struct phantom *phantom = NULL;
    const int size[3] = {n, dim == 3 ? n - 4 : n + 6, dim == 3 ? n + 3 : 1};
    uint64_t seed = 5;
    assert_int_equal(phantom_create(&phantom, PHANTOM_ASYMMETRIC, dim, size, NAN, coils), 0);
    *s = (struct scene){.coils = coils, .n = {size[0], size[1], size[2]}};
    s->pixels = (size_t)size[0] * (size_t)size[1] * (size_t)size[2];
    const size_t values = (size_t)coils * s->pixels;
    s->truth = allocate(values, sizeof *s->truth);
    s->images = allocate(values, sizeof *s->images);
    s->maps = allocate(values, sizeof *s->maps);
    s->inside = allocate(s->pixels, sizeof *s->inside);
    for (size_t i = 0; i < values; i++) {
        const size_t r = i % s->pixels;
        const int x = (int)(r % (size_t)size[0]), y = (int)(r / (size_t)size[0] % (size_t)size[1]),
                  z = (int)(r / (size_t)size[0] / (size_t)size[1]);
        const double place[3] = {(double)(x - size[0] / 2) / size[0], (double)(y - size[1] / 2) / size[1],
                                 (double)(z - size[2] / 2) / size[2]};
        double re, im;
        phantom_sensitivity(phantom, (int)(i / s->pixels), place, &re, &im);
        s->truth[i] = re + I * im;
        const double value = phantom_value(phantom, place);
        s->inside[r] = value > 0.1;
        s->images[i].re = (float)(value * re + noise * (uniform_next(&seed) - 0.5));
        s->images[i].im = (float)(value * im + noise * (uniform_next(&seed) - 0.5));
    }
    phantom_free(phantom);
}

static void scene_free(struct scene *s)
{
    free(s->inside);
    free(s->maps);
    free(s->images);
    free(s->truth);
}

static double complex map_at(const struct scene *s, int coil, size_t r)
{
    const struct c32 value = s->maps[(size_t)coil * s->pixels + r];
    return (double)value.re + I * (double)value.im;
}

/* The root mean square over the object of the sine of the angle between maps and truth; a pixel without a map counts as
 * 1. */
static double sine_of(const struct scene *s)
{
    double sum = 0;
    size_t count = 0;
    for (size_t r = 0; r < s->pixels; r++) {
        double complex along = 0;
        for (int c = 0; c < s->coils; c++)
            along += conj(s->truth[(size_t)c * s->pixels + r]) * map_at(s, c, r);
        if (s->inside[r])
            sum += fmax(0, 1 - creal(along * conj(along)));
        count += s->inside[r];
    }
    return sqrt(sum / (double)count);
}

static int estimate(struct scene *s, const struct maps_params *params, int threads, double *support)
{
    struct dev *dev = NULL;
    struct c32 *images, *maps;
    const size_t bytes = (size_t)s->coils * s->pixels * sizeof *images;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
    assert_int_equal(dev_alloc(dev, bytes, (void **)&images), 0);
    assert_int_equal(dev_alloc(dev, bytes, (void **)&maps), 0);
    assert_int_equal(dev_upload(dev, images, s->images, bytes), 0);
    const int rc = maps_estimate(dev, params, images, maps, support);
    assert_int_equal(dev_download(dev, s->maps, maps, bytes), 0);
    /* The same, in place. */
    if (rc == 0) {
        assert_int_equal(maps_estimate(dev, params, images, images, NULL), 0);
        assert_memory_equal(dev_direct(dev, images), s->maps, bytes);
    }
    dev_release(dev, maps);
    dev_release(dev, images);
    dev_free(dev);
    return rc;
}

/* The norm over coils must be 1 in the support and 0 outside. */
static void norms_check(const struct scene *s, double support)
{
    size_t count = 0;
    for (size_t r = 0; r < s->pixels; r++) {
        double square = 0;
        for (int c = 0; c < s->coils; c++)
            square += creal(map_at(s, c, r) * conj(map_at(s, c, r)));
        assert_true(square == 0 || fabs(square - 1) < 1e-5); /* float32 sums of `coils` squares */
        count += square > 0;
    }
    assert_true(fabs(support - (double)count / (double)s->pixels) < 1e-12);
}

/* The phantom's maps are sums of at most seven waves of at most half a cycle, and the noise is 2 % of the brightest
 * part. With an error of 0.03, CG-SENSE is as good as with the true maps; the other methods' window of eight samples
 * costs more.
 */
static void test_against_truth(void **state)
{
    (void)state;
    static const struct {
        int dim, n, coils;
        double bound[3];
    } cases[] = {{2, 64, 8, {0.03, 0.06, 0.06}}, {2, 49, 3, {0.03, 0.06, 0.06}}, {3, 22, 4, {0.03, 0.12, 0.12}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct scene s;
        scene_create(&s, cases[i].dim, cases[i].n, cases[i].coils, 0.02);
        for (int m = 0; m < 3; m++) {
            double support = -1;
            struct maps_params params = maps_defaults(methods[m], s.coils, s.n);
            if (cases[i].dim == 3 && methods[m] == MAPS_ESPIRIT) {
                params.calibration = 12; /* to save time */
                params.width = 4;
            }
            assert_int_equal(estimate(&s, &params, 1, &support), 0);
            norms_check(&s, support);
            const double sine = sine_of(&s);
            if (!(sine < cases[i].bound[m]))
                fail_msg("method %d, %d-D, %d coils: %g", m, cases[i].dim, s.coils, sine);
        }
        scene_free(&s);
    }
}

/* By their definition in double precision: matrices that are smaller along either side, and a volume. */
static void test_definition(void **state)
{
    (void)state;
    static const struct maps_scene_case cases[] = {{"by rows", 2, 24, 4, 12, 4},
                                                   {"by places", 2, 20, 12, 12, 4},
                                                   {"a volume by rows", 3, 12, 3, 7, 3},
                                                   {"a volume by places", 3, 9, 6, 6, 3},
                                                   {"one coil", 2, 33, 1, 12, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct maps_scene scene;
        maps_scene_create(&scene, &cases[i], 0.05);
        struct maps_oracle oracle;
        struct scene s = {.coils = cases[i].coils, .pixels = scene.pixels, .images = scene.images};
        size_t checked = 0;
        s.maps = allocate((size_t)s.coils * s.pixels, sizeof *s.maps);
        oracle_create(&oracle, &scene.params, scene.images);
        assert_int_equal(estimate(&s, &scene.params, 2, NULL), 0);
        const size_t wrong = oracle_compare(&oracle, s.maps, 3, &checked);
        if (wrong > 0 || checked < s.pixels / 12)
            fail_msg("%s: %zu wrong of %zu", cases[i].name, wrong, checked);
        oracle_free(&oracle);
        free(s.maps);
        maps_scene_free(&scene);
    }
}

/* Far from the object ESPIRiT has no maps; they cover the object up to its edge. */
static void test_support(void **state)
{
    (void)state;
    struct scene s;
    double support = 0;
    scene_create(&s, 2, 96, 8, 0.002);
    const struct maps_params params = maps_defaults(MAPS_ESPIRIT, s.coils, s.n);
    assert_int_equal(estimate(&s, &params, 1, &support), 0);
    for (size_t r = 0; r < s.pixels; r++)
        assert_true(!s.inside[r] || map_at(&s, 0, r) != 0);
    assert_true(map_at(&s, 0, 0) == 0 && map_at(&s, 0, s.pixels - 1) == 0);
    assert_true(support > 0.3 && support < 0.8);
    scene_free(&s);
}

static void test_threads(void **state)
{
    (void)state;
    struct scene s;
    scene_create(&s, 2, 45, 5, 0.02);
    const size_t bytes = (size_t)s.coils * s.pixels * sizeof *s.maps;
    struct c32 *first = allocate(bytes, 1);
    for (int m = 0; m < 3; m++)
        for (int threads = 1; threads <= 3; threads++) {
            const struct maps_params params = maps_defaults(methods[m], s.coils, s.n);
            assert_int_equal(estimate(&s, &params, threads, NULL), 0);
            if (threads == 1)
                memcpy(first, s.maps, bytes);
            assert_memory_equal(first, s.maps, bytes);
        }
    free(first);
    scene_free(&s);
}

/* A common phase of all coils rotates the combined image of ESPIRiT's and Walsh's maps by the same phase; Inati's maps
 * absorb it. A brighter scan has the same maps. */
static void test_common_phase(void **state)
{
    (void)state;
    struct scene s;
    scene_create(&s, 2, 48, 4, 0.01);
    const size_t values = (size_t)s.coils * s.pixels, centre = (size_t)(s.n[1] / 2 * s.n[0] + s.n[0] / 2);
    const float complex turn = 1000 * cexpf(2.0f * I);
    for (int m = 0; m < 3; m++) {
        double complex before[4], along = 0;
        const struct maps_params params = maps_defaults(methods[m], s.coils, s.n);
        assert_int_equal(estimate(&s, &params, 1, NULL), 0);
        for (int c = 0; c < s.coils; c++)
            before[c] = map_at(&s, c, centre);
        struct c32 *kept = allocate(values, sizeof *kept);
        memcpy(kept, s.images, values * sizeof *kept);
        for (size_t i = 0; i < values; i++) {
            const float complex value = turn * (s.images[i].re + I * s.images[i].im);
            s.images[i] = (struct c32){crealf(value), cimagf(value)};
        }
        assert_int_equal(estimate(&s, &params, 1, NULL), 0);
        for (int c = 0; c < s.coils; c++)
            along += conj(before[c]) * map_at(&s, c, centre);
        const double complex expected = methods[m] == MAPS_INATI ? cexp(2.0 * I) : 1;
        assert_true(cabs(along - expected) < 1e-3);
        memcpy(s.images, kept, values * sizeof *kept);
        free(kept);
    }
    scene_free(&s);
}

/* A coil without sensitivity in one half of the image: its map fades too, and no map has a seam at the border. */
static void test_coil_of_half(void **state)
{
    (void)state;
    struct scene s;
    scene_create(&s, 2, 64, 4, 0);
    const int nx = s.n[0], half = nx / 2;
    for (size_t r = 0; r < s.pixels; r++) {
        const int x = (int)(r % (size_t)nx);
        const float fade = x < half ? 0 : (float)(0.5 - 0.5 * cos(M_PI * (x - half) / (nx - half)));
        s.images[r] = (struct c32){fade * s.images[r].re, fade * s.images[r].im};
    }
    for (int m = 0; m < 3; m++) {
        const struct maps_params params = maps_defaults(methods[m], s.coils, s.n);
        assert_int_equal(estimate(&s, &params, 1, NULL), 0);
        const size_t row = (size_t)(s.n[1] / 2 * nx);
        /* Neighbouring vectors differ by a phase, and by the change of the maps over a pixel: 0.02 at most here. */
        for (int x = nx / 4; x < nx * 3 / 4; x++) {
            double complex along = 0;
            for (int c = 0; c < s.coils; c++)
                along += conj(map_at(&s, c, row + (size_t)x)) * map_at(&s, c, row + (size_t)x + 1);
            assert_true(cabs(along) > 0.95);
        }
        assert_true(cabs(map_at(&s, 0, row + (size_t)nx / 4)) < 0.1);
        assert_true(cabs(map_at(&s, 0, row + (size_t)nx * 3 / 4)) > 0.1);
    }
    scene_free(&s);
}

struct told {
    double done[256];
    int count;
};

static int record(void *context, double done)
{
    struct told *told = context;
    if (done == 0)
        told->count = 0; /* each estimate counts from 0 */
    assert_true(told->count < 256);
    told->done[told->count++] = done;
    return 0;
}

/* Processing rows of pixels advances progress from its value before the first row to 1: after the same number of rows
 * each time, in proportion to the rows done. */
static void test_progress(void **state)
{
    (void)state;
    struct scene s;
    scene_create(&s, 3, 12, 2, 0.01);
    const int rows = s.n[1] * s.n[2];
    for (int m = 0; m < 3; m++) {
        const double begun = methods[m] == MAPS_ESPIRIT ? 0.2 : 0; /* progress before the first row */
        struct told told = {.count = 0};
        struct maps_params params = maps_defaults(methods[m], s.coils, s.n);
        params.progress = record;
        params.context = &told;
        assert_int_equal(estimate(&s, &params, 1, NULL), 0);
        assert_true(told.count >= 4 && told.done[0] == 0 && told.done[told.count - 1] == 1);
        int after = 0, calls = 0, step = 0;
        for (int i = 1; i < told.count; i++) {
            assert_true(told.done[i] >= told.done[i - 1]);
            if (told.done[i] <= begun || i == told.count - 1)
                continue;
            const double done = (told.done[i] - begun) / (1 - begun) * rows;
            after = (int)lround(done);
            assert_true(fabs(done - after) < 1e-9 * rows);
            step = calls++ ? step : after;
            assert_int_equal(after, calls * step < rows ? calls * step : rows);
        }
        assert_int_equal(after, rows);
        assert_true(calls > 2);
    }
    scene_free(&s);
}

/* A listener of the calibration: counts its questions, and says no to one of them. */
struct asked {
    int count, no_at;
};

static int ask(void *context, double done)
{
    struct asked *asked = context;
    if (done >= MAPS_CALIBRATED)
        return 0;
    return ++asked->count == asked->no_at;
}

/* Each part of the calibration asks: after each power iteration (12), each 32 rows of U and V, each 16 vectors, while
 * the matrix is summed about once per millisecond; and ends when the answer is no. */
static void test_calibration_asks(void **state)
{
    (void)state;
    struct scene s;
    struct asked asked = {.no_at = -1};
    scene_create(&s, 3, 16, 2, 2);
    struct maps_params params = maps_defaults(MAPS_ESPIRIT, s.coils, s.n);
    params.progress = ask;
    params.context = &asked;
    assert_int_equal(estimate(&s, &params, 1, NULL), 0);
    const int all = asked.count / 2; /* estimate() does it twice */
    assert_true(all >= 1 + 12 + 8 + 15);
    for (int at = 1; at <= all; at += 5) {
        asked = (struct asked){.no_at = at};
        assert_int_equal(estimate(&s, &params, 1, NULL), ERR_CANCELED);
        assert_int_equal(asked.count, at);
    }
    scene_free(&s);
}

/* The exit status of a process that estimates maps with `bytes` of memory on top of what it already uses: 0, or 1 if
 * that is not enough. */
static int estimate_within(struct scene *s, const struct maps_params *params, size_t bytes)
{
    const pid_t child = fork();
    int status = 0;
    if (child == 0) {
        unsigned long all, resident, shared, text, library, data = 0;
        FILE *file = fopen("/proc/self/statm", "re");
        const bool known =
            file && fscanf(file, "%lu %lu %lu %lu %lu %lu", &all, &resident, &shared, &text, &library, &data) == 6;
        const rlim_t most = data * (rlim_t)sysconf(_SC_PAGESIZE) + bytes;
        if (!known || setrlimit(RLIMIT_DATA, &(struct rlimit){most, most}) != 0)
            _exit(2);
        const int rc = estimate(s, params, 1, NULL);
        _exit(rc == 0 ? 0 : rc == ERR_NO_MEMORY ? 1 : 3);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The estimated memory is enough, with 4 MiB added for libraries and a thread; half of it is not. */
static void test_memory(void **state)
{
    (void)state;
    struct scene s;
#if defined(__SANITIZE_ADDRESS__)
    print_message("AddressSanitizer keeps freed memory, which the limit would count\n");
    skip();
#endif
    scene_create(&s, 3, 16, 4, 0.01);
    const struct maps_params params = maps_defaults(MAPS_ESPIRIT, s.coils, s.n);
    const size_t promised = maps_bytes(&params, 1), slack = (size_t)4 << 20;
    assert_true(promised > 2 * slack);
    assert_int_equal(estimate_within(&s, &params, promised + slack), 0);
    assert_int_equal(estimate_within(&s, &params, promised / 2), 1);
    scene_free(&s);
}

static int stop_at_once(void *context, double done)
{
    *(int *)context += 1;
    return done >= 0.5;
}

static void test_edges(void **state)
{
    (void)state;
    struct scene s;
    int told = 0;
    scene_create(&s, 2, 40, 2, 0.01);
    for (int m = 0; m < 3; m++) {
        struct maps_params params = maps_defaults(methods[m], s.coils, s.n);
        double support = -1;
        params.progress = stop_at_once;
        params.context = &told;
        assert_int_equal(estimate(&s, &params, 1, NULL), ERR_CANCELED);
        assert_true(told >= 2);
        params.progress = NULL;
        /* Fewer pixels than calibration samples; a single row; a single pixel. */
        for (int i = 0; i < 3; i++) {
            const int sizes[3][3] = {{7, 5, 3}, {9, 1, 1}, {1, 1, 1}};
            memcpy(params.n, sizes[i], sizeof params.n);
            struct scene small = s;
            small.pixels = (size_t)(params.n[0] * params.n[1] * params.n[2]);
            assert_int_equal(estimate(&small, &params, 1, &support), 0);
            norms_check(&small, support);
        }
    }
    memset(s.images, 0, (size_t)s.coils * s.pixels * sizeof *s.images);
    for (int m = 0; m < 3; m++) {
        const struct maps_params params = maps_defaults(methods[m], s.coils, s.n);
        double support = -1;
        assert_int_equal(estimate(&s, &params, 1, &support), 0);
        assert_true(support == 0);
        norms_check(&s, support);
    }
    s.images[17].re = NAN;
    struct maps_params params = maps_defaults(MAPS_ESPIRIT, s.coils, s.n);
    assert_int_equal(estimate(&s, &params, 1, NULL), ERR_DATA_NONFINITE);
    params.coils = 0;
    assert_int_equal(maps_estimate(NULL, &params, NULL, NULL, NULL), ERR_BAD_PARAMETER);
    params.coils = 2;
    params.n[1] = 1 << 20;
    assert_int_equal(maps_estimate(NULL, &params, NULL, NULL, NULL), ERR_BAD_PARAMETER);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_truth), cmocka_unit_test(test_definition),
        cmocka_unit_test(test_support),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_common_phase),  cmocka_unit_test(test_coil_of_half),
        cmocka_unit_test(test_edges),         cmocka_unit_test(test_progress),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_calibration_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
