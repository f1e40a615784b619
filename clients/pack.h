/* pack.h: the command `mrirecon pack`: arrays in separate files become one scan (.npz). Needs no server. */
#ifndef MRIRECON_PACK_H
#define MRIRECON_PACK_H

/* argv: OUT.npz NAME=FILE ..., as "pack" was followed by them. The exit status of a program. */
int pack_main(int argc, char **argv);

#endif
