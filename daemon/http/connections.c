#include "daemon/http/connections.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NEW_SECONDS     1.0  /* a new connection that is silent for longer counts as idle */
#define SILENT_SECONDS  0.5  /* the same for surplus connections and incomplete heads, once half of all are such */
#define SURPLUS_SECONDS 2.0  /* time limit for the head of a surplus request, and grace for its body */
#define LOOK_SECONDS    0.25 /* between two checks of all connections */
#define SHOWN_SECONDS   1.0  /* after its answer, in which the end of a client that came with its request is shown */

struct connections {
    struct connection_limits limits;
    pthread_t thread;
    pthread_mutex_t lock; /* protects the rest */
    pthread_cond_t stop;
    bool stopping;
    struct connection_watch *first;
};

static bool too_slow(const struct connections *connections, struct connection_watch *watch, double now)
{
    double taken = now - watch->since, seconds = (double)connections->limits.header_seconds;
    if (watch->surplus && seconds > SURPLUS_SECONDS)
        seconds = SURPLUS_SECONDS;
    if (watch->phase == CONNECTION_NEW || watch->phase == CONNECTION_IDLE)
        return taken > seconds;
    return watch->phase == CONNECTION_BODY && taken > seconds &&
           (double)watch->bytes < (double)connections->limits.rate * (taken - seconds);
}

static void watch_close(struct connection_watch *watch)
{
    watch->closing = true;
    shutdown(watch->fd, SHUT_RDWR);
}

