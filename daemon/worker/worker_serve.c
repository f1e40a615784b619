/* A worker under a daemon.
 *
 * Four threads. The main one owns the device and runs one job at a time. The reader receives the daemon's messages, so
 * that a running job can be canceled and pings are answered while it runs. They share struct worker_process, under its
 * lock. Both send: a message is one packet and never interleaves with another. The third reads inputs (worker_fetch.h),
 * the next one while a job runs. A fourth sends progress reports that came too soon after the last one
 * (worker_progress.h). */
#include "daemon/worker/worker.h"

#include "daemon/base/clock.h"
#include "daemon/base/disk.h"
#include "daemon/wire.h"
#include "daemon/base/thread.h"
#include "daemon/worker/worker_ahead.h"
#include "daemon/worker/worker_fetch.h"
#include "daemon/worker/worker_progress.h"
#include "daemon/worker/worker_results.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STOP_SECONDS = 1 }; /* that a running job may take to notice that the daemon has closed the socket */

/* A job as received. Its files are the input, the results, the checkpoint if the kind keeps one, and the live file if a
 * session waits for images. */
struct order {
    json_t *message; /* NULL: none */
    char id[128];
    int fds[WIRE_FDS], fd_count;
    double received; /* CLOCK_MONOTONIC, s */
};

struct worker_process {
    int socket;
    bool landlock;
    struct dev *dev;
    const struct worker_options *options;
    struct fetcher *fetcher;
    struct ahead *ahead;
    struct reporter *reporter;
    bool failed, reported;         /* of the main thread: the device has failed; reports of `ahead` began */
    const struct kind_run *cached; /* of the main thread, as is `cache`: the kind that the cache belongs to */
    void *cache;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock: */
    struct order order; /* the next job; order.id stays while it runs, "": none runs */
    bool gone;          /* the daemon closed its end */
    bool told;          /* the prepared input has changed, and the main thread has not checked yet */
    size_t memory_available,
        memory_total;   /* of the device, when it was last idle: only the main thread uses the device */
    atomic_bool cancel; /* the job order.id was canceled */
};

/* ---- the reader ---- */

static int failed_send(struct worker_process *w, const char *id, bool fatal, bool put_back)
{
    json_t *message = json_pack("{s:s, s:s, s:o, s:b, s:b}", "type", "failed", "id", id, "error",
                                wire_error_pack(err_last()), "fatal", fatal, "put_back", put_back);
    int rc = wire_send(w->socket, message, NULL, 0);
    json_decref(message);
    return rc;
}

static void status_send(struct worker_process *w)
{
    pthread_mutex_lock(&w->lock);
    json_t *message = json_pack("{s:s, s:I, s:I}", "type", "status", "memory_available",
                                (json_int_t)w->memory_available, "memory_total", (json_int_t)w->memory_total);
    pthread_mutex_unlock(&w->lock);
    wire_send(w->socket, message, NULL, 0);
    json_decref(message);
}

static const char *text_of(const json_t *message, const char *name)
{
    const char *text = json_string_value(json_object_get(message, name));
    return text ? text : "";
}

/* Bytes of the live file reported before; -1: the message has no live file. */
static int64_t live_of(const json_t *message)
{
    const json_t *live = json_object_get(message, "live");
    return json_is_integer(live) ? json_integer_value(live) : -1;
}

/* Bytes that all results of the job may take; 0: any. */
static uint64_t most_of(const json_t *message)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(message, "room"), "most"));
}

