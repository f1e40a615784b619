/* ask.h: how the owner of a device ends its long computations on the CPU.
 *
 * A transform of a large volume takes seconds, and is one call. Whoever may want to end it leaves a function with the
 * device; the loops of the CPU's leaves call it about once per millisecond, in the thread that computes. Other threads
 * of a team only look whether it was told to stop. A GPU's calls are short, and do not ask. */
#ifndef MRIRECON_ASK_H
#define MRIRECON_ASK_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dev;

struct dev_ask {
    void *context;
    /* A code other than 0 of err.h, with its sentence, ends the computation, which fails with it and leaves its outputs
     * undefined. It is not called again: until the next dev_ask_set(), the device's computations fail with that code.
     */
    int (*ask)(void *context);
};

/* Ask `ask` (copied) from now on; NULL: nobody. The parts of a joined device ask the same. */
void dev_ask_set(struct dev *dev, const struct dev_ask *ask);

/* ---- for computations ---- */

struct asker;

/* Fails with ERR_NO_MEMORY. `ask` is copied; NULL: nobody is asked. */
int asker_create(struct asker **out, const struct dev_ask *ask);
void asker_free(struct asker *asker);

/* The asker of a device, which stays the device's; NULL: it has none, as a GPU. The following may be given NULL. */
struct asker *dev_asker(const struct dev *dev);

enum { ASK_EVERY = 1000000 }; /* ns */

/* Whether to stop, before or after a piece of work of about `cost` ns, at most some tens of milliseconds. */
bool asker_stopped(struct asker *asker, size_t cost);

/* The answer so far. */
int asker_rc(const struct asker *asker);

/* Set bytes to 0, and copy them (without overlap), in pieces: a gigabyte of new memory takes a second. Fail as told. */
int asker_zero(struct asker *asker, void *to, size_t bytes);
int asker_copy(struct asker *asker, void *to, const void *from, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
