/* tokens.h: who may do what: bearer tokens (RFC 6750), kept as hashes.
 *
 * The file has a line for each token, `CLIENT ROLE SHA256 [jobs=N] [bytes=N]` (what its client may have waiting, where
 * that differs from the options client-jobs and client-bytes), and comments that begin with #. A token is 256 random
 * bits, so that a plain hash of it cannot be guessed back. Several tokens may name one client: a scanner's that
 * submits, a viewer's that reads.
 *
 * Any thread; a reload replaces all at once.
 */
#ifndef MRIRECON_DAEMON_TOKENS_H
#define MRIRECON_DAEMON_TOKENS_H

#include "daemon/store/store.h"

#include <stdbool.h>

/* Each may do what those before it may: ROLE_READ and ROLE_SUBMIT of their client's own jobs, ROLE_VIEW (reading) and
 * ROLE_ADMIN of everybody's. */
enum role { ROLE_NOBODY, ROLE_READ, ROLE_VIEW, ROLE_SUBMIT, ROLE_ADMIN, ROLES };
const char *role_name(enum role role);
int role_find(const char *name); /* -1: none */
bool role_sees_all(enum role role);

/* Whether a client may be called so: 1 to JOB_CLIENT - 1 letters, digits, dots, dashes, underscores and @. */
bool client_fits(const char *client);

struct identity {
    enum role role;
    char client[JOB_CLIENT]; /* "": whoever it says it is */
    struct quota quota;
};

enum { TOKEN_TEXT = 4 + 64 + 1 };

struct tokens;

/* Read the file `path`; "": there are no tokens, and everybody who gets through is an administrator.
 * Fails with ERR_IO (also: others may write to the file), ERR_BAD_REQUEST (a line that is none), ERR_NO_MEMORY. */
int tokens_create(struct tokens **out, const char *path);
void tokens_free(struct tokens *tokens);

/* Read the file again. A failure leaves everything as it was. *count: tokens there are. */
int tokens_reload(struct tokens *tokens, int *count);

/* Whether tokens are asked for. */
bool tokens_wanted(const struct tokens *tokens);

/* Who sends the header Authorization (NULL: not sent). Fails with ERR_UNAUTHORIZED. */
int tokens_identify(struct tokens *tokens, const char *authorization, struct identity *out);

/* Make a token, add its hash to the file (made where it is missing), and tell it: nobody can later. Fails with ERR_IO,
 * ERR_BAD_PARAMETER (the client's name), ERR_INTERNAL. */
int token_add(const char *path, const char *client, enum role role, char token[TOKEN_TEXT]);

#endif
