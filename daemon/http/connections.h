/* connections.h: how long a connection may take (to send a request's headers, to send a body, to stay idle), and how
 * many there may be, of all clients and of one address.
 *
 * The library's own limit counts from the last byte, so that a client that sends one now and then holds its connection
 * for ever, and a thousand such all of them. Here it counts from the beginning of each phase. A connection that takes
 * too long is shut down; the library finds it closed.
 *
 * Where there is one connection more than there may be, the one that has been idle longest makes room. Where all are
 * busy, the new one is surplus: the library has room for some, on which health is answered and all else refused, one
 * request each, in little time; when those are taken, too, the kernel holds what comes until one is free. Nothing is
 * closed whose request has begun to arrive: a connection is idle when no byte has come since its last answer, or for
 * NEW_SECONDS since it was made.
 */
#ifndef MRIRECON_DAEMON_CONNECTIONS_H
#define MRIRECON_DAEMON_CONNECTIONS_H

#include "gridding/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { CONNECTIONS_SURPLUS = 128 }; /* connections that the library has to have room for beyond those that may be */

enum connection_phase {
    CONNECTION_NEW,  /* nothing or part of its first request has come */
    CONNECTION_IDLE, /* ... of another */
    CONNECTION_BODY,
    CONNECTION_ANSWER, /* ours to end */
    CONNECTION_PHASES
};

/* Of one connection; embedded in what the server keeps of it. */
struct connection_watch {
    struct connection_watch *next, *before;
    int fd;
    unsigned char address[16]; /* of the client; of IPv6 its network's half alone: a host has all of the other */
    struct connections *all;
    bool surplus; /* one more than there may be */
    bool closing; /* shut down, and no longer counted */
    _Atomic int phase;
    _Atomic double since;  /* clock_seconds() when the phase began */
    _Atomic int64_t bytes; /* of the body, so far */
    _Atomic int64_t heard; /* bytes that had come on the connection when its last request had */
};

struct connections;

struct connection_limits {
    int64_t header_seconds; /* from the connection, or the end of its last answer, to the end of the headers */
    int64_t rate;           /* bytes a second that a body has to have on average, after as many seconds of grace */
    int64_t all, address;   /* connections that there may be: all, and of one address */
};

/* Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int connections_create(struct connections **out, const struct connection_limits *limits);
void connections_free(struct connections *connections);

/* A connection begins; watch->surplus tells what may be answered on it. Any thread. The descriptor must stay open until
 * connection_forget. */
void connection_watch(struct connections *connections, struct connection_watch *watch, int fd,
                      const struct sockaddr *address);
void connection_forget(struct connections *connections, struct connection_watch *watch);
void connection_enter(struct connection_watch *watch, enum connection_phase phase);
/* Whether a body that was refused may be read to its end before it is answered: on surplus connections only while few
 * do that. */
bool connections_may_read(const struct connection_watch *watch);

#endif
