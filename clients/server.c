#include "clients/server.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 64 << 20, /* largest answer kept in memory; a list of jobs is far smaller */
    CONNECT_SECONDS = 10,
    STALLED_SECONDS = 120, /* a transfer without a byte for so long means that the server is gone */
    BUFFER = 256 << 10
};

struct server {
    CURL *curl;
    char *url, *token;      /* token NULL: none is sent */
    const char *cacert;     /* NULL: only the system's certificates */
    sigset_t stops, before; /* SIGINT and SIGTERM; the mask to restore */
};

/* One request in progress. */
struct exchange {
    struct server *server;
    const char *key; /* Idempotency-Key; NULL: none */
    const struct server_watch *watch;
    char *text; /* the answer, NUL-terminated */
    size_t length;
    int source, sink; /* file descriptors, -1: none */
    int64_t left;     /* bytes of the source to be sent; -1: unknown */
    int failed;       /* errno of reading the source or writing the sink */
    bool too_long, stopped;
};

int server_create(struct server **out, const char *url)
{
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return err_set(ERR_BAD_PARAMETER, "The server's address \"%s\" must begin with http:// or https://.", url);
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return err_no_memory("a connection");
    sigemptyset(&server->stops);
    sigaddset(&server->stops, SIGINT);
    sigaddset(&server->stops, SIGTERM);
    sigprocmask(SIG_BLOCK, &server->stops, &server->before);
    server->url = strdup(url);
    server->curl = curl_easy_init();
    if (!server->url || !server->curl) {
        server_free(server);
        return err_no_memory("a connection");
    }
    for (size_t n = strlen(server->url); n > 0 && server->url[n - 1] == '/'; n--)
        server->url[n - 1] = 0;
    *out = server;
    return 0;
}

void server_free(struct server *server)
{
    if (!server)
        return;
    /* A signal that came after the last call has been acted on, or comes too late to matter. */
    const struct timespec now = {0};
    while (sigtimedwait(&server->stops, NULL, &now) > 0)
        ;
    sigprocmask(SIG_SETMASK, &server->before, NULL);
    curl_easy_cleanup(server->curl);
    free(server->token);
    free(server->url);
    free(server);
}

/* The token in the first line of a file. */
static int token_read(const char *path, char line[256])
{
    FILE *file = fopen(path, "re");
    bool read = file && fgets(line, 256, file);
    int rc = !file || ferror(file) ? err_set(ERR_IO, "The token cannot be read from %s: %m.", path) : 0;
    if (file)
        fclose(file);
    if (read)
        line[strcspn(line, "\r\n")] = '\0';
    for (size_t n = read ? strlen(line) : 0; n > 0 && line[n - 1] == ' '; n--)
        line[n - 1] = '\0';
    if (!rc && (!read || !*line))
        rc = err_set(ERR_IO, "There is no token in the first line of the file %s.", path);
    return rc;
}

int server_trust(struct server *server, const char *token, const char *token_file, const char *cacert)
{
    char line[256] = "";
    server->cacert = cacert;
    int rc = token_file ? token_read(token_file, line) : 0;
    if (rc)
        return rc;
    if (token_file)
        token = line;
    if (token && strpbrk(token, " \t\r\n\""))
        return err_set(ERR_BAD_PARAMETER,
                       "%s contains more than a token: spaces or quotes. A token is one word, as mrirecond --new-token "
                       "prints it; the server's token file has only hashes.",
                       token_file ? token_file : "MRIRECON_TOKEN");
    if (token && *token && !(server->token = strdup(token)))
        return err_no_memory("a token");
    return 0;
}

int server_pause(struct server *server, double seconds)
{
    const struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (sigtimedwait(&server->stops, NULL, &time) > 0)
        return err_set(ERR_CANCELED, "Interrupted.");
    return 0;
}

char *server_escape(struct server *server, const char *text)
{
    char *escaped = curl_easy_escape(server->curl, text, 0);
    char *copy = escaped ? strdup(escaped) : NULL;
    curl_free(escaped);
    return copy;
}

static size_t keep(struct exchange *exchange, const char *data, size_t bytes)
{
    const size_t end = exchange->length + bytes;
    char *text = exchange->text;
    exchange->too_long = end > ANSWER_MAX;
    if (!exchange->too_long && (!text || end / BUFFER > exchange->length / BUFFER)) /* realloc() may copy all of it */
        text = realloc(text, (end / BUFFER + 1) * BUFFER);
    if (exchange->too_long || !text)
        return 0;
    memcpy(text + exchange->length, data, bytes);
    exchange->text = text;
    exchange->length = end;
    text[end] = 0;
    return bytes;
}

