/* attach.h: the command `mrirecon attach-trajectory`: a converted scan without its trajectory gets one. Needs no
 * server. */
#ifndef MRIRECON_ATTACH_H
#define MRIRECON_ATTACH_H

/* argv: SCAN OUT.h5 TRAJECTORY.npy. The exit status of a program. */
int attach_main(int argc, char **argv);

#endif
