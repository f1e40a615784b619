/* attach.h: the command `mrirecon attach-trajectory`: adds the trajectory to a converted scan that has none. Needs no
 * server. */
#ifndef MRIRECON_ATTACH_H
#define MRIRECON_ATTACH_H

/* argv: SCAN OUT.h5 TRAJECTORY.npy. The exit status of a program. */
int attach_main(int argc, char **argv);

#endif