static size_t on_answer(char *data, size_t one, size_t bytes, void *context)
{
    (void)one;
    struct exchange *exchange = context;
    long status = 0;
    curl_easy_getinfo(exchange->server->curl, CURLINFO_RESPONSE_CODE, &status);
    if (exchange->sink < 0 || status != 200)
        return keep(exchange, data, bytes);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(exchange->sink, data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            exchange->failed = errno;
            return 0;
        }
        done += (size_t)n;
    }
    return bytes;
}

static size_t on_body(char *data, size_t one, size_t bytes, void *context)
{
    struct exchange *exchange = context;
    ssize_t n;
    do {
        n = read(exchange->source, data, one * bytes);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        exchange->failed = errno;
        return CURL_READFUNC_ABORT;
    }
    if (exchange->left > 0)
        exchange->left -= n;
    else if (n == 0)
        exchange->left = 0;
    return (size_t)n;
}

static int on_seek(void *context, curl_off_t offset, int origin)
{
    struct exchange *exchange = context;
    const off_t before = lseek(exchange->source, 0, SEEK_CUR), after = lseek(exchange->source, offset, origin);
    if (before < 0 || after < 0)
        return CURL_SEEKFUNC_CANTSEEK;
    exchange->left += exchange->left >= 0 ? before - after : 0;
    return CURL_SEEKFUNC_OK;
}

static int on_progress(void *context, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
    struct exchange *exchange = context;
    const struct timespec now = {0};
    if (sigtimedwait(&exchange->server->stops, NULL, &now) > 0) {
        exchange->stopped = true;
        return 1;
    }
    if (exchange->watch && exchange->source >= 0)
        exchange->watch->moved(exchange->watch->context, up, up_total > 0 ? up_total : -1);
    else if (exchange->watch)
        exchange->watch->moved(exchange->watch->context, down, down_total > 0 ? down_total : -1);
    return 0;
}

/* Turn an answer with a status of 400 or more into a failure. */
static int answer_refused(const struct exchange *exchange, const char *path, long status)
{
    json_t *problem = exchange->text ? json_loads(exchange->text, 0, NULL) : NULL;
    const char *code = json_string_value(json_object_get(problem, "code"));
    const char *detail = json_string_value(json_object_get(problem, "detail"));
    int rc;
    if (!code)
        rc = err_set(ERR_IO, "%s answered %ld to %s, unlike mrirecond. Is the address right?", exchange->server->url,
                     status, path);
    else if (strcmp(err_name(err_from_name(code)), code) != 0) /* a code of a newer server */
        rc = err_set(ERR_INTERNAL, "%s: %s", code, detail ? detail : "no reason was given.");
    else
        rc = err_set(err_from_name(code), "%s", detail ? detail : err_title(err_from_name(code)));
    json_decref(problem);
    return rc;
}

/* Failures of trust, and of http:// against https://; 0: another failure. */
static int explain_tls(const struct exchange *exchange, CURLcode result, const char *reason)
{
    const char *url = exchange->server->url, *cacert = exchange->server->cacert;
    bool plain = strncmp(url, "http://", 7) == 0;
    if (result == CURLE_PEER_FAILED_VERIFICATION && strstr(reason, "does not match"))
        return err_set(ERR_IO, "The certificate of %s is for another name (%s): use that name in the server's address.",
                       url, reason);
    if (result == CURLE_PEER_FAILED_VERIFICATION && cacert)
        return err_set(ERR_IO,
                       "The certificate of %s is not signed by any in %s (%s): give the server's certificate, in PEM, "
                       "with --cacert FILE or MRIRECON_CACERT; ask the server's operator for it.",
                       url, cacert, reason);
    if (result == CURLE_PEER_FAILED_VERIFICATION)
        return err_set(ERR_IO,
                       "The certificate of %s is not trusted by this machine (%s): give the server's certificate with "
                       "--cacert FILE or MRIRECON_CACERT; ask the server's operator for it.",
                       url, reason);
    if (result == CURLE_SSL_CACERT_BADFILE)
        return err_set(ERR_IO, "%s, from --cacert or MRIRECON_CACERT, cannot be read as certificates in PEM (%s).",
                       cacert ? cacert : "The system's file of certificates",
                       cacert && access(cacert, R_OK) < 0 ? strerror(errno) : reason);
    if (result == CURLE_SSL_CONNECT_ERROR)
        return err_set(
            ERR_IO,
            "The TLS handshake with %s failed (%s). If the server uses plain HTTP, its address begins with http://.",
            url, reason);
    if (result == CURLE_GOT_NOTHING && plain)
        return err_set(ERR_IO,
                       "%s closed the connection without an answer. If the server uses TLS, its address begins with "
                       "https://.",
                       url);
    return 0;
}

