/* http_fields.h: parsing of header fields: pure functions over strings, so that they can be fuzzed. */
#ifndef MRIRECON_DAEMON_HTTP_FIELDS_H
#define MRIRECON_DAEMON_HTTP_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The wait of a Prefer header (RFC 7240), seconds; -1: none. `header` may be NULL. */
int prefer_wait(const char *header);
/* Whether a Prefer header names `preference` without a value. */
bool prefer_has(const char *header, const char *preference);

/* The quality (0..1000) that an Accept header gives to `media`, and how specific the matching range is: 3 the type
 * itself, 2 "image/" + "*", 1 any, 0 no match (a specific quality of 0 is a refusal). NULL and empty headers accept
 * anything. */
int accept_quality(const char *header, const char *media, int *closeness);

enum range_kind { RANGE_WHOLE, RANGE_PART, RANGE_OUTSIDE };
/* A Range header for a file of `bytes`. RANGE_PART: *first..*last inclusive. A range that cannot be served as one part
 * (other units, several ranges, malformed) is RANGE_WHOLE, as RFC 9110 allows. */
enum range_kind range_parse(const char *header, int64_t bytes, int64_t *first, int64_t *last);

/* Whether an If-Match (strong) or If-None-Match (weak) header names `etag` (with its quotes), or is "*". */
bool etag_listed(const char *header, const char *etag, bool weak);

/* The quality that an Accept-Encoding header (NULL: not sent) gives to a content coding: 0 (not acceptable, or not
 * named) to 1000. */
int coding_quality(const char *header, const char *coding);

/* The value of a cookie in a Cookie header (NULL: not sent). Returns how many cookies have this name. *value is ""
 * unless there is exactly one and it fits into `size`. */
int cookie_find(const char *header, const char *name, char *value, size_t size);

#endif
