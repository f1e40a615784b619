/* http.h: the HTTP side: connections, bodies, dispatch by one table of routes, answers.
 *
 * libmicrohttpd's threads (option http-threads), each with an epoll set, call into http.c; a request is in one thread
 * at a time. Nobody there waits for a worker or a conversion: such a request is suspended (waiters.h) and its handler
 * is called again from the start, so handlers are written to look at what is there now, each time. Nor does anybody
 * there wait for the disk to sync, or make a list: a route's work() is done in a thread of a pool, in the turn of its
 * client, while the request is suspended.
 */
#ifndef MRIRECON_DAEMON_HTTP_H
#define MRIRECON_DAEMON_HTTP_H

#include "daemon/http/request.h"

struct http;

/* Serve on options->listen; *port is the one that is served. Fails with ERR_BAD_PARAMETER (not an address; one that
 * other machines reach, without TLS and tokens), ERR_IO (taken). */
int http_create(struct http **out, struct service *service, int *port);
/* Closes the socket and every connection. pool_close() and then waiters_close() come first. */
void http_free(struct http *http);

#endif
