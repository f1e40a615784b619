/* waiters.h: requests that wait without holding a thread: their connections are suspended.
 *
 * Any thread. A request waits for a key (a job's id, or the name of a conversion) until the key is woken or its
 * deadline passes; then its handler is called again and checks the state itself. After waiters_wait() the caller checks
 * once more whether the event has already happened, and wakes the key if so; no wake-up is lost between check and wait.
 *
 * libmicrohttpd does not poll suspended connections. Their sockets are watched here: when the client closes its end, or
 * only its sending half, the waiter is `gone` and is returned by waiters_gone(), so that its connection is released at
 * once.
 */
#ifndef MRIRECON_DAEMON_WAITERS_H
#define MRIRECON_DAEMON_WAITERS_H

#include "gridding/base/err.h"

#include <stdbool.h>

enum { WAITER_KEY = 144 };

struct MHD_Connection;

/* Part of the waiting request; on the list from waiters_wait() until it is woken. */
struct waiter {
    struct waiter *next;
    struct MHD_Connection *connection; /* suspended; NULL: a thread waits for `event` */
    int event;                         /* eventfd, readable when woken */
    char key[WAITER_KEY];
    int socket;  /* watched for the client's disconnect; -1: it cannot be watched */
    bool cancel; /* the caller's: cancel the job when the client has gone */
    bool gone;
    double deadline; /* clock_seconds() */
};

struct waiters;

int waiters_create(struct waiters **out);
void waiters_free(struct waiters *waiters);

/* Suspend `connection`, from its own handler, and watch its socket. false: the service is stopping. */
bool waiters_wait(struct waiters *waiters, struct waiter *waiter, struct MHD_Connection *connection, const char *key,
                  double deadline);
/* The same for a thread, which polls `event` (an eventfd, which it reads and closes itself), and afterwards calls
 * waiters_leave(). false: the service is stopping. */
bool waiters_enter(struct waiters *waiters, struct waiter *waiter, int event, const char *key, double deadline);
/* End a thread's wait, whether it was woken or not. */
void waiters_leave(struct waiters *waiters, struct waiter *waiter);
void waiters_wake(struct waiters *waiters, const char *key);
/* Wake those whose deadline has passed. Returns the next deadline (clock_seconds()), or 0: none. */
double waiters_expire(struct waiters *waiters, double now);
/* A descriptor that becomes readable when waiters_gone() has something to return. */
int waiters_watch(const struct waiters *waiters);
/* Wake one waiter whose client has disconnected; returns its key and `cancel`. false: there is none. */
bool waiters_gone(struct waiters *waiters, char key[WAITER_KEY], bool *cancel);
/* Wake all; further waits are refused. */
void waiters_close(struct waiters *waiters);

#endif
