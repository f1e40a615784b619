/* idempotency.h: submissions that may be repeated safely (header Idempotency-Key).
 *
 * A client that does not know whether its submission arrived repeats it with the same key, and gets the existing job. A
 * key is known as long as the job's row exists; the scan is compared by its SHA-256. Each client has its own keys.
 * While a request with a key is in progress, a second one is refused.
 */
#ifndef MRIRECON_DAEMON_IDEMPOTENCY_H
#define MRIRECON_DAEMON_IDEMPOTENCY_H

#include "daemon/store/store.h"

/* The keys of requests in progress. Any thread. */
struct idempotency_keys;

int idempotency_keys_create(struct idempotency_keys **out);
void idempotency_keys_free(struct idempotency_keys *keys);

/* The key of one request. Of one thread at a time; all zero: none. */
struct idempotency {
    struct idempotency_keys *keys; /* NULL: no key, or no longer in progress */
    struct idempotency *next;
    char client[JOB_CLIENT], key[JOB_KEY];
    char id[JOB_ID]; /* of the upload; "": it has not begun */
    void *hash;
};

/* Claim the key of `header`, if there is one. Fails with ERR_BAD_REQUEST, ERR_KEY_IN_USE, ERR_NO_MEMORY. */
int idempotency_begin(struct idempotency *request, struct idempotency_keys *keys, const char *client,
                      const char *header);
/* The upload has begun: `id` will be that of its job. */
void idempotency_name(struct idempotency *request, const char *id);
/* The id of the upload that is in progress with a client's key; false: there is none. */
bool idempotency_find(struct idempotency_keys *keys, const char *client, const char *key, char id[JOB_ID]);
/* Add bytes of the scan. */
void idempotency_add(struct idempotency *request, const void *data, size_t bytes);
/* The digest of all added bytes. Once. */
void idempotency_digest(struct idempotency *request, char digest[JOB_DIGEST]);
/* The request has ended: release the key. May be repeated. */
void idempotency_end(struct idempotency *request);

#endif
