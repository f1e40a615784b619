#include "daemon/worker/worker_progress.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/wire.h"

#include <pthread.h>
#include <stdlib.h>

enum { PAUSE_MS = 100 }; /* between two messages of a job */

struct reporter {
    int socket;
    pthread_mutex_t lock; /* of all below; held while a message is sent, so that none follows the job's end */
    pthread_cond_t work;  /* `now` is to be sent later; on CLOCK_MONOTONIC */
    const struct kind *kind;
    const char *id; /* of the job; NULL: none */
    struct step_progress now;
    bool told;    /* a message of this job was sent */
    bool waiting; /* `now` is to be sent at `due` */
    bool gone;    /* the daemon has closed the socket */
    double due;
    double (*part)(const void *of); /* of the step since `from` that is done; NULL: the job reports that itself */
    const void *of;
    double from;
};

/* Send `now`; under the lock. */
static void send_now(struct reporter *r)
{
    const struct step_progress *now = &r->now;
    json_t *message = json_pack("{s:s, s:s, s:f, s:s, s:I, s:I}", "type", "progress", "id", r->id, "fraction",
                                now->fraction, "step", r->kind->steps[now->step].name, "iteration",
                                (json_int_t)now->iteration, "iterations", (json_int_t)now->iterations);
    r->gone = wire_send(r->socket, message, NULL, 0) != 0;
    json_decref(message);
    r->told = true;
    r->waiting = false;
    r->due = clock_seconds() + 1e-3 * PAUSE_MS;
}

/* Send how far the watched step is, if that has changed; under the lock. */
static void look(struct reporter *r)
{
    const double fraction = r->from + (1 - r->from) * r->part(r->of);
    r->due = clock_seconds() + 1e-3 * PAUSE_MS;
    if (fraction > r->now.fraction) {
        r->now.fraction = fraction;
        send_now(r);
    }
}

static void *report(void *context)
{
    struct reporter *r = context;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        if (!r->waiting && !r->part)
            pthread_cond_wait(&r->work, &r->lock);
        else if (clock_seconds() < r->due)
            thread_cond_wait(&r->work, &r->lock, r->due);
        else if (r->waiting)
            send_now(r);
        else
            look(r);
    }
    return NULL;
}

int reporter_create(struct reporter **out, int socket)
{
    struct reporter *r = calloc(1, sizeof *r);
    pthread_t thread;
    if (!r)
        return err_no_memory("reports of progress");
    r->socket = socket;
    pthread_mutex_init(&r->lock, NULL);
    thread_cond_init(&r->work);
    int rc = thread_start(&thread, report, r, "reports progress");
    if (rc) {
        free(r);
        return rc;
    }
    pthread_detach(thread);
    *out = r;
    return 0;
}

void reporter_begin(struct reporter *r, const struct kind *kind, const char *id)
{
    pthread_mutex_lock(&r->lock);
    r->kind = kind;
    r->id = id;
    r->told = false;
    pthread_mutex_unlock(&r->lock);
}

static bool same(const struct step_progress *a, const struct step_progress *b)
{
    return a->step == b->step && a->iteration == b->iteration && a->iterations == b->iterations &&
           a->fraction <= b->fraction;
}

int reporter_tell(struct reporter *r, const struct step_progress *said)
{
    pthread_mutex_lock(&r->lock);
    if (r->id && !(r->told && same(said, &r->now))) {
        bool first = !r->waiting;
        r->now = *said;
        r->waiting = true;
        if (!r->told || clock_seconds() >= r->due)
            send_now(r);
        else if (first)
            pthread_cond_signal(&r->work);
    }
    int gone = r->gone;
    pthread_mutex_unlock(&r->lock);
    return gone;
}

void reporter_watch(struct reporter *r, double (*part)(const void *of), const void *of)
{
    pthread_mutex_lock(&r->lock);
    r->part = part;
    r->of = of;
    r->from = r->now.fraction;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}

void reporter_end(struct reporter *r)
{
    pthread_mutex_lock(&r->lock);
    r->id = NULL;
    r->waiting = false;
    r->part = NULL;
    pthread_mutex_unlock(&r->lock);
}
