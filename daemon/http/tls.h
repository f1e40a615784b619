/* tls.h: the service's certificate, which can be replaced while it serves.
 *
 * Any thread. Connections keep the certificate they began with; one that was replaced is freed with the
 * last of them.
 */
#ifndef MRIRECON_DAEMON_TLS_H
#define MRIRECON_DAEMON_TLS_H

#include "gridding/base/err.h"

#include <gnutls/abstract.h>

struct tls;
struct tls_pair; /* a certificate and its key */

/* Read the certificate (with those that sign it, in PEM) and its key. Fails with ERR_BAD_PARAMETER (unreadable, the
 * key readable to everybody, or they do not belong together), ERR_NO_MEMORY. One whose time is over is taken; tls_end()
 * tells. */
int tls_create(struct tls **out, const char *certificate, const char *key);
void tls_free(struct tls *tls); /* after the last connection */

/* Read both again, for connections from now on. A failure leaves everything as it was; so does a certificate whose time
 * is over, where that which is shown still has some. */
int tls_reload(struct tls *tls);

/* When the certificate that is shown now ends, s since 1970. */
int64_t tls_end(struct tls *tls);

/* What a connection that begins now shows; the caller's until tls_release (NULL: nothing). */
struct tls_pair *tls_hold(struct tls *tls);
void tls_release(struct tls *tls, struct tls_pair *pair);

/* As GnuTLS wants it; stays the pair's. */
void tls_show(struct tls_pair *pair, gnutls_pcert_st **chain, unsigned *length, gnutls_privkey_t *key);

#endif
