/* mrirecond: accepts jobs over HTTP, stores them, schedules workers for them, and serves the results.
 *
 * Threads: main (signals), the store's writer, the scheduler (workers), the housekeeper, the converter, the event feed,
 * the outbox, one each that expires resumable uploads, watches connections and removes large files, a pool that waits
 * for disks, and libmicrohttpd's.
 */
#include "daemon/base/clock.h"
#include "daemon/http/page.h"
#include "daemon/notify.h"
#include "daemon/repair/state.h"
#include "daemon/service.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATUS_FAILED = 1, STATUS_USAGE = 2, STATUS_DAMAGED = 3 };

/* Allow as many descriptors as the hard limit says: the soft one protects programs that use select(). Neither this
 * process nor its workers write core files: these would contain scans. */
static void limits_set(void)
{
    struct rlimit limit = {0, 0};
    setrlimit(RLIMIT_CORE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* By default libgomp's threads spin for milliseconds before they sleep, and on a busy machine occupy the processor that
 * the awaited thread needs (docs/notebook/daemon.md has the times). This count is some tens of microseconds. Workers
 * inherit the variable; a value set by the administrator is kept. */
static void worker_threads_set(void)
{
    if (!getenv("OMP_WAIT_POLICY"))
        setenv("GOMP_SPINCOUNT", "10000", 0);
}

/* The next signal, or 0 after 100 ms. */
static int signal_next(const sigset_t *signals)
{
    const struct timespec moment = {.tv_nsec = 100000000};
    int got = sigtimedwait(signals, NULL, &moment);
    return got > 0 ? got : 0;
}

/* The command line, parsed again after SIGHUP. */
struct command_line {
    int argc;
    char **argv;
    struct options *options, asked; /* in use; as parsed at the start */
    struct log *log;
};

/* SIGHUP: read again what may change while the service runs. A file that cannot be read changes nothing. */
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
    service_rules_set(service);
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
        service_certificate_check(service);
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
        rc = service_configure(&service, &options);
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
    signal(SIGIO, SIG_IGN);   /* another process opens a file while spool_results.c tries a lease on it */
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
    struct servers servers = {NULL, NULL};
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
    int rc = service_start(&service, &options, &servers);
    if (!rc)
        serve_until_stopped(&service, &line, &signals);
    else
        log_line(&log, LOG_LEVEL_ERROR, NULL, "%s", err_last()->text);
    service_stop(&service, &servers);
    if (!rc)
        log_line(&log, LOG_LEVEL_INFO, NULL, "stopped");
    return rc ? STATUS_FAILED : 0;
}
