/* Kind blob (recon/blob/) against sums in double precision: a radius per point, both truncations, the lattice, frames,
 * surfaces of known size, and refused jobs. */
#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "recon/blob/blob_job.h"
#include "recon/particle/radii.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- a job ---- */

/* The input and parameters of a job, and its results. */
struct trial {
    struct particles_header header;
    struct blob_input input;
    struct param_values values;
    struct job_request request;
    struct job_outcome outcome;
    double *position, *radius;
    uint8_t *element;
};

static void trial_make(struct trial *t, size_t frames, size_t count)
{
    *t = (struct trial){.request = {.kind = &blob_kind}};
    t->position = allocate(3 * frames * count, sizeof *t->position);
    t->radius = allocate(frames * count, sizeof *t->radius);
    t->element = allocate(frames * count, sizeof *t->element);
    t->input.particles = (struct particles){.header = &t->header, .frames = frames, .count = count};
    t->input.particles.position = t->position;
    t->input.particles.radius = t->radius;
    param_values_init(&blob_kind, &t->values);
    t->request.values = &t->values;
}

/* Points at random in a cube of 12, with radii of 1 to 2. */
static void trial_random(struct trial *t, size_t frames, size_t count)
{
    trial_make(t, frames, count);
    for (size_t i = 0; i < 3 * frames * count; i++)
        t->position[i] = 12 * uniform(i) - 100;
    for (size_t i = 0; i < frames * count; i++)
        t->radius[i] = 1 + uniform(7777 + i % count);
}

static void set(struct trial *t, const char *name, const char *text)
{
    assert_int_equal(param_values_set(&blob_kind, &t->values, name, text), 0);
}

static int trial_run(struct trial *t, int threads, const struct job_listener *listener)
{
    struct dev *dev = NULL;
    job_outcome_free(&t->outcome);
    assert_int_equal(kind_check(&blob_kind, &t->values), 0);
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
    const int rc = blob_kind_run.run(&t->outcome, dev, &t->request, listener, &t->input);
    dev_free(dev);
    return rc;
}

static void trial_free(struct trial *t)
{
    job_outcome_free(&t->outcome);
    free(t->position);
    free(t->radius);
    free(t->element);
}

static const struct volume *volume_of(const struct trial *t)
{
    const struct job_result *result = job_outcome_find(&t->outcome, "volume");
    assert_non_null(result);
    return result->of;
}

/* ---- the density ---- */

/* The sum at a node in double precision. *within is the number of points that reach it; *doubtful: a point's cut-off
 * lies on the node.
 */
static double oracle(const struct trial *t, size_t frame, const double at[3], double b, double reach, bool cube,
                     int *within, bool *doubtful)
{
    double sum = 0;
    *within = 0;
    *doubtful = false;
    for (size_t i = 0; i < t->input.particles.count; i++) {
        const double *p = t->position + 3 * (frame * t->input.particles.count + i);
        const double radius = (double)(float)t->radius[frame * t->input.particles.count + i];
        double r2 = 0, furthest = 0;
        for (int d = 0; d < 3; d++) {
            r2 += (at[d] - p[d]) * (at[d] - p[d]);
            furthest = fmax(furthest, fabs(at[d] - p[d]));
        }
        const double away = (cube ? furthest : sqrt(r2)) / radius - reach;
        *doubtful = *doubtful || fabs(away) < 1e-9;
        if (away >= 0)
            continue;
        sum += exp(b * (r2 / (radius * radius) - 1));
        ++*within;
    }
    return sum;
}

