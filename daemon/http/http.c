#include "daemon/http/http.h"

#include "daemon/base/clock.h"
#include "daemon/http/http_answer.h"
#include "daemon/http/http_check.h"
#include "daemon/http/listen.h"
#include "daemon/http/problem.h"
#include "daemon/http/routes.h"
#include "daemon/http/tls_plain.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTION_BYTES = 256 << 10 }; /* of headers and buffers, per connection */
/* TLS 1.2 and 1.3, forward secrecy and authenticated encryption only. */
#define TLS_PRIORITIES                                                                                             \
    "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-CIPHER-ALL:+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:" \
    "-MAC-ALL:+AEAD:%SERVER_PRECEDENCE"
/* A refused body of at most this size is read to its end, so that clients that send everything before they look for an
 * answer receive it; the connection of a larger one is closed. */
#define DROP_BYTES  (INT64_C(64) << 20)
#define END_SECONDS 2.0 /* that a request waits for the end of a job to be stored */

struct http {
    struct MHD_Daemon *daemon;
    struct service *service;
};

/* ---- dispatch ---- */

/* The route of a path; NULL: none. `allow` receives the path's methods; "": it has none. `html`: the client asks for
 * HTML. */
static const struct route *route_find(const char *method, char parts[][HTTP_PATH_PART], int count, bool html,
                                      char *allow, size_t size)
{
    const struct route *found = NULL;
    allow[0] = '\0';
    for (const struct route *route = http_routes; route->method; route++) {
        const char *path = route->path + 1;
        int i = 0;
        bool same = true;
        for (; *path && same; i++) {
            size_t length = strcspn(path, "/");
            same = i < count &&
                   ((length == 1 && *path == '*') || (strncmp(path, parts[i], length) == 0 && !parts[i][length]));
            path += length;
            path += *path == '/';
        }
        if (!same || i != count || ((route->flags & ROUTE_HTML) && !html))
            continue;
        bool get = strcmp(route->method, "GET") == 0;
        size_t used = strlen(allow);
        if (!(route->flags & ROUTE_HTML))
            snprintf(allow + used, size - used, "%s%s%s", used ? ", " : "", route->method, get ? ", HEAD" : "");
        if (strcmp(route->method, method) == 0 || (get && strcmp(method, "HEAD") == 0))
            found = route;
    }
    return found;
}

static int request_route(struct request *request)
{
    int count = 0, rc;
    char *allow = request->allow;
    /* The page's folder stands for its first file. */
    rc = path_split(strcmp(request->target, "/ui/") == 0 ? "/ui/index.html" : request->target, request->part, &count);
    if (rc)
        return rc;
    /* tus, for networks that block PATCH and DELETE. */
    const char *meant = http_header(request, "X-HTTP-Method-Override");
    if (meant && count == 3 && strcmp(request->part[1], "uploads") == 0 && strcmp(request->method, "POST") == 0)
        request->method = meant;
    bool html = count == 0 && page_is_wanted(request);
    request->route = route_find(request->method, request->part, count, html, allow, sizeof request->allow);
    if (!request->route && *allow)
        return err_set(ERR_METHOD_NOT_ALLOWED, "This path takes %s, not %.16s.", allow, request->method);
    if (!request->route)
        return err_set(ERR_NOT_FOUND, "There is nothing at this path. GET / lists the paths.");
    return 0;
}

static enum MHD_Result answer_failure(struct request *request, const struct err *failure)
{
    const char *name = NULL, *value = NULL;
    if (failure->code == ERR_METHOD_NOT_ALLOWED) {
        name = "Allow";
        value = request->allow;
    } else if (failure->code == ERR_UNAUTHORIZED) {
        name = "WWW-Authenticate";
        value = "Bearer realm=\"mrirecond\"";
    } else if (failure->code == ERR_TUS_VERSION) {
        name = "Tus-Version";
        value = TUS_VERSION;
    }
    const char *const headers[] = {name, value, NULL};
    const char *job = *request->job.id ? request->job.id : NULL;
    if (failure->code == ERR_INTERNAL || failure->code == ERR_STORE || failure->code == ERR_IO)
        log_line_about(request->service->core.log, LOG_LEVEL_ERROR, &(struct log_about){job, NULL, failure->code}, "%s",
                       failure->text);
    http_answer_problem(request, problem_pack(failure, job), headers);
    return request->state == REQUEST_ANSWERED ? MHD_YES : MHD_NO;
}

