/* nbody_motion.h: bodies that move under their gravity: leapfrog in its kick-drift-kick form (L. Verlet, Phys. Rev.
 * 159, 98, 1967, doi:10.1103/PhysRev.159.98), which is symplectic and time-reversible. Positions and velocities are
 * double precision. */
#ifndef MRIRECON_NBODY_MOTION_H
#define MRIRECON_NBODY_MOTION_H

#include "recon/nbody/nbody_gravity.h"

/* The memory is owned by the caller. acceleration: that of nbody_gravity_evaluate() at the current positions. */
struct nbody_bodies {
    size_t count;
    double *mass;
    double (*at)[3], (*velocity)[3], (*acceleration)[3];
    double *potential;
};

/* Potentials and accelerations are those of the last evaluation. */
struct nbody_energy {
    double kinetic, potential;
    double momentum[3], angular[3]; /* about the origin; angular momentum is not conserved in periodic boxes */
    double centre[3];               /* of mass; in a periodic box, of the wrapped positions */
};

/* One step of `dt`: kick by half, drift, evaluate, kick by half. Positions of a periodic box stay in it. `potential`:
 * whether to compute potentials at its end. Fails as nbody_gravity_evaluate(), which leaves the bodies in the middle of
 * the step.
 */
int nbody_step(struct nbody_gravity *gravity, const struct nbody_setup *setup, struct nbody_bodies *bodies, double dt,
               bool potential, const struct nbody_poll *poll);

/* Sums in the order of the bodies. */
void nbody_energy_of(const struct nbody_bodies *bodies, struct nbody_energy *out);

#endif
