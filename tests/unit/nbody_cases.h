/* nbody_cases.h: gravity of recon/nbody/ against sums in double precision, on the device that the program names by
 * NBODY_DEVICE: unequal masses, bodies on both sides of periodic faces, clusters (motion: nbody_motion_cases.h).
 */
#ifndef MRIRECON_TESTS_NBODY_CASES_H
#define MRIRECON_TESTS_NBODY_CASES_H

#include "tests/unit/nbody_fixture.h"

#include <malloc.h>

/* The mesh cannot represent waves above its highest, exp(-pi^2) = 5e-5 of their energy; the pair sum drops w(3) = 4e-4
 * of the force beyond the cut-off, which mostly cancels. Both errors are of order 1e-5 of the mean force here. Float32
 * potentials of a clump of 0.04 box sides lose a digit in the difference of the laws. For Plummer's law the cut-off
 * also drops eps^2 / r^2 = 8e-5 at r = 1.1. */
static void p3m_is_the_sum_over_all_images(void **state)
{
    (void)state;
    for (int softening = NBODY_SPLINE; softening <= NBODY_PLUMMER; softening++)
        for (int periodic = 0; periodic < 2; periodic++) {
            struct cloud *cloud = cloud_of(60, 3, 1);
            const struct nbody_setup setup = p3m(periodic, softening);
            evaluate(cloud, &setup, 0);
            (periodic ? oracle_periodic : oracle_direct)(
                &setup, cloud->count, cloud->mass, (const double(*)[3])cloud->at, cloud->exact, cloud->exact_potential);
            const struct errors e = errors_of(cloud);
            assert_true(e.mean < 1e-4);
            assert_true(e.largest < 3e-4);
            assert_true(e.potential < 1e-4);
            free(cloud);
        }
}

/* MP-Gadget's test: the sum over the 27 nearest images, mean error below 0.16 %, largest below 0.6 % of the mean
 * acceleration. A sum over a cube of images has a surface term, 4 pi / 3 of the masses' dipole, that the periodic sum
 * does not have (S.W. de Leeuw, J.W. Perram, E.R. Smith, Proc. R. Soc. A 373, 27, 1980, doi:10.1098/rspa.1980.0135).
 * The remaining difference falls with the number of images. For uniformly placed bodies the mean force is small, and 27
 * images alone miss the bound (0.17 %), so 125 are summed. */
static void sum_images(struct cloud *cloud, const struct nbody_setup *setup, int shells)
{
    const int side = 2 * shells + 1;
    for (size_t i = 0; i < cloud->count; i++)
        for (size_t j = 0; j < cloud->count; j++) {
            double nearest[3];
            for (int d = 0; d < 3; d++) {
                nearest[d] = cloud->at[j][d] - cloud->at[i][d];
                nearest[d] -= setup->box * rint(nearest[d] / setup->box);
                cloud->exact[i][d] -= setup->g * cloud->mass[j] * 4 * M_PI / 3 * nearest[d] / pow(setup->box, 3);
            }
            for (int image = 0; image < side * side * side; image++) {
                const int offset[3] = {image % side, image / side % side, image / side / side};
                double away[3], r2 = 0, force, well;
                for (int d = 0; d < 3; d++) {
                    away[d] = nearest[d] + setup->box * (offset[d] - shells);
                    r2 += away[d] * away[d];
                }
                if (r2 == 0)
                    continue;
                oracle_law(setup, sqrt(r2), &force, &well);
                for (int d = 0; d < 3; d++)
                    cloud->exact[i][d] += setup->g * cloud->mass[j] * force * away[d];
            }
        }
}

static void images_add_up(void **state)
{
    (void)state;
    const struct nbody_setup setup = p3m(true, NBODY_SPLINE);
    for (int clumped = 0; clumped < 2; clumped++) {
        struct cloud *cloud = cloud_of(clumped ? 240 : 160, 3, 5);
        for (size_t i = 0; i < cloud->count && !clumped; i++)
            for (size_t d = 0; d < 3; d++)
                cloud->at[i][d] = 3 * uniform(40000 + 3 * i + d);
        evaluate(cloud, &setup, 0);
        sum_images(cloud, &setup, clumped ? 1 : 2);
        const struct errors e = errors_of(cloud);
        assert_true(e.mean < 0.0016);
        assert_true(e.largest < 0.006);
        free(cloud);
    }
}

