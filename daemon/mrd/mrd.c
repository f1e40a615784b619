#include "daemon/mrd/mrd.h"

#include "daemon/base/thread.h"
#include "daemon/http/listen.h"
#include "daemon/mrd/mrd_clients.h"
#include "daemon/mrd/mrd_config.h"
#include "daemon/mrd/mrd_session.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* TCP keep-alive: a client whose machine or network has failed is detected after a minute and four probes. */
enum { PROBE_AFTER = 60, PROBE_EVERY = 15, PROBES = 4 };
#define RETRY_MS 100 /* after an accept() that failed because descriptors or memory ran out */

struct running {
    struct running *next;
    struct mrd_server *server;
    struct mrd_session session;
};

struct mrd_server {
    struct service *service;
    struct listen_socket listener;
    int stop; /* eventfd */
    pthread_t thread;
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t ended;
    struct running *first;
    int count, refusing; /* sessions; those of them that only send a refusal */
};

int mrd_check(const struct options *options)
{
    if (!*options->mrd_listen)
        return 0;
    int rc = mrd_clients_check(options->mrd_clients);
    if (!rc)
        rc = listen_mrd_check(options);
    return rc ? rc : mrd_configs_check(options->mrd_configs);
}

/* ---- sessions ---- */

static void running_remove(struct running *running)
{
    struct mrd_server *server = running->server;
    pthread_mutex_lock(&server->lock);
    struct running **link = &server->first;
    while (*link != running)
        link = &(*link)->next;
    *link = running->next;
    server->count--;
    server->refusing -= running->session.refusal.code != 0;
    close(running->session.socket);
    free(running);
    pthread_cond_signal(&server->ended);
    pthread_mutex_unlock(&server->lock); /* from here on the server may have been freed */
}

static void *session_run(void *context)
{
    struct running *running = context;
    mrd_session_run(&running->session);
    running_remove(running);
    return NULL;
}

/* Whether this client may open another session. Under the lock. */
static int room_check(const struct mrd_server *server, const char *client)
{
    const int64_t most = server->service->core.options->mrd_sessions;
    int64_t own = 0;
    for (const struct running *running = server->first; running; running = running->next)
        own += !running->session.refusal.code && strcmp(running->session.client, client) == 0;
    if (server->count - server->refusing >= most)
        return err_set(ERR_CONNECTIONS, "All %lld MRD sessions are in use (option mrd-sessions). Try again later.",
                       (long long)most);
    if (own >= (most + 1) / 2)
        return err_set(
            ERR_CONNECTIONS,
            "You have %lld MRD sessions, which is half of all (option mrd-sessions). Try again when one of them "
            "has ended.",
            (long long)own);
    return 0;
}

static void socket_prepare(int socket)
{
    const int one = 1, after = PROBE_AFTER, every = PROBE_EVERY, probes = PROBES;
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &after, sizeof after);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Start a session for a connection, or one that only sends the refusal. */
static void session_start(struct mrd_server *server, int socket, const struct sockaddr *address)
{
    const struct options *options = server->service->core.options;
    struct running *running = calloc(1, sizeof *running);
    pthread_t thread;
    if (!running) {
        close(socket);
        return;
    }
    socket_prepare(socket);
    running->server = server;
    running->session = (struct mrd_session){.service = server->service, .socket = socket, .stop = server->stop};
    mrd_clients_find("", address, running->session.peer);
    int rc = mrd_clients_find(options->mrd_clients, address, running->session.client);
    pthread_mutex_lock(&server->lock);
    if (!rc && server->service->draining)
        rc = err_set(ERR_DRAINING, "The service is shutting down. Try again when it is back.");
    if (!rc)
        rc = room_check(server, running->session.client);
    if (rc)
        running->session.refusal = *err_last();
    /* Limit of concurrent refusals; beyond it connections are just closed. */
    bool started = !rc || server->refusing < options->mrd_sessions;
    started = started && thread_start(&thread, session_run, running, "serves an MRD session") == 0;
    if (started) {
        pthread_detach(thread);
        running->next = server->first;
        server->first = running;
        server->count++;
        server->refusing += rc != 0;
    }
    pthread_mutex_unlock(&server->lock);
    if (!started) {
        close(socket);
        free(running);
    }
}

static void *accept_all(void *context)
{
    struct mrd_server *server = context;
    struct pollfd fds[] = {{.fd = server->listener.fd, .events = POLLIN}, {.fd = server->stop, .events = POLLIN}};
    while (!fds[1].revents) {
        struct sockaddr_storage address = {.ss_family = AF_INET};
        socklen_t length = sizeof address;
        if (poll(fds, 2, -1) < 0 || fds[1].revents)
            continue;
        int socket = accept4(server->listener.fd, (struct sockaddr *)&address, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0)
            session_start(server, socket, (const struct sockaddr *)&address);
        else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            poll(fds + 1, 1, RETRY_MS);
    }
    return NULL;
}

/* ---- the server ---- */

int mrd_create(struct mrd_server **out, struct service *service)
{
    const struct options *options = service->core.options;
    if (!*options->mrd_listen)
        return 0;
    int rc = mrd_check(options);
    struct mrd_server *server = rc ? NULL : calloc(1, sizeof *server);
    if (!rc && !server)
        rc = err_no_memory("MRD sessions");
    if (rc)
        return rc;
    server->service = service;
    server->listener.fd = -1;
    server->stop = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&server->lock, NULL);
    thread_cond_init(&server->ended);
    rc = server->stop < 0 ? err_set(ERR_INTERNAL, "MRD sessions cannot be served: %s.", strerror(errno))
                          : listen_mrd_open(&server->listener, options);
    if (!rc)
        rc = thread_start(&server->thread, accept_all, server, "accepts MRD sessions");
    if (rc) {
        if (server->listener.fd >= 0)
            close(server->listener.fd);
        if (server->stop >= 0)
            close(server->stop);
        free(server);
        return rc;
    }
    log_line(service->core.log, LOG_LEVEL_INFO, NULL, "MRD streams are accepted at %s", server->listener.name);
    *out = server;
    return 0;
}

void mrd_free(struct mrd_server *server)
{
    if (!server)
        return;
    eventfd_write(server->stop, 1);
    pthread_join(server->thread, NULL);
    pthread_mutex_lock(&server->lock);
    while (server->count > 0)
        pthread_cond_wait(&server->ended, &server->lock);
    pthread_mutex_unlock(&server->lock);
    pthread_cond_destroy(&server->ended);
    pthread_mutex_destroy(&server->lock);
    close(server->listener.fd);
    close(server->stop);
    free(server);
}
