/* tls_plain.h: answers plain HTTP on a TLS port with a 400 that explains it, instead of closing the connection. Of the
 * connection's thread.
 */
#ifndef MRIRECON_DAEMON_TLS_PLAIN_H
#define MRIRECON_DAEMON_TLS_PLAIN_H

#include <gnutls/gnutls.h>
#include <stdbool.h>

/* A connection's first byte tells the protocol: a TLS record begins with 22, an HTTP method with a letter. */
struct tls_plain {
    int fd;
    bool decided;
};

/* Let `session` read from `fd` through `plain`, which must outlive its last read. Before the handshake. */
void tls_plain_watch(struct tls_plain *plain, gnutls_session_t session, int fd);

#endif
