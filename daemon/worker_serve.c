/* A worker under a daemon.
 *
 * Four threads. The main one owns the device and runs one job at a time. The reader takes the daemon's messages, so
 * that a running job can be canceled and a ping is answered meanwhile. They share struct worker, under its lock. Both
 * send: a message is one packet and never interleaves with another. The third reads scans (worker_fetch.h), the next
 * one while a job runs. A fourth reports progress that came too soon after the report before it (worker_progress.h). */
#include "daemon/worker.h"

#include "daemon/clock.h"
#include "daemon/wire.h"
#include "daemon/worker_fetch.h"
#include "daemon/worker_progress.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STOP_SECONDS = 1 }; /* how long a running job may take to notice that the daemon is gone */

struct worker {
    int socket;
    struct dev *dev;
    const struct worker_options *options;
    struct fetcher *fetcher;
    struct reporter *reporter;
    struct recon_cache *cache; /* the main thread's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock: */
    json_t *job;                           /* waiting to be run, or NULL */
    int fds[WIRE_FDS];                     /* its scan and result directory */
    char id[128];                          /* of the job that waits or runs; "" where there is none */
    bool gone;                             /* the daemon closed its end */
    size_t memory_available, memory_total; /* of the device, when it was last idle: the device is the main thread's */
    atomic_bool cancel;                    /* the job `id` is to stop */
};

/* ---- the reader ---- */

static int failed_send(struct worker *w, const char *id, bool fatal)
{
    json_t *message = json_pack("{s:s, s:s, s:o, s:b}", "type", "failed", "id", id, "error",
                                wire_error_pack(err_last()), "fatal", fatal);
    int rc = wire_send(w->socket, message, NULL, 0);
    json_decref(message);
    return rc;
}

static void status_send(struct worker *w)
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

