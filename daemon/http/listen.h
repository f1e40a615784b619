/* listen.h: the listening socket: our own, or one from a service manager (LISTEN_FDS). */
#ifndef MRIRECON_DAEMON_LISTEN_H
#define MRIRECON_DAEMON_LISTEN_H

#include "daemon/base/options.h"

#include <stdbool.h>

enum { LISTEN_NAME = 64 };

struct listen_socket {
    int fd, port;
    char name[LISTEN_NAME]; /* its address, as "127.0.0.1:8080" or "[::1]:8080" */
    bool local;             /* only this machine reaches it */
};

/* Whether listen_open() would accept options->listen. A socket from a service manager is not checked. Fails with
 * ERR_BAD_PARAMETER. */
int listen_check(const struct options *options);

/* Listen on options->listen, or on the socket from a service manager. An address that other machines reach needs TLS
 * and tokens. Fails with ERR_BAD_PARAMETER (not an address; no TLS or tokens), ERR_IO (in use). */
int listen_open(struct listen_socket *out, const struct options *options);

/* The same for options->mrd_listen, a plain TCP socket. If other machines reach the address, or if clients have tokens,
 * options->mrd_clients is required. */
int listen_mrd_check(const struct options *options);
int listen_mrd_open(struct listen_socket *out, const struct options *options);

#endif
