/* listen.h: the socket that the service listens on: its own, or one that a service manager hands over (LISTEN_FDS). */
#ifndef MRIRECON_DAEMON_LISTEN_H
#define MRIRECON_DAEMON_LISTEN_H

#include "daemon/base/options.h"

#include <stdbool.h>

enum { LISTEN_NAME = 64 };

struct listener {
    int fd, port;
    char name[LISTEN_NAME]; /* what is listened on, as "127.0.0.1:8080" or "[::1]:8080" */
    bool local;             /* only this machine reaches it */
};

/* Whether listen_open() would begin: options->listen is an address, and one that may be served. A socket that was
 * handed over is not looked at. Fails with ERR_BAD_PARAMETER. */
int listen_check(const struct options *options);

/* Listen on options->listen, or on the socket that was handed over. Where other machines reach it, TLS and tokens must
 * be configured. Fails with ERR_BAD_PARAMETER (not an address; other machines reach it), ERR_IO (taken). */
int listen_open(struct listener *out, const struct options *options);

#endif
