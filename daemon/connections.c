#include "daemon/connections.h"

#include "daemon/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct connections {
    double header_seconds, rate;
    pthread_t thread;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t stop;
    bool stopping;
    struct connection_watch *first;
};

static bool too_slow(const struct connections *connections, struct connection_watch *watch, double now)
{
    double taken = now - watch->since;
    if (watch->phase == CONNECTION_HEADERS)
        return taken > connections->header_seconds;
    return watch->phase == CONNECTION_BODY && taken > connections->header_seconds &&
           (double)watch->bytes < connections->rate * (taken - connections->header_seconds);
}

static void *watch_all(void *context)
{
    struct connections *connections = context;
    pthread_mutex_lock(&connections->lock);
    while (!connections->stopping) {
        struct timespec until;
        double now = clock_seconds();
        for (struct connection_watch *watch = connections->first; watch; watch = watch->next)
            if (too_slow(connections, watch, now))
                shutdown(watch->fd, SHUT_RDWR);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&connections->stop, &connections->lock, &until);
    }
    pthread_mutex_unlock(&connections->lock);
    return NULL;
}

int connections_create(struct connections **out, int64_t header_seconds, int64_t rate)
{
    struct connections *connections = calloc(1, sizeof *connections);
    if (!connections)
        return err_set(ERR_NO_MEMORY, "No memory for the list of connections.");
    connections->header_seconds = (double)header_seconds;
    connections->rate = (double)rate;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&connections->stop, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&connections->lock, NULL);
    int failed = pthread_create(&connections->thread, NULL, watch_all, connections);
    if (failed) {
        free(connections);
        return err_set(ERR_INTERNAL, "The thread that watches connections cannot be started: %s.", strerror(failed));
    }
    *out = connections;
    return 0;
}

void connections_free(struct connections *connections)
{
    if (!connections)
        return;
    pthread_mutex_lock(&connections->lock);
    connections->stopping = true;
    pthread_cond_signal(&connections->stop);
    pthread_mutex_unlock(&connections->lock);
    pthread_join(connections->thread, NULL);
    pthread_cond_destroy(&connections->stop);
    pthread_mutex_destroy(&connections->lock);
    free(connections);
}

void connection_watch(struct connections *connections, struct connection_watch *watch, int fd)
{
    watch->fd = fd;
    connection_enter(watch, CONNECTION_HEADERS);
    pthread_mutex_lock(&connections->lock);
    watch->before = NULL;
    watch->next = connections->first;
    if (watch->next)
        watch->next->before = watch;
    connections->first = watch;
    pthread_mutex_unlock(&connections->lock);
}

void connection_forget(struct connections *connections, struct connection_watch *watch)
{
    pthread_mutex_lock(&connections->lock);
    if (watch->next)
        watch->next->before = watch->before;
    if (watch->before)
        watch->before->next = watch->next;
    else
        connections->first = watch->next;
    pthread_mutex_unlock(&connections->lock);
}

void connection_enter(struct connection_watch *watch, enum connection_phase phase)
{
    watch->bytes = 0;
    watch->since = clock_seconds();
    watch->phase = (int)phase;
}
