#include "daemon/waiters.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct waiters {
    pthread_mutex_t lock; /* of both members below */
    struct waiter *first;
    bool closed;
};

int waiters_create(struct waiters **out)
{
    struct waiters *waiters = calloc(1, sizeof *waiters);
    if (!waiters)
        return err_set(ERR_NO_MEMORY, "No memory for the list of waiting requests.");
    pthread_mutex_init(&waiters->lock, NULL);
    *out = waiters;
    return 0;
}

void waiters_free(struct waiters *waiters)
{
    if (!waiters)
        return;
    pthread_mutex_destroy(&waiters->lock);
    free(waiters);
}

bool waiters_wait(struct waiters *waiters, struct waiter *waiter, struct MHD_Connection *connection, const char *key,
                  double deadline)
{
    pthread_mutex_lock(&waiters->lock);
    bool open = !waiters->closed;
    if (open) {
        waiter->connection = connection;
        waiter->deadline = deadline;
        snprintf(waiter->key, sizeof waiter->key, "%s", key);
        waiter->next = waiters->first;
        waiters->first = waiter;
        MHD_suspend_connection(connection);
    }
    pthread_mutex_unlock(&waiters->lock);
    return open;
}

/* Resume those that `chosen`; the next deadline of the others. A waiter is not touched after its resumption: its
 * request may be over by then. */
static double wake(struct waiters *waiters, const char *key, double now, bool all)
{
    double next = 0;
    pthread_mutex_lock(&waiters->lock);
    waiters->closed = waiters->closed || all;
    for (struct waiter **link = &waiters->first; *link;) {
        struct waiter *waiter = *link;
        if (all || (key ? strcmp(waiter->key, key) == 0 : waiter->deadline <= now)) {
            *link = waiter->next;
            MHD_resume_connection(waiter->connection);
        } else {
            if (next == 0 || waiter->deadline < next)
                next = waiter->deadline;
            link = &waiter->next;
        }
    }
    pthread_mutex_unlock(&waiters->lock);
    return next;
}

void waiters_wake(struct waiters *waiters, const char *key)
{
    wake(waiters, key, 0, false);
}

double waiters_expire(struct waiters *waiters, double now)
{
    return wake(waiters, NULL, now, false);
}

void waiters_close(struct waiters *waiters)
{
    wake(waiters, NULL, 0, true);
}
