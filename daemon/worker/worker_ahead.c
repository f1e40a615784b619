#include "daemon/worker/worker_ahead.h"

#include "daemon/worker/worker_results.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct expected {
    char id[128]; /* "": none */
    const struct kind_run *run;
    struct param_values values;
    int live;
    int64_t shown;
};

struct ahead {
    struct fetcher *fetcher;
    const struct worker_options *options;
    int socket;
    pthread_mutex_t lock;
    struct expected next; /* under lock: told, and not begun */
    bool forgotten;       /* likewise: `now` is */
    atomic_bool stop;     /* what is computed now */
    /* of the thread that owns the device, which changes now.id under the lock: */
    struct expected now;
    struct live_file file;
    void *of;  /* the kind's; NULL: it has not begun to arrive */
    bool over; /* all is computed, or nothing more can be */
};

int ahead_create(struct ahead **out, struct fetcher *fetcher, const struct worker_options *options, int socket)
{
    struct ahead *a = calloc(1, sizeof *a);
    if (!a)
        return err_no_memory("computing ahead");
    a->fetcher = fetcher;
    a->options = options;
    a->socket = socket;
    a->next.live = a->now.live = -1;
    pthread_mutex_init(&a->lock, NULL);
    *out = a;
    return 0;
}

/* ---- any thread ---- */

static void expected_clear(struct expected *expected)
{
    if (expected->live >= 0)
        close(expected->live);
    *expected = (struct expected){.live = -1};
}

void ahead_expect(struct ahead *a, const char *id, const struct kind *kind, const struct param_values *values, int live,
                  int64_t shown)
{
    pthread_mutex_lock(&a->lock);
    expected_clear(&a->next);
    a->next = (struct expected){.run = kind_run_find(kind), .values = *values, .live = live, .shown = shown};
    snprintf(a->next.id, sizeof a->next.id, "%s", id);
    a->stop = true;
    pthread_mutex_unlock(&a->lock);
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
}

void ahead_interrupt(struct ahead *a, const char *id)
{
    pthread_mutex_lock(&a->lock);
    if (strcmp(a->now.id, id) != 0)
        a->stop = true;
    pthread_mutex_unlock(&a->lock);
}

/* ---- the thread that owns the device ---- */

static void now_drop(struct ahead *a)
{
    if (a->of)
        a->now.run->ahead_free(a->of);
    a->of = NULL;
    a->over = false;
    pthread_mutex_lock(&a->lock);
    expected_clear(&a->now);
    a->forgotten = false;
    pthread_mutex_unlock(&a->lock);
}

/* Turn to what was told last. */
static void next_take(struct ahead *a)
{
    if (a->forgotten || *a->next.id)
        now_drop(a);
    pthread_mutex_lock(&a->lock);
    if (*a->next.id) {
        a->now = a->next;
        a->next = (struct expected){.live = -1};
        a->file = (struct live_file){
            .fd = a->now.live, .socket = a->socket, .id = a->now.id, .bytes = a->now.shown > 0 ? a->now.shown : 0};
    }
    pthread_mutex_unlock(&a->lock);
}

void ahead_resume(struct ahead *a)
{
    a->stop = false;
}

const struct kind_run *ahead_kind(struct ahead *a)
{
    pthread_mutex_lock(&a->lock);
    const bool turn = a->forgotten || *a->next.id;
    pthread_mutex_unlock(&a->lock);
    if (turn)
        next_take(a);
    return *a->now.id && !a->over && a->now.run->ahead_go ? a->now.run : NULL;
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

static int asked_to_stop(void *context, const struct step_progress *now)
{
    (void)now;
    return ((struct ahead *)context)->stop;
}

int ahead_turn(struct ahead *a, struct dev *dev, void *cache)
{
    const struct job_listener listener = {a, asked_to_stop};
    const struct job_show show = {&a->file, live_file_show};
    if (!has_begun(a))
        return 0;
    struct job_request request = worker_request(a->options, a->now.run->kind, &a->now.values, -1, NULL);
    request.cache = cache;
    request.show = a->now.live >= 0 ? &show : NULL;
    int rc = a->now.run->ahead_go(a->of, dev, &request, &listener, &a->over);
    a->over = a->over || (rc != 0 && rc != ERR_CANCELED); /* the job will say why */
    return rc == ERR_DEVICE ? rc : 0;
}

const void *ahead_of(struct ahead *a, const char *id, int64_t *shown)
{
    if (strcmp(a->now.id, id) != 0 || !a->of)
        return NULL;
    if (*shown >= 0 && a->file.bytes > *shown)
        *shown = a->file.bytes;
    return a->of;
}

void ahead_end(struct ahead *a, const char *id)
{
    if (strcmp(a->now.id, id) == 0)
        now_drop(a);
}
