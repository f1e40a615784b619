/* mrirecond: takes scans over HTTP, keeps them, has workers reconstruct them, and serves the images.
 *
 * Threads: main (signals), the store's writer, the scheduler (workers), the housekeeper, the converter, the feed of
 * events, the outbox, those that look after resumable uploads, connections and large files that are removed, a pool
 * that waits for disks, and libmicrohttpd's. The order of starting is the order of need: store, spool, scheduler, HTTP;
 * stopping goes the other way round.
 */
#include "daemon/base/clock.h"
#include "daemon/http/http.h"
#include "daemon/http/page.h"
#include "daemon/mrd/mrd.h"
#include "daemon/notify.h"
#include "daemon/repair/state.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_DAMAGED = 3 };

/* Uploads that wait for their sync at a time; a few large ones must not hold up the small. */
/* Of the threads that wait for the disk some are left for others, whatever one client asks for. Lists compute: one of a
 * client at a time, and less urgently than what serves connections. */
static const struct pool_limits pool_limits = {.threads = 16, .client = 12};
static const struct pool_limits lists_limits = {.threads = STORE_LISTS, .client = 1, .niceness = 10};

/* Streams of the events of all jobs that one client may have: a page in each of its windows. */
enum { CLIENT_STREAMS = 32 };

/* From so many days before the end of the certificate on, a start and a reload warn of it. */
enum { CERTIFICATE_DAYS = 14 };

/* A program of ours, beside this one unless the options say where. */
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

/* The web page: of the option web-dir, or beside this program. Without one the service does all else. */
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

/* Connections and files of results may be many; the soft limit is for programs that use select(). No core is written of
 * this process nor of its workers: it would hold scans. */
static void limits_set(void)
{
    struct rlimit limit = {0, 0};
    setrlimit(RLIMIT_CORE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Descriptors that are open beside those of connections: of the store, the spool, workers, what the pool's threads
 * write and what is being removed; and of one connection: its socket, and the file that it is written to or read from.
 */
enum {
    DESCRIPTORS_ELSE = 160,
    DESCRIPTORS_HTTP_THREAD = 5,
    DESCRIPTORS_CONNECTION = 2,
    DESCRIPTORS_SESSION = 3,
    CONNECTIONS_LEAST = 8
};

/* As many connections as there are descriptors for: without one, no connection can be accepted, not even to ask for
 * health. */
static int connections_fit(const struct log *log, struct options *options)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    int64_t sessions = *options->mrd_listen ? 2 * options->mrd_sessions : 0; /* and those that are refused */
    int64_t beside = DESCRIPTORS_ELSE + DESCRIPTORS_HTTP_THREAD * options->http_threads + CONNECTIONS_SURPLUS +
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
             "at most %lld connections are served, not the %lld of the option connections: this process may have %lld "
             "file descriptors open (LimitNOFILE in systemd's unit)",
             (long long)fit, (long long)options->connections, (long long)there);
    options->connections = fit;
    if (options->address_connections > fit)
        options->address_connections = fit;
    return 0;
}

/* Clients refuse a certificate whose time is over, which nobody sees from here. */
static void certificate_look(struct service *service)
{
    int64_t left = tls_end(service->tls) - clock_milliseconds() / 1000;
    if (left <= CERTIFICATE_DAYS * 86400)
        log_line(service->core.log, LOG_LEVEL_WARNING, NULL, "the certificate %s %lld hours%s",
                 left > 0 ? "ends in" : "ended", llabs(left) / 3600LL, left > 0 ? "" : " ago: clients refuse it");
}

/* What the store takes from the options, now and after each reload. */
static void queue_rules_set(struct service *service)
{
    const struct options *options = service->core.options;
    store_set_ageing(service->core.store, 1000 * options->priority_ageing);
    store_set_quota(service->core.store, options->client_jobs, options->client_bytes);
    store_set_kept_scans(service->core.store, options->keep_scans != KEEP_NONE, options->keep_scans == KEEP_ALL);
}

