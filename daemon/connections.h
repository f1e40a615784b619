/* connections.h: how long a connection may take: to send a request's headers, to send a body, to stay idle.
 *
 * The library's own limit counts from the last byte, so that a client that sends one now and then holds its connection
 * for ever, and a thousand such all of them. Here it counts from the beginning of each phase. A connection that takes
 * too long is shut down; the library finds it closed.
 */
#ifndef MRIRECON_DAEMON_CONNECTIONS_H
#define MRIRECON_DAEMON_CONNECTIONS_H

#include "gridding/base/err.h"

#include <stdatomic.h>

enum connection_phase {
    CONNECTION_HEADERS, /* nothing or part of a request has come */
    CONNECTION_BODY,
    CONNECTION_ANSWER, /* ours to end */
    CONNECTION_PHASES
};

/* Of one connection; embedded in what the server keeps of it. */
struct connection_watch {
    struct connection_watch *next, *before;
    int fd;
    _Atomic int phase;
    _Atomic double since;  /* clock_seconds() when the phase began */
    _Atomic int64_t bytes; /* of the body, so far */
};

struct connections;

/* `header_seconds`: from the connection, or the end of its last answer, to the end of the headers. `rate`: bytes a
 * second that a body has to have on average, after as many seconds of grace. Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int connections_create(struct connections **out, int64_t header_seconds, int64_t rate);
void connections_free(struct connections *connections);

/* Any thread. The descriptor must stay open until connection_forget. */
void connection_watch(struct connections *connections, struct connection_watch *watch, int fd);
void connection_forget(struct connections *connections, struct connection_watch *watch);
void connection_enter(struct connection_watch *watch, enum connection_phase phase);

#endif