/* The headers have arrived. */
static enum MHD_Result request_begin(struct request *request, const char *version)
{
    request->state = REQUEST_BODY;
    connection_enter(request->watch, CONNECTION_BODY);
    if (request_head_check(request, version) != 0) {
        /* The connection is closed: the start of the next request is unknown. */
        request->refusal = *err_last();
        return answer_failure(request, &request->refusal);
    }
    int rc = request_route(request);
    if (request->watch->surplus)
        rc = request_surplus_check(request);
    if (!rc)
        rc = request_host_check(request);
    if (!rc)
        rc = request_origin_check(request);
    if (!rc)
        rc = request_query_check(request);
    if (!rc)
        rc = request_access_check(request);
    if (!rc && request->route->begin)
        rc = request->route->begin(request);
    if (!rc)
        return MHD_YES;
    request->refusal = *err_last();
    /* Refuse before the body if the client waits for that (Expect), or if the body is too large to read in vain. */
    if (http_header(request, "Expect") || http_body_bytes(request) > DROP_BYTES ||
        !connections_may_read(request->watch))
        return answer_failure(request, &request->refusal);
    return MHD_YES;
}

static enum MHD_Result request_body(struct request *request, const char *data, size_t bytes)
{
    if (!request->refusal.code && request->upload.spool && spool_append(&request->upload, data, bytes)) {
        request->refusal = *err_last();
        stream_body_drop(&request->stream);
        spool_abort(&request->upload);
    }
    if (!request->refusal.code && request->upload.spool)
        stream_body_add(&request->stream, &request->job, &request->upload, data, bytes);
    if (!request->refusal.code && request->chunk.uploads && chunk_append(&request->chunk, data, bytes))
        request->refusal = *err_last();
    digest_add(&request->digest, data, bytes);
    if (!request->refusal.code)
        idempotency_add(&request->idempotency, data, bytes);
    if (request->refusal.code || !(request->upload.spool || request->chunk.uploads))
        request->dropped += (int64_t)bytes;
    /* An admitted upload is read up to its announced length; one without a length is not. */
    int64_t announced = http_body_bytes(request);
    int64_t most = announced > DROP_BYTES ? announced : DROP_BYTES;
    return request->dropped > most ? MHD_NO : MHD_YES;
}

static void work_run(struct pool_task *task)
{
    struct request *request = (struct request *)((char *)task - offsetof(struct request, task));
    struct MHD_Connection *connection = request->connection;
    if (request->route->work(request))
        request->refusal = *err_last();
    MHD_resume_connection(connection); /* from here on the request belongs to its connection's thread */
}

/* Suspend first: the work may be done before pool_run() returns. A closed pool means that the service stops; then this
 * thread may block. */
static void work_begin(struct request *request)
{
    const struct service *service = request->service;
    struct pool *pool = (request->route->flags & ROUTE_LIST) ? service->lists : service->pool;
    char client[JOB_CLIENT];
    request_turn(request, client);
    request->state = REQUEST_WORK;
    request->task.run = work_run;
    MHD_suspend_connection(request->connection);
    if (!pool_run(pool, &request->task, client))
        work_run(&request->task);
}

/* Whether the request is suspended until the end of a job is stored whose client has been answered already (EARLY in
 * scheduler.h): it may be that client's. Other news of the job wake it, too. If the disk does not answer, it goes on,
 * and sees the job wait or run. */
static bool end_is_awaited(struct request *request)
{
    const struct service *service = request->service;
    char id[JOB_ID];
    const bool again = request->awaited_until > 0;
    if (!(request->route->flags & ROUTE_ENDS) || request->waiter.gone ||
        !scheduler_early_told(service->scheduler, again ? request->awaited : request->part[2], id))
        return false;
    if (!again) {
        memcpy(request->awaited, id, sizeof request->awaited);
        request->awaited_until = clock_seconds() + END_SECONDS;
    }
    if (clock_seconds() >= request->awaited_until || !http_wait(request, id, request->awaited_until))
        return false;
    request->state = REQUEST_BODY;
    /* It may have been stored before http_wait(); then nobody else wakes this request. */
    if (!scheduler_early_told(service->scheduler, id, id))
        waiters_wake(service->core.waiters, id);
    return true;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *bytes, void **state)
{
    struct request *request = *state;
    (void)context;
    (void)url;
    if (!request)
        return MHD_NO; /* no memory for a request */
    request->connection = connection;
    if (request->state == REQUEST_HEAD) {
        request->method = method;
        return request_begin(request, version);
    }
    if (*bytes > 0) {
        enum MHD_Result took = request_body(request, data, *bytes);
        atomic_fetch_add(&request->watch->bytes, (int64_t)*bytes);
        *bytes = 0;
        return took;
    }
    connection_enter(request->watch, CONNECTION_ANSWER);
    if (request->refusal.code)
        return answer_failure(request, &request->refusal);
    if (request->state == REQUEST_BODY && end_is_awaited(request))
        return MHD_YES;
    if (request->state == REQUEST_BODY && request->route->work) {
        work_begin(request);
        return MHD_YES;
    }
    request->state = REQUEST_ANSWER;
    int rc = request->route->answer(request);
    if (rc)
        return answer_failure(request, err_last());
    return request->state == REQUEST_WAITING || request->state == REQUEST_ANSWERED ? MHD_YES : MHD_NO;
}

