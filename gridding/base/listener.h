/* listener.h: progress and cancellation of long computations. */
#ifndef MRIRECON_LISTENER_H
#define MRIRECON_LISTENER_H

#include <stddef.h>

/* Called many times a second in the thread that called the computation: `done` of `most` units, never decreasing. The
 * callee limits the rate of messages. A non-zero return ends the computation, which then fails with that code of err.h;
 * the callee has set its sentence (ERR_CANCELED). A listener parameter may be NULL. */
struct listener {
    void *context;
    int (*progress)(void *context, size_t done, size_t most);
};

#endif
