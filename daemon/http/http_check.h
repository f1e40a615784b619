/* http_check.h: whether the head of a request can be taken, before its route is asked.
 *
 * The library takes heads that RFC 9112 forbids, and a proxy in front may read those in another way. The requests that
 * it refuses by itself, with a page of its own, are listed in docs/openapi.yaml; it has no hook for them.
 */
#ifndef MRIRECON_DAEMON_HTTP_CHECK_H
#define MRIRECON_DAEMON_HTTP_CHECK_H

#include "daemon/http/request.h"

/* Framing, sizes, target, Host; request->target, host and query are set. After a failure nobody knows where the next
 * request begins. Fails with ERR_BAD_REQUEST, ERR_URI_TOO_LONG, ERR_HEADERS_TOO_LARGE. */
int request_head_check(struct request *request, const char *version);

/* What is answered on a surplus connection: health alone. Fails with ERR_CONNECTIONS. */
int request_surplus_check(const struct request *request);

/* That the query can be read, and that there is none where the route takes none. Fails with ERR_BAD_REQUEST,
 * ERR_BAD_PARAMETER, ERR_UNKNOWN_PARAMETER. */
int request_query_check(const struct request *request);

/* That the host which is meant is this service. Fails with ERR_MISDIRECTED. */
int request_host_check(const struct request *request);

/* That no other site's page has a browser send what changes something. Fails with ERR_FORBIDDEN. */
int request_origin_check(struct request *request);

/* Who sends it, and whether that one may. Fails with ERR_UNAUTHORIZED, ERR_FORBIDDEN. */
int request_access_check(struct request *request);

#endif