/* A chunk whose client disconnected: the bytes that arrived are kept, unless it has a checksum. */
struct left {
    struct pool_task task;
    struct upload_chunk chunk;
};

static void left_end(struct pool_task *task)
{
    struct left *left = (struct left *)((char *)task - offsetof(struct left, task));
    chunk_end(&left->chunk, false);
    free(left);
}

/* The fsync is done in the pool; in this thread only if the service stops, or there is no memory. */
static void chunk_leave(struct request *request)
{
    char client[JOB_CLIENT];
    struct upload_chunk chunk = request->chunk;
    struct left *left = chunk.uploads ? malloc(sizeof *left) : NULL;
    if (!left) {
        chunk_end(&chunk, false);
        return;
    }
    *left = (struct left){.task.run = left_end, .chunk = chunk};
    request_turn(request, client);
    if (!pool_run(request->service->pool, &left->task, client))
        left_end(&left->task);
}

static void request_destroy(struct request *request)
{
    if (request->upload.spool) /* the body became no job */
        stream_body_drop(&request->stream);
    spool_abort(&request->upload);
    chunk_leave(request);
    if (request->conversion)
        converter_leave(request->service->converter, request->conversion);
    digest_free(&request->digest);
    idempotency_end(&request->idempotency);
    if (*request->live) {
        live_close(request->service->core.live, request->live);
        waiters_wake(request->service->core.waiters, request->live); /* the body may have become no job */
    }
    job_clear(&request->job);
    free(request->uri);
    free(request->page);
    free(request);
}

/* The audit log: every change, every result that was sent, every denial. */
static void audit(const struct request *request)
{
    const struct route *route = request->route;
    /* Another client's job is answered with 404, so a 404 may be a probe for other clients' jobs. */
    bool denied = request->status == 401 || request->status == 403 || request->status == 421 ||
                  (request->status == 404 && !role_sees_all(request->identity.role));
    if (!route ||
        (!denied && route->access < ROLE_SUBMIT && route->answer != route_result && !(route->flags & ROUTE_LOGIN)))
        return;
    char peer[JOB_CLIENT], outcome[16] = "aborted", removed[24] = "";
    request_peer(request, peer);
    const char *id = *request->job.id ? request->job.id : spool_is_id(request->part[2]) ? request->part[2] : NULL;
    const char *client = *request->identity.client ? request->identity.client
                         : *request->job.client    ? request->job.client
                                                   : "-";
    if (request->state == REQUEST_ANSWERED)
        snprintf(outcome, sizeof outcome, "%u", request->status);
    if (route->answer == route_purge)
        snprintf(removed, sizeof removed, " removed=%d", request->removed);
    const struct log_about about = {id, strcmp(client, "-") == 0 ? NULL : client, request->refusal.code};
    log_line_about(request->service->core.log, LOG_LEVEL_AUDIT, &about, "audit: client=%s role=%s peer=%s %s %s %s%s",
                   client, role_name(request->identity.role), peer, route->method, route->path, outcome, removed);
}

/* The library reports the end of a request only if handle() was called for it. A request whose head is incomplete or
 * too large is known to its connection alone, which has a slot for it. */
struct socket_slot {
    struct service *service;
    struct connection_watch watch;
    struct request *request; /* NULL: none in progress */
    struct tls_pair *pair;   /* of its certificate; NULL: none yet */
    struct tls_plain plain;  /* if the service has TLS */
};

static struct socket_slot *slot_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void connection_changed(void *context, struct MHD_Connection *connection, void **socket_context,
                               enum MHD_ConnectionNotificationCode code)
{
    struct socket_slot *slot = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *socket_context = slot = calloc(1, sizeof *slot);
        if (slot) {
            slot->service = context;
            connection_watch(slot->service->connections, &slot->watch, fd,
                             MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
            if (slot->service->tls)
                tls_plain_watch(&slot->plain,
                                MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session,
                                fd);
        }
        return;
    }
    if (slot)
        connection_forget(slot->service->connections, &slot->watch);
    if (slot && slot->request)
        request_destroy(slot->request);
    if (slot && slot->pair) /* the library has ended the session */
        tls_release(slot->service->tls, slot->pair);
    free(slot);
    *socket_context = NULL;
}

