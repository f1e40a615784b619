#include "daemon/http/sessions.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { RANDOM = 32 };

struct session {
    unsigned char id[TOKEN_HASH], token[TOKEN_HASH]; /* hashes */
    double opened;                                   /* 0: free */
};

struct attempts {
    unsigned char address[LOGIN_ADDRESS];
    double since; /* 0: free */
    int failures;
};

struct sessions {
    struct tokens *tokens;
    pthread_mutex_t lock; /* of the rest */
    struct session session[SESSIONS_MOST];
    struct attempts attempts[LOGIN_ADDRESSES];
};

int sessions_create(struct sessions **out, struct tokens *tokens)
{
    struct sessions *sessions = calloc(1, sizeof *sessions);
    if (!sessions)
        return err_no_memory("the sessions");
    sessions->tokens = tokens;
    pthread_mutex_init(&sessions->lock, NULL);
    *out = sessions;
    return 0;
}

void sessions_free(struct sessions *sessions)
{
    if (!sessions)
        return;
    pthread_mutex_destroy(&sessions->lock);
    free(sessions);
}

/* ---- attempts ---- */

/* The entry of an address, or NULL. */
static struct attempts *attempts_find(struct sessions *sessions, const unsigned char address[LOGIN_ADDRESS], double now)
{
    for (int i = 0; i < LOGIN_ADDRESSES; i++) {
        struct attempts *one = &sessions->attempts[i];
        if (one->since > 0 && now < one->since + LOGIN_SECONDS && memcmp(one->address, address, LOGIN_ADDRESS) == 0)
            return one;
    }
    return NULL;
}

int sessions_may_try(struct sessions *sessions, const unsigned char address[LOGIN_ADDRESS], double now)
{
    pthread_mutex_lock(&sessions->lock);
    const struct attempts *one = attempts_find(sessions, address, now);
    bool refused = one && one->failures >= LOGIN_FAILURES;
    pthread_mutex_unlock(&sessions->lock);
    return refused ? err_set(ERR_QUOTA,
                             "Your address tried %d unknown tokens within %d seconds. Wait for a minute, check the "
                             "token, and try again.",
                             LOGIN_FAILURES, LOGIN_SECONDS)
                   : 0;
}

void sessions_failed(struct sessions *sessions, const unsigned char address[LOGIN_ADDRESS], double now)
{
    pthread_mutex_lock(&sessions->lock);
    struct attempts *one = attempts_find(sessions, address, now);
    if (!one) {
        one = &sessions->attempts[0];
        for (int i = 1; i < LOGIN_ADDRESSES; i++)
            if (sessions->attempts[i].since < one->since)
                one = &sessions->attempts[i];
        *one = (struct attempts){.since = now};
        memcpy(one->address, address, LOGIN_ADDRESS);
    }
    one->failures++;
    pthread_mutex_unlock(&sessions->lock);
}

/* ---- sessions ---- */

static bool is_open(const struct session *session, double now)
{
    return session->opened > 0 && now < session->opened + SESSION_SECONDS;
}

/* An entry for a new session of this token: a free one; at the token's limit that of its oldest session; at the limit
 * of all, that of the oldest. Under the lock. */
static struct session *place_find(struct sessions *sessions, const unsigned char token[TOKEN_HASH], double now)
{
    struct session *free_one = NULL, *oldest = NULL, *own = NULL;
    int count = 0;
    for (int i = 0; i < SESSIONS_MOST; i++) {
        struct session *one = &sessions->session[i];
        if (!is_open(one, now)) {
            free_one = one;
            continue;
        }
        if (!oldest || one->opened < oldest->opened)
            oldest = one;
        if (memcmp(one->token, token, TOKEN_HASH) != 0)
            continue;
        count++;
        if (!own || one->opened < own->opened)
            own = one;
    }
    return count >= SESSIONS_TOKEN ? own : free_one ? free_one : oldest;
}

static bool hash_make(const char *id, unsigned char hash[TOKEN_HASH])
{
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, id, strlen(id), hash) == 0;
}

int sessions_open(struct sessions *sessions, const unsigned char token[TOKEN_HASH], double now, char id[SESSION_TEXT])
{
    unsigned char random[RANDOM];
    struct session fresh = {.opened = now};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(ERR_INTERNAL, "The system returned no random numbers for a session.");
    for (int i = 0; i < RANDOM; i++)
        snprintf(id + 2 * i, 3, "%02x", random[i]);
    if (!hash_make(id, fresh.id))
        return err_set(ERR_INTERNAL, "A session cannot be hashed.");
    memcpy(fresh.token, token, TOKEN_HASH);
    pthread_mutex_lock(&sessions->lock);
    *place_find(sessions, token, now) = fresh;
    pthread_mutex_unlock(&sessions->lock);
    return 0;
}

/* The open session with this id, or NULL. Under the lock. */
static struct session *session_find(struct sessions *sessions, const unsigned char hash[TOKEN_HASH], double now)
{
    for (int i = 0; i < SESSIONS_MOST; i++)
        if (is_open(&sessions->session[i], now) && gnutls_memcmp(sessions->session[i].id, hash, TOKEN_HASH) == 0)
            return &sessions->session[i];
    return NULL;
}

int sessions_identify(struct sessions *sessions, const char *id, double now, struct identity *out, double *end)
{
    unsigned char hash[TOKEN_HASH];
    struct session found = {.opened = 0};
    if (strlen(id) == SESSION_TEXT - 1 && hash_make(id, hash)) {
        pthread_mutex_lock(&sessions->lock);
        const struct session *session = session_find(sessions, hash, now);
        if (session)
            found = *session;
        pthread_mutex_unlock(&sessions->lock);
    }
    *end = found.opened + SESSION_SECONDS;
    if (found.opened > 0 && tokens_find(sessions->tokens, found.token, out))
        return 0;
    *out = (struct identity){.role = ROLE_NOBODY};
    return err_set(ERR_UNAUTHORIZED,
                   "This login has ended: after %d hours, by a logout, with its token, or because the "
                   "service was restarted. Log in again.",
                   SESSION_SECONDS / 3600);
}

void sessions_close(struct sessions *sessions, const char *id)
{
    unsigned char hash[TOKEN_HASH];
    if (!hash_make(id, hash))
        return;
    pthread_mutex_lock(&sessions->lock);
    struct session *session = session_find(sessions, hash, 0);
    if (session)
        *session = (struct session){.opened = 0};
    pthread_mutex_unlock(&sessions->lock);
}

int sessions_count(struct sessions *sessions, double now)
{
    int count = 0;
    pthread_mutex_lock(&sessions->lock);
    for (int i = 0; i < SESSIONS_MOST; i++)
        count += is_open(&sessions->session[i], now);
    pthread_mutex_unlock(&sessions->lock);
    return count;
}