static int state_open(struct service *service, struct options *options)
{
    char path[OPTION_TEXT + 16];
    int requeued = 0, resumed = 0;
    bool clean = false;
    struct spool_cleaned found = {.removed = 0};
    int rc = spool_create(&service->core.spool, options->state_dir, options->body_limit, options->spool_limit,
                          options->spool_reserve);
    snprintf(path, sizeof path, "%s/jobs.db", options->state_dir);
    if (!rc)
        rc = state_expect(service->core.spool);
    if (!rc)
        rc = spool_stop_take(service->core.spool, &clean);
    if (!rc)
        rc = store_create(&service->core.store, path);
    if (!rc)
        queue_rules_set(service);
    if (!rc)
        store_route(service->core.store, (struct store_router){destinations_route, service->destinations});
    if (!rc)
        rc = store_recover(service->core.store, &requeued);
    if (!rc)
        rc = spool_clean(service->core.spool, service->core.store, clean, &found);
    if (!rc)
        rc = uploads_create(&service->uploads, service->core.spool, options->state_dir, options->upload_lifetime,
                            service->core.log);
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

static int port_tell(const struct options *options, int port)
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

/* All that a start wants of the configuration, before it touches the state folder. */
static int settings_take(struct service *service, struct options *options)
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
        certificate_look(service);
    if (!rc)
        rc = listen_check(options);
    return rc ? rc : mrd_check(options);
}

/* A job was added, has changed its state, or was removed. */
static void change_told(void *context, const char *id, const char *client, int from, int to)
{
    struct service *service = context;
    feed_add(service->feed, id, client, from, to);
    if (to >= 0 && job_state_is_final((enum job_state)to))
        outbox_wake(service->outbox);
}

static int service_start(struct service *service, struct options *options, struct http **http, struct mrd_server **mrd)
{
    int port = 0, rc = settings_take(service, options);
    if (!rc)
        rc = state_open(service, options);
    if (!rc)
        rc = metrics_create(&service->core.metrics);
    if (!rc)
        rc = waiters_create(&service->core.waiters);
    if (!rc)
        rc = live_create(&service->core.live);
    if (!rc)
        rc = feed_create(&service->feed, service->core.waiters, CLIENT_STREAMS, (int)(options->connections + 1) / 2);
    if (!rc)
        rc = converter_create(&service->converter, options->codec, options->convert_timeout, service->core.spool,
                              service->core.store, service->core.waiters, service->core.log);
    if (!rc)
        rc =
            outbox_create(&service->outbox, &service->core, service->destinations, service->converter, options->sender);
    if (!rc)
        store_listen(service->core.store, (struct store_listener){change_told, service});
    if (!rc)
        rc = scheduler_create(&service->scheduler, &service->core);
    if (!rc)
        rc = housekeeper_create(&service->housekeeper, &service->core, service->scheduler);
    if (!rc)
        rc = sessions_create(&service->sessions, service->tokens);
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
        rc = http_create(http, service, &port);
    if (!rc)
        rc = mrd_create(mrd, service);
    if (!rc)
        rc = port_tell(options, port);
    if (!rc)
        log_line(service->core.log, LOG_LEVEL_INFO, NULL, "mrirecond " MRIRECON_VERSION " serves %s, state in %s",
                 service->address, options->state_dir);
    return rc;
}

/* Changes that were begun end; requests are woken before the server stops, for it cannot stop while some are suspended;
 * jobs go back before the store. */
static void service_stop(struct service *service, struct http *http, struct mrd_server *mrd)
{
    mrd_free(mrd);
    if (service->pool)
        pool_close(service->pool);
    if (service->lists)
        pool_close(service->lists);
    if (service->core.waiters)
        waiters_close(service->core.waiters);
    http_free(http);
    connections_free(service->connections);
    pool_free(service->pool);
    pool_free(service->lists);
    if (service->outbox)
        outbox_stop(service->outbox);
    converter_free(service->converter);
    housekeeper_free(service->housekeeper);
    scheduler_free(service->scheduler);
    idempotency_keys_free(service->keys);
    waiters_free(service->core.waiters);
    live_free(service->core.live);
    metrics_free(service->core.metrics);
    uploads_free(service->uploads);
    struct store *store = service->core.store;
    if (store)
        store_listen(store, (struct store_listener){.told = NULL});
    outbox_free(service->outbox);
    store_free(store);
    destinations_free(service->destinations);
    feed_free(service->feed);
    if (service->state_is_known)
        spool_stop_note(service->core.spool);
    spool_free(service->core.spool);
    tls_free(service->tls);
    page_free(service->page);
    sessions_free(service->sessions);
    tokens_free(service->tokens);
}

