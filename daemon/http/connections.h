/* connections.h: limits of connections: time for the headers, rate of a body, idle time, and number, in all and per
 * address.
 *
 * libmicrohttpd's own time limit counts from the last byte: a client that sends one now and then would hold its
 * connection for ever. Here time counts from the beginning of each phase. A connection that takes too long is shut
 * down; the library finds it closed. One whose client has closed its sending half before its request was complete is
 * shown to the library, which may have missed that.
 *
 * Beyond the limit, a new connection closes the one that has been idle longest. If all are busy, the new one is
 * surplus: on up to CONNECTIONS_SURPLUS of these, health requests are answered and all others refused, one request
 * each, within a short time; further connections wait in the kernel's backlog. No connection is closed whose request
 * has begun to arrive: a connection is idle if no byte has come since its last answer, or for NEW_SECONDS since it was
 * accepted.
 */
#ifndef MRIRECON_DAEMON_CONNECTIONS_H
#define MRIRECON_DAEMON_CONNECTIONS_H

#include "gridding/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { CONNECTIONS_SURPLUS = 128 }; /* connections that libmicrohttpd accepts beyond the limit */

enum connection_phase {
    CONNECTION_NEW,  /* waiting for its first request, or the rest of its headers */
    CONNECTION_IDLE, /* ... for another */
    CONNECTION_BODY,
    CONNECTION_ANSWER, /* being answered */
    CONNECTION_PHASES
};

/* One connection; embedded in the server's own struct. */
struct connection_watch {
    struct connection_watch *next, *before;
    int fd;
    unsigned char address[16]; /* of the client; of IPv6 the network half only: a host may use all of the other */
    struct connections *all;
    bool surplus; /* beyond the limit */
    bool closing; /* shut down, and no longer counted */
    _Atomic int phase;
    _Atomic double since;  /* clock_seconds() when the phase began */
    _Atomic int64_t bytes; /* of the body so far */
    _Atomic int64_t heard; /* bytes received on the connection by the end of its last request */
};

struct connections;

struct connection_limits {
    int64_t header_seconds; /* from the accept, or the end of the last answer, to the end of the headers */
    int64_t rate;           /* least mean rate of a body, bytes/s, after a grace of header_seconds */
    int64_t all, address;   /* limits of connections: in all, and per address */
};

/* Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int connections_create(struct connections **out, const struct connection_limits *limits);
void connections_free(struct connections *connections);

/* A connection was accepted; watch->surplus limits what is answered on it. Any thread. The descriptor must stay open
 * until connection_forget. */
void connection_watch(struct connections *connections, struct connection_watch *watch, int fd,
                      const struct sockaddr *address);
void connection_forget(struct connections *connections, struct connection_watch *watch);
void connection_enter(struct connection_watch *watch, enum connection_phase phase);
/* Whether a refused body may be read to its end before the answer: on surplus connections only while few do so. */
bool connections_may_read(const struct connection_watch *watch);

#endif
