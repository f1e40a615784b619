/* Off-resonance: time segments, the conjugate phase and the normal operator with a field map, against double sums. */
#include "tests/unit/recon_fixture.h"

#include "recon/mri/field.h"
#include "recon/mri/segments.h"
#include "tests/random.h"

enum { NX = 14, NY = 12, PIXELS = NX * NY, READOUTS = 20, SAMPLES = 40, ALL = READOUTS * SAMPLES };

static const double DWELL_US = 200; /* 8 ms per readout */

/* A smooth field of -60 .. 190 Hz, two cycles during a readout, and 0 in a corner, as outside an object. */
static void field_fill(float field[PIXELS])
{
    for (int y = 0; y < NY; y++)
        for (int x = 0; x < NX; x++)
            field[y * NX + x] = x < 3 && y < 3 ? 0 : (float)(65 + 125 * sin(0.4 * x) * cos(0.3 * y));
}

static void scan_fill(struct flat *flat, unsigned coils)
{
    flat_init(flat, NX, NY, 1);
    for (int r = 0; r < READOUTS; r++)
        random_readout(flat, SAMPLES, coils, 3, 2);
    for (int r = 0; r < READOUTS; r++)
        flat->readouts[r].sample_time_us = (float)DWELL_US;
}

/* exp(+2 pi i (k . r + f(r) t)) of sample s of readout r, at a pixel. */
static double complex wave(const struct flat *flat, int r, int s, int pixel, double seconds)
{
    const float *k = flat->traj + flat->readouts[r].traj + (size_t)s * flat->readouts[r].traj_dims;
    const double x = pixel % NX - NX / 2, y = pixel / NX - NY / 2;
    return cexp(2 * M_PI * I * (k[0] * x + k[1] * y + (double)flat->field[pixel] * seconds));
}

static void segments_meet_their_tolerance(void **state)
{
    (void)state;
    static struct spectrum spectrum, differences;
    static struct segments segments;
    float hz[1000];
    for (int i = 0; i < 1000; i++)
        hz[i] = (float)(300 * uniform((uint64_t)i) - 100);
    spectrum_of(&spectrum, 1000, hz);
    spectrum_differences(&differences, &spectrum);
    for (double tolerance = 1e-2; tolerance > 5e-5; tolerance /= 10)
        for (int d = 0; d < 2; d++) {
            assert_true(segments_make(&segments, d ? &differences : &spectrum, -0.002, 0.008, tolerance, 1));
            /* quality of least squares: ceil(1.25 cycles) + 4 segments reach 1e-3, and 1e-4 takes 2 more */
            assert_true(segments.count <= (int)ceil(1.25 * (d ? 6 : 3)) + 6);
            for (double t = -0.002; t <= 0.008; t += 0.00037) {
                double complex b[SEGMENTS_MOST];
                double squares = 0;
                segments_at(&segments, t, b);
                for (int l = 0; d && l < segments.count; l++)
                    b[l] = creal(b[l]); /* the normal operator uses the real part */
                for (int i = 0; i < 999; i++) {
                    const double f = d ? (double)hz[i] - (double)hz[(i * 7 + 3) % 1000] : (double)hz[i];
                    double complex sum = 0;
                    for (int l = 0; l < segments.count; l++)
                        sum += b[l] * cexp(-2 * M_PI * I * f * (segments.from + l * segments.step));
                    squares += pow(cabs(sum - cexp(-2 * M_PI * I * f * t)), 2);
                }
                /* Frequencies between those of the histogram, at times other than those that the fit used. */
                if (sqrt(squares / 999) > 1.5 * tolerance)
                    fail_msg("error %g at t = %g, allowed %g", sqrt(squares / 999), t, tolerance);
            }
        }
}

