/* sealed.h: memory that a decoder wrote and that no process can change any more. */
#ifndef MRIRECON_SEALED_H
#define MRIRECON_SEALED_H

#include <stddef.h>

/* Map the memfd `fd`, which stays the caller's. The caller unmaps *base, of *bytes (at least `least`). `what` names the
 * contents in failures ("scan"); `invalid` sets the failure of memory that is not sealed against writing and changes of
 * its size, or too short, and returns its code. Also fails with ERR_DECODER_DIED, ERR_NO_MEMORY. */
int sealed_map(const char **base, size_t *bytes, int fd, size_t least, const char *what,
               int (*invalid)(const char *reason));

#endif
