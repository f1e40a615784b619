/* Webhooks, signed according to Standard Webhooks 1.0: HMAC-SHA256 over "ID.TIMESTAMP.BODY". */
#include "daemon/send/send_http.h"

#include "daemon/base/clock.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CONNECT_SECONDS = 15, HEADER = 256, SIGNATURE = 64, KEY_PREFIX = 6 };

int send_url_port(const char *url)
{
    char *text = NULL;
    CURLU *parts = curl_url();
    int port = 0;
    if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_PORT, &text, CURLU_DEFAULT_PORT) == CURLUE_OK)
        port = atoi(text);
    curl_free(text);
    curl_url_cleanup(parts);
    return port > 0 && port < 65536 ? port : 0;
}

int send_host_split(const char *address, char host[SEND_HOST])
{
    const char *colon = address ? strrchr(address, ':') : NULL;
    const int port = colon ? atoi(colon + 1) : 0;
    if (port < 1 || port > 65535 || colon == address || colon - address >= SEND_HOST)
        return 0;
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    return port;
}

/* "v1,BASE64". A secret "whsec_BASE64" is an encoded key, any other the key itself. */
static int sign(const char *secret, const char *text, char out[SIGNATURE])
{
    unsigned char sum[32];
    gnutls_datum_t key = {(unsigned char *)(uintptr_t)secret, (unsigned)strlen(secret)}, decoded = {NULL, 0},
                   base64 = {NULL, 0};
    if (strncmp(secret, "whsec_", KEY_PREFIX) == 0) {
        const gnutls_datum_t rest = {key.data + KEY_PREFIX, key.size - KEY_PREFIX};
        if (gnutls_base64_decode2(&rest, &decoded) == 0)
            key = decoded;
    }
    int bad = gnutls_hmac_fast(GNUTLS_MAC_SHA256, key.data, key.size, text, strlen(text), sum);
    const gnutls_datum_t signature = {sum, sizeof sum};
    if (!bad)
        bad = gnutls_base64_encode2(&signature, &base64);
    if (!bad)
        snprintf(out, SIGNATURE, "v1,%.*s", (int)base64.size, base64.data);
    gnutls_free(decoded.data);
    gnutls_free(base64.data);
    return bad;
}

/* Read and drop the body of an answer: only its status is used. */
static size_t body_drop(char *bytes, size_t size, size_t count, void *context)
{
    (void)bytes;
    (void)context;
    return size * count;
}

struct send_result send_http_judge(CURL *curl, CURLcode done, const char *reason)
{
    struct send_result result = {.outcome = SEND_AGAIN};
    long status = 0;
    curl_off_t after = 0;
    if (done != CURLE_OK) {
        snprintf(result.answer, sizeof result.answer, "%s.", *reason ? reason : curl_easy_strerror(done));
        return result;
    }
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &after);
    result.after = after > 0 && after < 86400 ? (long)after : 0;
    snprintf(result.answer, sizeof result.answer, "The server answered %ld%s.", status,
             status / 100 == 3 ? ", a redirection, which is not followed" : "");
    if (status / 100 == 2)
        result.outcome = SEND_DELIVERED;
    else if (status / 100 < 5 && status != 408 && status != 409 && status != 425 && status != 429)
        result.outcome = SEND_REFUSED;
    return result;
}

/* A handle with the settings of every request: no redirection, no proxy from the environment, only http and https.
 */
CURL *send_http_make(const json_t *message, char reason[CURL_ERROR_SIZE])
{
    CURL *curl = curl_easy_init();
    const char *ca = json_string_value(json_object_get(message, "ca"));
    if (!curl)
        return NULL;
    reason[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_URL, json_string_value(json_object_get(message, "address")));
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "mrirecond/" MRIRECON_VERSION);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)json_integer_value(json_object_get(message, "timeout")));
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, body_drop);
    if (ca && *ca)
        curl_easy_setopt(curl, CURLOPT_CAINFO, ca);
    return curl;
}

/* The three headers of a signed message, and its type. NULL: no memory. */
static struct curl_slist *headers_make(const json_t *message, const char *body)
{
    const char *id = json_string_value(json_object_get(message, "id")),
               *secret = json_string_value(json_object_get(message, "secret"));
    const long long now = clock_milliseconds() / 1000;
    char line[4][HEADER], signature[SIGNATURE], *text = NULL;
    struct curl_slist *headers = NULL;
    if (!id || !secret || asprintf(&text, "%s.%lld.%s", id, now, body) < 0)
        return NULL;
    int bad = sign(secret, text, signature);
    free(text);
    if (bad)
        return NULL;
    snprintf(line[0], HEADER, "Content-Type: application/json");
    snprintf(line[1], HEADER, "webhook-id: %s", id);
    snprintf(line[2], HEADER, "webhook-timestamp: %lld", now);
    snprintf(line[3], HEADER, "webhook-signature: %s", signature);
    for (int i = 0; i < 4; i++) {
        struct curl_slist *more = curl_slist_append(headers, line[i]);
        if (!more) {
            curl_slist_free_all(headers);
            return NULL;
        }
        headers = more;
    }
    return headers;
}

struct send_result send_webhook(const json_t *message)
{
    char reason[CURL_ERROR_SIZE];
    struct send_result result = {SEND_AGAIN, "There is no memory for a request.", 0};
    const char *body = json_string_value(json_object_get(message, "body"));
    struct curl_slist *headers = body ? headers_make(message, body) : NULL;
    CURL *curl = headers ? send_http_make(message, reason) : NULL;
    if (curl) {
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        CURLcode done = curl_easy_perform(curl);
        result = send_http_judge(curl, done, reason);
    }
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    return result;
}