static int explain(const struct exchange *exchange, CURLcode result, const char *details)
{
    const char *url = exchange->server->url;
    const char *reason = *details ? details : curl_easy_strerror(result);
    if (exchange->stopped && exchange->source >= 0)
        return err_set(ERR_CANCELED, exchange->left != 0
                                         ? "The upload was interrupted; there is no job."
                                         : "Interrupted when all of the scan had been sent: there may be a job of it, "
                                           "which `mrirecon list` shows.");
    if (exchange->stopped)
        return err_set(ERR_CANCELED, "Interrupted.");
    if (exchange->failed && exchange->source >= 0)
        return err_set(ERR_IO, "The scan could not be read: %s.", strerror(exchange->failed));
    if (exchange->failed)
        return err_set(exchange->failed == ENOSPC ? ERR_SPOOL_FULL : ERR_IO, "The result could not be written: %s.",
                       strerror(exchange->failed));
    if (exchange->too_long)
        return err_set(ERR_LIMIT, "%s sent more than %d MB where a short answer was expected. Is the address right?",
                       url, ANSWER_MAX >> 20);
    int rc = explain_tls(exchange, result, reason);
    if (rc)
        return rc;
    switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
        return err_set(ERR_IO,
                       "No server answers at %s (%s). Check that mrirecond runs there; --server URL or MRIRECON_SERVER "
                       "sets another address.",
                       url, reason);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(ERR_IO, "%s stopped answering (%s). Check the network, and the server's log.", url, reason);
    case CURLE_OUT_OF_MEMORY:
    case CURLE_WRITE_ERROR: /* of keep(): the other reasons are told above */
        return err_no_memory("the answer of %s", url);
    default:
        return err_set(ERR_IO, "The connection to %s broke (%s). Try again; if it happens again, see the server's log.",
                       url, reason);
    }
}

/* Headers and options of every request. */
static int request_prepare(struct exchange *exchange, const char *method, const char *address,
                           struct curl_slist **headers)
{
    CURL *curl = exchange->server->curl;
    curl_easy_reset(curl); /* keeps the connection */
    *headers = curl_slist_append(NULL, "Content-Type: application/octet-stream");
    if (*headers && exchange->key) {
        char *line = NULL;
        struct curl_slist *more =
            asprintf(&line, "Idempotency-Key: %s", exchange->key) < 0 ? NULL : curl_slist_append(*headers, line);
        free(line);
        if (!more)
            curl_slist_free_all(*headers);
        *headers = more;
    }
    if (!*headers)
        return err_no_memory("a request");
    curl_easy_setopt(curl, CURLOPT_URL, address);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "mrirecon/" MRIRECON_VERSION);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALLED_SECONDS);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, (long)BUFFER);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)BUFFER);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, exchange);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange);
    if (exchange->server->token) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, exchange->server->token);
    }
    if (exchange->server->cacert)
        curl_easy_setopt(curl, CURLOPT_CAINFO, exchange->server->cacert);
    if (strcmp(method, "POST") == 0)
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
    else if (strcmp(method, "GET") != 0)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    return 0;
}

/* Send and receive. `bytes` is the length of the body, -1: unknown. */
static int perform(struct exchange *exchange, const char *method, const char *path, int64_t bytes, long *status)
{
    CURL *curl = exchange->server->curl;
    char details[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    char *address = NULL;
    int rc = 0;
    if (asprintf(&address, "%s%s", exchange->server->url, path) < 0)
        return err_no_memory("a request");
    rc = request_prepare(exchange, method, address, &headers);
    if (rc)
        goto out;
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, details);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (exchange->source >= 0) {
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_body);
        curl_easy_setopt(curl, CURLOPT_READDATA, exchange);
        curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(curl, CURLOPT_SEEKDATA, exchange);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes); /* -1: chunked */
    } else if (strcmp(method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    }
    CURLcode result = curl_easy_perform(curl);
    *status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
    /* A server that refuses an upload early closes the connection before all of it is sent: its answer counts, not the
     * broken pipe. */
    if (result != CURLE_OK && !(*status >= 400 && exchange->text && !exchange->stopped))
        rc = explain(exchange, result, details);
    else if (*status >= 400)
        rc = answer_refused(exchange, path, *status);
out:
    curl_slist_free_all(headers);
    free(address);
    return rc;
}

