/* tokens.h: access control by bearer tokens (RFC 6750), stored as hashes.
 *
 * The file has a line for each token, `CLIENT ROLE SHA256 [jobs=N] [bytes=N]` (the client's quota, if it differs from
 * the options client-jobs and client-bytes), and comments that begin with #. A token has 256 random bits, so an
 * unsalted hash cannot be inverted by guessing. Several tokens may belong to one client: a scanner's that submits, a
 * viewer's that reads.
 *
 * Any thread; a reload replaces all tokens at once.
 */
#ifndef MRIRECON_DAEMON_TOKENS_H
#define MRIRECON_DAEMON_TOKENS_H

#include "daemon/store/store.h"

#include <stdbool.h>

/* Each role includes those before it: ROLE_READ and ROLE_SUBMIT for their client's own jobs, ROLE_VIEW (reading) and
 * ROLE_ADMIN for everyone's. */
enum role { ROLE_NOBODY, ROLE_READ, ROLE_VIEW, ROLE_SUBMIT, ROLE_ADMIN, ROLES };
const char *role_name(enum role role);
int role_find(const char *name); /* -1: none */
bool role_sees_all(enum role role);

/* Whether `client` is a valid name: 1 to JOB_CLIENT - 1 letters, digits, dots, dashes, underscores and @. */
bool client_fits(const char *client);

struct identity {
    enum role role;
    char client[JOB_CLIENT]; /* "": the name that the request gives */
    struct quota quota;
};

enum { TOKEN_TEXT = 4 + 64 + 1, TOKEN_HASH = 32 };

struct tokens;

/* Read the file `path`; "": no tokens, everyone is an administrator. Fails with ERR_IO (also: others may write to the
 * file), ERR_BAD_REQUEST (a malformed line), ERR_NO_MEMORY. */
int tokens_create(struct tokens **out, const char *path);
void tokens_free(struct tokens *tokens);

/* Read the file again; after a failure the old tokens stay. *count: number of tokens. */
int tokens_reload(struct tokens *tokens, int *count);

/* The number of reloads: whatever was authorised under an earlier number must be checked again. */
long tokens_generation(struct tokens *tokens);

/* Whether requests need a token. */
bool tokens_wanted(const struct tokens *tokens);

/* Identify the sender by the header Authorization (NULL: not sent). Fails with ERR_UNAUTHORIZED. */
int tokens_identify(struct tokens *tokens, const char *authorization, struct identity *out);

/* The hash of the token of a header Authorization. Fails with ERR_UNAUTHORIZED (no Bearer token), ERR_INTERNAL. */
int tokens_hash(const char *authorization, unsigned char hash[TOKEN_HASH]);
/* Identify the owner of the token with this hash; false: there is no such token (any more). */
bool tokens_find(struct tokens *tokens, const unsigned char hash[TOKEN_HASH], struct identity *out);

/* Generate a token and add its hash to the file (created if missing); the token itself is stored nowhere. Fails with
 * ERR_IO, ERR_BAD_PARAMETER (the client's name), ERR_INTERNAL. */
int token_add(const char *path, const char *client, enum role role, char token[TOKEN_TEXT]);

#endif
