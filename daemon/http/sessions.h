/* sessions.h: logins of browsers. A token is exchanged for a cookie, because event sources, images and links send no
 * Authorization header, and a page should not store a token.
 *
 * A session has a random id of 256 bits; only its hash is stored. It ends after SESSION_SECONDS, at the logout, when
 * its token is removed, or with the service. Its role and quota are the token's at the time of each request. A token
 * may have SESSIONS_TOKEN sessions, all tokens together SESSIONS_MOST; beyond that, the oldest ends. Any thread.
 */
#ifndef MRIRECON_DAEMON_SESSIONS_H
#define MRIRECON_DAEMON_SESSIONS_H

#include "daemon/http/tokens.h"

enum {
    SESSION_TEXT = 64 + 1,
    SESSION_SECONDS = 12 * 3600,
    SESSIONS_TOKEN = 64,
    SESSIONS_MOST = 1024,
    LOGIN_FAILURES = 10, /* of one address within LOGIN_SECONDS; more are refused until that time is over */
    LOGIN_SECONDS = 60,
    LOGIN_ADDRESSES = 256, /* addresses with failures that are remembered */
    LOGIN_ADDRESS = 16     /* bytes of an address, as in struct connection_watch */
};

struct sessions;

/* `tokens` outlives the sessions. Fails with ERR_NO_MEMORY. */
int sessions_create(struct sessions **out, struct tokens *tokens);
void sessions_free(struct sessions *sessions);

/* All times are clock_seconds(). */

/* Whether this address may try to log in. Fails with ERR_QUOTA. */
int sessions_may_try(struct sessions *sessions, const unsigned char address[LOGIN_ADDRESS], double now);
/* The address tried an unknown token. */
void sessions_failed(struct sessions *sessions, const unsigned char address[LOGIN_ADDRESS], double now);

/* Create a session for the token with this hash. Fails with ERR_INTERNAL. */
int sessions_open(struct sessions *sessions, const unsigned char token[TOKEN_HASH], double now, char id[SESSION_TEXT]);
/* The owner of a session, and its end. Fails with ERR_UNAUTHORIZED. */
int sessions_identify(struct sessions *sessions, const char *id, double now, struct identity *out, double *end);
/* End a session; unknown ids are ignored. */
void sessions_close(struct sessions *sessions, const char *id);
int sessions_count(struct sessions *sessions, double now);

#endif
