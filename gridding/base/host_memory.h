/* host_memory.h: the host memory available to this process. */
#ifndef MRIRECON_HOST_MEMORY_H
#define MRIRECON_HOST_MEMORY_H

#include "gridding/base/num.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes available without swapping, and in all: the machine's (/proc/meminfo), or less if a control group of this
 * process, or one above it, has a limit (memory.max and memory.high of version 2, memory.limit_in_bytes of version 1).
 * Page cache of a group counts as available, as the machine's does. SIZE_MAX / 2 each if unknown. */
void host_memory(size_t *available, size_t *total);

/* The same, read below the folder `root` instead of "/". */
void host_memory_below(const char *root, size_t *available, size_t *total);

/* The available bytes of host_memory(). */
size_t host_memory_available(void);

#ifdef __cplusplus
}
#endif
#endif
