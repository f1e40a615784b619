#include "daemon/http/idempotency.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct idempotency_keys {
    pthread_mutex_t lock;
    struct idempotency *first;
};

int idempotency_keys_create(struct idempotency_keys **out)
{
    struct idempotency_keys *keys = calloc(1, sizeof *keys);
    if (!keys)
        return err_no_memory("the list of idempotency keys");
    pthread_mutex_init(&keys->lock, NULL);
    *out = keys;
    return 0;
}

void idempotency_keys_free(struct idempotency_keys *keys)
{
    if (!keys)
        return;
    pthread_mutex_destroy(&keys->lock);
    free(keys);
}

/* The key in a header, with or without the quotes of a structured field. */
static int idempotency_key_read(const char *header, char key[JOB_KEY])
{
    size_t length = strlen(header);
    if (length >= 2 && header[0] == '"' && header[length - 1] == '"') {
        header++;
        length -= 2;
    }
    bool plain = length > 0 && length < JOB_KEY;
    for (size_t i = 0; plain && i < length; i++)
        plain = header[i] > ' ' && header[i] < 0x7f && header[i] != '"' && header[i] != '\\';
    if (!plain)
        return err_set(ERR_BAD_REQUEST,
                       "Idempotency-Key must have 1 to %d visible ASCII characters, without quotes and backslashes; "
                       "for example a UUID.",
                       JOB_KEY - 1);
    memcpy(key, header, length);
    key[length] = '\0';
    return 0;
}

int idempotency_begin(struct idempotency *request, struct idempotency_keys *keys, const char *client,
                      const char *header)
{
    *request = (struct idempotency){.keys = NULL};
    if (!header)
        return 0;
    int rc = idempotency_key_read(header, request->key);
    if (rc)
        return rc;
    snprintf(request->client, sizeof request->client, "%s", client);
    pthread_mutex_lock(&keys->lock);
    for (const struct idempotency *other = keys->first; other && !rc; other = other->next)
        if (strcmp(other->key, request->key) == 0 && strcmp(other->client, request->client) == 0)
            rc = err_set(ERR_KEY_IN_USE,
                         "A request with this Idempotency-Key is in progress. Wait for its answer, or try again.");
    gnutls_hash_hd_t hash = NULL;
    if (!rc && gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) != 0)
        rc = err_no_memory("a digest; try again later");
    if (!rc) {
        request->hash = hash;
        request->keys = keys;
        request->next = keys->first;
        keys->first = request;
    }
    pthread_mutex_unlock(&keys->lock);
    return rc;
}

void idempotency_name(struct idempotency *request, const char *id)
{
    if (!request->keys)
        return;
    pthread_mutex_lock(&request->keys->lock);
    memcpy(request->id, id, strnlen(id, JOB_ID - 1));
    pthread_mutex_unlock(&request->keys->lock);
}

bool idempotency_find(struct idempotency_keys *keys, const char *client, const char *key, char id[JOB_ID])
{
    *id = '\0';
    pthread_mutex_lock(&keys->lock);
    for (const struct idempotency *other = keys->first; other && !*id; other = other->next)
        if (strcmp(other->key, key) == 0 && strcmp(other->client, client) == 0)
            memcpy(id, other->id, JOB_ID);
    pthread_mutex_unlock(&keys->lock);
    return *id != '\0';
}

void idempotency_add(struct idempotency *request, const void *data, size_t bytes)
{
    if (request->hash)
        gnutls_hash(request->hash, data, bytes);
}

void idempotency_digest(struct idempotency *request, char digest[JOB_DIGEST])
{
    unsigned char seen[(JOB_DIGEST - 1) / 2];
    gnutls_hash_deinit(request->hash, seen);
    request->hash = NULL;
    for (size_t i = 0; i < sizeof seen; i++)
        snprintf(digest + 2 * i, 3, "%02x", seen[i]);
}

void idempotency_end(struct idempotency *request)
{
    struct idempotency_keys *keys = request->keys;
    if (request->hash)
        gnutls_hash_deinit(request->hash, NULL);
    request->hash = NULL;
    request->keys = NULL;
    if (!keys)
        return;
    pthread_mutex_lock(&keys->lock);
    struct idempotency **link = &keys->first;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    pthread_mutex_unlock(&keys->lock);
}
