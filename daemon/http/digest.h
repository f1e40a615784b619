/* digest.h: digests of bytes as they arrive, and what headers say they should be: Content-Digest (RFC 9530) and tus'
 * Upload-Checksum.
 */
#ifndef MRIRECON_DAEMON_DIGEST_H
#define MRIRECON_DAEMON_DIGEST_H

#include "gridding/base/err.h"

#include <stdbool.h>

enum { DIGEST_BYTES = 64 }; /* of the longest */

/* What tus asks of a server to name in Tus-Checksum-Algorithm. */
#define DIGEST_TUS_ALGORITHMS "sha1,sha256,sha512,md5"

struct digest {
    void *state; /* NULL: none is asked for */
    char name[16];
    unsigned char expected[DIGEST_BYTES];
    size_t length;
};

/* Begin the strongest digest that `header` names and that is known; *digest has none where `header` is NULL or names
 * unknown ones only (RFC 9530 has those ignored).
 * Fails with ERR_BAD_REQUEST (malformed), ERR_NO_MEMORY. */
int digest_begin_content(struct digest *digest, const char *header);

/* "sha1 BASE64". Fails with ERR_BAD_REQUEST (also: an unknown algorithm), ERR_NO_MEMORY. */
int digest_begin_tus(struct digest *digest, const char *header);

/* More bytes. Nothing where there is no digest. */
void digest_add(struct digest *digest, const void *data, size_t bytes);

/* Ends the digest; true: it is as expected, or there was none. */
bool digest_end(struct digest *digest);

/* Give up a digest, if there is one. */
void digest_free(struct digest *digest);

#endif
