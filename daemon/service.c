#include "daemon/service.h"

#include "daemon/base/clock.h"
#include "daemon/http/page.h"
#include "daemon/repair/state.h"
#include "gridding/base/cores.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Threads that wait for the disk: one client cannot occupy all of them. Threads that compute lists: one list per client
 * at a time, at a lower priority than the threads that serve connections. */
static const struct pool_limits pool_limits = {.threads = 16, .client = 12};
static const struct pool_limits lists_limits = {.threads = STORE_LISTS, .client = 1, .niceness = 10};

/* From so many on, a thread writes uploads: with fewer, the copy of the bytes takes what the overlap saves. One thread,
 * because where uploads come beside each other, their receivers overlap already, and each writer only takes a core. */
enum { CORES_FOR_WRITER = 4 };

/* Open event streams of one client: one per window in which it shows the web page. */
enum { CLIENT_STREAMS = 32 };

/* A start and a reload warn of a certificate that expires within so many days. */
enum { CERTIFICATE_DAYS = 14 };

/* The path of one of our programs: as the options give it, else beside this program. */
static int program_find(char path[OPTION_TEXT], const char *name)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (!*path && length > 0) {
        self[length] = '\0';
        if (snprintf(path, OPTION_TEXT, "%s/%s", dirname(self), name) >= OPTION_TEXT)
            return err_set(ERR_BAD_PARAMETER, "The path of %s is longer than %d bytes.", name, OPTION_TEXT - 1);
    }
    if (access(path, X_OK) != 0)
        return err_set(ERR_BAD_PARAMETER, "%s cannot be run: %s. Check the options worker, codec and sender.", path,
                       strerror(errno));
    return 0;
}

/* The web page's files: the folder of option web-dir, else beside this program. The service works without them, too. */
static int page_open(struct service *service, const struct options *options)
{
    char self[PATH_MAX], folder[PATH_MAX + 32];
    if (*options->web_dir)
        return page_create(&service->page, options->web_dir);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return 0;
    self[length] = '\0';
    snprintf(folder, sizeof folder, "%s/../share/mrirecond/web", dirname(self));
    int rc = page_create(&service->page, folder);
    if (rc && rc != ERR_NOT_FOUND)
        log_line(service->core.log, LOG_LEVEL_WARNING, NULL, "no web page is served: %s", err_last()->text);
    return 0;
}

/* File descriptors: of the store, the spool, the workers, the pool's threads and files being removed; of a thread that
 * serves HTTP; of a connection (its socket and one file); of an MRD session. */
enum {
    DESCRIPTORS_OTHER = 160,
    DESCRIPTORS_HTTP_THREAD = 5,
    DESCRIPTORS_CONNECTION = 2,
    DESCRIPTORS_SESSION = 3,
    CONNECTIONS_LEAST = 8
};

/* Reduce the options' connections to what the limit on file descriptors allows: without a free descriptor not even a
 * health check can connect. */
static int connections_fit(const struct log *log, struct options *options)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    int64_t sessions = *options->mrd_listen ? 2 * options->mrd_sessions : 0; /* and as many being refused */
    int64_t beside = DESCRIPTORS_OTHER + DESCRIPTORS_HTTP_THREAD * options->http_threads + CONNECTIONS_SURPLUS +
                     DESCRIPTORS_SESSION * sessions,
            there = (int64_t)limit.rlim_cur, fit = (there - beside) / DESCRIPTORS_CONNECTION;
    if (fit >= options->connections)
        return 0;
    if (fit < CONNECTIONS_LEAST)
        return err_set(ERR_BAD_PARAMETER,
                       "This process may open %lld file descriptors, but needs at least %lld. Raise the limit "
                       "(LimitNOFILE in systemd's unit, ulimit -Hn in a shell).",
                       (long long)there, (long long)(beside + DESCRIPTORS_CONNECTION * CONNECTIONS_LEAST));
    log_line(log, LOG_LEVEL_WARNING, NULL,
             "at most %lld connections are served, not %lld as option connections says: this process may open %lld "
             "file descriptors (LimitNOFILE in systemd's unit)",
             (long long)fit, (long long)options->connections, (long long)there);
    options->connections = fit;
    if (options->address_connections > fit)
        options->address_connections = fit;
    return 0;
}

void service_certificate_check(struct service *service)
{
    int64_t left = tls_end(service->tls) - clock_milliseconds() / 1000;
    if (left <= CERTIFICATE_DAYS * 86400)
        log_line(service->core.log, LOG_LEVEL_WARNING, NULL, "the certificate %s %lld hours%s",
                 left > 0 ? "ends in" : "ended", llabs(left) / 3600LL, left > 0 ? "" : " ago: clients refuse it");
}

