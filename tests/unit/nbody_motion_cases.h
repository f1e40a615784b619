/* nbody_motion_cases.h: the motion of bodies of recon/nbody/: a closed orbit, and what motion conserves. */
#ifndef MRIRECON_TESTS_NBODY_MOTION_CASES_H
#define MRIRECON_TESTS_NBODY_MOTION_CASES_H

#include "tests/unit/nbody_fixture.h"

struct motion {
    struct dev *dev;
    struct nbody_setup setup;
    struct nbody_gravity *gravity;
    struct nbody_bodies bodies;
    struct nbody_energy begin, end;
};

static void motion_begin(struct motion *motion, const struct cloud *cloud)
{
    const size_t count = cloud->count;
    struct nbody_bodies *b = &motion->bodies;
    *b = (struct nbody_bodies){.count = count,
                               .mass = allocate(count, sizeof *b->mass),
                               .at = allocate(count, sizeof *b->at),
                               .velocity = allocate(count, sizeof *b->velocity),
                               .acceleration = allocate(count, sizeof *b->acceleration),
                               .potential = allocate(count, sizeof *b->potential)};
    memcpy(b->mass, cloud->mass, count * sizeof *b->mass);
    memcpy(b->at, cloud->at, count * sizeof *b->at);
    motion->dev = device(0);
    assert_int_equal(nbody_gravity_create(&motion->gravity, motion->dev, &motion->setup, count, b->mass), 0);
}

static void motion_run(struct motion *motion, int steps, double dt)
{
    struct nbody_bodies *b = &motion->bodies;
    assert_int_equal(
        nbody_gravity_evaluate(motion->gravity, (const double(*)[3])b->at, b->acceleration, b->potential, NULL), 0);
    nbody_energy_of(b, &motion->begin);
    for (int i = 0; i < steps; i++)
        assert_int_equal(nbody_step(motion->gravity, &motion->setup, b, dt, i == steps - 1, NULL), 0);
    nbody_energy_of(b, &motion->end);
}

static void motion_free(struct motion *motion)
{
    nbody_gravity_free(motion->gravity);
    dev_free(motion->dev);
    free(motion->bodies.mass);
    free(motion->bodies.at);
    free(motion->bodies.velocity);
    free(motion->bodies.acceleration);
    free(motion->bodies.potential);
}

/* Eccentricity 0.5, masses 3 and 1, one period of 2 pi sqrt(a^3 / G M) in 2,000 steps. Leapfrog's position error is of
 * order (2 pi / 2000)^2, times some tens at the pericentre; its energy error returns to 0 after a period. */
static void a_kepler_orbit_closes(void **state)
{
    (void)state;
    const double e = 0.5, a = 1.3, m[2] = {3, 1}, whole = 4, g = 2;
    struct cloud *cloud = cloud_of(2, 1, 1);
    struct motion motion = {.setup = {.method = NBODY_DIRECT, .g = g, .mesh = NBODY_MESH_LEAST}};
    for (int i = 0; i < 2; i++) {
        cloud->mass[i] = m[i];
        cloud->at[i][0] = (i ? 1 : -1) * a * (1 - e) * m[1 - i] / whole;
        cloud->at[i][1] = cloud->at[i][2] = 0;
    }
    motion_begin(&motion, cloud);
    for (int i = 0; i < 2; i++)
        motion.bodies.velocity[i][1] = (i ? 1 : -1) * sqrt(g * whole / a * (1 + e) / (1 - e)) * m[1 - i] / whole;
    motion_run(&motion, 2000, 2 * M_PI * sqrt(a * a * a / (g * whole)) / 2000);
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < 3; d++)
            assert_true(fabs(motion.bodies.at[i][d] - cloud->at[i][d]) < 2e-3);
    assert_true(fabs(motion.end.kinetic + motion.end.potential - motion.begin.kinetic - motion.begin.potential) <
                2e-5 * fabs(motion.begin.potential));
    assert_true(fabs(motion.end.angular[2] / motion.begin.angular[2] - 1) < 1e-5);
    motion_free(&motion);
    free(cloud);
}

/* Bodies of a clumpy box fall together and apart: energy is conserved to the time step's error, momentum to the float32
 * rounding of forces: about 1e-7 of each force per step, of one sign for a given body but of either sign over all
 * bodies. */
static void energy_and_momentum_are_kept(void **state)
{
    (void)state;
    for (int periodic = 0; periodic < 2; periodic++) {
        struct cloud *cloud = cloud_of(150, 3, 6);
        struct motion motion = {.setup = p3m(periodic, NBODY_SPLINE)};
        motion.setup.eps = 0.05;
        motion.setup.g = 1;
        motion.setup.mesh = periodic ? 16 : NBODY_MESH_LEAST;
        motion_begin(&motion, cloud);
        motion_run(&motion, 100, 5e-4);
        const double moved = motion.end.kinetic - motion.begin.kinetic;
        const double drift = moved + motion.end.potential - motion.begin.potential;
        double pushes = 0;
        for (size_t i = 0; i < cloud->count; i++) {
            const double *v = motion.bodies.velocity[i];
            pushes += cloud->mass[i] * sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        }
        assert_true(moved > 0.02 * fabs(motion.begin.potential)); /* a wrong step would show */
        assert_true(fabs(drift) < 0.005 * moved);
        for (int d = 0; d < 3; d++)
            assert_true(fabs(motion.end.momentum[d]) < 1e-5 * pushes);
        motion_free(&motion);
        free(cloud);
    }
}

#endif
