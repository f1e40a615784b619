/* pack.h: the command `mrirecon pack`: arrays in separate files become one scan (.npz). Needs no server. */
#ifndef MRIRECON_PACK_H
#define MRIRECON_PACK_H

/* argv: OUT.npz NAME=FILE ..., the arguments after "pack". Returns the program's exit status. */
int pack_main(int argc, char **argv);

#endif