void service_rules_set(struct service *service)
{
    const struct options *options = service->core.options;
    store_set_ageing(service->core.store, 1000 * options->priority_ageing);
    store_set_quota(service->core.store, options->client_jobs, options->client_bytes);
    store_set_kept_scans(service->core.store, options->keep_scans != KEEP_NONE, options->keep_scans == KEEP_ALL);
}

static void upload_told(void *context, const struct job *job)
{
    http_upload_accepted(context, job);
}

static int state_open(struct service *service, struct options *options)
{
    char path[OPTION_TEXT + 16];
    int requeued = 0, resumed = 0;
    bool clean = false;
    struct spool_cleaned found = {.removed = 0};
    int rc = spool_create(&service->core.spool, options->state_dir, options->body_limit, options->spool_limit,
                          options->spool_reserve);
    if (!rc && cores_available() >= CORES_FOR_WRITER)
        rc = spool_writer_start(service->core.spool);
    snprintf(path, sizeof path, "%s/jobs.db", options->state_dir);
    if (!rc)
        rc = state_expect(service->core.spool);
    if (!rc)
        rc = spool_stop_take(service->core.spool, &clean);
    if (!rc)
        rc = store_create(&service->core.store, path);
    if (!rc)
        service_rules_set(service);
    if (!rc)
        store_route(service->core.store, (struct store_router){destinations_route, service->destinations});
    if (!rc)
        rc = store_recover(service->core.store, &requeued);
    if (!rc)
        rc = spool_clean(service->core.spool, service->core.store, clean, &found);
    if (!rc)
        rc = uploads_create(&service->uploads, service->core.spool, options->state_dir, options->upload_lifetime,
                            (struct uploads_listener){upload_told, service}, service->core.log);
    if (!rc)
        rc = uploads_recover(service->uploads, service->core.store, &options->queue_limit, &resumed);
    if (!rc && resumed)
        log_line(service->core.log, LOG_LEVEL_WARNING, NULL, "recovered: %d complete uploads became jobs", resumed);
    if (!rc && (requeued || found.removed || found.lost))
        log_line(service->core.log, LOG_LEVEL_WARNING, NULL,
                 "recovered: %d jobs queued again, %d leftover files removed, %d jobs without their scan failed",
                 requeued, found.removed, found.lost);
    if (!rc && (found.scans_found || found.results_found))
        log_line(
            service->core.log, LOG_LEVEL_WARNING, NULL,
            "recovered: %d scans and %d results without a job were moved to found-%lld: the service was not stopped "
            "cleanly, and jobs.db may have lost their jobs; see the README there",
            found.scans_found, found.results_found, (long long)found.time);
    service->state_is_known = !rc;
    return rc;
}

static int port_write(const struct options *options, int port)
{
    if (!*options->port_file)
        return 0;
    char part[OPTION_TEXT + 8];
    snprintf(part, sizeof part, "%s.part", options->port_file);
    FILE *file = fopen(part, "we");
    bool written = file && fprintf(file, "%d\n", port) > 0;
    if ((file && fclose(file) != 0) || !written || rename(part, options->port_file) != 0)
        return err_set(ERR_IO, "%s cannot be written: %s.", options->port_file, strerror(errno));
    return 0;
}

int service_configure(struct service *service, struct options *options)
{
    struct worker workers[WORKERS_MAX];
    int count, rc = connections_fit(service->core.log, options);
    if (!rc)
        rc = program_find(options->worker, "mrirecon-worker");
    if (!rc)
        rc = program_find(options->codec, "mrirecon-codec");
    if (!rc && *options->destinations)
        rc = program_find(options->sender, "mrirecon-send");
    if (!rc)
        rc = destinations_create(&service->destinations, options->destinations);
    if (!rc)
        rc = workers_plan(workers, &count, options->devices);
    if (!rc)
        rc = page_open(service, options);
    if (!rc)
        rc = tokens_create(&service->tokens, options->tokens);
    if (!rc && !*options->tls_certificate != !*options->tls_key)
        rc = err_set(ERR_BAD_PARAMETER, "Options tls-certificate and tls-key belong together: give both, or none.");
    if (!rc && *options->tls_certificate)
        rc = tls_create(&service->tls, options->tls_certificate, options->tls_key);
    if (!rc && service->tls)
        service_certificate_check(service);
    if (!rc)
        rc = listen_check(options);
    return rc ? rc : mrd_check(options);
}

/* The store's listener: a job was added or removed, or its state changed. */
static void change_told(void *context, const char *id, const char *client, int from, int to)
{
    struct service *service = context;
    (void)from;
    feed_add(service->feed, id, client, to);
    if (to >= 0 && job_state_is_final((enum job_state)to))
        outbox_wake(service->outbox);
}