/* Each coil's image, within the tolerances of gridding and segments; the same with the times given as an array. */
static void conjugate_phase_is_the_double_sum(void **state)
{
    (void)state;
    static float field[PIXELS], times[SAMPLES];
    struct job_outcome out, again;
    struct flat flat;
    double complex expected[2 * PIXELS] = {0};
    double difference = 0, norm = 0;
    field_fill(field);
    scan_fill(&flat, 2);
    flat.header.field_maps = 1;
    flat.field = field;
    flat.readouts[3].discard_pre = 5;
    for (int c = 0; c < 2; c++)
        for (int r = 0; r < READOUTS; r++)
            for (int s = flat.readouts[r].discard_pre; s < SAMPLES; s++)
                for (int i = 0; i < PIXELS; i++) {
                    const struct c32 d = flat.data[flat.readouts[r].data + (size_t)(c * SAMPLES + s)];
                    const double w = flat.traj[flat.readouts[r].traj + (size_t)s * 3 + 2];
                    expected[c * PIXELS + i] += w * (d.re + I * d.im) * wave(&flat, r, s, i, s * 1e-6 * DWELL_US);
                }
    succeed(&flat, "coils=none output=complex dcf=given", &out);
    const float *seen = images_of(&out)->data;
    for (int i = 0; i < 2 * PIXELS; i++) {
        difference += pow(cabs(seen[2 * i] + I * seen[2 * i + 1] - expected[i]), 2);
        norm += pow(cabs(expected[i]), 2);
    }
    if (!(sqrt(difference / norm) < TOLERANCE))
        fail_msg("conjugate phase errs by %g", sqrt(difference / norm));
    assert_non_null(strstr(decided(&out, "off-resonance"), "segments"));
    for (int s = 0; s < SAMPLES; s++)
        times[s] = (float)((double)s * 1e-6 * (float)DWELL_US);
    flat.header.times_count = SAMPLES;
    flat.times = times;
    for (int r = 0; r < READOUTS; r++)
        flat.readouts[r].sample_time_us = 0;
    succeed(&flat, "coils=none output=complex dcf=given", &again);
    assert_memory_equal(images_of(&again)->data, seen, 2 * PIXELS * sizeof(struct c32));
    drop(&again);
    drop(&out);
    flat_free(&flat);
}

/* A job, with only the members that field.h reads. */
static void job_open(struct recon_job *job, struct flat *flat, struct job_request *request, struct param_values *values)
{
    param_values_init(kind_find("recon"), values);
    assert_int_equal(param_values_set(kind_find("recon"), values, "tolerance", "1e-4"), 0);
    assert_int_equal(param_values_set(kind_find("recon"), values, "method", "cg-sense"), 0);
    *request = (struct job_request){.kind = kind_find("recon"), .values = values};
    *job = (struct recon_job){.dev = dev,
                              .request = request,
                              .scan = *flat_scan(flat),
                              .dim = 2,
                              .n = {NX, NY, 1},
                              .out_k = {1, 1, 1},
                              .scale = {1, 1, 1},
                              .columns = 3,
                              .coordinates = 2};
    assert_int_equal(frames_create(&job->frames, &job->scan, -1, false, NULL), 0);
    job->encoding = &job->scan.encodings[0];
    assert_int_equal(recon_report_create(&job->report), 0);
}

static int never(void *context)
{
    (void)context;
    return 0;
}

static int normal_of(void *of, const struct c32 *x, struct c32 *r)
{
    return normal_apply(of, 1, x, r);
}

static double complex at(const struct c32 *v, int i)
{
    return v[i].re + I * v[i].im;
}

/* With a tolerance of 1e-4: N x equals A' W A x by double sums within the errors of the plan and the segments, N is
 * Hermitian to float32 rounding, and the plan's weights are restored afterwards. */
