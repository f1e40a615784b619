/* Gravity of recon/nbody/ on the CPU: nbody_cases.h, nbody_motion_cases.h. */
#define NBODY_DEVICE DEV_CPU
#include "tests/unit/nbody_cases.h"
#include "tests/unit/nbody_motion_cases.h"

/* A lattice of 6^3 bodies, whose cut-off lies at distances of many pairs, up to the box's side, where each body has six
 * images of itself: none of the pairs at the cut-off counts, whichever way their distances are rounded. */
static void images_at_the_cut_off_count_evenly(void **state)
{
    (void)state;
    static const double cutoffs[] = {1, 1.5, 3};
    for (size_t k = 0; k < sizeof cutoffs / sizeof *cutoffs; k++) {
        struct cloud *cloud = cloud_of(216, 3, 6);
        struct nbody_setup setup = p3m(true, NBODY_PLUMMER), within;
        double largest = 0;
        setup.method = NBODY_SHORT;
        setup.law = NBODY_CUT;
        setup.cutoff = cutoffs[k];
        for (size_t i = 0; i < cloud->count; i++) {
            cloud->mass[i] = 1;
            for (size_t d = 0, n = i; d < 3; d++, n /= 6)
                cloud->at[i][d] = 0.5 * (double)(n % 6) + 0.039;
        }
        evaluate(cloud, &setup, 0);
        within = setup;
        within.cutoff *= 0.99; /* no pair of the lattice is between */
        near_forces(cloud, &within);
        for (size_t i = 0; i < cloud->count; i++)
            for (int d = 0; d < 3; d++)
                largest = fmax(largest, fabs(cloud->acceleration[i][d]));
        /* The forces cancel: what is left of the nearest six, g / 0.5^2 = 10 each, is float32's rounding, 1e-6 of them,
         * and as much of each shell of pairs farther away, of which there are 6 to the box's side; one pair at the
         * cut-off that counts alone has g / 3^2 = 0.28. */
        assert_true(largest < 1e-3);
        assert_true(errors_of(cloud).potential < 2e-6); /* as in direct_is_the_sum_over_all_pairs() */
        free(cloud);
    }
}

/* Sums as short as these call their listeners a few times, or once. Without them, the pairs' share would pass at once.
 */
static void progress_rises_to_the_end(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    double(*at)[3] = allocate(COUNT, sizeof *at), *mass = allocate(COUNT, sizeof *mass);
    double(*acceleration)[3] = allocate(COUNT, sizeof *acceleration);
    for (size_t i = 0; i < COUNT; i++) {
        mass[i] = 1 + uniform(i);
        for (size_t d = 0; d < 3; d++)
            at[i][d] = uniform(9000 + 3 * i + d);
    }
    for (int method = NBODY_P3M; method <= NBODY_DIRECT; method++) {
        struct nbody_setup setup = p3m(false, NBODY_SPLINE);
        struct dev *dev = device(1);
        struct nbody_gravity *gravity = NULL;
        struct asking all = {.stop_at = -1};
        const struct nbody_poll poll = {ask, &all};
        setup.method = (enum nbody_method)method;
        assert_int_equal(nbody_gravity_create(&gravity, dev, &setup, COUNT, mass), 0);
        assert_int_equal(nbody_gravity_evaluate(gravity, (const double(*)[3])at, acceleration, NULL, &poll), 0);
        if (!(all.widest < 0.3 && all.complete >= 0.9))
            fail_msg("method %d: %g is the widest gap, %g the last", method, all.widest, all.complete);
        nbody_gravity_free(gravity);
        dev_free(dev);
    }
    free(at);
    free(mass);
    free(acceleration);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p3m_is_the_sum_over_all_images),
        cmocka_unit_test(images_add_up),
        cmocka_unit_test(direct_is_the_sum_over_all_pairs),
        cmocka_unit_test(near_forces_follow_their_law),
        cmocka_unit_test(images_at_the_cut_off_count_evenly),
        cmocka_unit_test(the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(a_kepler_orbit_closes),
        cmocka_unit_test(energy_and_momentum_are_kept),
        cmocka_unit_test(an_evaluation_can_be_canceled),
        cmocka_unit_test(progress_rises_to_the_end),
        cmocka_unit_test(memory_is_estimated_before_it_is_allocated),
        cmocka_unit_test(bodies_too_close_together_are_reported),
        cmocka_unit_test(mesh_sizes_have_small_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
