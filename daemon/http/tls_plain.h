/* tls_plain.h: plain HTTP on a port that serves TLS gets an answer of 400 that says so, in place of a closed
 * connection. Of the connection's thread.
 */
#ifndef MRIRECON_DAEMON_TLS_PLAIN_H
#define MRIRECON_DAEMON_TLS_PLAIN_H

#include <gnutls/gnutls.h>
#include <stdbool.h>

/* A connection whose first byte decides: a TLS record begins with 22, a method of HTTP with a letter. */
struct tls_plain {
    int fd;
    bool decided;
};

/* Let `session` read from `fd` through `plain`, which must outlive its last read. Before the handshake. */
void tls_plain_watch(struct tls_plain *plain, gnutls_session_t session, int fd);

#endif