static void normal_operator_is_the_double_sum(void **state)
{
    (void)state;
    static float hz[PIXELS], k[2 * ALL], weights[ALL];
    static double complex forward[ALL], expected[PIXELS];
    static const struct nufft_params params = {.dim = 2, .n = {NX, NY, 1}, .tolerance = 1e-5, .batch = 1};
    struct flat flat;
    struct recon_job job;
    struct job_request request;
    struct param_values values;
    struct field *field = NULL;
    struct nufft *plan = NULL;
    struct normal *normal = NULL;
    struct field_normal with;
    size_t offsets[READOUTS + 1];
    struct c32 *x, *y, *r, *kernels = NULL, *data, *image;
    field_fill(hz);
    scan_fill(&flat, 1);
    flat.header.field_maps = 1;
    flat.field = hz;
    job_open(&job, &flat, &request, &values);
    const struct frame *frame = &job.frames->frame[0];
    recon_frame_offsets(&job, frame, offsets);
    recon_frame_gather(&job, frame, offsets, k, weights);
    assert_int_equal(field_open(&field, &job), 0);
    assert_non_null(field);
    assert_int_equal(field_load(field, job.n, ALL, 3), 0);
    assert_int_equal(field_slice(field, frame), 0);
    assert_int_equal(field_frame(field, frame, offsets, k, NULL), 0);
    assert_int_equal(nufft_create(&plan, dev, &params, ALL, k), 0);
    assert_int_equal(nufft_set_weights(plan, weights), 0);
    assert_int_equal(
        field_kernels(field, &normal, &params, plan, NULL, k, weights, &kernels, &(struct normal_ask){never, NULL}), 0);
    const struct op inner = {.of = normal, .domain = PIXELS, .range = PIXELS, .normal = normal_of};
    assert_int_equal(field_normal_open(&with, field, normal, inner, kernels), 0);
    const struct op op = field_normal_op(&with);
    struct c32 **const all[] = {&x, &y, &r, &image};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(dev_alloc(dev, PIXELS * sizeof *x, (void **)all[i]), 0);
        for (int p = 0; p < PIXELS; p++)
            (*all[i])[p] = (struct c32){(float)noise(), (float)noise()};
    }
    assert_int_equal(op.normal(op.of, x, r), 0);
    for (int m = 0; m < ALL; m++)
        for (int p = 0; p < PIXELS; p++)
            forward[m] += at(x, p) * conj(wave(&flat, m / SAMPLES, m % SAMPLES, p, m % SAMPLES * 1e-6 * DWELL_US));
    double difference = 0, norm = 0;
    for (int p = 0; p < PIXELS; p++) {
        for (int m = 0; m < ALL; m++)
            expected[p] +=
                weights[m] * forward[m] * wave(&flat, m / SAMPLES, m % SAMPLES, p, m % SAMPLES * 1e-6 * DWELL_US);
        difference += pow(cabs(at(r, p) - expected[p]), 2);
        norm += pow(cabs(expected[p]), 2);
    }
    if (!(sqrt(difference / norm) < 1e-4))
        fail_msg("the normal operator errs by %g", sqrt(difference / norm));
    double complex left = 0, right = 0;
    for (int p = 0; p < PIXELS; p++)
        left += conj(at(y, p)) * at(r, p);
    assert_int_equal(op.normal(op.of, y, r), 0);
    for (int p = 0; p < PIXELS; p++)
        right += conj(at(r, p)) * at(x, p);
    assert_true(cabs(left - right) < 1e-5 * cabs(left) + 1e-6 * sqrt(norm));
    /* The adjoint of one sample of value 1 gives its weight. */
    assert_int_equal(dev_alloc(dev, ALL * sizeof *data, (void **)&data), 0);
    memset(data, 0, ALL * sizeof *data);
    data[7].re = 1;
    assert_int_equal(nufft_adjoint(plan, 1, data, image), 0);
    assert_true(fabs(cabs(at(image, NY / 2 * NX + NX / 2)) - (double)weights[7]) < 1e-4);
    dev_release(dev, data);
    for (int i = 0; i < 4; i++)
        dev_release(dev, *all[i]);
    field_normal_close(&with);
    dev_release(dev, kernels);
    normal_free(normal);
    nufft_free(plan);
    field_free(field);
    frames_free(job.frames);
    json_decref(job.report);
    flat_free(&flat);
}

/* If all samples are taken at the same time t, a field only rotates each pixel's phase: every method's image without
 * the field map is that with it, times exp(-2 pi i f t). This does not hold for methods that compare pixels in
 * space. */
static void every_method_uses_the_field(void **state)
{
    (void)state;
    static const char *const methods[] = {"coils=sense", "method=cg-sense", "method=llr frames=2",
                                          "method=temporal-tv frames=2"};
    static float hz[PIXELS], times[SAMPLES];
    static struct c32 maps[PIXELS];
    const double seconds = 0.004;
    struct flat flat;
    field_fill(hz);
    for (int p = 0; p < PIXELS; p++)
        maps[p] = (struct c32){1, 0};
    for (int s = 0; s < SAMPLES; s++)
        times[s] = (float)seconds;
    flat_init(&flat, NX, NY, 1);
    for (int r = 0; r < READOUTS; r++) /* all of k-space: the rule does not hold for an image limited to a part of it */
        random_readout(&flat, SAMPLES, 1, 2, 2);
    flat.header.map_coils = 1;
    flat.maps = maps;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct job_outcome plain, with;
        char parameters[128];
        snprintf(parameters, sizeof parameters, "%s output=complex%s", methods[i],
                 i > 0 ? " stop_tolerance=0 iterations=5" : "");
        flat.header.field_maps = flat.header.times_count = 0;
        flat.field = flat.times = NULL;
        succeed(&flat, parameters, &plain);
        flat.header.field_maps = 1;
        flat.header.times_count = SAMPLES;
        flat.field = hz;
        flat.times = times;
        succeed(&flat, parameters, &with);
        double difference = 0, norm = 0;
        for (size_t p = 0; p < PIXELS * images_of(&plain)->count; p++) {
            const float *a = images_of(&plain)->data + 2 * p, *b = images_of(&with)->data + 2 * p;
            const double complex turned = (b[0] + I * b[1]) * cexp(-2 * M_PI * I * (double)hz[p % PIXELS] * seconds);
            difference += pow(cabs(turned - (a[0] + I * a[1])), 2);
            norm += pow(cabs(a[0] + I * a[1]), 2);
        }
        /* float32 rounding; for a series, the step size follows from an eigenvalue that fifteen steps of the power
         * method estimate to a few per cent. Without the field the images differ by about 1. */
        if (!(sqrt(difference / norm) < (i < 2 ? 1e-4 : 5e-2)))
            fail_msg("%s: the image with a field map differs by %g", methods[i], sqrt(difference / norm));
        drop(&with);
        drop(&plain);
    }
    flat_free(&flat);
}

