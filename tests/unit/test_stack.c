/* Stacks whose partitions share an in-plane trajectory: an FFT along kz and 2-D transforms, compared with double
 * sums. */
#include "tests/unit/recon_fixture.h"

enum { NX = 12, NY = 10, NZ = 5, LINES = 7, SAMPLES = 16, COILS = 2, PIXELS = NX * NY * NZ };
static const int n[] = {NX, NY, NZ};

/* Columns kx, ky, kz, weight: random lines in the plane, the same in every partition; ordered by partition or by line,
 * with partitions not in the order of kz. */
static void stack_fill(struct flat *flat, bool lines_outside)
{
    float plane[LINES][SAMPLES][3];
    for (int l = 0; l < LINES; l++)
        for (int s = 0; s < SAMPLES; s++) {
            plane[l][s][0] = (float)(0.4999 * noise());
            plane[l][s][1] = (float)(0.4999 * noise());
            plane[l][s][2] = (float)(1 + 0.5 * noise());
        }
    flat_init(flat, NX, NY, NZ);
    for (int i = 0; i < LINES * NZ; i++) {
        const int line = lines_outside ? i / NZ : i % LINES, partition = (lines_outside ? i % NZ : i / LINES) * 3 % NZ;
        const struct scan_readout *r = random_readout(flat, SAMPLES, COILS, 4, 3);
        flat->readouts[i].idx[SCAN_STEP2] = (uint16_t)partition;
        for (int s = 0; s < SAMPLES; s++) {
            float *k = flat->traj + r->traj + (size_t)s * 4;
            k[0] = plane[line][s][0];
            k[1] = plane[line][s][1];
            k[2] = (float)(partition - NZ / 2) / NZ;
            k[3] = plane[line][s][2];
        }
    }
}

/* Each coil, and the root of the sum of squares, equals the double sum; `value` is the expected decision. */
static void as_the_sum(struct flat *flat, uint64_t mask, const char *value)
{
    static double expected[2 * COILS * PIXELS];
    struct job_outcome out;
    succeed(flat, "dcf=given coils=none output=complex", &out);
    assert_string_equal(decided(&out, "kz transform"), value);
    for (int c = 0; c < COILS; c++) {
        double complex *image = direct(flat, mask, c, 3, 3, n, whole);
        for (int i = 0; i < PIXELS; i++) {
            expected[2 * (c * PIXELS + i)] = creal(image[i]);
            expected[2 * (c * PIXELS + i) + 1] = cimag(image[i]);
        }
        free(image);
    }
    assert_true(error_of(images_of(&out)->data, expected, sizeof expected / sizeof *expected) < TOLERANCE);
    drop(&out);
    succeed(flat, "dcf=given", &out);
    assert_string_equal(decided(&out, "kz transform"), value);
    assert_true(rss_error(flat, mask, COILS, 3, 3, n, whole, images_of(&out)->data) < TOLERANCE);
    drop(&out);
}

static void shared_partitions_are_transformed_along_kz(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct flat flat;
        stack_fill(&flat, order);
        as_the_sum(&flat, UINT64_MAX, "fft");
        flat_free(&flat);
    }
}

/* Whichever readout is changed, the image equals the direct sum of its samples. */
static void stacks_with_a_differing_readout_are_gridded_in_3d(void **state)
{
    (void)state;
    for (int change = 0; change < 4; change++) {
        struct flat flat;
        uint64_t mask = UINT64_MAX;
        stack_fill(&flat, false);
        float *k = flat.traj + flat.readouts[23].traj;
        switch (change) {
        case 0:
            k[8 * 4] = nextafterf(k[8 * 4], 1);
            break;
        case 1:
            k[8 * 4 + 3] *= 1.01f;
            break;
        case 2:
            flat.readouts[23].flags = UINT64_C(1) << (SCAN_NAVIGATION - 1);
            mask &= ~(UINT64_C(1) << 23);
            break;
        default:
            for (int s = 0; s < SAMPLES; s++)
                k[s * 4 + 2] += 0.3f / NZ;
        }
        as_the_sum(&flat, mask, change < 3 ? "gridding" : "");
        flat_free(&flat);
    }
}