/* libgomp's threads spin for milliseconds before they sleep, and on a busy machine hold the processor that the one they
 * wait for needs. This many turns take some tens of microseconds. Of tests/bench/bench_daemon.py's small scan on two
 * processors, gridding takes 33 to 43 ms by libgomp's default and 16 to 18 by this at a load of 3 to 5, and the same 6
 * to 8 where nothing else runs. It is read when a program starts, so the workers inherit it; who has set it knows
 * better. */
static void worker_threads_set(void)
{
    if (!getenv("OMP_WAIT_POLICY"))
        setenv("GOMP_SPINCOUNT", "10000", 0);
}

/* The next signal, or 0 after a moment. */
static int signal_next(const sigset_t *signals)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    int got = sigtimedwait(signals, NULL, &moment);
    return got > 0 ? got : 0;
}

/* The command line, which SIGHUP has read again. */
struct command_line {
    int argc;
    char **argv;
    struct options *options, asked; /* in use; as it was read */
    struct log *log;
};

/* SIGHUP: what may change while the service runs is read again. What cannot be read leaves all as it was. */
static void reload(struct service *service, struct command_line *line)
{
    char restart[512];
    int count = 0;
    if (options_reload(line->options, &line->asked, line->argc, line->argv, restart, sizeof restart))
        log_line(service->core.log, LOG_LEVEL_ERROR, NULL, "reload: the old configuration stays in use: %s",
                 err_last()->text);
    else
        log_line(service->core.log, LOG_LEVEL_INFO, NULL, "reload: configuration%s%s",
                 *restart ? "; a restart is needed for " : "", restart);
    line->log->most = (int)line->options->log_level;
    queue_rules_set(service);
    if (tokens_reload(service->tokens, &count))
        log_line(service->core.log, LOG_LEVEL_ERROR, NULL, "reload: the old tokens stay in use: %s", err_last()->text);
    else if (tokens_wanted(service->tokens))
        log_line(service->core.log, LOG_LEVEL_INFO, NULL, "reload: %d tokens", count);
    if (destinations_reload(service->destinations, &count))
        log_line(service->core.log, LOG_LEVEL_ERROR, NULL, "reload: the old destinations stay in use: %s",
                 err_last()->text);
    else if (*line->options->destinations)
        log_line(service->core.log, LOG_LEVEL_INFO, NULL, "reload: %d destinations", count);
    outbox_wake(service->outbox);
    if (service->tls && tls_reload(service->tls))
        log_line(service->core.log, LOG_LEVEL_ERROR, NULL, "reload: the old certificate stays in use: %s",
                 err_last()->text);
    else if (service->tls)
        log_line(service->core.log, LOG_LEVEL_INFO, NULL, "reload: certificate");
    if (service->tls)
        certificate_look(service);
}

static void serve_until_stopped(struct service *service, struct command_line *line, const sigset_t *signals)
{
    struct notify notify;
    notify_init(&notify, service);
    for (int got = 0; !got || got == SIGHUP; got = signal_next(signals)) {
        if (got == SIGHUP) {
            notify_reloading(&notify);
            reload(service, line);
            notify_reloaded(&notify);
        }
        notify_tick(&notify);
    }
    notify_stopping(&notify);
    log_line(service->core.log, LOG_LEVEL_INFO, NULL, "stopping: running jobs have %lld s to finish",
             (long long)service->core.options->drain_time);
    double deadline = clock_seconds() + (double)service->core.options->drain_time;
    service->draining = true;
    scheduler_drain(service->scheduler);
    int got = 0;
    while (!scheduler_is_idle(service->scheduler) && clock_seconds() < deadline && (!got || got == SIGHUP)) {
        got = signal_next(signals);
        notify_tick(&notify);
    }
}

/* mrirecond --new-token CLIENT ROLE [--config FILE] [--tokens FILE] */
static int new_token(int argc, char **argv)
{
    struct options options;
    enum options_action action;
    char token[TOKEN_TEXT];
    int role = argc > 3 ? role_find(argv[3]) : -1;
    if (role < 0) {
        fputs("mrirecond: --new-token takes a client's name and a role (read, view, submit, admin).\n", stderr);
        return STATUS_USAGE;
    }
    umask(077);
    if (options_parse(&options, argc - 3, argv + 3, &action) ||
        token_add(options.tokens, argv[2], (enum role)role, token)) {
        fprintf(stderr, "mrirecond: %s\n", err_last()->text);
        return STATUS_FAILED;
    }
    puts(token);
    return fflush(stdout) == 0 ? 0 : STATUS_FAILED;
}