static void compare(const struct trial *t, double b, double eps, bool cube)
{
    const struct volume *v = volume_of(t);
    size_t reached = 0;
    for (size_t i = 0; i < v->frames * v->size[0] * v->size[1] * v->size[2]; i++) {
        const size_t place[3] = {i % v->size[0], i / v->size[0] % v->size[1], i / v->size[0] / v->size[1] % v->size[2]};
        double at[3];
        int within;
        bool doubtful;
        for (int d = 0; d < 3; d++)
            at[d] = v->origin[d] + (double)place[d] * v->spacing[d];
        const double exact = oracle(t, i / (v->size[0] * v->size[1] * v->size[2]), at, b, sqrt(1 + log(eps) / b), cube,
                                    &within, &doubtful);
        /* Each of three factors errs by 1e-6 of its maximum; float32 arithmetic adds as much, and rounds the terms. */
        const double tolerance = within * 6e-6 * exp(-b) + 1e-6 * exact;
        assert_true(doubtful || fabs((double)v->data[i] - exact) <= tolerance);
        reached += (size_t)within;
    }
    assert_true(reached > 1000);
}

static void densities_are_those_of_double_precision(void **state)
{
    (void)state;
    static const struct {
        const char *b, *eps, *truncation;
    } cases[] = {{"-2.5", "1e-4", "cube"}, {"-2.5", "1e-4", "sphere"}, {"-0.7", "0.01", "sphere"},
                 {"-6", "1e-3", "cube"},   {"-8", "1e-6", "sphere"},   {"-0.3", "0.1", "cube"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial t;
        trial_random(&t, 1, 60);
        /* The first points lie on nodes, or a whole number of spacings from each other: 60.. is exact in binary. */
        for (int p = 0; p < 3; p++)
            for (int d = 0; d < 3; d++)
                t.position[3 * p + d] = -94 + p * 0.75;
        set(&t, "blobbiness", cases[i].b);
        set(&t, "eps", cases[i].eps);
        set(&t, "truncation", cases[i].truncation);
        set(&t, "spacing", "0.75");
        assert_int_equal(trial_run(&t, 2, NULL), 0);
        compare(&t, atof(cases[i].b), atof(cases[i].eps), *cases[i].truncation == 'c');
        trial_free(&t);
    }
}

/* 400,000 points: all but one in a single bin, the last alone in a wide lattice, out of reach of the others. */
static void a_crowd_in_one_bin_is_summed(void **state)
{
    (void)state;
    static const char *const truncations[] = {"cube", "sphere"}, *const depths[] = {"1000", "auto"};
    for (int i = 0; i < 2; i++) {
        struct trial t;
        trial_make(&t, 1, 400000);
        for (size_t k = 0; k < t.input.particles.count; k++) {
            for (size_t d = 0; d < 3; d++)
                t.position[3 * k + d] = k ? 0.2 + 0.6 * uniform(3 * k + d) : 4.5;
            t.radius[k] = 0.8 + 0.2 * uniform(7777777 + k);
        }
        set(&t, "truncation", truncations[i]);
        set(&t, "bin_depth", depths[i]);
        set(&t, "spacing", "2.5");
        assert_int_equal(trial_run(&t, 2, NULL), 0);
        compare(&t, -2.5, 1e-4, i == 0);
        trial_free(&t);
    }
}

static void the_lattice_begins_at_the_first_point_less_the_padding(void **state)
{
    (void)state;
    struct trial t;
    trial_make(&t, 1, 2);
    const double at[6] = {1, 2, 3, 4, 2, 3.5};
    memcpy(t.position, at, sizeof at);
    t.radius[0] = t.radius[1] = 1;
    set(&t, "spacing", "0.5");
    set(&t, "padding", "1.25");
    assert_int_equal(trial_run(&t, 1, NULL), 0);
    const struct volume *v = volume_of(&t);
    /* floor((3 + 2.5) / 0.5) + 1, floor(2.5 / 0.5) + 1, floor((0.5 + 2.5) / 0.5) + 1 */
    const size_t size[3] = {12, 6, 7};
    for (int d = 0; d < 3; d++) {
        assert_int_equal(v->size[d], size[d]);
        assert_true(v->origin[d] == at[d] - 1.25 && v->spacing[d] == 0.5);
    }
    assert_non_null(strstr(v->title, "B = -2.5"));
    trial_free(&t);
}

static void each_frame_is_summed_separately(void **state)
{
    (void)state;
    struct trial t;
    trial_random(&t, 3, 20);
    set(&t, "spacing", "1");
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    assert_int_equal(volume_of(&t)->frames, 3);
    compare(&t, -2.5, 1e-4, true);
    /* The mean of the frames, on the same lattice. */
    struct job_outcome each = t.outcome;
    t.outcome = (struct job_outcome){.results = 0};
    set(&t, "frames", "mean");
    set(&t, "results", "volume,mesh");
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    const struct volume *mean = volume_of(&t), *all = job_outcome_find(&each, "volume")->of;
    const size_t nodes = mean->size[0] * mean->size[1] * mean->size[2];
    assert_int_equal(mean->frames, 1);
    for (size_t i = 0; i < nodes; i++) {
        const double sum = (double)all->data[i] + (double)all->data[nodes + i] + (double)all->data[2 * nodes + i];
        assert_true(fabs((double)mean->data[i] - sum / 3) <= 1e-6 * sum);
    }
    job_outcome_free(&each);
    set(&t, "frames", "first");
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    assert_int_equal(volume_of(&t)->frames, 1);
    compare(&t, -2.5, 1e-4, true);
    set(&t, "frames", "each");
    assert_int_equal(trial_run(&t, 2, NULL), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "3 frames"));
    trial_free(&t);
}

