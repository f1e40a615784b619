/* simulate.h: `mrirecon simulate`: multi-coil scans of phantoms on analytic trajectories, as ISMRMRD files; molecules.
 */
#ifndef MRIRECON_SIMULATE_H
#define MRIRECON_SIMULATE_H

/* argv[0] is the command's name ("simulate"). Prints to standard output (--help) and standard error. Returns the exit
 * status: 0 success, 1 failure, 2 invalid command line. Leaves no file unless it succeeds. */
int simulate_main(int argc, char **argv);

#endif