/* Two slices on the same trajectories, each with its own map: fields[2][PIXELS]. */
static void slices_fill(struct flat *flat, float *fields)
{
    scan_fill(flat, 2);
    for (int r = 0; r < READOUTS; r++) {
        struct scan_readout *readout = flat_add(flat, SAMPLES, 2, 3);
        readout->sample_time_us = (float)DWELL_US;
        readout->idx[SCAN_SLICE] = 1;
        memcpy(flat->traj + readout->traj, flat->traj + flat->readouts[r].traj, 3 * SAMPLES * sizeof(float));
        for (int i = 0; i < 2 * SAMPLES; i++)
            flat->data[readout->data + (size_t)i] = (struct c32){(float)noise(), (float)noise()};
    }
    field_fill(fields);
    for (int p = 0; p < PIXELS; p++)
        fields[PIXELS + p] = 40 - 1.5f * fields[p];
    flat->header.field_maps = 2;
    flat->field = fields;
}

/* Coil c of a slice, computed by conjugate phase in double precision. */
static void slice_sum(const struct flat *flat, int slice, int c, double complex out[PIXELS])
{
    struct flat own = *flat;
    own.field = flat->field + slice * PIXELS;
    memset(out, 0, PIXELS * sizeof *out);
    for (int r = slice * READOUTS; r < (slice + 1) * READOUTS; r++)
        for (int s = 0; s < SAMPLES; s++) {
            const struct c32 d = flat->data[flat->readouts[r].data + (size_t)(c * SAMPLES + s)];
            const double w = flat->traj[flat->readouts[r].traj + (size_t)s * 3 + 2];
            for (int i = 0; i < PIXELS; i++)
                out[i] += w * (d.re + I * d.im) * wave(&own, r, s, i, s * 1e-6 * DWELL_US);
        }
}

static void each_slice_has_its_own_map(void **state)
{
    (void)state;
    static float fields[2 * PIXELS];
    struct job_outcome out;
    struct flat flat;
    double complex expected[PIXELS];
    slices_fill(&flat, fields);
    succeed(&flat, "coils=none output=complex dcf=given", &out);
    assert_int_equal(images_of(&out)->count, 2);
    for (int image = 0; image < 4; image++) {
        double difference = 0, norm = 0;
        const float *seen = images_of(&out)->data + (size_t)image * 2 * PIXELS;
        slice_sum(&flat, image / 2, image % 2, expected);
        for (int i = 0; i < PIXELS; i++) {
            difference += pow(cabs(seen[2 * i] + I * seen[2 * i + 1] - expected[i]), 2);
            norm += pow(cabs(expected[i]), 2);
        }
        if (!(sqrt(difference / norm) < TOLERANCE))
            fail_msg("coil %d of slice %d errs by %g", image % 2, image / 2, sqrt(difference / norm));
    }
    drop(&out);
    flat_free(&flat);
}

/* An iterative method's image of a slice equals that of a scan of the slice alone with its map; the time segments of
 * both maps, like those of one, err by less than the tolerance. */