static void threads_do_not_change_the_volume(void **state)
{
    (void)state;
    struct trial one, many;
    trial_random(&one, 1, 300);
    trial_random(&many, 1, 300);
    assert_int_equal(trial_run(&one, 1, NULL), 0);
    for (int threads = 2; threads <= 5; threads += 3) {
        assert_int_equal(trial_run(&many, threads, NULL), 0);
        const struct volume *a = volume_of(&one), *b = volume_of(&many);
        assert_memory_equal(a->data, b->data, a->size[0] * a->size[1] * a->size[2] * sizeof *a->data);
    }
    trial_free(&one);
    trial_free(&many);
}

/* ---- the surface ---- */

static double surface_number(const struct trial *t, const char *name)
{
    return json_number_value(json_object_get(json_object_get(t->outcome.report, "surface"), name));
}

static void a_point_alone_is_a_sphere_of_its_radius(void **state)
{
    (void)state;
    struct trial t;
    trial_make(&t, 1, 2);
    const double at[6] = {0, 0, 0, 20, 0, 0};
    memcpy(t.position, at, sizeof at);
    t.radius[0] = 1.5;
    t.radius[1] = 2;
    set(&t, "results", "mesh");
    set(&t, "spacing", "0.2");
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    assert_null(job_outcome_find(&t.outcome, "volume"));
    const double pi = 3.14159265358979, area = 4 * pi * (1.5 * 1.5 + 4), volume = 4 * pi / 3 * (3.375 + 8);
    /* Errors: (h / R)^2 = 1.8 % for chords, of which less than one eighth remains; B h^2 / 4 R^2 = 1.1 % of h because
     * the density is not linear between nodes. */
    assert_true(fabs(surface_number(&t, "area") / area - 1) < 5e-3);
    assert_true(fabs(surface_number(&t, "volume") / volume - 1) < 5e-3);
    assert_true(surface_number(&t, "euler") == 4 && surface_number(&t, "pieces") == 2);
    assert_true(json_is_true(json_object_get(json_object_get(t.outcome.report, "surface"), "closed")));
    trial_free(&t);
}

static void a_surface_at_the_border_is_reported(void **state)
{
    (void)state;
    struct trial t;
    trial_random(&t, 1, 30);
    set(&t, "results", "volume,mesh");
    set(&t, "padding", "0");
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    assert_non_null(job_outcome_find(&t.outcome, "volume"));
    assert_non_null(job_outcome_find(&t.outcome, "mesh"));
    assert_int_equal(json_array_size(json_object_get(t.outcome.report, "warnings")), 1);
    assert_null(json_object_get(json_object_get(t.outcome.report, "surface"), "volume"));
    set(&t, "isovalue", "1e5");
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    const json_t *warning = json_array_get(json_object_get(t.outcome.report, "warnings"), 0);
    assert_non_null(strstr(json_string_value(warning), "is no surface"));
    trial_free(&t);
}

/* ---- radii ---- */

