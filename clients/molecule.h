/* molecule.h: molecules that nobody measured, as PQR files: inputs of kinds that work on particles. */
#ifndef MRIRECON_MOLECULE_H
#define MRIRECON_MOLECULE_H

#include <stdint.h>

enum molecule {
    MOLECULE_WATER, /* a periodic box of TIP3P water at 1 g/cm^3, each molecule turned at random; CRYST1 tells the box
                     */
    MOLECULE_CHAIN  /* one protein-like chain of alanine, folded at random, without charge */
};

/* Write about `atoms` atoms (rounded to whole molecules or residues, at least one) to `path`. The same seed gives the
 * same file. No file is left unless it is whole. Fails with ERR_IO, ERR_NO_MEMORY, ERR_BAD_PARAMETER (more than serial
 * numbers and coordinates of a PQR file can tell). */
int molecule_write(enum molecule molecule, int64_t atoms, uint64_t seed, const char *path);

#endif
