/* tls.h: the service's certificate, which can be replaced while it serves.
 *
 * Any thread. Connections keep the certificate they began with.
 */
#ifndef MRIRECON_DAEMON_TLS_H
#define MRIRECON_DAEMON_TLS_H

#include "gridding/base/err.h"

#include <gnutls/abstract.h>

struct tls;

/* Read the certificate (with those that sign it, in PEM) and its key. Fails with ERR_BAD_PARAMETER (unreadable, or they
 * do not belong together), ERR_NO_MEMORY. */
int tls_create(struct tls **out, const char *certificate, const char *key);
void tls_free(struct tls *tls); /* after the last connection */

/* Read both again, for connections from now on. A failure leaves everything as it was. */
int tls_reload(struct tls *tls);

/* What a connection that begins now shows: stays valid until tls_free. */
void tls_current(struct tls *tls, gnutls_pcert_st **chain, unsigned *length, gnutls_privkey_t *key);

#endif