/* mrirecond --check-config [--config FILE] [--OPTION VALUE ...] */
static int look_at_config(int argc, char **argv)
{
    struct options options;
    struct log log;
    enum options_action action;
    struct service service = {.core = {.options = &options, .log = &log}};
    int rc = options_parse(&options, argc - 1, argv + 1, &action);
    if (!rc) {
        log_init(&log, (enum log_level)options.log_level, false);
        rc = settings_take(&service, &options);
    }
    if (rc)
        fprintf(stderr, "mrirecond: %s\n", err_last()->text);
    else
        printf("The configuration is valid: listen = %s, state-dir = %s.\n", options.listen, options.state_dir);
    tls_free(service.tls);
    page_free(service.page);
    tokens_free(service.tokens);
    destinations_free(service.destinations);
    return rc ? STATUS_USAGE : fflush(stdout) == 0 ? 0 : STATUS_FAILED;
}

/* mrirecond --check-state | --repair-state [--config FILE] [--state-dir FOLDER] */
static int look_over(int argc, char **argv, bool repair)
{
    struct options options;
    enum options_action action;
    bool sound = true;
    umask(077);
    if (options_parse(&options, argc - 1, argv + 1, &action)) {
        fprintf(stderr, "mrirecond: %s\n", err_last()->text);
        return STATUS_USAGE;
    }
    int rc = repair ? state_repair(options.state_dir, stdout) : state_check(options.state_dir, stdout, &sound);
    if (rc)
        fprintf(stderr, "mrirecond: %s\n", err_last()->text);
    return rc || fflush(stdout) != 0 ? STATUS_FAILED : sound ? 0 : STATUS_DAMAGED;
}

/* The daemon keeps running through these signals, or waits for them in serve_until_stopped() (*waited). */
static void signals_set(sigset_t *waited)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond RLIMIT_FSIZE fails with EFBIG */
    signal(SIGIO, SIG_IGN);   /* a lease that is just being tried is broken by an open() elsewhere */
    sigemptyset(waited);
    sigaddset(waited, SIGTERM);
    sigaddset(waited, SIGINT);
    sigaddset(waited, SIGHUP);
    sigprocmask(SIG_BLOCK, waited, NULL);
}

/* --version, --help and --sample-config. */
static int text_print(enum options_action action)
{
    if (action == OPTIONS_VERSION)
        puts("mrirecond " MRIRECON_VERSION);
    else
        (action == OPTIONS_HELP ? options_help : options_sample)(stdout);
    return fflush(stdout) == 0 ? 0 : STATUS_FAILED;
}

int main(int argc, char **argv)
{
    struct options options;
    struct log log;
    enum options_action action;
    struct service service = {.core = {.options = &options, .log = &log}};
    struct http *http = NULL;
    struct mrd_server *mrd = NULL;
    sigset_t signals;
    limits_set();
    if (argc > 1 && strcmp(argv[1], "--new-token") == 0)
        return new_token(argc, argv);
    if (argc > 1 && (strcmp(argv[1], "--check-state") == 0 || strcmp(argv[1], "--repair-state") == 0))
        return look_over(argc, argv, strcmp(argv[1], "--repair-state") == 0);
    if (argc > 1 && strcmp(argv[1], "--check-config") == 0)
        return look_at_config(argc, argv);
    if (options_parse(&options, argc, argv, &action)) {
        fprintf(stderr, "mrirecond: %s\n", err_last()->text);
        return STATUS_USAGE;
    }
    if (action != OPTIONS_RUN)
        return text_print(action);
    log_init(&log, (enum log_level)options.log_level, options.log_format == LOG_FORMAT_JSON);
    log_to_journal(&log);
    umask(077);
    signals_set(&signals);
    worker_threads_set();
    struct command_line line = {argc, argv, &options, options, &log};
    int rc = service_start(&service, &options, &http, &mrd);
    if (!rc)
        serve_until_stopped(&service, &line, &signals);
    else
        log_line(&log, LOG_LEVEL_ERROR, NULL, "%s", err_last()->text);
    service_stop(&service, http, mrd);
    if (!rc)
        log_line(&log, LOG_LEVEL_INFO, NULL, "stopped");
    return rc ? STATUS_FAILED : 0;
}
