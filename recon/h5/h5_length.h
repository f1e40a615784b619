/* h5_length.h: how long an HDF5 file says that it is. Pure, and without libhdf5: the daemon asks, too. */
#ifndef MRIRECON_H5_LENGTH_H
#define MRIRECON_H5_LENGTH_H

#include <stddef.h>
#include <stdint.h>

enum { H5_LENGTH_HEAD = 64 /* bytes of a file without a user block that tell its length */ };

/* The length according to the superblock of the file that begins with these bytes; 0: they do not tell. */
uint64_t h5_length(const uint8_t *image, size_t bytes);

#endif
