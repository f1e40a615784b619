/* molecule.h: synthetic molecules, as PQR files: inputs of kinds that work on particles. */
#ifndef MRIRECON_MOLECULE_H
#define MRIRECON_MOLECULE_H

#include <stdint.h>

enum molecule {
    MOLECULE_WATER, /* a periodic box of TIP3P water at 1 g/cm^3, each molecule randomly oriented; CRYST1 has the box
                     */
    MOLECULE_CHAIN  /* one protein-like chain of alanine, randomly folded, without net charge */
};

/* Write about `atoms` atoms (rounded to whole molecules or residues, at least one) to `path`. The same seed gives the
 * same file. After a failure no file is left. Fails with ERR_IO, ERR_NO_MEMORY, ERR_BAD_PARAMETER (too many for the
 * serial numbers and coordinates of a PQR file). */
int molecule_write(enum molecule molecule, int64_t atoms, uint64_t seed, const char *path);

#endif
