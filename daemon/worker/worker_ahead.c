#include "daemon/worker/worker_ahead.h"

#include "daemon/base/clock.h"
#include "daemon/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_WRITTEN = 64 << 20, /* bytes of results that are written before their job begins */
    /* Between two checks of an arriving input, once there was more, which is doubled with each check without more:
     * CLOSE often comes right after the last readout. Then, after a while without more. */
    PAUSE_LEAST_US = 50,
    PAUSE_DOUBLED = 2, /* times, at most */
    PAUSE_MOST_US = 1000,
    CHECKS_SOON = 500 /* without more, before that while has passed */
};

struct ahead {
    struct fetcher *fetcher;
    const struct worker_options *options;
    int socket;
    struct ahead_listener listener;
    pthread_mutex_t lock;
    struct expected next; /* under lock: told, and not begun */
    bool forgotten;       /* likewise: `now` is */
    atomic_bool stop;     /* what is computed now */
    atomic_bool begun;    /* the job of `now` has begun */
    /* of the thread that owns the device, which changes now.id under the lock: */
    struct expected now;
    struct live_file file;
    void *of;             /* the kind's, of an input that arrives; NULL: it has not begun to */
    struct ahead_job job; /* of one that is complete */
    int checks;           /* of an arriving input, since there was more */
    bool over;            /* all is computed, or nothing more can be */
    bool told;            /* the daemon has been told so, and may need the job no more */
};

int ahead_create(struct ahead **out, struct fetcher *fetcher, const struct worker_options *options, int socket,
                 const struct ahead_listener *listener)
{
    struct ahead *a = calloc(1, sizeof *a);
    if (!a)
        return err_no_memory("computing ahead");
    a->fetcher = fetcher;
    a->options = options;
    a->socket = socket;
    a->listener = *listener;
    a->next.live = a->now.live = -1;
    pthread_mutex_init(&a->lock, NULL);
    *out = a;
    return 0;
}

/* ---- any thread ---- */

static void written_close(struct expected *expected)
{
    while (expected->written_count > 0)
        close(expected->written[--expected->written_count]);
}

static void expected_clear(struct expected *expected)
{
    written_close(expected);
    if (expected->live >= 0)
        close(expected->live);
    json_decref(expected->files);
    *expected = (struct expected){.live = -1};
}

void ahead_expect(struct ahead *a, const struct expected *expected)
{
    pthread_mutex_lock(&a->lock);
    expected_clear(&a->next);
    a->next = *expected;
    a->stop = true;
    pthread_mutex_unlock(&a->lock);
    fetcher_poke(a->fetcher);
}

void ahead_forget(struct ahead *a, const char *id)
{
    pthread_mutex_lock(&a->lock);
    if (strcmp(a->next.id, id) == 0)
        expected_clear(&a->next);
    if (strcmp(a->now.id, id) == 0) {
        a->forgotten = true;
        a->stop = true;
    }
    pthread_mutex_unlock(&a->lock);
    fetcher_poke(a->fetcher);
}

void ahead_interrupt(struct ahead *a, const char *id)
{
    pthread_mutex_lock(&a->lock);
    if (strcmp(a->now.id, id) != 0)
        a->stop = true;
    else
        a->begun = true;
    pthread_mutex_unlock(&a->lock);
    fetcher_poke(a->fetcher);
}

/* ---- the thread that owns the device ---- */

/* Free what was made of `old`, which is no longer a->now. */
static void made_drop(struct ahead *a, struct expected *old)
{
    if (a->of)
        old->run->ahead_free(a->of);
    if (a->job.input)
        old->run->input_free(a->job.input);
    job_outcome_free(&a->job.outcome);
    made_files_free(&a->job.made);
    a->of = NULL;
    a->job = (struct ahead_job){.input = NULL};
    a->over = false;
    a->told = false;
    expected_clear(old);
}

static void now_drop(struct ahead *a)
{
    pthread_mutex_lock(&a->lock);
    struct expected old = a->now;
    a->now = (struct expected){.live = -1};
    a->forgotten = false;
    a->begun = false;
    pthread_mutex_unlock(&a->lock);
    made_drop(a, &old);
}

