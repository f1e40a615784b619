/* Plans that the pipeline keeps from one job to the next. */
#include "tests/unit/recon_fixture.h"

/* Run with the cache: the image and the decisions equal those of a job without it, and the last job's plan is reused if
 * `same`. */
static void run_cached(struct flat *flat, struct recon_cache *with, const char *parameters, bool same)
{
    struct job_outcome kept = {0}, fresh = {0};
    cache = with;
    succeed(flat, parameters, &kept);
    cache = NULL;
    succeed(flat, parameters, &fresh);
    if ((reported(&kept, "plans") == 0) != same)
        fail_msg("\"%s\": %lld plans were made", parameters, (long long)reported(&kept, "plans"));
    assert_true(reported(&fresh, "plans") > 0);
    assert_int_equal(reported(&kept, "bins"), reported(&fresh, "bins"));
    assert_true(json_equal(json_object_get(kept.report, "decisions"), json_object_get(fresh.report, "decisions")));
    const struct image_series *a = images_of(&kept), *b = images_of(&fresh);
    assert_int_equal(a->count * a->channels * a->size[0] * a->size[1],
                     b->count * b->channels * b->size[0] * b->size[1]);
    assert_memory_equal(a->data, b->data, a->count * a->channels * a->size[0] * a->size[1] * sizeof(float));
    drop(&kept);
    drop(&fresh);
}

static int stop_late(void *context, const struct step_progress *now)
{
    (void)context;
    return now->step == RECON_STEP_GRIDDING;
}

static void a_plan_is_reused_if_nothing_changed(void **state)
{
    (void)state;
    static const char *const others[] = {
        "tolerance=1e-3", "dcf=none",       "dcf=pipe",       "dcf=pipe dcf_iterations=3",
        "width=7",        "oversampling=2", "matrix=encoded", "averages=separate"};
    struct recon_cache *with = NULL;
    struct flat flat;
    flat_init(&flat, 24, 20, 1);
    flat.encodings[0].recon_matrix[0] = 12;
    flat.encodings[0].recon_fov_mm[0] = flat.encodings[0].fov_mm[0];
    for (int i = 0; i < 3; i++)
        random_readout(&flat, 40, 2, 3, 2);
    assert_int_equal(recon_cache_create(&with), 0);
    run_cached(&flat, with, "", false);
    run_cached(&flat, with, "", true);
    flat.data[17].re += 1; /* different data on the same trajectory */
    run_cached(&flat, with, "", true);
    run_cached(&flat, with, "coils=none", true);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        run_cached(&flat, with, others[i], strcmp(others[i], "averages=separate") == 0);
        run_cached(&flat, with, others[i], true);
        run_cached(&flat, with, "", strcmp(others[i], "averages=separate") == 0);
    }
    flat.traj[3 * 60] += 0.01f; /* one sample */
    run_cached(&flat, with, "", false);
    run_cached(&flat, with, "", true);
    flat.traj[3 * 60 + 2] += 0.25f; /* one weight */
    run_cached(&flat, with, "", false);
    flat.readouts[2].coils = 1; /* fewer coils at a time */
    flat.readouts[0].coils = flat.readouts[1].coils = 1;
    run_cached(&flat, with, "", false);
    flat.readouts[1].discard_post = 1; /* one sample fewer */
    run_cached(&flat, with, "", false);
    /* A canceled job leaves a usable plan. */
    struct job_outcome out = {0};
    const struct job_listener listener = {NULL, stop_late};
    cache = with;
    assert_int_equal(run(&flat, "dcf=none", &out, &listener), ERR_CANCELED);
    cache = NULL;
    run_cached(&flat, with, "dcf=none", true);
    recon_cache_free(with);
    flat_free(&flat);
}

/* The same samples divided into readouts differently: analytic weights then depend on different curves. */
static void another_division_into_readouts_is_another_trajectory(void **state)
{
    (void)state;
    struct recon_cache *with = NULL;
    assert_int_equal(recon_cache_create(&with), 0);
    for (unsigned cut = 1; cut <= 2; cut++) {
        struct flat flat;
        flat_init(&flat, 32, 32, 1);
        spokes(&flat, 48, 64, 1);
        for (uint64_t i = 0; cut == 2 && i < 2; i++)
            flat.readouts[i].samples = i == 0 ? 60 : 68;
        if (cut == 2) {
            flat.readouts[1].traj -= 4 * flat.readouts[1].traj_dims;
            flat.readouts[1].data -= 4;
        }
        run_cached(&flat, with, "dcf=auto dcf_iterations=2", false);
        run_cached(&flat, with, "dcf=auto dcf_iterations=2", true);
        flat_free(&flat);
    }
    recon_cache_free(with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_plan_is_reused_if_nothing_changed, random_reset),
        cmocka_unit_test_setup(another_division_into_readouts_is_another_trajectory, random_reset),
    };
    return cmocka_run_group_tests_name("recon_plans", tests, device_open, device_close);
}