static void fds_close(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

/* Takes `fds`, and a reference of `message`. */
static void job_receive(struct worker *w, json_t *message, const int *fds, int fd_count)
{
    const char *id = text_of(message, "id");
    pthread_mutex_lock(&w->lock);
    bool taken = fd_count == WIRE_FDS && *id && !*w->id;
    if (taken) {
        snprintf(w->id, sizeof w->id, "%s", id);
        w->job = json_incref(message);
        memcpy(w->fds, fds, sizeof w->fds);
        w->cancel = false;
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    if (taken)
        return;
    fds_close(fds, fd_count);
    err_set(ERR_CONFLICT, "The worker was sent a job while it runs another, or one without its files.");
    failed_send(w, id, false);
}

static int parameters_read(const json_t *job, const struct kind **kind, struct param_values *values)
{
    const char *name = text_of(job, "kind");
    *kind = recon_kind_find(name);
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
    return 0;
}

/* A hint: the job may be next. What is wrong with it is told when it begins. Takes `fds`. */
static void prepare_receive(struct worker *w, const json_t *message, const int *fds, int fd_count)
{
    const struct kind *kind;
    struct param_values values;
    if (fd_count == 1 && parameters_read(message, &kind, &values) == 0)
        fetcher_ahead(w->fetcher, text_of(message, "id"), kind, &values, fds[0]);
    else
        fds_close(fds, fd_count);
}

static void *reader(void *context)
{
    struct worker *w = context;
    for (;;) {
        json_t *message = NULL;
        int fds[WIRE_FDS], fd_count = 0, rc = wire_receive(w->socket, &message, fds, &fd_count);
        if (rc == ERR_BAD_REQUEST || rc == ERR_NO_MEMORY)
            continue;
        if (rc != 0)
            break;
        const char *type = text_of(message, "type");
        if (strcmp(type, "job") == 0) {
            job_receive(w, message, fds, fd_count);
        } else if (strcmp(type, "prepare") == 0) {
            prepare_receive(w, message, fds, fd_count);
        } else {
            fds_close(fds, fd_count);
            pthread_mutex_lock(&w->lock);
            if (strcmp(type, "cancel") == 0 && strcmp(w->id, text_of(message, "id")) == 0)
                w->cancel = true;
            pthread_mutex_unlock(&w->lock);
            if (strcmp(type, "forget") == 0)
                fetcher_forget(w->fetcher, text_of(message, "id"));
            if (strcmp(type, "ping") == 0) {
                status_send(w);
                fetcher_tend(w->fetcher);
            }
        }
        json_decref(message);
    }
    pthread_mutex_lock(&w->lock);
    w->gone = true;
    w->cancel = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    /* The main thread stops at its next report of progress; a device that hangs must not keep the process. */
    sleep(STOP_SECONDS);
    _exit(0);
}

/* ---- a job ---- */

static int progress(void *context, const struct recon_progress *now)
{
    struct worker *w = context;
    return w->cancel || reporter_tell(w->reporter, now);
}

/* The last step of every kind, which the job itself does not know of. */
static void progress_write(struct worker *w, const struct kind *kind)
{
    int last = kind_steps(kind) - 1;
    const struct recon_progress now = {.step = last, .fraction = 1 - kind->steps[last].share};
    reporter_tell(w->reporter, &now);
}

/* Write one result and list it. */
static int result_write(const struct image_series *images, enum image_format format, int folder, json_t *results)
{
    char name[32];
    int64_t bytes;
    snprintf(name, sizeof name, "image.%s", image_format_name(format));
    int rc = worker_image_save(images, format, folder, name, &bytes);
    if (rc == 0)
        json_array_append_new(results, json_pack("{s:s, s:s, s:I}", "name", name, "type", image_format_media(format),
                                                 "bytes", (json_int_t)bytes));
    return rc;
}

/* The forms beside the image file, and how writing them went. */
struct forms {
    const struct image_series *images;
    enum image_format format[IMAGE_FORMATS];
    int count, folder;
    json_t *results;
    int result;
    struct err failure;
};

static int forms_read(const json_t *wanted, struct forms *forms)
{
    size_t i;
    json_t *entry;
    json_array_foreach (wanted, i, entry) {
        const char *name = json_string_value(entry);
        int format = name ? image_format_find(name) : -1;
        if (format < 0 || forms->count == IMAGE_FORMATS)
            return err_set(ERR_BAD_REQUEST, "There is no image format \"%.32s\".", name ? name : "");
        if (format != IMAGE_H5)
            forms->format[forms->count++] = (enum image_format)format;
    }
    return 0;
}

static void *forms_write(void *context)
{
    struct forms *forms = context;
    for (int i = 0; i < forms->count && forms->result == 0; i++)
        forms->result = result_write(forms->images, forms->format[i], forms->folder, forms->results);
    forms->failure = *err_last();
    return NULL;
}

/* The image file, and beside it, in a thread of their own, the forms that were asked for: packing a picture takes as
 * long as all else. */
static int results_write(const json_t *job, const struct recon_outcome *outcome, int folder, json_t *results)
{
    struct forms forms = {.images = outcome->images, .folder = folder, .results = json_array()};
    pthread_t thread;
    double start = clock_seconds();
    int rc = forms_read(json_object_get(job, "formats"), &forms);
    bool beside = rc == 0 && forms.count > 0 && pthread_create(&thread, NULL, forms_write, &forms) == 0;
    if (rc == 0)
        rc = result_write(outcome->images, IMAGE_H5, folder, results);
    if (beside)
        pthread_join(thread, NULL);
    else if (rc == 0)
        forms_write(&forms);
    if (rc == 0 && forms.result != 0)
        rc = err_restore(&forms.failure);
    json_array_extend(results, forms.results);
    json_decref(forms.results);
    json_object_set_new(json_object_get(outcome->report, "stages"), "write", json_real(clock_seconds() - start));
    return rc;
}

/* From here on the daemon may send the next job: the answer to this one is its sign. */
static void job_end(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->id[0] = '\0';
    pthread_mutex_unlock(&w->lock);
}

/* Read the scan, or take what was read ahead, and reconstruct it. */
static int job_compute(struct worker *w, const json_t *job, const char *id, int fd,
                       const struct recon_listener *listener, struct recon_input **input, struct recon_outcome *outcome)
{
    struct param_values values;
    const struct kind *kind;
    double begun = clock_seconds();
    int rc = parameters_read(job, &kind, &values);
    if (rc == 0) {
        reporter_begin(w->reporter, kind, id);
        rc = fetcher_take(w->fetcher, id, kind, &values, fd, listener, input);
    }
    if (rc == 0) {
        struct recon_request request = worker_request(w->options, kind, &values, fd, NULL);
        request.begun = begun;
        request.cache = w->cache;
        rc = recon_run_input(outcome, w->dev, &request, listener, *input);
    }
    if (rc == 0)
        progress_write(w, kind);
    return rc;
}

/* Run `job` and answer. Non-zero where the device is gone. */
static int job_run(struct worker *w, const json_t *job, const char *id, const int fds[WIRE_FDS])
{
    const struct recon_listener listener = {w, progress};
    struct recon_outcome outcome = {0};
    struct recon_input *input = NULL;
    json_t *results = json_array();
    int rc = job_compute(w, job, id, fds[0], &listener, &input, &outcome);
    if (rc == 0)
        rc = results_write(job, &outcome, fds[1], results);
    reporter_end(w->reporter);
    job_end(w);
    if (rc == 0) {
        json_t *message =
            json_pack("{s:s, s:s, s:O, s:O}", "type", "done", "id", id, "results", results, "report", outcome.report);
        rc = wire_send(w->socket, message, NULL, 0);
        json_decref(message);
    }
    /* A device that failed stays failed for this process: the daemon starts another. */
    bool fatal = rc == ERR_DEVICE;
    if (rc != 0)
        failed_send(w, id, fatal);
    json_decref(results);
    json_decref(outcome.report);
    image_series_free(outcome.images);
    recon_input_free(input); /* it takes the kernel a while, and the daemon has its answer */
    return fatal;
}

static int hello_send(struct worker *w)
{
    json_t *message =
        json_pack("{s:s, s:i, s:s, s:b, s:s, s:i}", "type", "hello", "version", WIRE_VERSION, "device",
                  dev_name(w->dev), "gpu", dev_is_gpu(w->dev), "note", dev_note(w->dev), "pid", (int)getpid());
    int rc = wire_send(w->socket, message, NULL, 0);
    json_decref(message);
    return rc;
}

/* Between jobs: keep what a ping is answered with, and wait. The job is the caller's; NULL at the end. */
static json_t *job_wait(struct worker *w, char id[128], int fds[WIRE_FDS])
{
    size_t available = 0, total = 0;
    dev_memory(w->dev, &available, &total);
    pthread_mutex_lock(&w->lock);
    w->memory_available = available;
    w->memory_total = total;
    while (!w->job && !w->gone)
        pthread_cond_wait(&w->changed, &w->lock);
    json_t *job = w->gone ? NULL : w->job;
    if (job) {
        w->job = NULL;
        memcpy(id, w->id, sizeof w->id);
        memcpy(fds, w->fds, sizeof w->fds);
    }
    pthread_mutex_unlock(&w->lock);
    return job;
}

int worker_serve(int socket, struct dev *dev, const struct worker_options *options)
{
    struct worker worker = {.socket = socket,
                            .dev = dev,
                            .options = options,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    char id[sizeof worker.id];
    int fds[WIRE_FDS], status = 0;
    if (fetcher_create(&worker.fetcher, options) != 0 || reporter_create(&worker.reporter, socket) != 0 ||
        recon_cache_create(&worker.cache) != 0)
        return 1;
    if (hello_send(&worker) != 0)
        return 1;
    if (pthread_create(&thread, NULL, reader, &worker) != 0)
        return 1;
    for (json_t *job; status == 0 && (job = job_wait(&worker, id, fds));) {
        int fatal = job_run(&worker, job, id, fds);
        fds_close(fds, WIRE_FDS);
        json_decref(job);
        fetcher_tend(worker.fetcher);
        status = fatal ? 1 : 0;
    }
    /* The reader never ends by itself, and uses `worker`: the process ends with both. */
    recon_cache_free(worker.cache);
    dev_free(dev);
    _exit(status);
}