static void deliveries_told(void *context, const char *id, const char *client)
{
    struct service *service = context;
    feed_add_deliveries(service->feed, id, client);
}

/* What works on the queue, without HTTP. */
static int queue_start(struct service *service, const struct options *options)
{
    const int streams = (int)(options->connections + 1) / 2;
    int rc = waiters_create(&service->core.waiters);
    if (!rc)
        rc = live_create(&service->core.live);
    if (!rc)
        rc = readers_create(&service->event_readers, "streams of events", CLIENT_STREAMS, streams);
    if (!rc)
        rc = readers_create(&service->image_readers, "streams of images", CLIENT_STREAMS, streams);
    if (!rc)
        rc = feed_create(&service->feed, service->core.waiters, service->event_readers);
    if (!rc)
        rc = converter_create(&service->converter, options->codec, options->convert_timeout, service->core.spool,
                              service->core.store, service->core.waiters, service->core.log);
    if (!rc)
        rc =
            outbox_create(&service->outbox, &service->core, service->destinations, service->converter, options->sender);
    if (!rc)
        store_listen(service->core.store, (struct store_listener){change_told, deliveries_told, service});
    if (!rc)
        rc = scheduler_create(&service->scheduler, &service->core);
    if (!rc)
        rc = uploads_watch(service->uploads);
    return rc ? rc : housekeeper_create(&service->housekeeper, &service->core, service->scheduler);
}

/* What serves HTTP and MRD over TCP. */
static int servers_start(struct service *service, const struct options *options, struct servers *servers)
{
    int port = 0, rc = sessions_create(&service->sessions, service->tokens);
    if (!rc)
        rc = idempotency_keys_create(&service->keys);
    if (!rc)
        rc = pool_create(&service->pool, &pool_limits);
    if (!rc)
        rc = pool_create(&service->lists, &lists_limits);
    const int64_t most = options->connections, tenth = (most + 9) / 10;
    const struct connection_limits limits = {options->header_timeout, options->upload_rate, most,
                                             options->address_connections ? options->address_connections
                                                                          : most - tenth};
    if (!rc)
        rc = connections_create(&service->connections, &limits);
    if (!rc)
        rc = http_create(&servers->http, service, &port);
    if (!rc)
        rc = mrd_create(&servers->mrd, service);
    return rc ? rc : port_write(options, port);
}

int service_start(struct service *service, struct options *options, struct servers *servers)
{
    int rc = service_configure(service, options);
    if (!rc)
        rc = metrics_create(&service->core.metrics);
    if (!rc)
        rc = state_open(service, options);
    if (!rc)
        rc = queue_start(service, options);
    if (!rc)
        rc = servers_start(service, options, servers);
    if (!rc)
        log_line(service->core.log, LOG_LEVEL_INFO, NULL, "mrirecond " MRIRECON_VERSION " serves %s, state in %s",
                 service->address, options->state_dir);
    return rc;
}

/* Changes in progress are completed. Waiting requests are resumed before the HTTP server stops, because it cannot stop
 * while some are suspended. The scheduler returns its jobs to the queue before the store closes. */
void service_stop(struct service *service, struct servers *servers)
{
    mrd_free(servers->mrd);
    if (service->pool)
        pool_close(service->pool);
    if (service->lists)
        pool_close(service->lists);
    if (service->core.waiters)
        waiters_close(service->core.waiters);
    http_free(servers->http);
    connections_free(service->connections);
    pool_free(service->pool);
    pool_free(service->lists);
    uploads_free(service->uploads); /* its thread turns complete uploads into jobs, and tells the scheduler */
    if (service->outbox)
        outbox_stop(service->outbox);
    converter_free(service->converter);
    housekeeper_free(service->housekeeper);
    scheduler_free(service->scheduler);
    idempotency_keys_free(service->keys);
    /* Every thread that changes jobs has ended: the store tells the feed and the outbox of nothing more. */
    struct store *store = service->core.store;
    if (store)
        store_listen(store, (struct store_listener){.told = NULL});
    feed_free(service->feed); /* its thread wakes waiters */
    readers_free(service->event_readers);
    readers_free(service->image_readers);
    waiters_free(service->core.waiters);
    live_free(service->core.live);
    metrics_free(service->core.metrics);
    outbox_free(service->outbox);
    store_free(store);
    destinations_free(service->destinations);
    if (service->state_is_known)
        spool_stop_note(service->core.spool);
    spool_free(service->core.spool);
    tls_free(service->tls);
    page_free(service->page);
    sessions_free(service->sessions);
    tokens_free(service->tokens);
}