/* Smooth maps that differ between slices, and a field map that changes from slice to slice, by two cycles in a
 * readout. */
static void pixels_fill(struct flat *flat, struct c32 *maps, float *hz)
{
    for (int i = 0; i < PIXELS; i++) {
        const int x = i % NX, y = i / NX % NY, z = i / NX / NY;
        hz[i] = (float)(80 * sin(0.3 * x + z) + 40 * cos(0.4 * y));
        for (int c = 0; c < COILS; c++)
            maps[c * PIXELS + i] = (struct c32){(float)(1.3 + sin(0.2 * x + 2 * c)), (float)cos(0.3 * y + 0.5 * z + c)};
    }
    flat->header.map_coils = COILS;
    flat->maps = maps;
    for (size_t r = 0; r < flat->header.readouts; r++)
        flat->readouts[r].sample_time_us = 500;
}

/* Every method's image computed with the FFT equals that of the three-dimensional operators, with and without a field
 * map. Shifting one sample from its position in the other partitions disables the FFT. */
static void every_method_equals_the_3d_operators(void **state)
{
    (void)state;
    static const char *const methods[] = {"coils=sense", "coils=none", "method=cg-sense", "method=tv"};
    static struct c32 maps[COILS * PIXELS];
    static float hz[PIXELS];
    for (int i = 0; i < 8; i++) {
        struct job_outcome by_fft, by_grid;
        struct flat flat;
        char parameters[160];
        random_reset(NULL);
        stack_fill(&flat, i % 3 == 0);
        pixels_fill(&flat, maps, hz);
        flat.header.field_maps = i >= 4;
        flat.field = i >= 4 ? hz : NULL;
        snprintf(parameters, sizeof parameters, "dcf=given output=complex %s%s", methods[i % 4],
                 i % 4 > 1 ? " iterations=5 stop_tolerance=0" : "");
        succeed(&flat, parameters, &by_fft);
        float *k = flat.traj + flat.readouts[23].traj;
        k[8 * 4] = nextafterf(k[8 * 4], 1);
        succeed(&flat, parameters, &by_grid);
        assert_string_equal(decided(&by_fft, "kz transform"), "fft");
        assert_string_equal(decided(&by_grid, "kz transform"), "gridding");
        const struct image_series *a = images_of(&by_fft), *b = images_of(&by_grid);
        double difference = 0, norm = 0;
        for (size_t p = 0; p < 2 * a->channels * PIXELS; p++) {
            difference += pow((double)a->data[p] - (double)b->data[p], 2);
            norm += pow((double)b->data[p], 2);
        }
        /* The tolerance of gridding, amplified by iterations. */
        if (!(sqrt(difference / norm) < (i % 4 > 1 ? 10 : 1) * TOLERANCE))
            fail_msg("%s%s: differs by %g", parameters, i >= 4 ? " with a field" : "", sqrt(difference / norm));
        drop(&by_grid);
        drop(&by_fft);
        flat_free(&flat);
    }
}

/* Partitions whose samples have different times cannot share time segments. */
static void partitions_with_different_times_are_gridded_in_3d(void **state)
{
    (void)state;
    static struct c32 maps[COILS * PIXELS];
    static float hz[PIXELS];
    struct job_outcome out;
    struct flat flat;
    stack_fill(&flat, false);
    pixels_fill(&flat, maps, hz);
    flat.header.field_maps = 1;
    flat.field = hz;
    flat.readouts[11].sample_time_us = 501;
    succeed(&flat, "dcf=given", &out);
    assert_string_equal(decided(&out, "kz transform"), "gridding");
    drop(&out);
    flat_free(&flat);
}

