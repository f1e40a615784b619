/* Gravity of recon/nbody/ on a GPU: the CPU's cases. Without a GPU, reports everything as skipped. */
#define NBODY_DEVICE DEV_GPU
#include "tests/gpu/gpu_or_skip.h"
#include "tests/unit/nbody_cases.h"
#include "tests/unit/nbody_motion_cases.h"

int main(void)
{
    gpu_or_skip();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p3m_is_the_sum_over_all_images),
        cmocka_unit_test(images_add_up),
        cmocka_unit_test(direct_is_the_sum_over_all_pairs),
        cmocka_unit_test(near_forces_follow_their_law),
        cmocka_unit_test(the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(a_kepler_orbit_closes),
        cmocka_unit_test(energy_and_momentum_are_kept),
        cmocka_unit_test(an_evaluation_can_be_canceled),
        cmocka_unit_test(memory_is_estimated_before_it_is_allocated),
        cmocka_unit_test(bodies_too_close_together_are_reported),
        cmocka_unit_test(mesh_sizes_have_small_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
