/* Reconstructions on a GPU: every method, with and without a field map, of images, series, volumes and stacks, compared
 * with the CPU, whose images the unit tests compare with double sums; the same bits on a second run; nothing falls back
 * to the CPU. Without a GPU, reports everything as skipped. */
#include "tests/gpu/gpu_or_skip.h"
#include "tests/unit/recon_fixture.h"

enum { COILS_MOST = 18, MOST_PIXELS = 64 * 62, READOUTS = 48, SAMPLES = 80 };

struct scene {
    const char *name;
    int n[3];
    unsigned coils;
    bool stack;    /* partitions on the same trajectory; otherwise random samples */
    bool repeated; /* every quarter of the readouts has the trajectories of the first one */
};

static const struct scene plane = {"plane", {40, 36, 1}, 3, false, false},
                          volume = {"volume", {12, 10, 8}, 3, false, false},
                          stack = {"stack", {12, 10, 8}, 3, true, false},
                          many = {"many coils", {40, 36, 1}, COILS_MOST, false, false}, /* more than one upload */
    halves = {"halves", {64, 62, 1}, 3, false, false}, repeated = {"one trajectory", {64, 62, 1}, 3, false, true};

static struct c32 maps[COILS_MOST * MOST_PIXELS];
static float hz[MOST_PIXELS];

static size_t pixels_of(const struct scene *scene)
{
    return (size_t)scene->n[0] * (size_t)scene->n[1] * (size_t)scene->n[2];
}

/* Smooth maps and a smooth field, of two cycles during a readout. */
static void pixels_fill(const struct scene *scene)
{
    const size_t pixels = pixels_of(scene), nx = (size_t)scene->n[0];
    for (size_t i = 0; i < pixels; i++) {
        const double x = (double)(i % nx), y = (double)(i / nx);
        hz[i] = (float)(65 + 125 * sin(0.2 * x) * cos(0.15 * y));
        for (unsigned c = 0; c < scene->coils; c++)
            maps[c * pixels + i] = (struct c32){(float)(1.2 + cos(0.1 * x + 2.0 * c)), (float)sin(0.07 * y + c)};
    }
}

static void scan_make(struct flat *flat, const struct scene *scene, bool field)
{
    const int nz = scene->n[2], lines = READOUTS / nz;
    const unsigned dim = nz > 1 ? 3 : 2, columns = dim + 1; /* the last column is the weight */
    flat_init(flat, (unsigned)scene->n[0], (unsigned)scene->n[1], (unsigned)nz);
    for (int r = 0; r < READOUTS; r++) {
        const struct scan_readout *readout = random_readout(flat, SAMPLES, scene->coils, columns, dim);
        flat->readouts[r].sample_time_us = 100;
        for (unsigned s = 0; s < SAMPLES && scene->stack; s++) {
            float *k = flat->traj + readout->traj + s * columns;
            memcpy(k, flat->traj + flat->readouts[r % lines].traj + s * columns, columns * sizeof *k);
            k[2] = (float)(r / lines - nz / 2) / (float)nz;
        }
        if (scene->repeated)
            memcpy(flat->traj + readout->traj, flat->traj + flat->readouts[r % (READOUTS / 4)].traj,
                   SAMPLES * columns * sizeof *flat->traj);
    }
    pixels_fill(scene);
    flat->header.map_coils = scene->coils;
    flat->maps = maps;
    flat->header.field_maps = field;
    flat->field = field ? hz : NULL;
}

static void run_on(enum dev_kind kind, const struct scene *scene, bool field, const char *parameters,
                   struct job_outcome *out)
{
    struct flat flat;
    char text[200];
    random_reset(NULL);
    scan_make(&flat, scene, field);
    snprintf(text, sizeof text, "dcf=given output=complex %s", parameters);
    assert_int_equal(dev_create(&dev, kind, 0, 2), 0);
    succeed(&flat, text, out);
    assert_string_equal(decided(out, "device"), "");
    dev_free(dev);
    flat_free(&flat);
}