/* Bytes received on a connection, read by the library or not; -1 if the kernel does not report it. */
static int64_t bytes_heard(const struct connection_watch *watch)
{
    struct tcp_info info;
    socklen_t length = sizeof info;
    if (getsockopt(watch->fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0 ||
        length < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
        return -1;
    return (int64_t)info.tcpi_bytes_received;
}

/* Whether no byte of the next request has arrived; a new connection has NEW_SECONDS to send its first. */
static bool is_silent(const struct connection_watch *watch, double now)
{
    if (watch->phase == CONNECTION_NEW ? now - watch->since < NEW_SECONDS : watch->phase != CONNECTION_IDLE)
        return false;
    int64_t heard = bytes_heard(watch);
    return heard < 0 || heard == watch->heard;
}

/* Whether a connection in the middle of a request's head has received nothing for SILENT_SECONDS. */
static bool is_stalled(const struct connection_watch *watch, double now)
{
    struct tcp_info info = {.tcpi_last_data_recv = 0}; /* ms */
    socklen_t length = sizeof info;
    if (watch->phase != CONNECTION_NEW || now - watch->since < SILENT_SECONDS)
        return false;
    return getsockopt(watch->fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
           1e-3 * info.tcpi_last_data_recv >= SILENT_SECONDS;
}

/* Close silent surplus connections, so that they do not keep out those with requests. */
static void surplus_thin(const struct connections *connections, double now)
{
    int count = 0;
    for (const struct connection_watch *watch = connections->first; watch; watch = watch->next)
        count += watch->surplus && !watch->closing;
    if (count <= CONNECTIONS_SURPLUS / 2)
        return;
    for (struct connection_watch *watch = connections->first; watch; watch = watch->next)
        if (watch->surplus && !watch->closing && is_stalled(watch, now))
            watch_close(watch);
}

/* Whether the client has closed the connection, or only its sending half: it may still read an answer. */
static bool is_at_end(const struct connection_watch *watch)
{
    struct pollfd end = {.fd = watch->fd, .events = POLLRDHUP};
    return poll(&end, 1, 0) > 0;
}

/* The library waits for edges of epoll. It expects one after a read that did not fill its buffer; if the client's FIN
 * had arrived by then, with the last bytes, none comes, and the library does not learn of the end. shutdown() of the
 * direction that the client has closed already changes nothing but makes an edge: the library reads what is left, and
 * then the end, upon which it closes a connection whose request is incomplete. One whose request is complete is
 * answered first, since it is not read until then. There may be thousands of idle connections, and each look is a
 * system call: they are looked at only while an end may be new. */
static void end_show(const struct connection_watch *watch, double now)
{
    const bool idle = watch->phase == CONNECTION_IDLE && now - watch->since > SHOWN_SECONDS;
    if (watch->phase != CONNECTION_ANSWER && !idle && is_at_end(watch))
        shutdown(watch->fd, SHUT_RD);
}

static void *watch_all(void *context)
{
    struct connections *connections = context;
    pthread_mutex_lock(&connections->lock);
    while (!connections->stopping) {
        double now = clock_seconds();
        for (struct connection_watch *watch = connections->first; watch; watch = watch->next) {
            if (!watch->closing && too_slow(connections, watch, now))
                watch_close(watch);
            else if (!watch->closing)
                end_show(watch, now);
        }
        surplus_thin(connections, now);
        thread_cond_wait(&connections->stop, &connections->lock, clock_seconds() + LOOK_SECONDS);
    }
    pthread_mutex_unlock(&connections->lock);
    return NULL;
}

int connections_create(struct connections **out, const struct connection_limits *limits)
{
    struct connections *connections = calloc(1, sizeof *connections);
    if (!connections)
        return err_no_memory("the list of connections");
    connections->limits = *limits;
    thread_cond_init(&connections->stop);
    pthread_mutex_init(&connections->lock, NULL);
    int rc = thread_start(&connections->thread, watch_all, connections, "watches connections");
    if (rc) {
        free(connections);
        return rc;
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

static void peer_address_read(const struct sockaddr *address, unsigned char out[16])
{
    memset(out, 0, 16);
    if (address && address->sa_family == AF_INET) {
        memcpy(out, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    } else if (address && address->sa_family == AF_INET6) {
        const struct in6_addr *number = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        memcpy(out, number, IN6_IS_ADDR_V4MAPPED(number) ? 16 : 8);
    }
}

/* Connections counted together (all, or those of one address): their number, and the longest idle one. */
struct crowd {
    int64_t count; /* without surplus ones */
    struct connection_watch *idle;
};

static void crowd_add(struct crowd *crowd, struct connection_watch *watch, double now)
{
    crowd->count++;
    if ((!crowd->idle || watch->since < crowd->idle->since) && is_silent(watch, now))
        crowd->idle = watch;
}

/* Make room for one more, by closing an idle connection if necessary. Returns whether there is none. */
static bool is_surplus(const struct connections *connections, const struct connection_watch *more, double now)
{
    struct crowd all = {0}, same = {0};
    for (struct connection_watch *watch = connections->first; watch; watch = watch->next) {
        if (watch->closing || watch->surplus)
            continue;
        crowd_add(&all, watch, now);
        if (memcmp(watch->address, more->address, sizeof more->address) == 0)
            crowd_add(&same, watch, now);
    }
    const struct crowd *full = same.count >= connections->limits.address ? &same
                               : all.count >= connections->limits.all    ? &all
                                                                         : NULL;
    if (full && full->idle)
        watch_close(full->idle);
    return full && !full->idle;
}

bool connections_may_read(const struct connection_watch *watch)
{
    int reading = 0;
    if (!watch->surplus)
        return true;
    pthread_mutex_lock(&watch->all->lock);
    for (const struct connection_watch *other = watch->all->first; other; other = other->next)
        reading += other->surplus && other->phase == CONNECTION_BODY;
    pthread_mutex_unlock(&watch->all->lock);
    return reading <= CONNECTIONS_SURPLUS / 2;
}

void connection_watch(struct connections *connections, struct connection_watch *watch, int fd,
                      const struct sockaddr *address)
{
    watch->all = connections;
    watch->fd = fd;
    watch->closing = false;
    peer_address_read(address, watch->address);
    connection_enter(watch, CONNECTION_NEW);
    pthread_mutex_lock(&connections->lock);
    watch->surplus = is_surplus(connections, watch, watch->since);
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
    /* The next request may arrive before the library reports that the answer was sent: bytes received once an answer
     * has begun belong to the next request. */
    if (phase == CONNECTION_NEW)
        watch->heard = 0;
    else if (phase != CONNECTION_BODY && watch->phase != CONNECTION_ANSWER)
        watch->heard = bytes_heard(watch);
    watch->since = clock_seconds();
    watch->phase = (int)phase;
}
