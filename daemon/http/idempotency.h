/* idempotency.h: submissions that may be sent twice and are to be done once (header Idempotency-Key).
 *
 * A client that does not know whether its submission arrived sends it again with the same key: it is answered with the
 * job that there is. The key is known as long as the job's row is; what the scan was is known by its SHA-256. Keys are
 * of one client each. While a request with a key is on its way, another with it is refused.
 */
#ifndef MRIRECON_DAEMON_IDEMPOTENCY_H
#define MRIRECON_DAEMON_IDEMPOTENCY_H

#include "daemon/store/store.h"

/* The keys of requests that are on their way. Any thread. */
struct keys;

int keys_create(struct keys **out);
void keys_free(struct keys *keys);

/* One request's. Of one thread at a time; all zero: none is asked for. */
struct idempotency {
    struct keys *keys; /* NULL: it has no key, or is no longer on its way */
    struct idempotency *next;
    char client[JOB_CLIENT], key[JOB_KEY];
    void *hash;
};

/* Where there is a header, claim its key. Fails with ERR_BAD_REQUEST, ERR_KEY_IN_USE, ERR_NO_MEMORY. */
int idempotency_begin(struct idempotency *request, struct keys *keys, const char *client, const char *header);
/* Bytes of the scan. */
void idempotency_add(struct idempotency *request, const void *data, size_t bytes);
/* All bytes were added: what they are. Once. */
void idempotency_digest(struct idempotency *request, char digest[JOB_DIGEST]);
/* It arrived, or never will: the key may be used again. Any number of times. */
void idempotency_end(struct idempotency *request);

#endif