/* Each device's gridding errs by 1e-5, which iterations amplify a few times; a wrong step gives at least 1e-2. */
static void as_on_the_cpu(const struct scene *scene, const char *parameters)
{
    for (int field = 0; field < 2; field++) {
        struct job_outcome here, again, there;
        run_on(DEV_GPU, scene, field, parameters, &here);
        run_on(DEV_GPU, scene, field, parameters, &again);
        run_on(DEV_CPU, scene, field, parameters, &there);
        const struct image_series *a = images_of(&here), *b = images_of(&there);
        const size_t count = a->count * a->channels * pixels_of(scene) * 2;
        double difference = 0, norm = 0;
        assert_int_equal(a->count, b->count);
        for (size_t i = 0; i < count; i++) {
            difference += pow((double)a->data[i] - (double)b->data[i], 2);
            norm += pow((double)b->data[i], 2);
        }
        if (!(sqrt(difference / norm) < 3e-4))
            fail_msg("%s, %s, %s: differs by %g", scene->name, parameters, field ? "with a field" : "without",
                     sqrt(difference / norm));
        assert_memory_equal(a->data, images_of(&again)->data, count * sizeof *a->data);
        /* A GPU grids the plain adjoint of a stack in 3-D. */
        const bool iterates = strncmp(parameters, "method=", 7) == 0;
        assert_string_equal(decided(&there, "kz transform"), scene->stack ? "fft" : "");
        assert_string_equal(decided(&here, "kz transform"), !scene->stack       ? ""
                                                            : iterates || field ? "fft"
                                                                                : "gridding");
        drop(&there);
        drop(&again);
        drop(&here);
    }
}

static void every_method(void **state)
{
    (void)state;
    static const char *const methods[] = {"coils=sense", "coils=none", "method=cg-sense iterations=5",
                                          "method=l1-wavelet iterations=5", "method=tv iterations=5"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        as_on_the_cpu(&plane, methods[i]);
}

static void many_coils(void **state)
{
    (void)state;
    as_on_the_cpu(&many, "coils=sense virtual_coils=none");
    as_on_the_cpu(&many, "coils=none");
    as_on_the_cpu(&many, "method=cg-sense iterations=3 virtual_coils=none");
}

/* Solved together, alone, and with other trajectories. */
static void images_together(void **state)
{
    (void)state;
    as_on_the_cpu(&halves, "method=cg-sense frames=4 iterations=4");
    as_on_the_cpu(&repeated, "method=cg-sense frames=4 iterations=4");
    as_on_the_cpu(&halves, "method=cg-sense frames=2 iterations=4 stop_seconds=1000");
}

static void series(void **state)
{
    (void)state;
    as_on_the_cpu(&plane, "method=temporal-tv frames=4 iterations=4");
    as_on_the_cpu(&plane, "method=llr frames=4 iterations=4");
    /* Images at once, with a kernel each, or one for all; and two kernels for eight images, one after the other. */
    as_on_the_cpu(&halves, "method=temporal-tv frames=4 iterations=4");
    as_on_the_cpu(&halves, "method=llr frames=6 window_frames=4 iterations=4");
    as_on_the_cpu(&repeated, "method=temporal-tv frames=4 iterations=4");
    as_on_the_cpu(&repeated, "method=temporal-tv frames=8 iterations=4");
}

static void volumes(void **state)
{
    (void)state;
    as_on_the_cpu(&volume, "method=cg-sense iterations=5");
    as_on_the_cpu(&volume, "method=tv iterations=5");
    as_on_the_cpu(&volume, "method=llr frames=3 iterations=3");
}

static void stacks(void **state)
{
    (void)state;
    as_on_the_cpu(&stack, "coils=sense");
    as_on_the_cpu(&stack, "coils=none");
    as_on_the_cpu(&stack, "method=cg-sense iterations=5");
    as_on_the_cpu(&stack, "method=tv iterations=5");
}

int main(void)
{
    gpu_or_skip();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method), cmocka_unit_test(many_coils), cmocka_unit_test(images_together),
        cmocka_unit_test(series),       cmocka_unit_test(volumes),    cmocka_unit_test(stacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