/* Kept plans of both kinds give the same bits again. */
static void kept_plans_give_the_same_image(void **state)
{
    (void)state;
    assert_int_equal(recon_cache_create(&cache), 0);
    for (int change = 0; change < 2; change++) {
        struct job_outcome first, again;
        struct flat flat;
        stack_fill(&flat, false);
        flat.traj[flat.readouts[23].traj + 3] *= change ? 1.01f : 1;
        succeed(&flat, "dcf=given", &first);
        succeed(&flat, "dcf=given", &again);
        assert_int_equal(reported(&first, "plans"), 1);
        assert_int_equal(reported(&again, "plans"), 0);
        assert_string_equal(decided(&again, "kz transform"), change ? "gridding" : "fft");
        assert_memory_equal(images_of(&first)->data, images_of(&again)->data, PIXELS * sizeof(float));
        drop(&again);
        drop(&first);
        flat_free(&flat);
    }
    recon_cache_free(cache);
    cache = NULL;
}

/* Calls of progress while coils are gridded; the job is canceled at call `stop_at`. */
struct gridding_calls {
    int calls, stop_at;
};

static int gridding_called(void *context, const struct step_progress *now)
{
    struct gridding_calls *count = context;
    return now->step == RECON_STEP_GRIDDING && ++count->calls == count->stop_at;
}

/* A batch of coils takes long: the job can be canceled before each coil is ordered, before it is transformed, and with
 * a field map before each of its time segments. */
static void gridding_asks_before_each_coil(void **state)
{
    (void)state;
    static struct c32 maps[COILS * PIXELS];
    static float hz[PIXELS];
    static const char *const parameters[] = {"dcf=given", "dcf=given coils=sense",
                                             "dcf=given method=cg-sense iterations=2"};
    for (int i = 0; i < 5; i++) {
        struct flat flat;
        stack_fill(&flat, false);
        pixels_fill(&flat, maps, hz);
        flat.header.field_maps = i >= 3;
        flat.field = i >= 3 ? hz : NULL;
        int calls = 1;
        for (int stop_at = 0; stop_at <= calls; stop_at += stop_at < 6 ? 1 : 18) {
            struct gridding_calls count = {.stop_at = stop_at};
            const struct job_listener listener = {&count, gridding_called};
            struct job_outcome out = {0};
            const int rc = run(&flat, parameters[i % 3], &out, &listener);
            if (stop_at == 0) {
                const int segments = i >= 3 ? (int)strtol(decided(&out, "off-resonance"), NULL, 10) : 0;
                assert_int_equal(rc, 0);
                /* One before the batch, one after the last; the engine asks, too, about once per millisecond. */
                calls = 2 + COILS * (2 + segments);
                assert_true(count.calls >= calls);
                drop(&out);
            } else {
                assert_int_equal(rc, ERR_CANCELED);
                assert_int_equal(count.calls, stop_at);
            }
        }
        flat_free(&flat);
    }
}

/* If there are fewer slices than partitions, they are the middle ones. */
static void slices_are_cut_from_the_middle(void **state)
{
    (void)state;
    struct job_outcome all, cut;
    struct flat flat;
    stack_fill(&flat, false);
    succeed(&flat, "dcf=given", &all);
    flat.encodings[0].recon_matrix[2] = 4;
    flat.encodings[0].recon_fov_mm[2] = flat.encodings[0].fov_mm[2] * 4 / NZ;
    succeed(&flat, "dcf=given", &cut);
    assert_string_equal(decided(&cut, "kz transform"), "fft");
    const size_t plane = (size_t)NX * NY, from = NZ / 2 - 4 / 2;
    assert_memory_equal(images_of(&cut)->data, images_of(&all)->data + from * plane, 4 * plane * sizeof(float));
    drop(&cut);
    drop(&all);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(shared_partitions_are_transformed_along_kz, random_reset),
        cmocka_unit_test_setup(stacks_with_a_differing_readout_are_gridded_in_3d, random_reset),
        cmocka_unit_test_setup(every_method_equals_the_3d_operators, random_reset),
        cmocka_unit_test_setup(partitions_with_different_times_are_gridded_in_3d, random_reset),
        cmocka_unit_test_setup(kept_plans_give_the_same_image, random_reset),
        cmocka_unit_test_setup(gridding_asks_before_each_coil, random_reset),
        cmocka_unit_test_setup(slices_are_cut_from_the_middle, random_reset),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
