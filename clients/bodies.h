/* bodies.h: simulated bodies, as GADGET snapshots (format 1, double precision) in its usual units: kpc, km/s, 1e10
 * solar masses, G = 43007.1. Inputs of kind nbody. */
#ifndef MRIRECON_BODIES_H
#define MRIRECON_BODIES_H

#include <stdint.h>

enum bodies {
    BODIES_PLUMMER,  /* a sphere in equilibrium, mass 1, radius 1, at rest (S.J. Aarseth, M. Henon, R. Wielen, Astron.
                        Astrophys. 37, 183, 1974); open space */
    BODIES_ZELDOVICH /* a periodic box of side 100 and mass 1, a lattice displaced by random waves that grow (Ya.B.
                        Zel'dovich, Astron. Astrophys. 5, 84, 1970), each by exp(sqrt(4 pi G rho) t), without expansion
                      */
};

/* Write `count` bodies, for the box rounded down to a cube, to `path`. The same seed gives the same file. After a
 * failure no file is left. Fails with ERR_IO, ERR_NO_MEMORY. */
int bodies_write(enum bodies bodies, int64_t count, uint64_t seed, const char *path);

#endif
