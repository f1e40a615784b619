/* simulate.h: `mrirecon simulate`: multi-coil scans of phantoms on analytic trajectories, as ISMRMRD files. */
#ifndef MRIRECON_SIMULATE_H
#define MRIRECON_SIMULATE_H

/* argv[0] is the command's name ("simulate"). Speaks on standard output (--help) and standard error.
 * Returns the exit status: 0 done, 1 it failed, 2 the command line is wrong. No file is left unless it is done. */
int simulate_main(int argc, char **argv);

#endif
