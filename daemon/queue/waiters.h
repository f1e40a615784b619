/* waiters.h: requests that wait for something to happen, without holding a thread: their connections are suspended.
 *
 * Any thread. A request waits for a key (the id of a job, or the name of a conversion) until somebody wakes the key, or
 * its deadline passes; then its handler is called again and looks for itself. After waiters_wait() the caller checks
 * once more whether what it waits for has come already, and wakes the key if so: nothing is missed between check and
 * wait.
 *
 * The library does not look at suspended connections. Their sockets are watched here: when the other side closes, or no
 * longer sends, the waiter is `gone` and comes out of waiters_gone(), so that its connection is free at once.
 */
#ifndef MRIRECON_DAEMON_WAITERS_H
#define MRIRECON_DAEMON_WAITERS_H

#include "gridding/base/err.h"

#include <stdbool.h>

enum { WAITER_KEY = 48 };

struct MHD_Connection;

/* Part of the request that waits; on the list only between waiters_wait and its waking. */
struct waiter {
    struct waiter *next;
    struct MHD_Connection *connection;
    char key[WAITER_KEY];
    int socket;  /* watched for the other side's end; -1: it cannot be */
    bool cancel; /* the caller's: the job is to be canceled when the waiter is gone */
    bool gone;
    double deadline; /* clock_seconds() */
};

struct waiters;

int waiters_create(struct waiters **out);
void waiters_free(struct waiters *waiters);

/* Suspend `connection`, from its own handler, and watch its socket. false: the service stops and nobody waits any
 * more. */
bool waiters_wait(struct waiters *waiters, struct waiter *waiter, struct MHD_Connection *connection, const char *key,
                  double deadline);
void waiters_wake(struct waiters *waiters, const char *key);
/* Wake those whose deadline has passed; the next deadline (clock_seconds()), or 0: none. */
double waiters_expire(struct waiters *waiters, double now);
/* A descriptor that is readable when waiters_gone() has something to tell. */
int waiters_watch(const struct waiters *waiters);
/* Wake one whose other side has closed, and tell its key, and its `cancel`. false: there is none. */
bool waiters_gone(struct waiters *waiters, char key[WAITER_KEY], bool *cancel);
/* Wake everybody, and let nobody wait from now on. */
void waiters_close(struct waiters *waiters);

#endif