static void radii_come_from_the_file_the_table_or_the_parameter(void **state)
{
    (void)state;
    struct trial t;
    trial_random(&t, 1, 40);
    for (int i = 0; i < 40; i++)
        t.element[i] = i % 2 ? 6 : 26;
    t.input.particles.element = t.element;
    t.input.particles.radius = NULL;
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    for (int i = 0; i < 40; i++)
        t.radius[i] = i % 2 ? 1.70 : 2.44;
    compare(&t, -2.5, 1e-4, true);
    set(&t, "radius", "1.25");
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    for (int i = 0; i < 40; i++)
        t.radius[i] = 1.25;
    compare(&t, -2.5, 1e-4, true);
    /* Points without a radius contribute nothing. */
    param_values_init(&blob_kind, &t.values);
    t.input.particles.radius = t.radius;
    for (int i = 0; i < 10; i++)
        t.radius[i] = 0;
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    assert_non_null(
        strstr(json_string_value(json_array_get(json_object_get(t.outcome.report, "warnings"), 0)), "10 of 40 points"));
    for (int i = 0; i < 10; i++)
        for (int d = 0; d < 3; d++)
            t.position[3 * i + d] = 1e6; /* beyond the oracle's reach */
    for (int i = 0; i < 10; i++)
        t.radius[i] = 1;
    compare(&t, -2.5, 1e-4, true);
    trial_free(&t);
}

static void points_without_radii_are_refused(void **state)
{
    (void)state;
    struct trial t;
    trial_random(&t, 1, 5);
    t.input.particles.radius = NULL;
    assert_int_equal(trial_run(&t, 1, NULL), ERR_MALFORMED_FILE);
    assert_non_null(strstr(err_last()->text, "neither radii nor elements"));
    t.input.particles.element = t.element;
    for (int i = 0; i < 5; i++)
        t.element[i] = i == 3 ? 61 : 8;
    assert_int_equal(trial_run(&t, 1, NULL), ERR_MALFORMED_FILE);
    assert_non_null(strstr(err_last()->text, "Point 4 (Pm)"));
    t.input.particles.radius = t.radius;
    memset(t.radius, 0, 5 * sizeof *t.radius);
    assert_int_equal(trial_run(&t, 1, NULL), ERR_MALFORMED_FILE);
    trial_free(&t);
}