/* All pairs in float32: an error of about 1e-6 per pair, in sums of 300. */
static void direct_is_the_sum_over_all_pairs(void **state)
{
    (void)state;
    for (int softening = NBODY_SPLINE; softening <= NBODY_PLUMMER; softening++) {
        struct cloud *cloud = cloud_of(300, 3, 2);
        struct nbody_setup setup = p3m(false, softening);
        setup.method = NBODY_DIRECT;
        setup.eps = 0.3;                   /* h = 0.84: many pairs on all three branches of the spline */
        cloud->at[1][0] = cloud->at[0][0]; /* two bodies in one place */
        cloud->at[1][1] = cloud->at[0][1];
        cloud->at[1][2] = cloud->at[0][2];
        evaluate(cloud, &setup, 0);
        oracle_direct(&setup, cloud->count, cloud->mass, (const double(*)[3])cloud->at, cloud->exact,
                      cloud->exact_potential);
        const struct errors e = errors_of(cloud);
        assert_true(e.largest < 2e-5);
        assert_true(e.potential < 2e-6);
        free(cloud);
    }
}

/* The short-range part alone: the law as the header states it, summed over each body's images within the cut-off. */
static void near_forces(struct cloud *cloud, const struct nbody_setup *setup)
{
    const double rs = setup->split * setup->box / setup->mesh;
    const double reach = setup->law == NBODY_CUT ? setup->cutoff : setup->cutoff * rs;
    for (size_t i = 0; i < cloud->count; i++)
        for (size_t j = 0; j < cloud->count; j++)
            for (int image = 0; image < 125; image++) {
                const int offset[3] = {image % 5 - 2, image / 5 % 5 - 2, image / 25 - 2};
                double away[3], r2 = 0, force, well;
                for (int d = 0; d < 3; d++) {
                    away[d] = cloud->at[j][d] - cloud->at[i][d] + setup->box * offset[d];
                    r2 += away[d] * away[d];
                }
                const double r = sqrt(r2), u = r / (2 * rs);
                if (r2 == 0 || r >= reach)
                    continue;
                oracle_law(setup, r, &force, &well);
                if (setup->law != NBODY_CUT) {
                    force -= (erf(u) - 2 * u / sqrt(M_PI) * exp(-u * u)) / (r * r * r);
                    well += erf(u) / r;
                }
                cloud->exact_potential[i] += setup->g * cloud->mass[j] * well;
                for (int d = 0; d < 3; d++)
                    cloud->exact[i][d] += setup->g * cloud->mass[j] * force * away[d];
            }
}

static void near_forces_follow_their_law(void **state)
{
    (void)state;
    for (int law = NBODY_ERFC; law <= NBODY_CUT; law++) {
        struct cloud *cloud = cloud_of(90, 3, 3);
        struct nbody_setup setup = p3m(true, NBODY_PLUMMER);
        setup.method = NBODY_SHORT;
        setup.law = law;
        /* Here the reach exceeds half of the box: 6 r_s = 2.25 of 3. */
        setup.mesh = 8;
        setup.cutoff = law == NBODY_CUT ? 1.7 : 6;
        evaluate(cloud, &setup, 0);
        near_forces(cloud, &setup);
        const struct errors e = errors_of(cloud);
        /* HACC's polynomial errs by 1.5e-3 of the largest value of the function that it replaces, which is a fraction
         * of the force. */
        assert_true(e.mean < (law == NBODY_POLYNOMIAL ? 3e-3 : 2e-5));
        assert_true(law != NBODY_POLYNOMIAL || e.mean > 2e-5);
        free(cloud);
    }
}

static void the_same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    struct cloud *one = cloud_of(MOST, 3, 4), *more = cloud_of(MOST, 3, 4);
    for (int periodic = 0; periodic < 2; periodic++) {
        const struct nbody_setup setup = p3m(periodic, NBODY_SPLINE);
        evaluate(one, &setup, 1);
        for (int threads = 2; threads <= 5; threads += 3) {
            evaluate(more, &setup, threads);
            assert_memory_equal(one->acceleration, more->acceleration, sizeof one->acceleration);
            assert_memory_equal(one->potential, more->potential, sizeof one->potential);
        }
    }
    free(one);
    free(more);
}

/* ---- failures ---- */

struct asking {
    struct dev *dev;
    int asked, stop_at;      /* stop_at < 0: never */
    size_t before, most;     /* bytes allocated; before = 0: not measured */
    double complete, widest; /* the last part of the evaluation told, and the widest gap between two */
};

/* Bytes that the program has allocated; only sanitizers define it. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Bytes in use of the device's memory; for a CPU, of the program's. */
static size_t taken(struct dev *dev)
{
    size_t available, total;
    if (!dev_is_gpu(dev))
        return allocated();
    assert_int_equal(dev_memory(dev, &available, &total), 0);
    return total - available;
}

static int ask(void *context, double complete)
{
    struct asking *a = context;
    assert_true(complete >= a->complete && complete <= 1);
    a->widest = fmax(a->widest, complete - a->complete);
    a->complete = complete;
    const size_t now = a->before ? taken(a->dev) : 0, held = now > a->before ? now - a->before : 0;
    a->most = held > a->most ? held : a->most;
    return a->asked++ == a->stop_at;
}