static int parse(const struct exchange *exchange, json_t **out)
{
    json_error_t error;
    json_t *answer = NULL;
    if (exchange->length > 0) {
        answer = json_loads(exchange->text, 0, &error);
        if (!answer)
            return err_set(ERR_IO, "%s answered with something that is not JSON (%s). Is the address right?",
                           exchange->server->url, error.text);
    }
    *out = answer;
    return 0;
}

int server_call(struct server *server, const char *method, const char *path, json_t **out)
{
    struct exchange exchange = {.server = server, .source = -1, .sink = -1};
    long status;
    int rc = perform(&exchange, method, path, 0, &status);
    if (!rc)
        rc = parse(&exchange, out);
    free(exchange.text);
    return rc;
}

int server_post(struct server *server, const char *path, const char *key, json_t **out, bool *replayed)
{
    struct exchange exchange = {.server = server, .key = key, .source = -1, .sink = -1};
    struct curl_header *header;
    long status;
    int rc = perform(&exchange, "POST", path, 0, &status);
    if (!rc)
        rc = parse(&exchange, out);
    *replayed =
        !rc && curl_easy_header(server->curl, "Idempotency-Replayed", 0, CURLH_HEADER, -1, &header) == CURLHE_OK;
    free(exchange.text);
    return rc;
}

int server_text(struct server *server, const char *path, char **out, long *status)
{
    struct exchange exchange = {.server = server, .source = -1, .sink = -1};
    long seen;
    int rc = perform(&exchange, "GET", path, 0, &seen);
    if (rc && seen == 503 && exchange.text)
        rc = 0;
    if (!rc && !exchange.text && !(exchange.text = strdup("")))
        rc = err_no_memory("an answer");
    if (rc) {
        free(exchange.text);
        return rc;
    }
    *out = exchange.text;
    if (status)
        *status = seen;
    return 0;
}

int server_upload(struct server *server, const char *path, int fd, int64_t bytes, const char *key,
                  const struct server_watch *watch, json_t **out)
{
    struct exchange exchange = {.server = server, .key = key, .watch = watch, .source = fd, .left = bytes, .sink = -1};
    long status;
    int rc = perform(&exchange, "POST", path, bytes, &status);
    if (!rc)
        rc = parse(&exchange, out);
    free(exchange.text);
    return rc;
}

/* The text of the quoted string at *at (RFC 9110, 5.6.4), unescaped in place; *at moves behind it. NULL: there is
 * none. */
static char *string_next(char **at)
{
    char *from = *at + strcspn(*at, "\""), *text = from + 1, *to = text;
    if (!*from)
        return NULL;
    for (from++; *from && *from != '"'; from++) {
        from += *from == '\\' && from[1];
        *to++ = *from;
    }
    *at = *from ? from + 1 : from;
    *to = '\0';
    return text;
}

/* The warnings of the last answer: each is a string; a proxy may have joined several into one header. */
static json_t *warnings_read(CURL *curl)
{
    json_t *warnings = json_array();
    for (struct curl_header *header = NULL; (header = curl_easy_nextheader(curl, CURLH_HEADER, -1, header));) {
        char *value = strcasecmp(header->name, "Mrirecond-Warning") == 0 ? strdup(header->value) : NULL, *at = value;
        for (char *text; value && (text = string_next(&at));)
            json_array_append_new(warnings, json_string(text));
        free(value);
    }
    return warnings;
}

int server_download(struct server *server, const char *path, int fd, const struct server_watch *watch,
                    json_t **warnings)
{
    struct exchange exchange = {.server = server, .watch = watch, .source = -1, .sink = fd};
    long status;
    int rc = perform(&exchange, "GET", path, 0, &status);
    if (!rc && status != 200)
        rc = err_set(ERR_IO, "%s answered %ld where a file was expected. Is the address right?", server->url, status);
    free(exchange.text);
    if (!rc)
        *warnings = warnings_read(server->curl);
    return rc;
}
