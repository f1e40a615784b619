/* http_check.h: checks of a request's head before its route is called.
 *
 * libmicrohttpd accepts heads that RFC 9112 forbids, and that a proxy may parse differently. Requests that it refuses
 * by itself, with a page of its own, are listed in docs/openapi.yaml; it has no hook for them.
 */
#ifndef MRIRECON_DAEMON_HTTP_CHECK_H
#define MRIRECON_DAEMON_HTTP_CHECK_H

#include "daemon/http/request.h"

/* Check framing, sizes, target and Host; sets request->target, host and query. After a failure the start of the next
 * request is unknown. Fails with ERR_BAD_REQUEST, ERR_URI_TOO_LONG, ERR_HEADERS_TOO_LARGE. */
int request_head_check(struct request *request, const char *version);

/* On a surplus connection only health requests are answered. Fails with ERR_CONNECTIONS. */
int request_surplus_check(const struct request *request);

/* Check that the query is well-formed, and absent if the route takes none. Fails with ERR_BAD_REQUEST,
 * ERR_BAD_PARAMETER, ERR_UNKNOWN_PARAMETER. */
int request_query_check(const struct request *request);

/* Check that the request is meant for this service. Fails with ERR_MISDIRECTED. */
int request_host_check(const struct request *request);

/* Refuse changes that a browser sends for another site's page. Fails with ERR_FORBIDDEN. */
int request_origin_check(struct request *request);

/* Identify the sender and check its role. Fails with ERR_UNAUTHORIZED, ERR_FORBIDDEN. */
int request_access_check(struct request *request);

/* The name of a session's cookie. With TLS a browser takes it by this name from the host itself alone, never from a
 * sibling domain or over plain HTTP. */
static inline const char *session_cookie(bool tls)
{
    return tls ? "__Host-mrirecond" : "mrirecond";
}

#endif
