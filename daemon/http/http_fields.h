/* http_fields.h: further header fields: pure functions over strings, so that they can be fuzzed. */
#ifndef MRIRECON_DAEMON_HTTP_FIELDS_H
#define MRIRECON_DAEMON_HTTP_FIELDS_H

/* How much an Accept-Encoding header (NULL: not sent) wants a content coding: 0 (not acceptable, or not named) to
 * 1000. */
int coding_quality(const char *header, const char *coding);

#endif
