#include "daemon/worker/worker_fetch.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/base/log.h"
#include "gridding/base/host_memory.h"
#include "recon/codec/decoder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DECODERS = 2,    /* kept ready between jobs */
    ASK_MS = 20,     /* between two checks whether a waiting job was canceled */
    MOST_AHEAD = 16, /* a file is prefetched if the available memory is at least so many times its size ... */
    SHARE_AHEAD = 4  /* ... and its decoded form may use this fraction of the usual limit */
};

enum state { EMPTY, WAITING, READING, READ };

/* One input. There are two: the one that the running job waits for, and the prefetched one. */
struct entry {
    enum state state;
    bool wanted; /* its job has begun and waits */
    char id[128];
    const struct kind *kind;
    struct param_values values;
    int fd;
    bool own;             /* the thread closes fd */
    bool modest;          /* is read, or was, with the limits of prefetching */
    bool follow;          /* is read, or was, while it was still being written */
    atomic_bool arriving; /* it is still being written */
    atomic_int live;      /* memfd into which it is read, for fetcher_live(); -1: none, or it was taken */
    atomic_bool stop;
    int rc; /* state READ: result of the kind's read() */
    struct err failure;
    void *input; /* the kind's */
};

struct fetcher {
    const struct worker_options *options;
    struct decoder *decoder; /* the thread's */
    struct log log;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool tend;
    uint64_t available; /* host memory, as noted before the next input; 0: a job has begun since */
    struct entry entry[2];
};

/* ---- entries, under the lock ---- */

static struct entry *entry_find(struct fetcher *f, const char *id)
{
    for (int i = 0; i < 2; i++)
        if (f->entry[i].state != EMPTY && !f->entry[i].stop && strcmp(f->entry[i].id, id) == 0)
            return &f->entry[i];
    return NULL;
}

static void entry_empty(struct entry *entry)
{
    if (entry->own)
        close(entry->fd);
    if (entry->state != EMPTY && entry->live >= 0)
        close(entry->live);
    if (entry->input)
        kind_run_find(entry->kind)->input_free(entry->input);
    *entry = (struct entry){.state = EMPTY};
}

/* Drop an entry. If it is being read, the thread is told to stop and empties it. */
static void entry_drop(struct fetcher *f, struct entry *entry)
{
    entry->stop = true;
    if (entry->state != READING)
        entry_empty(entry);
    pthread_cond_signal(&f->work);
}

/* A free entry for `id`; NULL: neither can be dropped at once. */
static struct entry *entry_make(struct fetcher *f, const char *id, const struct kind *kind,
                                const struct param_values *values, int fd, bool own)
{
    struct entry *entry = f->entry[0].state == EMPTY ? &f->entry[0] : &f->entry[1];
    if (entry->state != EMPTY)
        return NULL;
    *entry = (struct entry){.state = WAITING, .kind = kind, .values = *values, .fd = fd, .own = own, .live = -1};
    snprintf(entry->id, sizeof entry->id, "%s", id);
    return entry;
}

/* ---- the thread ---- */

static int stopped(void *context, const struct step_progress *now)
{
    struct entry *entry = context;
    (void)now;
    return entry->stop;
}

/* The host's available memory. To find it, the files of all control groups are read: better not while an input waits.
 */
static uint64_t memory_available(struct fetcher *f)
{
    if (f->available == 0)
        f->available = host_memory_available();
    return f->available;
}

/* Whether two inputs fit into memory; the running job may not have allocated all of its own yet. */
static bool room_ahead(struct fetcher *f, const struct entry *entry)
{
    struct stat status;
    return fstat(entry->fd, &status) == 0 && (uint64_t)status.st_size <= memory_available(f) / MOST_AHEAD;
}

/* The next entry to read: first the one that a job waits for. */
static struct entry *entry_next(struct fetcher *f)
{
    struct entry *ahead = NULL;
    for (int i = 0; i < 2; i++) {
        if (f->entry[i].state == WAITING && f->entry[i].wanted)
            return &f->entry[i];
        if (f->entry[i].state == WAITING)
            ahead = &f->entry[i];
    }
    return ahead && room_ahead(f, ahead) ? ahead : NULL;
}

