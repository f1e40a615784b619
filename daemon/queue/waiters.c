#include "daemon/queue/waiters.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct waiters {
    pthread_mutex_t lock; /* of both members below */
    struct waiter *first;
    bool closed;
    int watch; /* epoll set of the watched sockets */
};

int waiters_create(struct waiters **out)
{
    struct waiters *waiters = calloc(1, sizeof *waiters);
    if (!waiters)
        return err_no_memory("the list of waiting requests");
    waiters->watch = epoll_create1(EPOLL_CLOEXEC);
    if (waiters->watch < 0) {
        free(waiters);
        return err_set(ERR_INTERNAL, "Connections cannot be watched: %s.", strerror(errno));
    }
    pthread_mutex_init(&waiters->lock, NULL);
    *out = waiters;
    return 0;
}

void waiters_free(struct waiters *waiters)
{
    if (!waiters)
        return;
    pthread_mutex_destroy(&waiters->lock);
    close(waiters->watch);
    free(waiters);
}

/* Under the lock. */
static void add(struct waiters *waiters, struct waiter *waiter, const char *key, double deadline)
{
    waiter->deadline = deadline;
    snprintf(waiter->key, sizeof waiter->key, "%s", key);
    waiter->next = waiters->first;
    waiters->first = waiter;
}

bool waiters_wait(struct waiters *waiters, struct waiter *waiter, struct MHD_Connection *connection, const char *key,
                  double deadline)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    pthread_mutex_lock(&waiters->lock);
    bool open = !waiters->closed;
    if (open) {
        waiter->connection = connection;
        add(waiters, waiter, key, deadline);
        waiter->socket = info ? info->connect_fd : -1;
        struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = waiter};
        if (waiter->socket >= 0 && epoll_ctl(waiters->watch, EPOLL_CTL_ADD, waiter->socket, &event) < 0)
            waiter->socket = -1; /* not watched */
        MHD_suspend_connection(connection);
    }
    pthread_mutex_unlock(&waiters->lock);
    return open;
}

/* Remove the waiter at `link` from the list and resume it. It must not be touched afterwards: its request may have
 * ended. */
static void resume(struct waiters *waiters, struct waiter **link)
{
    struct waiter *waiter = *link;
    *link = waiter->next;
    if (waiter->socket >= 0)
        epoll_ctl(waiters->watch, EPOLL_CTL_DEL, waiter->socket, NULL);
    if (waiter->connection)
        MHD_resume_connection(waiter->connection);
    else
        eventfd_write(waiter->event, 1);
}

bool waiters_enter(struct waiters *waiters, struct waiter *waiter, int event, const char *key, double deadline)
{
    pthread_mutex_lock(&waiters->lock);
    bool open = !waiters->closed;
    if (open) {
        *waiter = (struct waiter){.event = event, .socket = -1};
        add(waiters, waiter, key, deadline);
    }
    pthread_mutex_unlock(&waiters->lock);
    return open;
}

void waiters_leave(struct waiters *waiters, struct waiter *waiter)
{
    pthread_mutex_lock(&waiters->lock);
    struct waiter **link = &waiters->first;
    while (*link && *link != waiter)
        link = &(*link)->next;
    if (*link)
        *link = waiter->next;
    pthread_mutex_unlock(&waiters->lock);
}

/* Resume those with this key or past their deadline (all: everyone). Returns the next deadline of the others. */
static double wake(struct waiters *waiters, const char *key, double now, bool all)
{
    double next = 0;
    pthread_mutex_lock(&waiters->lock);
    waiters->closed = waiters->closed || all;
    for (struct waiter **link = &waiters->first; *link;) {
        struct waiter *waiter = *link;
        if (all || (key ? strcmp(waiter->key, key) == 0 : waiter->deadline <= now)) {
            resume(waiters, link);
        } else {
            if (next == 0 || waiter->deadline < next)
                next = waiter->deadline;
            link = &waiter->next;
        }
    }
    pthread_mutex_unlock(&waiters->lock);
    return next;
}

int waiters_watch(const struct waiters *waiters)
{
    return waiters->watch;
}

bool waiters_gone(struct waiters *waiters, char key[WAITER_KEY], bool *cancel)
{
    struct epoll_event event;
    pthread_mutex_lock(&waiters->lock);
    /* Only waiters on the list are watched, so the pointer is valid. */
    bool found = epoll_wait(waiters->watch, &event, 1, 0) == 1;
    if (found) {
        struct waiter *waiter = event.data.ptr, **link = &waiters->first;
        while (*link != waiter)
            link = &(*link)->next;
        memcpy(key, waiter->key, WAITER_KEY);
        *cancel = waiter->cancel;
        waiter->gone = true;
        resume(waiters, link);
    }
    pthread_mutex_unlock(&waiters->lock);
    return found;
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
