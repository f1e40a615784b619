/* http.h: the HTTP side: connections, bodies, dispatch by one table of routes, answers.
 *
 * libmicrohttpd's threads (option http-threads), each with an epoll set, call into http.c; a request is in one thread
 * at a time. These threads never wait for a worker or a conversion: such a request is suspended (waiters.h), and its
 * handler is called again from the start, so handlers read the present state at each call. They do not wait for an
 * fsync or compute a list either: a route's work() runs in a thread of a pool, in its client's turn, while the request
 * is suspended.
 */
#ifndef MRIRECON_DAEMON_HTTP_H
#define MRIRECON_DAEMON_HTTP_H

#include "daemon/http/request.h"

struct http;

/* Serve on options->listen; *port: the port served. Fails with ERR_BAD_PARAMETER (not an address; one that other
 * machines reach, without TLS and tokens), ERR_IO (taken). */
int http_create(struct http **out, struct service *service, int *port);
/* Closes the socket and every connection. pool_close() and then waiters_close() come first. */
void http_free(struct http *http);

/* Count the job that a complete upload became, and tell the scheduler, if there is one yet. Of an upload that a request
 * completed, the routes do that. Any thread. */
void http_upload_accepted(struct service *service, const struct job *job);

#endif