static void the_table_of_radii_has_a_plausible_value_for_each_element(void **state)
{
    (void)state;
    static const struct {
        const char *symbol;
        double radius;
    } known[] = {{"H", 1.10},  {"C", 1.70},  {"N", 1.55},  {"O", 1.52},  {"P", 1.80},  {"S", 1.80},  {"Ca", 2.31},
                 {"Fe", 2.44}, {"Zn", 2.39}, {"I", 1.98},  {"La", 2.98}, {"Gd", 2.83}, {"Lu", 2.74}, {"Au", 2.32},
                 {"Rn", 2.20}, {"U", 2.71},  {"Es", 2.70}, {"Pm", 0},    {"Fm", 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(particle_radius(particle_element(known[i].symbol, strlen(known[i].symbol))) == known[i].radius);
    assert_true(particle_radius(0) == 0 && particle_radius(-1) == 0 && particle_radius(1000) == 0);
}

/* ---- limits ---- */

/* The engine can fit the steepest and the flattest law that the parameters allow. */
static void every_law_that_parameters_allow_can_be_fitted(void **state)
{
    (void)state;
    static const char *const b[] = {"-8", "-7", "-3", "-1", "-0.05"}, *const eps[] = {"1e-6", "1e-4", "0.01", "0.5"};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 4; j++) {
            struct trial t;
            trial_make(&t, 1, 1);
            t.radius[0] = 1;
            set(&t, "blobbiness", b[i]);
            set(&t, "eps", eps[j]);
            set(&t, "spacing", "2.5");
            assert_int_equal(trial_run(&t, 1, NULL), 0);
            trial_free(&t);
        }
}

static void jobs_beyond_memory_are_refused_before_they_are_computed(void **state)
{
    (void)state;
    struct trial t;
    trial_random(&t, 1, 50);
    set(&t, "results", "volume,mesh");
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    const uint64_t bytes = t.outcome.most_bytes;
    t.request.room = (struct job_room){.most = bytes - 1, .most_of = "option result-limit"};
    assert_int_equal(trial_run(&t, 2, NULL), ERR_RESULT_TOO_LARGE);
    assert_non_null(strstr(err_last()->text, "triangles"));
    assert_int_equal(err_last()->required, bytes);
    t.request.room = (struct job_room){.most = 1000, .most_of = "option result-limit"};
    assert_int_equal(trial_run(&t, 2, NULL), ERR_RESULT_TOO_LARGE);
    assert_non_null(strstr(err_last()->text, "nodes"));
    t.request.room = (struct job_room){.free = bytes - 1};
    assert_int_equal(trial_run(&t, 2, NULL), ERR_SPOOL_FULL);
    t.request.room = (struct job_room){.most = bytes};
    assert_int_equal(trial_run(&t, 2, NULL), 0);
    /* (12 / 0.01)^3 nodes a thousand times over: more than any memory. */
    t.request.room = (struct job_room){.most = 0};
    set(&t, "spacing", "0.01");
    set(&t, "padding", "500");
    assert_int_equal(trial_run(&t, 2, NULL), ERR_NO_MEMORY);
    assert_true(err_last()->required > INT64_C(1) << 50);
    set(&t, "padding", "10000");
    assert_int_equal(trial_run(&t, 2, NULL), ERR_BAD_PARAMETER);
    trial_free(&t);
}

struct told {
    int calls, stop_at, last_step;
    double fraction;
};

static int hear(void *context, const struct step_progress *now)
{
    struct told *told = context;
    assert_true(now->fraction >= told->fraction && now->fraction <= 1);
    assert_true(now->step >= told->last_step);
    told->fraction = now->fraction;
    told->last_step = now->step;
    return ++told->calls == told->stop_at;
}

static void progress_rises_and_any_call_can_cancel_the_job(void **state)
{
    (void)state;
    struct trial t;
    struct told all = {.stop_at = 0};
    const struct job_listener listener = {&all, hear};
    trial_random(&t, 1, 200);
    set(&t, "results", "mesh");
    assert_int_equal(trial_run(&t, 2, &listener), 0);
    assert_int_equal(all.last_step, BLOB_STEP_SURFACE);
    assert_true(all.calls >= 5);
    for (int stop = 1; stop <= all.calls; stop++) {
        struct told some = {.stop_at = stop};
        assert_int_equal(trial_run(&t, 1, &(struct job_listener){&some, hear}), ERR_CANCELED);
        assert_int_equal(some.calls, stop);
    }
    struct told volume = {.stop_at = 0}; /* without a surface, the density ends where the writing begins */
    set(&t, "results", "volume");
    assert_int_equal(trial_run(&t, 1, &(struct job_listener){&volume, hear}), 0);
    assert_true(volume.last_step == BLOB_STEP_DENSITY && volume.fraction > 0.85);
    trial_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(densities_are_those_of_double_precision),
        cmocka_unit_test(a_crowd_in_one_bin_is_summed),
        cmocka_unit_test(the_lattice_begins_at_the_first_point_less_the_padding),
        cmocka_unit_test(each_frame_is_summed_separately),
        cmocka_unit_test(threads_do_not_change_the_volume),
        cmocka_unit_test(a_point_alone_is_a_sphere_of_its_radius),
        cmocka_unit_test(a_surface_at_the_border_is_reported),
        cmocka_unit_test(radii_come_from_the_file_the_table_or_the_parameter),
        cmocka_unit_test(points_without_radii_are_refused),
        cmocka_unit_test(the_table_of_radii_has_a_plausible_value_for_each_element),
        cmocka_unit_test(every_law_that_parameters_allow_can_be_fitted),
        cmocka_unit_test(jobs_beyond_memory_are_refused_before_they_are_computed),
        cmocka_unit_test(progress_rises_and_any_call_can_cancel_the_job),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("blob", tests, NULL, NULL);
}