static void slices_are_solved_with_their_own_maps(void **state)
{
    (void)state;
    static const char parameters[] =
        "method=cg-sense dcf=given output=complex iterations=5 stop_tolerance=0 tolerance=1e-4";
    static float fields[2 * PIXELS];
    static struct c32 maps[2 * PIXELS];
    struct job_outcome both, alone;
    struct flat flat;
    slices_fill(&flat, fields);
    for (int p = 0; p < PIXELS; p++) {
        maps[p] = (struct c32){1, 0.02f * (float)(p % NX)};
        maps[PIXELS + p] = (struct c32){0.5f, -0.03f * (float)(p / NX)};
    }
    flat.header.map_coils = 2;
    flat.maps = maps;
    succeed(&flat, parameters, &both);
    for (int slice = 0; slice < 2; slice++) {
        flat.header.field_maps = 1;
        flat.field = fields + slice * PIXELS;
        for (int r = 0; r < 2 * READOUTS; r++) /* dummy readouts are not used */
            flat.readouts[r].flags = r / READOUTS == slice ? 0 : UINT64_C(1) << (SCAN_DUMMY - 1);
        succeed(&flat, parameters, &alone);
        assert_int_equal(images_of(&alone)->count, 1);
        double difference = 0, norm = 0;
        for (int i = 0; i < 2 * PIXELS; i++) {
            const double a = images_of(&both)->data[slice * 2 * PIXELS + i], b = images_of(&alone)->data[i];
            difference += (a - b) * (a - b);
            norm += b * b;
        }
        if (!(sqrt(difference / norm) < 1e-3))
            fail_msg("slice %d differs by %g", slice, sqrt(difference / norm));
        drop(&alone);
    }
    drop(&both);
    flat_free(&flat);
}

static void other_numbers_of_maps_are_refused(void **state)
{
    (void)state;
    static float fields[3 * PIXELS];
    struct job_outcome out;
    struct flat flat;
    slices_fill(&flat, fields);
    flat.header.field_maps = 3;
    refuse(&flat, "dcf=given", ERR_MALFORMED_FILE, -1);
    assert_non_null(strstr(err_last()->text, "3 slices"));
    flat.header.field_maps = 2;
    for (int r = 0; r < READOUTS; r++)
        flat.readouts[r].idx[SCAN_SLICE] = 2;
    refuse(&flat, "dcf=given", ERR_MALFORMED_FILE, -1);
    flat.header.field_maps = 1;
    succeed(&flat, "dcf=given", &out);
    char *warnings = json_dumps(json_object_get(out.report, "warnings"), 0);
    assert_non_null(strstr(warnings, "one field map"));
    free(warnings);
    drop(&out);
    flat_free(&flat);
}

static void a_field_without_effect_changes_nothing(void **state)
{
    (void)state;
    static float hz[PIXELS];
    struct job_outcome plain, with;
    struct flat flat;
    scan_fill(&flat, 2);
    succeed(&flat, "dcf=given", &plain);
    flat.header.field_maps = 1;
    flat.field = hz;
    for (int i = 0; i < 2; i++) {
        succeed(&flat, i ? "dcf=given off_resonance=off" : "dcf=given", &with);
        assert_memory_equal(images_of(&with)->data, images_of(&plain)->data, PIXELS * sizeof(float));
        assert_string_equal(decided(&with, "off-resonance"), i ? "off" : "none");
        drop(&with);
        field_fill(hz);
    }
    drop(&plain);
    flat_free(&flat);
}

static void bad_field_maps_are_refused(void **state)
{
    (void)state;
    static float hz[PIXELS];
    struct flat flat;
    scan_fill(&flat, 1);
    flat.header.field_maps = 1;
    flat.field = hz;
    field_fill(hz);
    hz[17] = NAN;
    refuse(&flat, "dcf=given", ERR_DATA_NONFINITE, -1);
    hz[17] = 1e7f; /* 80,000 cycles */
    refuse(&flat, "dcf=given", ERR_LIMIT, -1);
    field_fill(hz);
    flat.readouts[4].sample_time_us = 0;
    refuse(&flat, "dcf=given", ERR_MALFORMED_FILE, 4);
    flat.readouts[4].sample_time_us = (float)DWELL_US;
    flat.header.encodings = 2;
    flat.encodings[0].matrix[0] = NX + 2;
    for (int r = 0; r < READOUTS; r++)
        flat.readouts[r].encoding = 1;
    refuse(&flat, "dcf=given", ERR_MALFORMED_FILE, -1);
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(segments_meet_their_tolerance, random_reset),
        cmocka_unit_test_setup(conjugate_phase_is_the_double_sum, random_reset),
        cmocka_unit_test_setup(normal_operator_is_the_double_sum, random_reset),
        cmocka_unit_test_setup(every_method_uses_the_field, random_reset),
        cmocka_unit_test_setup(each_slice_has_its_own_map, random_reset),
        cmocka_unit_test_setup(slices_are_solved_with_their_own_maps, random_reset),
        cmocka_unit_test_setup(other_numbers_of_maps_are_refused, random_reset),
        cmocka_unit_test_setup(a_field_without_effect_changes_nothing, random_reset),
        cmocka_unit_test_setup(bad_field_maps_are_refused, random_reset),
    };
    return cmocka_run_group_tests(tests, device_open, device_close);
}
