/* listener.h: how long work tells its progress, and learns that it is to stop. */
#ifndef MRIRECON_LISTENER_H
#define MRIRECON_LISTENER_H

#include <stddef.h>

/* Called from the thread that called the work, many times a second: `done` of `most` units, neither falling nor above
 * `most`. The callee limits what it passes on. A result other than 0 ends the work, which then fails with it: a code of
 * err.h whose sentence the callee has set (ERR_CANCELED). NULL where a listener is a parameter: nobody listens. */
struct listener {
    void *context;
    int (*progress)(void *context, size_t done, size_t most);
};

#endif