/* Turn to what was told last, if there is something, or `now` is forgotten. */
static void next_take(struct ahead *a)
{
    struct expected old = {.live = -1};
    pthread_mutex_lock(&a->lock);
    const bool turn = a->forgotten || *a->next.id;
    if (turn) {
        old = a->now;
        a->now = a->next;
        a->next = (struct expected){.live = -1};
        a->forgotten = false;
        a->begun = false;
    }
    pthread_mutex_unlock(&a->lock);
    if (!turn)
        return;
    const bool ended = a->told;
    made_drop(a, &old);
    if (ended)
        a->listener.ended(a->listener.context);
    a->file = (struct live_file){
        .fd = a->now.live, .socket = a->socket, .id = a->now.id, .bytes = a->now.shown > 0 ? a->now.shown : 0};
}

void ahead_resume(struct ahead *a)
{
    a->stop = false;
}

const struct kind_run *ahead_kind(struct ahead *a)
{
    next_take(a);
    if (!*a->now.id || a->over)
        return NULL;
    /* A job whose images are sent as they are made makes them when it has begun. */
    const struct kind_run *run = a->now.run;
    return (a->now.arriving ? run->ahead_go != NULL : !run->kind->checkpoints && a->now.live < 0) ? run : NULL;
}

/* Whether the input has begun to arrive, or never will: then it is over. */
static bool has_begun(struct ahead *a)
{
    int memory;
    if (a->of)
        return true;
    const bool known = fetcher_live(a->fetcher, a->now.id, &memory);
    if (memory >= 0 && a->now.run->ahead_create(&a->of, memory) != 0)
        a->of = NULL;
    a->over = !known || (memory >= 0 && !a->of);
    return a->of != NULL;
}

static int tell_or_stop(void *context, const struct step_progress *now)
{
    struct ahead *a = context;
    return a->stop || a->listener.progress(a->listener.context, a->now.id, a->now.run->kind, now);
}

static int asked_to_stop(void *context, const struct step_progress *now)
{
    (void)now;
    return ((struct ahead *)context)->stop;
}

/* What is computed of a->now, in parts or as a whole. */
static struct job_request request_of(const struct ahead *a, void *cache)
{
    struct job_request request = worker_request(a->options, a->now.run->kind, &a->now.values, -1, NULL);
    request.cache = cache;
    request.room.most = a->now.most;
    return request;
}

/* Of what arrives, compute what is complete; `begun`: its job has begun. */
static int part_compute(struct ahead *a, struct dev *dev, void *cache, bool begun)
{
    const struct job_listener listener = {a, begun ? tell_or_stop : asked_to_stop};
    const struct job_show show = {&a->file, live_file_show};
    bool more = false;
    a->checks = a->checks < CHECKS_SOON ? a->checks + 1 : a->checks;
    if (!has_begun(a)) {
        a->checks = PAUSE_DOUBLED;
        return 0;
    }
    struct job_request request = request_of(a, cache);
    request.show = a->now.live >= 0 ? &show : NULL;
    int rc = a->now.run->ahead_go(a->of, dev, &request, &listener, &more, &a->over);
    a->checks = more ? 0 : a->checks;
    a->over = a->over || (rc != 0 && rc != ERR_CANCELED); /* the job will say why */
    return rc == ERR_DEVICE ? rc : 0;
}

/* The job is computed, and its results are in its own files: the daemon needs no more of this worker. If the job begins
 * at this moment, the daemon ignores the message, and gets the answer to the job. */
static void made_tell(struct ahead *a)
{
    struct ahead_job *job = &a->job;
    pthread_mutex_lock(&a->lock);
    const bool begun = a->begun || a->forgotten;
    pthread_mutex_unlock(&a->lock);
    if (begun)
        return;
    made_files_release(&job->made);
    json_object_set_new(job->outcome.report, "ahead_seconds", json_real(job->ended - job->begun));
    json_t *message = json_pack("{s:s, s:s, s:O}", "type", "made", "id", a->now.id, "report", job->outcome.report);
    a->told = wire_send(a->socket, message, NULL, 0) == 0;
    json_decref(message);
}

