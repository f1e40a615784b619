/* tls.h: the service's certificate, replaceable while it serves.
 *
 * Any thread. A connection keeps the certificate of its handshake; a replaced certificate is freed with its last
 * connection.
 */
#ifndef MRIRECON_DAEMON_TLS_H
#define MRIRECON_DAEMON_TLS_H

#include "gridding/base/err.h"

#include <gnutls/abstract.h>

struct tls;
struct tls_pair; /* a certificate and its key */

/* Read the certificate (with its chain, in PEM) and its key. Fails with ERR_BAD_PARAMETER (unreadable, a key that
 * everyone can read, or a key of another certificate), ERR_NO_MEMORY. An expired certificate is accepted; see
 * tls_end(). */
int tls_create(struct tls **out, const char *certificate, const char *key);
void tls_free(struct tls *tls); /* after the last connection */

/* Read both again, for new connections. After a failure the old pair stays, also if the new certificate has expired and
 * the old one has not. */
int tls_reload(struct tls *tls);

/* Expiry of the present certificate, s since 1970. */
int64_t tls_end(struct tls *tls);

/* The pair for a new connection; release it with tls_release (NULL: no-op). */
struct tls_pair *tls_hold(struct tls *tls);
void tls_release(struct tls *tls, struct tls_pair *pair);

/* The pair as GnuTLS expects it; stays the pair's. */
void tls_show(struct tls_pair *pair, gnutls_pcert_st **chain, unsigned *length, gnutls_privkey_t *key);

#endif
