/* digest.h: digests of arriving bytes, compared with the headers Content-Digest (RFC 9530) and Upload-Checksum
 * (tus). */
#ifndef MRIRECON_DAEMON_DIGEST_H
#define MRIRECON_DAEMON_DIGEST_H

#include "gridding/base/err.h"

#include <stdbool.h>

enum { DIGEST_BYTES = 64 }; /* of the longest */

/* The value of Tus-Checksum-Algorithm. */
#define DIGEST_TUS_ALGORITHMS "sha1,sha256,sha512,md5"

struct digest {
    void *state; /* NULL: none is asked for */
    char name[16];
    unsigned char expected[DIGEST_BYTES];
    size_t length;
};

/* Begin the strongest known digest that `header` names; none if `header` is NULL or names only unknown ones, which RFC
 * 9530 has ignored. Fails with ERR_BAD_REQUEST (malformed), ERR_NO_MEMORY. */
int digest_begin_content(struct digest *digest, const char *header);

/* "sha1 BASE64". Fails with ERR_BAD_REQUEST (also: an unknown algorithm), ERR_NO_MEMORY. */
int digest_begin_tus(struct digest *digest, const char *header);

/* Add bytes; a no-op without a digest. */
void digest_add(struct digest *digest, const void *data, size_t bytes);

/* End the digest; true: it matches, or there was none. */
bool digest_end(struct digest *digest);

/* Drop a digest, if there is one. */
void digest_free(struct digest *digest);

#endif
