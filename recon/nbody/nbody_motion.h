/* nbody_motion.h: bodies that move under their gravity: leapfrog in its kick-drift-kick form (L. Verlet, Phys. Rev.
 * 159, 98, 1967, doi:10.1103/PhysRev.159.98), which is symplectic and can be turned back in time. Positions and
 * velocities are double precision. */
#ifndef MRIRECON_NBODY_MOTION_H
#define MRIRECON_NBODY_MOTION_H

#include "recon/nbody/nbody_gravity.h"

/* The memory is the caller's. acceleration: of the positions that are there, as nbody_gravity_evaluate() gave it. */
struct nbody_bodies {
    size_t count;
    double *mass;
    double (*at)[3], (*velocity)[3], (*acceleration)[3];
    double *potential;
};

/* Potentials, accelerations are those of the last evaluation. */
struct nbody_energy {
    double kinetic, potential;
    double momentum[3], angular[3]; /* about the origin; of periodic boxes angular momentum is not conserved */
    double centre[3];               /* of mass; of a periodic box as positions stand in it */
};

/* One step of `dt`: kick by half, drift, evaluate, kick by half. Positions of a periodic box stay in it. `potential`:
 * whether potentials are wanted at its end. Fails as nbody_gravity_evaluate(): then the bodies are between two states.
 */
int nbody_step(struct nbody_gravity *gravity, const struct nbody_setup *setup, struct nbody_bodies *bodies, double dt,
               bool potential, const struct nbody_poll *poll);

/* Sums in the order of the bodies. */
void nbody_energy_of(const struct nbody_bodies *bodies, struct nbody_energy *out);

#endif