/* Of what is complete, compute the whole job. One that fails is computed again when it begins, and then says why. */
static int whole_compute(struct ahead *a, struct dev *dev, void *cache)
{
    const struct job_listener reading = {a, asked_to_stop}, computing = {a, tell_or_stop};
    struct ahead_job *job = &a->job;
    struct result_files files;
    struct job_request request = request_of(a, cache);
    if (!job->input && !fetcher_take_ahead(a->fetcher, a->now.id, &reading, &job->input)) {
        a->over = !a->stop;
        return 0;
    }
    job->begun = clock_seconds();
    made_files_free(&job->made); /* of an attempt that was interrupted */
    const bool own = a->now.written_count > 0;
    int rc = made_files_create(&job->made, &files, request.kind, a->now.files, a->now.written, a->now.written_count);
    a->now.written_count = 0;
    request.begun = job->begun;
    if (rc == 0) {
        request.room = result_room_read(&files, NULL);
        request.room.most = a->now.most;
        rc = a->now.run->run(&job->outcome, dev, &request, &computing, job->input);
        memcpy(job->made.begun, files.begun, sizeof files.begun);
    }
    /* A job that has begun meanwhile has its files, and needs no copy. */
    if (rc == 0 && !a->begun && job->outcome.most_bytes > 0 && job->outcome.most_bytes <= MOST_WRITTEN)
        job->made.written = result_files_write(&files, &job->outcome) == 0;
    job->ended = clock_seconds();
    a->over = rc != ERR_CANCELED;
    if (own && job->made.written)
        made_tell(a);
    return rc == ERR_DEVICE ? rc : 0;
}

int ahead_turn(struct ahead *a, struct dev *dev, void *cache)
{
    return a->now.arriving ? part_compute(a, dev, cache, false) : whole_compute(a, dev, cache);
}

double ahead_pause(const struct ahead *a)
{
    const int doubled = a->checks < PAUSE_DOUBLED ? a->checks : PAUSE_DOUBLED;
    return 1e-6 * (a->checks < CHECKS_SOON ? PAUSE_LEAST_US << doubled : PAUSE_MOST_US);
}

static bool is_now(struct ahead *a, const char *id)
{
    pthread_mutex_lock(&a->lock);
    const bool forgotten = a->forgotten;
    pthread_mutex_unlock(&a->lock);
    if (forgotten)
        now_drop(a);
    return strcmp(a->now.id, id) == 0;
}

int ahead_finish(struct ahead *a, const char *id, struct dev *dev, void *cache)
{
    int rc = 0;
    if (!is_now(a, id) || !a->now.arriving || !a->of || a->now.live < 0)
        return 0;
    for (bool ended = false; rc == 0 && !a->over && !a->stop && !ended;) {
        ended = fetcher_complete(a->fetcher, id);
        rc = part_compute(a, dev, cache, true);
        if (rc == 0 && !a->over && !ended)
            nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * ahead_pause(a))}, NULL);
    }
    return rc;
}

const void *ahead_of(struct ahead *a, const char *id, int64_t *shown)
{
    if (!is_now(a, id) || !a->of)
        return NULL;
    if (*shown >= 0 && a->file.bytes > *shown)
        *shown = a->file.bytes;
    return a->of;
}

void ahead_take(struct ahead *a, const char *id, struct ahead_job *out)
{
    *out = (struct ahead_job){.input = NULL};
    pthread_mutex_lock(&a->lock);
    if (strcmp(a->next.id, id) == 0)
        written_close(&a->next);
    pthread_mutex_unlock(&a->lock);
    if (!is_now(a, id))
        return;
    written_close(&a->now);
    *out = a->job;
    a->job = (struct ahead_job){.input = NULL};
    a->over = true;
    a->told = false;
}

void ahead_end(struct ahead *a, const char *id)
{
    if (strcmp(a->now.id, id) == 0)
        now_drop(a);
}
