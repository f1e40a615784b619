/* http_parse.h: parsing of queries, paths, addresses and numbers: pure functions over strings, so that they can be
 * fuzzed. */
#ifndef MRIRECON_DAEMON_HTTP_PARSE_H
#define MRIRECON_DAEMON_HTTP_PARSE_H

#include "gridding/base/err.h"

#include <stdbool.h>

enum { HTTP_NAME = 64, HTTP_VALUE = 1024, HTTP_PATH_PARTS = 6, HTTP_PATH_PART = 160 };

/* The next name=value of a query string, decoded ("+" is a space). *query moves on. *found false: there is none left.
 * Fails with ERR_BAD_REQUEST: a broken escape, a control character, not UTF-8, too long. */
int query_next(const char **query, char name[HTTP_NAME], char value[HTTP_VALUE], bool *found);
/* Pass each name=value of a query to `take`, until it fails. Fails as query_next() and as `take`. */
int query_each(const char *query, int (*take)(void *context, const char *name, const char *value), void *context);

/* Check that a query is well-formed and has no name twice. Fails with ERR_BAD_REQUEST, ERR_BAD_PARAMETER. */
int query_check(const char *query);

/* Split a request's target in place: *host (with a port) if the target is absolute ("http://HOST/PATH"), else NULL;
 * *path ("" is "/"); *query ("": none). Fails with ERR_BAD_REQUEST. */
int target_split(char *uri, const char **host, const char **path, const char **query);

/* The parts of a path between its slashes, decoded; *count of them. "/" has none. Fails with ERR_NOT_FOUND if the
 * service cannot have such a path (an empty part, one of dots, a broken escape, ...). */
int path_split(const char *path, char parts[HTTP_PATH_PARTS][HTTP_PATH_PART], int *count);

/* "127.0.0.1:80", "[::1]:80", "localhost:80": the address without brackets, and the port.
 * Fails with ERR_BAD_PARAMETER. */
int address_split(const char *text, char host[HTTP_NAME], int *port);

/* Whether a Host header (NULL: none) names the service: one of `names` (separated by commas); if `names` is empty and
 * the service is `local`, localhost or a loopback address; otherwise any. A port and a dot after the name are ignored;
 * nothing else may follow it. */
bool host_is_known(const char *header, const char *names, bool local);

/* Whether an Origin header is that of the service at `host` (a Host header; NULL: none). */
bool origin_is_host(const char *origin, const char *host);

/* The value of a header (NULL: not sent) that is a whole number below 1e18; -1: it is not one. */
int64_t number_parse(const char *text);

/* A whole number in [1, most]; false: `text` is not one. */
bool number_in(const char *text, int64_t most, int64_t *out);

/* A time, ms since 1970: an age before `now` ("90", "90s", "15m", "12h", "7d"), or UTC by ISO 8601 ("2026-11-22",
 * "2026-11-22T03:00Z", "2026-11-22T03:00:00.5Z"). false: `text` is not a time. */
bool since_parse(const char *text, int64_t now, int64_t *out);

/* Whether a text is a token of RFC 9110, such as a header's name. */
bool token_is_clean(const char *text);

/* Whether bytes are UTF-8 without control characters. */
bool text_is_clean(const char *text);

/* `text` as a quoted string of a header (RFC 9110, 5.6.4): a character that is not printable ASCII becomes "?"; a text
 * that does not fit is cut and ends in "...". size: at least 8. */
void header_string(const char *text, char *out, size_t size);

#endif