static void entry_read(struct fetcher *f, struct entry *entry)
{
    const struct job_listener listener = {entry, stopped};
    struct job_request request = worker_request(f->options, entry->kind, &entry->values, entry->fd, f->decoder);
    void *input = NULL;
    entry->state = READING;
    entry->modest = !entry->wanted;
    entry->follow = entry->arriving;
    request.arriving = entry->follow ? &entry->arriving : NULL;
    request.input_stays = true; /* the daemon never rewrites a file of its spool, and only unlinks it */
    request.live = entry->follow ? &entry->live : NULL;
    if (entry->modest)
        request.memory_bytes = (request.memory_bytes ? request.memory_bytes : memory_available(f)) / SHARE_AHEAD;
    pthread_mutex_unlock(&f->lock);
    int rc = kind_run_read(&input, kind_run_find(entry->kind), &request, &listener);
    pthread_mutex_lock(&f->lock);
    entry->state = READ;
    entry->input = input;
    entry->rc = rc;
    entry->failure = *err_last();
    if (rc == ERR_DECODER_DIED && entry->follow && !entry->stop)
        log_line(&f->log, LOG_LEVEL_WARNING, entry->id, "it will be read again when it is complete: %s",
                 entry->failure.text);
    if (entry->stop)
        entry_empty(entry);
    pthread_cond_broadcast(&f->done);
}

/* Keep one decoder ready or, while no job needs the processors, all of them and memory for the next input. If that
 * fails, the next input starts a decoder itself, or reports the failure. */
static void decoders_tend(struct fetcher *f, bool all)
{
    if (all)
        decoder_prepare_memory(f->decoder);
    if (decoder_prepare(f->decoder, all ? DECODERS : 1) != 0)
        log_line(&f->log, LOG_LEVEL_WARNING, NULL, "no decoder can be pre-started: %s", err_last()->text);
    const char *lost = decoder_lost(f->decoder);
    if (lost)
        log_line(&f->log, LOG_LEVEL_WARNING, NULL, "%s Others are started.", lost);
}

static void *fetch(void *context)
{
    struct fetcher *f = context;
    struct entry *entry;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        /* Starting a decoder uses a processor that the new job needs: the second one waits for the job's end. */
        bool all = f->tend;
        f->tend = false;
        pthread_mutex_unlock(&f->lock);
        decoders_tend(f, all);
        const uint64_t available = all ? host_memory_available() : 0;
        pthread_mutex_lock(&f->lock);
        if (available)
            f->available = available;
        while (!(entry = entry_next(f)) && !f->tend)
            pthread_cond_wait(&f->work, &f->lock);
        if (entry)
            entry_read(f, entry);
        /* It was long in coming, and a ping or the end of a job asked for decoders meanwhile. Now its own job needs the
         * processors, and asks for them at its end. */
        f->tend = f->tend && !(entry && entry->follow && entry->state == READ);
    }
    return NULL;
}

int fetcher_create(struct fetcher **out, const struct worker_options *options)
{
    struct fetcher *f = calloc(1, sizeof *f);
    pthread_t thread;
    if (!f)
        return err_no_memory("a reader of scans");
    f->options = options;
    f->tend = true;
    log_init(&f->log, LOG_LEVEL_WARNING, false);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    thread_cond_init(&f->done);
    int rc = decoder_create(&f->decoder, options->codec);
    if (rc == 0)
        rc = thread_start(&thread, fetch, f, "reads inputs");
    if (rc != 0) {
        decoder_free(f->decoder);
        free(f);
        return rc;
    }
    pthread_detach(thread);
    *out = f;
    return 0;
}

/* ---- calls from other threads ---- */

void fetcher_prefetch(struct fetcher *f, const char *id, const struct kind *kind, const struct param_values *values,
                      int fd, bool arriving)
{
    struct entry *made = NULL;
    pthread_mutex_lock(&f->lock);
    bool known = entry_find(f, id) != NULL;
    for (int i = 0; i < 2 && !known; i++)
        if (f->entry[i].state != EMPTY && !f->entry[i].wanted)
            entry_drop(f, &f->entry[i]);
    if (known || !(made = entry_make(f, id, kind, values, fd, true)))
        close(fd);
    if (made)
        made->arriving = arriving;
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
}

void fetcher_forget(struct fetcher *f, const char *id)
{
    pthread_mutex_lock(&f->lock);
    struct entry *entry = entry_find(f, id);
    if (entry && !entry->wanted)
        entry_drop(f, entry);
    pthread_mutex_unlock(&f->lock);
}