static int evaluate_asking(struct nbody_gravity *gravity, struct cloud *cloud, struct asking *asking)
{
    const struct nbody_poll poll = {ask, asking};
    return nbody_gravity_evaluate(gravity, (const double(*)[3])cloud->at, cloud->acceleration, cloud->potential, &poll);
}

/* Each of the three transforms on the host calls the listener at each plane, twice: one pass over a large mesh takes
 * seconds. Beside those of a GPU it is called between parts, and by the sums. */
static void an_evaluation_can_be_canceled(void **state)
{
    (void)state;
    enum { STOPS = 12 };
    for (int on_host = 0; on_host < 2; on_host++) {
        struct cloud *cloud = cloud_of(20, 3, 8);
        struct nbody_setup setup = p3m(true, NBODY_SPLINE);
        struct dev *dev = device(1);
        struct nbody_gravity *gravity = NULL;
        struct asking all = {.stop_at = -1};
        setup.host_transforms = on_host;
        assert_int_equal(nbody_gravity_create(&gravity, dev, &setup, cloud->count, cloud->mass), 0);
        assert_int_equal(evaluate_asking(gravity, cloud, &all), 0);
        assert_true(all.asked > (on_host || !dev_is_gpu(dev) ? 3 * 2 * setup.mesh : 3));
        for (int stop = 0; stop < STOPS; stop++) {
            struct asking asking = {.stop_at = all.asked * stop / STOPS};
            assert_int_equal(evaluate_asking(gravity, cloud, &asking), ERR_CANCELED);
            assert_int_equal(asking.asked, asking.stop_at + 1);
        }
        nbody_gravity_free(gravity);
        dev_free(dev);
        free(cloud);
    }
}

static void memory_is_estimated_before_it_is_allocated(void **state)
{
    (void)state;
    static const struct {
        enum nbody_method method;
        bool periodic;
        size_t count;
        int mesh;
    } cases[] = {{NBODY_P3M, true, 500, 48},
                 {NBODY_P3M, false, 500, 16},
                 {NBODY_DIRECT, false, 500, 8},
                 {NBODY_SHORT, true, 500, 16}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        struct cloud *cloud = cloud_of(cases[n].count, 3, 8);
        struct nbody_setup setup = p3m(cases[n].periodic, NBODY_SPLINE);
        setup.method = cases[n].method;
        setup.mesh = cases[n].mesh;
        struct dev *dev = device(2);
        struct nbody_gravity *gravity = NULL;
        uint64_t device_bytes, host_bytes;
        assert_int_equal(
            nbody_gravity_memory(dev, &setup, cloud->count, (const double(*)[3])cloud->at, &device_bytes, &host_bytes),
            0);
        size_t most = 0;
        for (int run = 0; run < 2; run++) { /* the first run creates threads and their memory */
            struct asking asking = {.dev = dev, .stop_at = -1, .before = taken(dev)};
            assert_int_equal(nbody_gravity_create(&gravity, dev, &setup, cloud->count, cloud->mass), 0);
            assert_int_equal(evaluate_asking(gravity, cloud, &asking), 0);
            nbody_gravity_free(gravity);
            most = asking.most;
        }
        const bool gpu = dev_is_gpu(dev);
        const uint64_t told = device_bytes + (gpu ? 0 : host_bytes);
        if (most > told || (!gpu && told > 2 * most + (4 << 20)))
            fail_msg("case %zu: %zu bytes were taken, %ju were estimated", n, most, (uintmax_t)told);
        dev_free(dev);
        free(cloud);
    }
}

static void bodies_too_close_together_are_reported(void **state)
{
    (void)state;
    struct cloud *cloud = cloud_of(60, 3, 9);
    struct nbody_setup setup = p3m(true, NBODY_SPLINE);
    setup.eps = 0;
    static const int close[] = {10, 11, 50, 51};
    for (int i = 0; i < 4; i++)
        for (int d = 0; d < 3; d++)
            cloud->at[close[i]][d] = i * 1e-20;
    struct dev *dev = device(3);
    struct nbody_gravity *gravity = NULL;
    assert_int_equal(nbody_gravity_create(&gravity, dev, &setup, cloud->count, cloud->mass), 0);
    assert_int_equal(nbody_gravity_evaluate(gravity, (const double(*)[3])cloud->at, cloud->acceleration, NULL, NULL),
                     ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "body 11 "));
    assert_non_null(strstr(err_last()->text, "softening"));
    nbody_gravity_free(gravity);
    dev_free(dev);
    free(cloud);
}

static void mesh_sizes_have_small_factors(void **state)
{
    (void)state;
    assert_int_equal(nbody_mesh_round(8), 8);
    assert_int_equal(nbody_mesh_round(11), 12);
    assert_int_equal(nbody_mesh_round(14), 16);
    assert_int_equal(nbody_mesh_round(125), 128);
    assert_int_equal(nbody_mesh_round(129), 144);
}

#endif
