/* libFuzzer target: headers that describe a body: tus' Upload-Length, Upload-Offset and Upload-Checksum,
 * Content-Digest, Idempotency-Key. */
#include "daemon/http/digest.h"
#include "daemon/http/idempotency.h"
#include "tests/fuzz/fuzz.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

static void read_number(const char *text)
{
    int64_t number = number_parse(text);
    char again[24];
    check(number >= -1 && number < 1000000000000000000);
    if (number < 0)
        return;
    text += strspn(text, "0");
    snprintf(again, sizeof again, "%lld", (long long)number);
    check(strcmp(*text ? text : "0", again) == 0 && number_parse(again) == number);
}

typedef int digest_beginner(struct digest *digest, const char *header);

/* An accepted header requests a known digest; a refused one requests none. */
static void check_digest(digest_beginner *begin, const char *text)
{
    struct digest digest;
    if (!check_result(begin(&digest, text))) {
        check(!digest.state && digest_end(&digest));
        return;
    }
    check(begin == digest_begin_content || digest.state);
    if (!digest.state)
        return;
    check(strstr("," DIGEST_TUS_ALGORITHMS ",", digest.name) && digest.length >= 16 && digest.length <= DIGEST_BYTES);
    digest_free(&digest);
    check(digest_end(&digest) && begin(&digest, text) == 0);
    digest_add(&digest, text, strlen(text));
    check(!digest_end(&digest)); /* no text contains its own digest */
}

/* The digest of `text`, formatted as in a header, matches the text but not a longer one. */
static void check_digest_of(digest_beginner *begin, const char *format, gnutls_digest_algorithm_t code,
                            const char *text)
{
    unsigned char raw[DIGEST_BYTES];
    char header[256];
    check(gnutls_hash_fast(code, text, strlen(text), raw) == 0);
    const gnutls_datum_t datum = {raw, (unsigned)gnutls_hash_get_len(code)};
    gnutls_datum_t encoded;
    check(gnutls_base64_encode2(&datum, &encoded) == 0);
    snprintf(header, sizeof header, format, (char *)encoded.data);
    gnutls_free(encoded.data);
    for (int more = 0; more < 2; more++) {
        struct digest digest;
        check(begin(&digest, header) == 0);
        digest_add(&digest, text, strlen(text));
        digest_add(&digest, "x", (size_t)more);
        check(digest_end(&digest) == !more);
    }
}

static void read_content_digest(const char *text)
{
    check_digest(digest_begin_content, text);
    check_digest_of(digest_begin_content, "unknown=1, sha-512=:%s:", GNUTLS_DIG_SHA512, text);
}

static void read_upload_checksum(const char *text)
{
    check_digest(digest_begin_tus, text);
    check_digest_of(digest_begin_tus, "sha1 %s", GNUTLS_DIG_SHA1, text);
}

static void check_scan_digest(struct idempotency *request, const char *text)
{
    unsigned char raw[32];
    char seen[JOB_DIGEST], wanted[JOB_DIGEST];
    check(gnutls_hash_fast(GNUTLS_DIG_SHA256, text, strlen(text), raw) == 0);
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(wanted + 2 * i, 3, "%02x", raw[i]);
    idempotency_add(request, text, strlen(text));
    idempotency_digest(request, seen);
    check(strcmp(seen, wanted) == 0);
}

/* A key belongs to one client, and is free again when its request has ended. */
static void read_key(const char *text)
{
    struct idempotency_keys *keys = NULL;
    struct idempotency first, second;
    check(idempotency_keys_create(&keys) == 0);
    if (check_result(idempotency_begin(&first, keys, "somebody", text))) {
        char quoted[JOB_KEY + 3];
        check(*first.key && strlen(first.key) < JOB_KEY && text_is_clean(first.key));
        snprintf(quoted, sizeof quoted, "\"%s\"", first.key);
        int rc = idempotency_begin(&second, keys, "somebody", quoted);
        check_refused(rc);
        check(rc == ERR_KEY_IN_USE && !second.keys && !second.hash);
        check(idempotency_begin(&second, keys, "another", text) == 0);
        check_scan_digest(&first, text);
        idempotency_end(&first);
        check(idempotency_begin(&first, keys, "somebody", quoted) == 0);
        idempotency_end(&second);
    } else {
        check(!first.keys && !first.hash);
    }
    idempotency_end(&first);
    idempotency_keys_free(keys);
}

FUZZ_TEXT(read_number, read_content_digest, read_upload_checksum, read_key)