bool fetcher_live(struct fetcher *f, const char *id, int *memory)
{
    pthread_mutex_lock(&f->lock);
    struct entry *entry = entry_find(f, id);
    *memory = entry ? atomic_exchange(&entry->live, -1) : -1;
    pthread_mutex_unlock(&f->lock);
    return entry != NULL;
}

bool fetcher_complete(struct fetcher *f, const char *id)
{
    pthread_mutex_lock(&f->lock);
    struct entry *entry = entry_find(f, id);
    if (entry)
        entry->arriving = false;
    const bool ended = !entry || entry->state == READ;
    pthread_mutex_unlock(&f->lock);
    return ended;
}

void fetcher_tend(struct fetcher *f)
{
    pthread_mutex_lock(&f->lock);
    f->tend = true;
    pthread_cond_signal(&f->work);
    pthread_mutex_unlock(&f->lock);
}

/* Wait for the thread, at most ASK_MS. Under the lock. */
static void done_wait(struct fetcher *f)
{
    thread_cond_wait(&f->done, &f->lock, clock_seconds() + 1e-3 * ASK_MS);
}

/* Whether a failed prefetch is worth another attempt: the cause may be memory that the previous job used, the lower
 * limit, or that the input was read while it arrived. */
static bool failed_modestly(const struct entry *entry)
{
    return entry->state == READ && entry->modest && entry->rc != 0 &&
           (entry->follow || entry->rc == ERR_NO_MEMORY || (entry->rc == ERR_LIMIT && entry->failure.required >= 0));
}

/* The entry of a job that begins: the prefetched one if it is usable, else a new one. */
static struct entry *entry_begin(struct fetcher *f, const char *id, const struct kind *kind,
                                 const struct param_values *values, int fd)
{
    struct entry *entry = entry_find(f, id);
    /* Stop prefetching another input: the one that a job waits for comes first. */
    for (int i = 0; i < 2 && !entry; i++)
        if (f->entry[i].state == READING)
            entry_drop(f, &f->entry[i]);
    while (!entry && !(entry = entry_make(f, id, kind, values, fd, false)))
        done_wait(f);
    entry->wanted = true;
    entry->arriving = false;
    pthread_cond_signal(&f->work);
    return entry;
}

int fetcher_take(struct fetcher *f, const char *id, const struct kind *kind, const struct param_values *values, int fd,
                 const struct job_listener *listener, void **out)
{
    pthread_mutex_lock(&f->lock);
    f->available = 0;
    struct entry *entry = entry_begin(f, id, kind, values, fd);
    while (entry->state != READ || failed_modestly(entry)) {
        if (failed_modestly(entry)) {
            entry->state = WAITING;
            pthread_cond_signal(&f->work);
        }
        done_wait(f);
        if (entry->state == READ)
            continue;
        pthread_mutex_unlock(&f->lock);
        const struct step_progress reading = {.step = 0};
        bool stop = listener->progress(listener->context, &reading) != 0;
        pthread_mutex_lock(&f->lock);
        if (!stop)
            continue;
        /* The thread must no longer use `fd` when the caller closes it. */
        struct err canceled;
        err_set(ERR_CANCELED, "The job was canceled while its file was read.");
        canceled = *err_last();
        entry_drop(f, entry);
        while (entry->state == READING && entry->stop)
            done_wait(f);
        pthread_mutex_unlock(&f->lock);
        return err_restore(&canceled);
    }
    int rc = entry->rc == 0 ? 0 : err_restore(&entry->failure);
    *out = entry->input;
    entry->input = NULL;
    entry_empty(entry);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

bool fetcher_take_ahead(struct fetcher *f, const char *id, const struct job_listener *listener, void **out)
{
    const struct step_progress reading = {.step = 0};
    struct entry *entry;
    pthread_mutex_lock(&f->lock);
    while ((entry = entry_find(f, id)) && entry->state != READ && listener->progress(listener->context, &reading) == 0)
        done_wait(f);
    const bool taken = entry && entry->state == READ && entry->rc == 0;
    if (taken) {
        f->available = 0;
        *out = entry->input;
        entry->input = NULL;
        entry_empty(entry);
    }
    pthread_mutex_unlock(&f->lock);
    return taken;
}

void fetcher_poke(struct fetcher *f)
{
    pthread_mutex_lock(&f->lock);
    pthread_cond_broadcast(&f->done);
    pthread_mutex_unlock(&f->lock);
}
