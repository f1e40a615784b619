/* sealed.h: memory that a decoder wrote, as contents that no process can change any more. */
#ifndef MRIRECON_SEALED_H
#define MRIRECON_SEALED_H

#include <stddef.h>

/* Memory of at most this size is copied instead of sealed: to seal it, the kernel waits until all processors have let
 * go of its pages, which takes longer than to decode a small scan. */
enum { SEALED_COPIED_BYTES = 256 << 10 };

/* Map the memfd `fd`, which stays the caller's, or a copy of it. The caller unmaps *base, of *bytes (at least `least`).
 * `what` names the contents in failures ("scan"); `invalid` sets the failure of memory that is too short, or too large
 * to be copied and not sealed against writing and changes of its size, and returns its code. Also fails with
 * ERR_DECODER_DIED, ERR_NO_MEMORY. */
int sealed_map(const char **base, size_t *bytes, int fd, size_t least, const char *what,
               int (*invalid)(const char *reason));

#endif
