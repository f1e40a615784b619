#include "recon/nbody/nbody_motion.h"

#include <math.h>

static void kick(struct nbody_bodies *bodies, double dt, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < bodies->count; i++)
        for (int d = 0; d < 3; d++)
            bodies->velocity[i][d] += dt * bodies->acceleration[i][d];
}

static double wrap(double x, double box)
{
    const double within = x - floor(x / box) * box;
    return within < box ? within : 0;
}

static void drift(struct nbody_bodies *bodies, const struct nbody_setup *setup, double dt, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < bodies->count; i++)
        for (int d = 0; d < 3; d++) {
            const double x = bodies->at[i][d] + dt * bodies->velocity[i][d];
            bodies->at[i][d] = setup->periodic ? wrap(x, setup->box) : x;
        }
}

int nbody_step(struct nbody_gravity *gravity, const struct nbody_setup *setup, struct nbody_bodies *bodies, double dt,
               bool potential, const struct nbody_poll *poll)
{
    const int threads = nbody_gravity_threads(gravity);
    kick(bodies, dt / 2, threads);
    drift(bodies, setup, dt, threads);
    int rc = nbody_gravity_evaluate(gravity, (const double(*)[3])bodies->at, bodies->acceleration,
                                    potential ? bodies->potential : NULL, poll);
    if (rc == 0)
        kick(bodies, dt / 2, threads);
    return rc;
}

void nbody_energy_of(const struct nbody_bodies *bodies, struct nbody_energy *out)
{
    *out = (struct nbody_energy){.kinetic = 0};
    double mass = 0;
    for (size_t i = 0; i < bodies->count; i++) {
        const double m = bodies->mass[i], *x = bodies->at[i], *v = bodies->velocity[i];
        out->kinetic += 0.5 * m * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        out->potential += 0.5 * m * bodies->potential[i];
        mass += m;
        for (int d = 0; d < 3; d++) {
            const int e = (d + 1) % 3, f = (d + 2) % 3;
            out->momentum[d] += m * v[d];
            out->centre[d] += m * x[d];
            out->angular[d] += m * (x[e] * v[f] - x[f] * v[e]);
        }
    }
    for (int d = 0; d < 3 && mass > 0; d++)
        out->centre[d] /= mass;
}
