/* service.h: one mrirecond, spoken to over HTTP.
 *
 * Ctrl-C (SIGINT) and SIGTERM do not end the program while a struct service exists: they end the call in progress,
 * which then fails with ERR_CANCELED, so that the command can say what became of the job. A struct service belongs to
 * one thread.
 */
#ifndef MRIRECON_SERVICE_H
#define MRIRECON_SERVICE_H

#include "gridding/base/err.h"

#include <jansson.h>
#include <stdbool.h>

struct service;

/* `url` is the server's address without a path ("http://127.0.0.1:8080"). Nothing is sent yet.
 * Fails with ERR_BAD_PARAMETER (not an http or https address), ERR_NO_MEMORY. */
int service_create(struct service **out, const char *url);
void service_free(struct service *service);

/* What further requests show and trust: a bearer token (its text, or the first line of a file; NULL: none), and a file
 * of certificates to trust besides (PEM; NULL: the system's alone). The strings of `cacert` must outlive the service.
 * Fails with ERR_IO (the file), ERR_NO_MEMORY. */
int service_trust(struct service *service, const char *token, const char *token_file, const char *cacert);

/* Told while bytes move; total is -1 where it is not known. */
struct service_watch {
    void *context;
    void (*moved)(void *context, int64_t done, int64_t total);
};

/* All calls below: `path` begins with '/', and is sent as it is. `watch` may be NULL. An answer that is a problem
 * document becomes a failure with its code and sentence. They also fail with ERR_IO (the server cannot be reached, or
 * stopped answering; the sentence says what to check), ERR_CANCELED, ERR_NO_MEMORY. */

/* GET, POST or DELETE; *out is the JSON answer (the caller's), or NULL where the answer is empty. */
int service_call(struct service *service, const char *method, const char *path, json_t **out);

/* POST without a body, with an idempotency key. *replayed: an earlier request had the key, and its answer came. */
int service_post(struct service *service, const char *path, const char *key, json_t **out, bool *replayed);

/* GET of plain text; *out is NUL-terminated and the caller's. An answer of 503 is one, too: *status (may be NULL)
 * tells. */
int service_text(struct service *service, const char *path, char **out, long *status);

/* POST the rest of `fd` as the body: `bytes` of it, or, where bytes is -1, up to its end; with an idempotency key, or
 * none (NULL). */
int service_upload(struct service *service, const char *path, int fd, int64_t bytes, const char *key,
                   const struct service_watch *watch, json_t **out);

/* GET into `fd`. *warnings (the caller's) are those that came with it, an array of texts. */
int service_download(struct service *service, const char *path, int fd, const struct service_watch *watch,
                     json_t **warnings);

/* Wait. Fails with ERR_CANCELED where Ctrl-C came. */
int service_pause(struct service *service, double seconds);

/* `text` for use in a query or path; the caller frees it. NULL: no memory. */
char *service_escape(struct service *service, const char *text);

#endif
