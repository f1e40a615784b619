/* sandbox_parts.h: shared by recon/codec/sandbox*.c, and included only there. */
#ifndef MRIRECON_SANDBOX_PARTS_H
#define MRIRECON_SANDBOX_PARTS_H

#include "recon/codec/landlock.h"

#include <stdint.h>
#include <sys/resource.h>

/* ---- sandbox.c ---- */

/* Lower a limit; `most`: the hard limit, to which the process itself may raise `value`. Fails with ERR_INTERNAL. */
int sandbox_limit_set(__rlimit_resource_t resource, uint64_t value, uint64_t most);
/* Root could raise its limits again by its capabilities. Fails with ERR_INTERNAL. */
int sandbox_capabilities_drop(void);

/* ---- sandbox_places.c ---- */

/* Fails with ERR_INTERNAL if a filter already in force refuses calls that a sandbox needs, or would kill the process.
 */
int sandbox_calls_try(void);

/* Files that a process may open; pattern NULL ends a list. */
struct sandbox_place {
    const char *pattern;
    uint64_t rights;
};
/* Allow the places, the libraries that the process has loaded, and the folders of LD_LIBRARY_PATH. */
void sandbox_places_allow(struct landlock *landlock, const struct sandbox_place *places);

#endif
