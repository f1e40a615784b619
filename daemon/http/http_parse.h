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
/* Hand each name=value of a query to `take`, until one fails. Fails as query_next() and as `take`. */
int query_each(const char *query, int (*take)(void *context, const char *name, const char *value), void *context);

/* That a query can be read to its end, and names nothing twice. Fails with ERR_BAD_REQUEST, ERR_BAD_PARAMETER. */
int query_check(const char *query);

/* Take the target of a request apart, in place: *host (with a port; NULL: none named) where it is absolute
 * ("http://HOST/PATH"), *path ("" is "/") and *query ("": none). Fails with ERR_BAD_REQUEST. */
int target_split(char *uri, const char **host, const char **path, const char **query);

/* The parts of a path between its slashes, decoded; *count of them. "/" has none.
 * Fails with ERR_NOT_FOUND: no path of this service can look so (an empty part, one of dots, a broken escape, ...). */
int path_split(const char *path, char parts[HTTP_PATH_PARTS][HTTP_PATH_PART], int *count);

/* "127.0.0.1:80", "[::1]:80", "localhost:80": the address without brackets, and the port.
 * Fails with ERR_BAD_PARAMETER. */
int address_split(const char *text, char host[HTTP_NAME], int *port);

/* Whether a Host header (NULL: none) names the service: one of `names` (separated by commas), or, where there are none,
 * localhost or a loopback address; anything where neither `names` nor `local`. A port is ignored, and a dot at the end
 * of the name; nothing else may follow it. */
bool host_is_known(const char *header, const char *names, bool local);

/* Whether an Origin header is that of a page which the service at `host` (a Host header; NULL: none) gave. */
bool origin_is_host(const char *origin, const char *host);

/* The whole number that is all of a header (NULL: not sent), below 1e18; -1: it is none. */
int64_t number_parse(const char *text);

/* A whole number in [1, most]; false: `text` is none. */
bool number_in(const char *text, int64_t most, int64_t *out);

/* A time, ms since 1970: how long before `now` ("90", "90s", "15m", "12h", "7d"), or of UTC by ISO 8601 ("2026-11-22",
 * "2026-11-22T03:00Z", "2026-11-22T03:00:00.5Z"). false: `text` is none. */
bool since_parse(const char *text, int64_t now, int64_t *out);

/* Whether a text is a token of RFC 9110, as names of headers are. */
bool token_is_clean(const char *text);

/* Whether bytes are UTF-8 without control characters. */
bool text_is_clean(const char *text);

/* `text` as a quoted string of a header (RFC 9110, 5.6.4): a character that is not printable ASCII becomes "?", and
 * what does not fit gives way to "...". size: at least 8. */
void header_string(const char *text, char *out, size_t size);

#endif