/* Called with each request's first line, as it was sent. */
static void *request_create(void *context, const char *uri, struct MHD_Connection *connection)
{
    struct socket_slot *slot = slot_of(connection);
    struct request *request = slot && !slot->request ? calloc(1, sizeof *request) : NULL;
    if (!request)
        return NULL;
    request->service = context;
    request->sent = uri;
    request->uri = strdup(uri);
    /* The query is read from our copy. The library would parse it, too, into the connection's memory, and would close
     * the connection without an answer if thousands of parameters do not fit. */
    char *query = strchr((char *)(uintptr_t)uri, '?');
    if (query)
        query[1] = '\0';
    request->method = request->target = request->query = "";
    request->wait = request->format = -1;
    request->upload.fd = -1;
    request->watch = &slot->watch;
    if (!request->uri) {
        free(request);
        return NULL;
    }
    slot->request = request;
    return request;
}

static void request_free(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct request *request = *state;
    struct service *service = context;
    struct socket_slot *slot = slot_of(connection);
    (void)code;
    if (!request)
        return;
    if (slot) {
        slot->request = NULL;
        connection_enter(&slot->watch, CONNECTION_IDLE);
    }
    /* An upload that is still here was neither refused nor handed to a job: its client disconnected. */
    if (request->upload.spool && !request->refusal.code)
        request->refusal.code = ERR_BODY_INCOMPLETE;
    if (request->refusal.code && request->route && request->route->begin)
        metrics_rejected(service->core.metrics, request->refusal.code);
    audit(request);
    if (request->state == REQUEST_ANSWERED)
        metrics_answered(service->core.metrics, request->method, request->status);
    request_destroy(request);
    *state = NULL;
}

/* ---- the server ---- */

/* Choose the certificate of a new connection. The library keeps the connection in the session; our data are in its
 * socket's slot. */
static int certificate_choose(gnutls_session_t session, const gnutls_datum_t *authorities, int count,
                              const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **chain,
                              unsigned *length, gnutls_privkey_t *key)
{
    (void)authorities;
    (void)count;
    (void)algorithms;
    (void)algorithm_count;
    struct MHD_Connection *connection = gnutls_session_get_ptr(session);
    struct socket_slot *slot = connection ? slot_of(connection) : NULL;
    if (!slot)
        return -1;
    if (!slot->pair) /* a handshake may call this twice */
        slot->pair = tls_hold(slot->service->tls);
    tls_show(slot->pair, chain, length, key);
    return 0;
}

int http_create(struct http **out, struct service *service, int *port)
{
    const struct options *options = service->core.options;
    struct listen_socket listener = {.fd = -1};
    int rc = listen_open(&listener, options);
    struct http *http = rc ? NULL : calloc(1, sizeof *http);
    if (rc)
        return rc;
    *port = listener.port;
    memcpy(service->address, listener.name, sizeof service->address);
    service->local = listener.local;
    if (http)
        http->service = service;
    /* Connections are divided among the pool's threads. */
    unsigned threads = (unsigned)options->http_threads;
    if (http)
        http->daemon = MHD_start_daemon(
            MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME | (service->tls ? MHD_USE_TLS : 0),
            0, NULL, NULL, handle, service, MHD_OPTION_LISTEN_SOCKET, listener.fd, MHD_OPTION_THREAD_POOL_SIZE, threads,
            MHD_OPTION_CONNECTION_LIMIT, (unsigned)options->connections + CONNECTIONS_SURPLUS + threads,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)options->idle_timeout, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)CONNECTION_BYTES / 4,
            MHD_OPTION_URI_LOG_CALLBACK, request_create, service, MHD_OPTION_NOTIFY_COMPLETED, request_free, service,
            MHD_OPTION_NOTIFY_CONNECTION, connection_changed, service,
            service->tls ? MHD_OPTION_HTTPS_CERT_CALLBACK : MHD_OPTION_END, certificate_choose,
            MHD_OPTION_HTTPS_PRIORITIES, TLS_PRIORITIES, MHD_OPTION_END);
    if (!http || !http->daemon) {
        close(listener.fd);
        free(http);
        return err_set(ERR_INTERNAL, "The HTTP server cannot be started: %s.", strerror(errno));
    }
    *out = http;
    return 0;
}

void http_free(struct http *http)
{
    if (!http)
        return;
    MHD_stop_daemon(http->daemon);
    free(http);
}
