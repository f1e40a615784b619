#include "daemon/http/digest.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct algorithm {
    const char *content, *tus; /* names in Content-Digest and Upload-Checksum; NULL: not used there */
    gnutls_digest_algorithm_t code;
};

/* Strongest first. RFC 9530, section 5, advises against the weak algorithms in Content-Digest. */
static const struct algorithm algorithms[] = {
    {"sha-512", "sha512", GNUTLS_DIG_SHA512},
    {"sha-256", "sha256", GNUTLS_DIG_SHA256},
    {NULL, "sha1", GNUTLS_DIG_SHA1},
    {NULL, "md5", GNUTLS_DIG_MD5},
};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

static int digest_start(struct digest *digest, const struct algorithm *algorithm, const char *text, size_t length)
{
    const gnutls_datum_t encoded = {(unsigned char *)(uintptr_t)text, (unsigned)length};
    gnutls_datum_t raw = {NULL, 0};
    size_t wanted = (size_t)gnutls_hash_get_len(algorithm->code);
    bool fits = length <= 2 * DIGEST_BYTES && gnutls_base64_decode2(&encoded, &raw) == 0 && raw.size == wanted;
    if (fits) {
        memcpy(digest->expected, raw.data, wanted);
        digest->length = wanted;
    }
    gnutls_free(raw.data);
    if (!fits)
        return err_set(ERR_BAD_REQUEST, "The %s digest is not the base64 of %zu bytes.", algorithm->tus, wanted);
    gnutls_hash_hd_t state;
    if (gnutls_hash_init(&state, algorithm->code) != 0)
        return err_no_memory("a digest; try again later");
    digest->state = state;
    snprintf(digest->name, sizeof digest->name, "%s", algorithm->tus);
    return 0;
}

/* The value of `name` in a dictionary of byte sequences, name=:BASE64:, ...; NULL: not there. */
static const char *member_find(const char *header, const char *name, size_t *length)
{
    size_t named = strlen(name);
    for (const char *at = header; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        at += strspn(at, " \t");
        if (strncmp(at, name, named) == 0 && at[named] == '=') {
            *length = strcspn(at + named + 1, ", \t;");
            return at + named + 1;
        }
    }
    return NULL;
}

int digest_begin_content(struct digest *digest, const char *header)
{
    *digest = (struct digest){.state = NULL};
    for (int i = 0; header && i < ALGORITHMS; i++) {
        size_t length = 0;
        const char *value = algorithms[i].content ? member_find(header, algorithms[i].content, &length) : NULL;
        if (!value)
            continue;
        if (length < 3 || value[0] != ':' || value[length - 1] != ':')
            return err_set(ERR_BAD_REQUEST,
                           "Content-Digest is malformed. It has to look like sha-256=:BASE64: (RFC 9530).");
        return digest_start(digest, &algorithms[i], value + 1, length - 2);
    }
    return 0;
}

int digest_begin_tus(struct digest *digest, const char *header)
{
    *digest = (struct digest){.state = NULL};
    if (!header)
        return 0;
    size_t named = strcspn(header, " ");
    for (int i = 0; i < ALGORITHMS; i++)
        if (strncmp(header, algorithms[i].tus, named) == 0 && !algorithms[i].tus[named] && header[named])
            return digest_start(digest, &algorithms[i], header + named + 1, strlen(header + named + 1));
    return err_set(ERR_BAD_REQUEST,
                   "Upload-Checksum has to be one of " DIGEST_TUS_ALGORITHMS ", a space, and the digest in base64.");
}

void digest_add(struct digest *digest, const void *data, size_t bytes)
{
    if (digest->state)
        gnutls_hash(digest->state, data, bytes);
}

bool digest_end(struct digest *digest)
{
    unsigned char seen[DIGEST_BYTES];
    if (!digest->state)
        return true;
    gnutls_hash_deinit(digest->state, seen);
    digest->state = NULL;
    return memcmp(seen, digest->expected, digest->length) == 0;
}

void digest_free(struct digest *digest)
{
    if (digest->state)
        gnutls_hash_deinit(digest->state, NULL);
    digest->state = NULL;
}