static void fds_close(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

/* Takes `fds`, and, if no other job runs, *message (then NULL): the main thread frees it while this one goes on. */
static void job_receive(struct worker_process *w, json_t **message, const int *fds, int fd_count)
{
    char id[sizeof w->order.id];
    snprintf(id, sizeof id, "%s", text_of(*message, "id"));
    pthread_mutex_lock(&w->lock);
    bool taken = fd_count > 1 && *id && !*w->order.id;
    if (taken) {
        w->order = (struct order){.message = *message, .fd_count = fd_count, .received = clock_seconds()};
        *message = NULL;
        memcpy(w->order.id, id, sizeof id);
        memcpy(w->order.fds, fds, (size_t)fd_count * sizeof *fds);
        w->cancel = false;
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    ahead_interrupt(w->ahead, id);
    if (taken)
        return;
    fds_close(fds, fd_count);
    err_set(ERR_CONFLICT, "The worker was sent a job while it runs another, or one without its files.");
    failed_send(w, id, false, false);
}

static int parameters_read(const json_t *job, const struct kind **kind, struct param_values *values)
{
    const char *name = text_of(job, "kind");
    *kind = kind_find(name);
    if (!*kind)
        return err_set(ERR_UNKNOWN_KIND, "There is no job kind \"%.64s\".", name);
    param_values_init(*kind, values);
    const char *parameter;
    json_t *value;
    json_object_foreach (json_object_get(job, "parameters"), parameter, value) {
        int rc = param_values_set(*kind, values, parameter, json_string_value(value) ? json_string_value(value) : "");
        if (rc != 0)
            return rc;
    }
    return kind_check(*kind, values);
}

/* What is to be computed ahead has changed: have the main thread look. */
static void main_tell(struct worker_process *w)
{
    pthread_mutex_lock(&w->lock);
    w->told = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* A hint: the job may be next. Its errors are reported when it begins. Takes `fds`. */
static void prepare_receive(struct worker_process *w, const json_t *message, const int *fds, int fd_count)
{
    const struct kind *kind;
    struct param_values values;
    const char *id = text_of(message, "id");
    const enum wire_arriving arriving = wire_arriving_find(text_of(message, "arriving"));
    const int live = live_of(message) >= 0 && fd_count > 1, files = fd_count - 1 - live;
    if (fd_count < 1 || (files > 0 && (size_t)files != json_array_size(json_object_get(message, "files"))) ||
        files > KIND_MAX_FILES || parameters_read(message, &kind, &values) != 0) {
        fds_close(fds, fd_count);
        return;
    }
    fetcher_prefetch(w->fetcher, id, kind, &values, fds[0], arriving != ARRIVING_NOT);
    struct expected expected = {.run = kind_run_find(kind),
                                .values = values,
                                .arriving = arriving == ARRIVING_STREAM,
                                .files = json_deep_copy(json_object_get(message, "files")),
                                .most = most_of(message),
                                .live = live ? fds[1] : -1,
                                .written_count = files,
                                .shown = live_of(message)};
    memcpy(expected.written, fds + 1 + live, (size_t)files * sizeof *fds);
    snprintf(expected.id, sizeof expected.id, "%s", id);
    ahead_expect(w->ahead, &expected);
    main_tell(w);
}

static void *reader(void *context)
{
    struct worker_process *w = context;
    for (;;) {
        json_t *message = NULL;
        int fds[WIRE_FDS], fd_count = 0, rc = wire_receive(w->socket, &message, fds, &fd_count);
        if (rc == ERR_BAD_REQUEST || rc == ERR_NO_MEMORY)
            continue;
        if (rc != 0)
            break;
        const char *type = text_of(message, "type");
        if (strcmp(type, "job") == 0) {
            job_receive(w, &message, fds, fd_count);
        } else if (strcmp(type, "prepare") == 0) {
            prepare_receive(w, message, fds, fd_count);
        } else {
            fds_close(fds, fd_count);
            pthread_mutex_lock(&w->lock);
            const bool cancel = strcmp(type, "cancel") == 0 && strcmp(w->order.id, text_of(message, "id")) == 0;
            w->cancel = w->cancel || cancel;
            pthread_mutex_unlock(&w->lock);
            if (cancel)
                ahead_interrupt(w->ahead, "");
            if (strcmp(type, "forget") == 0) {
                fetcher_forget(w->fetcher, text_of(message, "id"));
                ahead_forget(w->ahead, text_of(message, "id"));
                main_tell(w);
            }
            if (strcmp(type, "ping") == 0) {
                fetcher_tend(w->fetcher); /* first: who has the answer knows that decoders were asked for */
                status_send(w);
            }
        }
        json_decref(message);
    }
    pthread_mutex_lock(&w->lock);
    w->gone = true;
    w->cancel = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    ahead_interrupt(w->ahead, "");
    /* The main thread stops at its next report of progress; if the device hangs, the process must end all the same. */
    sleep(STOP_SECONDS);
    _exit(0);
}

/* ---- a job ---- */

static int progress(void *context, const struct step_progress *now)
{
    struct worker_process *w = context;
    return w->cancel || reporter_tell(w->reporter, now);
}

/* The same of a job that is computed ahead: it may have begun meanwhile, and is then reported like any other. */
static int progress_ahead(void *context, const char *id, const struct kind *kind, const struct step_progress *now)
{
    struct worker_process *w = context;
    pthread_mutex_lock(&w->lock);
    const bool begun = strcmp(w->order.id, id) == 0;
    pthread_mutex_unlock(&w->lock);
    if (!begun)
        return 0;
    if (!w->reported)
        reporter_begin(w->reporter, kind, w->order.id);
    w->reported = true;
    return progress(w, now);
}

/* Note the device's memory, for pings. Between jobs. */
static void memory_note(struct worker_process *w)
{
    size_t available = 0, total = 0;
    dev_memory(w->dev, &available, &total);
    pthread_mutex_lock(&w->lock);
    w->memory_available = available;
    w->memory_total = total;
    pthread_mutex_unlock(&w->lock);
}

/* A job ended that was computed ahead, and not sent. */
static void ahead_ended(void *context)
{
    struct worker_process *w = context;
    memory_note(w);
    fetcher_tend(w->fetcher);
}

/* The cache of a kind, kept from job to job. Another kind's is freed first, because it may occupy the device's memory.
 * Without memory for a cache there is none. */
static void *cache_of(struct worker_process *w, const struct kind_run *run)
{
    if (w->cached != run && w->cache)
        w->cached->cache_free(w->cache);
    if (w->cached != run) {
        w->cache = NULL;
        w->cached = run;
        if (run->cache_create && run->cache_create(&w->cache) != 0)
            w->cache = NULL;
    }
    return w->cache;
}

/* A running job. */
struct running {
    const struct kind *kind;
    struct result_files files;
    struct ahead_job made; /* .input: the kind's */
    atomic_ullong synced;  /* of the files */
};

/* The writing step, which the job does not report itself. Small results are written before they could be asked for. */
static void progress_write(struct worker_process *w, struct running *job)
{
    enum { SMALL_BYTES = 32 << 20 };
    const int step = kind_step_writing(job->kind);
    const struct step_progress now = {.step = step, .fraction = step < 0 ? 1 : 1 - job->kind->steps[step].share};
    job->files.most = job->made.outcome.most_bytes;
    job->files.synced = &job->synced;
    if (step >= 0 && reporter_tell(w->reporter, &now) == 0 && job->files.most > SMALL_BYTES)
        reporter_watch(w->reporter, result_files_part, &job->files);
}

/* Whether the job was computed ahead, and may leave what it made: its files are the same, and there is room for them.
 * Else it runs, and says what is wrong. */
static bool is_made(struct running *job, const struct job_room *room, double begun)
{
    const struct job_outcome *outcome = &job->made.outcome;
    const uint64_t bytes = outcome->most_bytes;
    const bool fits = bytes > 0 && (!room->most || bytes <= room->most) && (!room->free || bytes <= room->free);
    if (outcome->report && fits && made_files_match(&job->made.made, &job->files)) {
        const double ended = job->made.ended < begun ? job->made.ended : begun;
        json_object_set_new(outcome->report, "ahead_seconds",
                            json_real(ended > job->made.begun ? ended - job->made.begun : 0));
        if (!job->made.made.written)
            made_files_hand(&job->made.made, &job->files);
        return true;
    }
    job_outcome_free(&job->made.outcome);
    made_files_free(&job->made.made);
    return false;
}

/* Get the input, prefetched or not, and compute. */
static int job_compute(struct worker_process *w, const struct order *order, const struct job_listener *listener,
                       struct running *job)
{
    struct param_values values;
    const bool checkpoint = json_is_true(json_object_get(order->message, "checkpoint"));
    int64_t shown = live_of(order->message);
    int rc = parameters_read(order->message, &job->kind, &values);
    if (rc == 0)
        rc = ahead_finish(w->ahead, order->id, w->dev, cache_of(w, kind_run_find(job->kind)));
    const void *ahead = ahead_of(w->ahead, order->id, &shown);
    ahead_take(w->ahead, order->id, &job->made);
    w->reported = false;
    const bool live = shown >= 0;
    const struct checkpoint kept = {.fd = order->fds[order->fd_count - 1 - live]};
    struct live_file file = {
        .fd = order->fds[order->fd_count - 1], .socket = w->socket, .id = order->id, .bytes = shown};
    const struct job_show show = {&file, live_file_show};
    const double begun = order->received;
    if (rc == 0)
        rc = result_files_read(&job->files, job->kind, json_object_get(order->message, "files"), order->fds + 1,
                               order->fd_count - 1 - checkpoint - live);
    if (rc != 0)
        return rc;
    job->files.cancel = &w->cancel;
    const struct job_room room = result_room_read(&job->files, json_object_get(order->message, "room"));
    reporter_begin(w->reporter, job->kind, order->id);
    const bool made = is_made(job, &room, begun);
    if (!job->made.input)
        rc = fetcher_take(w->fetcher, order->id, job->kind, &values, order->fds[0], listener, &job->made.input);
    if (rc == 0 && !made) {
        const struct kind_run *run = kind_run_find(job->kind);
        struct job_request request = worker_request(w->options, job->kind, &values, order->fds[0], NULL);
        request.begun = begun;
        request.cache = cache_of(w, run);
        request.room = room;
        request.checkpoint = checkpoint ? &kept : NULL;
        request.show = live ? &show : NULL;
        request.ahead = ahead;
        rc = run->run(&job->made.outcome, w->dev, &request, listener, job->made.input);
    }
    if (rc == 0)
        progress_write(w, job);
    return rc;
}

/* Run the job, close its files, and answer. Non-zero: the device has failed. */
static int job_run(struct worker_process *w, const struct order *order)
{
    const struct job_listener listener = {w, progress};
    struct running job = {.kind = NULL};
    int rc = job_compute(w, order, &listener, &job);
    bool computed = rc == 0;
    if (computed)
        rc = job.made.made.written ? made_files_copy(&job.made.made, &job.files, &job.made.outcome)
                                   : result_files_write(&job.files, &job.made.outcome);
    bool put_back = rc == ERR_SPOOL_FULL || (computed && disk_is_cause(rc));
    reporter_end(w->reporter); /* it looks at the files */
    fds_close(order->fds, order->fd_count);
    made_files_free(&job.made.made); /* they may be the same files */
    pthread_mutex_lock(&w->lock);
    w->order.id[0] = '\0'; /* after this answer the daemon may send the next job */
    pthread_mutex_unlock(&w->lock);
    if (rc == 0) {
        json_t *message =
            json_pack("{s:s, s:s, s:O}", "type", "done", "id", order->id, "report", job.made.outcome.report);
        rc = wire_send(w->socket, message, NULL, 0);
        json_decref(message);
    }
    /* After a device failure this process cannot use it any more; the daemon starts another. */
    bool fatal = rc == ERR_DEVICE;
    if (rc != 0)
        failed_send(w, order->id, fatal, put_back);
    job_outcome_free(&job.made.outcome);
    ahead_end(w->ahead, order->id);
    if (job.made.input)
        kind_run_find(job.kind)->input_free(
            job.made.input); /* after the answer, because unmapping takes the kernel a while */
    return fatal;
}

static int hello_send(struct worker_process *w)
{
    json_t *gpus = json_array();
    for (int i = 0; i < DEV_GPUS_MOST; i++)
        if (dev_gpus(w->dev) >> i & 1)
            json_array_append_new(gpus, json_integer(i));
    json_t *message = json_pack("{s:s, s:i, s:s, s:b, s:o, s:s, s:b, s:i}", "type", "hello", "version", WIRE_VERSION,
                                "device", dev_name(w->dev), "gpu", dev_is_gpu(w->dev), "gpus", gpus, "note",
                                dev_note(w->dev), "landlock", w->landlock, "pid", (int)getpid());
    int rc = wire_send(w->socket, message, NULL, 0);
    json_decref(message);
    return rc;
}

/* While there is no job, under the lock: reconstruct what is complete of an arriving input, or wait. Fails with
 * ERR_DEVICE. */
static int spend_time(struct worker_process *w)
{
    int rc = 0;
    w->told = false;
    ahead_resume(w->ahead);
    pthread_mutex_unlock(&w->lock);
    const struct kind_run *run = ahead_kind(w->ahead);
    if (run)
        rc = ahead_turn(w->ahead, w->dev, cache_of(w, run));
    pthread_mutex_lock(&w->lock);
    if (rc != 0 || w->order.message || w->gone || w->told)
        return rc;
    if (run)
        thread_cond_wait(&w->changed, &w->lock, clock_seconds() + ahead_pause(w->ahead));
    else
        pthread_cond_wait(&w->changed, &w->lock);
    return 0;
}

/* Between jobs. The order is the caller's; none at the end, or if the device fails. */
static struct order order_wait(struct worker_process *w)
{
    memory_note(w);
    pthread_mutex_lock(&w->lock);
    while (!w->order.message && !w->gone && !w->failed)
        w->failed = spend_time(w) != 0;
    struct order order = {.message = NULL};
    if (!w->gone && !w->failed)
        order = w->order;
    w->order.message = NULL;
    pthread_mutex_unlock(&w->lock);
    return order;
}

int worker_serve(int socket, struct dev *dev, const struct worker_options *options, bool landlock)
{
    struct worker_process worker = {
        .socket = socket, .landlock = landlock, .dev = dev, .options = options, .lock = PTHREAD_MUTEX_INITIALIZER};
    const struct ahead_listener listener = {&worker, progress_ahead, ahead_ended};
    pthread_t thread;
    int status = 0;
    thread_cond_init(&worker.changed);
    if (fetcher_create(&worker.fetcher, options) != 0 || reporter_create(&worker.reporter, socket) != 0 ||
        ahead_create(&worker.ahead, worker.fetcher, options, socket, &listener) != 0)
        return 1;
    if (hello_send(&worker) != 0)
        return 1;
    if (thread_start(&thread, reader, &worker, "reads the daemon's messages") != 0) {
        failed_send(&worker, "", true, false);
        return 1;
    }
    for (struct order order; status == 0 && (order = order_wait(&worker)).message;) {
        int fatal = job_run(&worker, &order);
        json_decref(order.message);
        fetcher_tend(worker.fetcher);
        status = fatal ? 1 : 0;
    }
    if (worker.failed) {
        /* A job may have been sent meanwhile: an id would miss it. */
        failed_send(&worker, "", true, false);
        status = 1;
    }
    /* The reader uses `worker` and never returns: the process must end now. */
    if (worker.cache)
        worker.cached->cache_free(worker.cache);
    dev_free(dev);
    _exit(status);
}
