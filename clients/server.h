/* server.h: HTTP client of one mrirecond. While a struct server exists, Ctrl-C (SIGINT) and SIGTERM do not end the
 * program: they end the call in progress, which then fails with ERR_CANCELED, so that the command can report the state
 * of the job. A struct server belongs to one thread. */
#ifndef MRIRECON_SERVER_H
#define MRIRECON_SERVER_H

#include "gridding/base/err.h"

#include <jansson.h>
#include <stdbool.h>

struct server;

/* `url` is the server's address without a path ("http://127.0.0.1:8080"). Sends nothing yet. Fails with
 * ERR_BAD_PARAMETER (not an http or https address), ERR_NO_MEMORY. */
int server_create(struct server **out, const char *url);
void server_free(struct server *server);

/* Credentials of all further requests: a bearer token (its text, or the first line of a file; NULL: none), and a file
 * of certificates to trust in addition to the system's (PEM; NULL: none). `cacert` must outlive the server. Fails with
 * ERR_IO (the token file), ERR_NO_MEMORY. */
int server_trust(struct server *server, const char *token, const char *token_file, const char *cacert);

/* Progress of a transfer; total is -1 if it is not known. */
struct server_watch {
    void *context;
    void (*moved)(void *context, int64_t done, int64_t total);
};

/* All calls below: `path` begins with '/' and is sent unchanged. `watch` may be NULL. An answer that is a problem
 * document becomes a failure with its code and sentence. They also fail with ERR_IO (the server cannot be reached, or
 * stopped answering; the sentence says what to check), ERR_CANCELED, ERR_NO_MEMORY. */

/* GET, POST or DELETE; *out is the JSON answer (the caller's), or NULL if the answer is empty. */
int server_call(struct server *server, const char *method, const char *path, json_t **out);

/* POST without a body, with an idempotency key. *replayed: the answer is that of an earlier request with this key. */
int server_post(struct server *server, const char *path, const char *key, json_t **out, bool *replayed);

/* GET of plain text; *out is NUL-terminated and the caller's. A 503 is an answer, not a failure: see *status (may be
 * NULL). */
int server_text(struct server *server, const char *path, char **out, long *status);

/* POST the rest of `fd` as the body: `bytes` of it, or up to its end if bytes is -1; `key`: an idempotency key, or
 * NULL. */
int server_upload(struct server *server, const char *path, int fd, int64_t bytes, const char *key,
                  const struct server_watch *watch, json_t **out);

/* GET into `fd`. *warnings (the caller's): the texts of the answer's warnings, an array. */
int server_download(struct server *server, const char *path, int fd, const struct server_watch *watch,
                    json_t **warnings);

/* Sleep. Fails with ERR_CANCELED after Ctrl-C. */
int server_pause(struct server *server, double seconds);

/* `text` for use in a query or path; the caller frees it. NULL: no memory. */
char *server_escape(struct server *server, const char *text);

#endif
