/* mapped.h: a file that a command reads whole, mapped read-only into memory. */
#ifndef MRIRECON_MAPPED_H
#define MRIRECON_MAPPED_H

#include <stddef.h>
#include <stdint.h>

struct mapped {
    const uint8_t *bytes; /* NULL: none */
    size_t length;
};

/* Map a regular file that is not empty, until mapped_close. Fails with ERR_IO. */
int mapped_open(struct mapped *out, const char *path);
void mapped_close(struct mapped *mapped); /* nothing is mapped: no effect */

#endif
