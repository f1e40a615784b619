/* Gravity of recon/nbody/ on a GPU: the CPU's cases. Without a GPU, reports everything as skipped. */
#define NBODY_DEVICE DEV_GPU
#include "tests/gpu/gpu_or_skip.h"
#include "tests/unit/nbody_cases.h"
#include "tests/unit/nbody_motion_cases.h"

static void evaluate_on(enum dev_kind kind, struct cloud *cloud, const struct nbody_setup *setup)
{
    struct dev *dev = NULL;
    struct nbody_gravity *gravity = NULL;
    assert_int_equal(dev_create(&dev, kind, 0, 0), 0);
    assert_int_equal(nbody_gravity_create(&gravity, dev, setup, cloud->count, cloud->mass), 0);
    assert_int_equal(
        nbody_gravity_evaluate(gravity, (const double(*)[3])cloud->at, cloud->acceleration, cloud->potential, NULL), 0);
    nbody_gravity_free(gravity);
    dev_free(dev);
}

/* Transforms on the GPU, on the host beside it, and of a CPU alone give the same fields, on meshes with kernels of
 * their own and others, periodic and open. FFTs in float32 err by some 1e-7 of the root mean square of a field for each
 * of log2(mesh^3) = 12 to 21 stages, and interpolation adds up 216 nodes of either sign: 1e-5 of the mean force is a
 * few times that. Waves of half the mesh's nodes, which the GPU leaves out, are damped to exp(-pi^2) = 5e-5 of a wave
 * that white noise has in 3 / mesh of its waves: 1e-5 of a potential. The total force is 0 but for as much. */
static void transforms_agree_wherever_they_run(void **state)
{
    (void)state;
    static const struct {
        bool periodic;
        int mesh;
    } cases[] = {{true, 16}, {true, 54}, {true, 128}, {false, 16}, {false, 32}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct cloud *cloud = cloud_of(240, 3, 5 + k);
        struct nbody_setup setup = p3m(cases[k].periodic, NBODY_SPLINE);
        uint64_t bytes[2], host[2];
        struct dev *dev = device(0);
        setup.mesh = cases[k].mesh;
        assert_true(nbody_gravity_on_gpu(dev, &setup));
        for (int on_host = 0; on_host < 2; on_host++) {
            setup.host_transforms = on_host;
            assert_int_equal(nbody_gravity_memory(dev, &setup, cloud->count, (const double(*)[3])cloud->at,
                                                  &bytes[on_host], &host[on_host]),
                             0);
        }
        assert_true(bytes[1] < bytes[0] && host[1] > host[0]);
        dev_free(dev);
        for (int other = 0; other < 2; other++) {
            setup.host_transforms = true;
            evaluate_on(other ? DEV_GPU : DEV_CPU, cloud, &setup);
            memcpy(cloud->exact, cloud->acceleration, sizeof cloud->exact);
            memcpy(cloud->exact_potential, cloud->potential, sizeof cloud->exact_potential);
            setup.host_transforms = false;
            evaluate_on(DEV_GPU, cloud, &setup);
            const struct errors e = errors_of(cloud);
            print_message("# mesh %d, %s: mean %.2g, largest %.2g, potential %.2g\n", setup.mesh,
                          setup.periodic ? "periodic" : "open", e.mean, e.largest, e.potential);
            assert_true(e.mean < 1e-5 && e.largest < 1e-4 && e.potential < 1e-5);
        }
        memcpy(cloud->exact, cloud->acceleration, sizeof cloud->exact);
        evaluate_on(DEV_GPU, cloud, &setup);
        assert_memory_equal(cloud->exact, cloud->acceleration, cloud->count * sizeof *cloud->exact);
        for (int d = 0; d < 3; d++) {
            double force = 0, size = 0;
            for (size_t i = 0; i < cloud->count; i++) {
                force += cloud->mass[i] * cloud->acceleration[i][d];
                size += fabs(cloud->mass[i] * cloud->acceleration[i][d]);
            }
            assert_true(fabs(force) < 1e-5 * size);
        }
        free(cloud);
    }
}

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
        cmocka_unit_test(transforms_agree_wherever_they_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
