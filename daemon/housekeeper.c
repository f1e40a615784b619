#include "daemon/housekeeper.h"

#include "daemon/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LOOK_SECONDS = 1,
    TOGETHER = 64, /* jobs looked at in one go */
};

struct housekeeper {
    struct scheduler_parts parts;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    bool stopping; /* under the lock */
    bool troubled; /* the last look failed, and that was said */
};

/* ---- deadlines ---- */

static int expire(struct housekeeper *housekeeper)
{
    const struct scheduler_parts *parts = &housekeeper->parts;
    struct job jobs[TOGETHER];
    int count = 0, result;
    do {
        result = store_expire(parts->store, clock_milliseconds(), jobs, TOGETHER, &count);
        for (int i = 0; i < count; i++) {
            log_line(parts->log, LOG_LEVEL_INFO, jobs[i].id, "failed: its deadline passed before it began");
            if (parts->options->keep_scans == KEEP_NONE)
                spool_remove(parts->spool, jobs[i].id);
            metrics_failed(parts->metrics, jobs[i].kind, ERR_DEADLINE, 0);
            waiters_wake(parts->waiters, jobs[i].id);
            job_clear(&jobs[i]);
        }
    } while (!result && count == TOGETHER);
    return result;
}

/* ---- ended jobs ---- */

/* Remove these; those that somebody else removed meanwhile are as well. */
static int remove_all(const struct scheduler_parts *parts, char (*ids)[JOB_ID], int count, int *removed)
{
    for (int i = 0; i < count; i++) {
        int result = store_delete(parts->store, ids[i]);
        if (result && result != ERR_NOT_FOUND)
            return result;
        spool_remove(parts->spool, ids[i]);
        spool_results_remove(parts->spool, ids[i]);
        *removed += !result;
    }
    return 0;
}

int jobs_purge(const struct scheduler_parts *parts, int64_t before, int state, int *removed)
{
    char ids[TOGETHER][JOB_ID];
    int count = 0, result;
    *removed = 0;
    do {
        result = store_ended(parts->store, before, state, ids, TOGETHER, &count);
        if (!result)
            result = remove_all(parts, ids, count, removed);
    } while (!result && count == TOGETHER);
    return result;
}

static int make_room(const struct scheduler_parts *parts, int64_t most, int *removed)
{
    char id[1][JOB_ID];
    int count = 1, result = 0;
    while (!result && count && store_kept_bytes(parts->store) > most) {
        result = store_ended(parts->store, INT64_MAX, -1, id, 1, &count);
        if (!result)
            result = remove_all(parts, id, count, removed);
    }
    return result;
}

static int retain(struct housekeeper *housekeeper)
{
    const struct scheduler_parts *parts = &housekeeper->parts;
    int64_t age = parts->options->keep_jobs, most = parts->options->keep_bytes;
    int old = 0, large = 0, result = 0;
    if (age > 0)
        result = jobs_purge(parts, clock_milliseconds() - 1000 * age, -1, &old);
    if (!result && most > 0)
        result = make_room(parts, most, &large);
    if (old || large)
        log_line(parts->log, LOG_LEVEL_INFO, NULL, "removed %d ended jobs for their age, %d for room", old, large);
    return result;
}

/* ---- the thread ---- */

static void *housekeeper_run(void *context)
{
    struct housekeeper *housekeeper = context;
    pthread_mutex_lock(&housekeeper->lock);
    while (!housekeeper->stopping) {
        pthread_mutex_unlock(&housekeeper->lock);
        int result = expire(housekeeper);
        if (!result)
            result = retain(housekeeper);
        if (result && !housekeeper->troubled)
            log_line(housekeeper->parts.log, LOG_LEVEL_ERROR, NULL, "deadlines and retention wait for the store: %s",
                     err_last()->text);
        housekeeper->troubled = result != 0;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += LOOK_SECONDS;
        pthread_mutex_lock(&housekeeper->lock);
        while (!housekeeper->stopping &&
               pthread_cond_timedwait(&housekeeper->stop, &housekeeper->lock, &until) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&housekeeper->lock);
    return NULL;
}

int housekeeper_create(struct housekeeper **out, const struct scheduler_parts *parts)
{
    struct housekeeper *housekeeper = calloc(1, sizeof *housekeeper);
    if (!housekeeper)
        return err_set(ERR_NO_MEMORY, "No memory for the housekeeper.");
    housekeeper->parts = *parts;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&housekeeper->stop, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&housekeeper->lock, NULL);
    int failed = pthread_create(&housekeeper->thread, NULL, housekeeper_run, housekeeper);
    if (failed) {
        free(housekeeper);
        return err_set(ERR_INTERNAL, "The housekeeper's thread cannot be started: %s.", strerror(failed));
    }
    *out = housekeeper;
    return 0;
}

void housekeeper_free(struct housekeeper *housekeeper)
{
    if (!housekeeper)
        return;
    pthread_mutex_lock(&housekeeper->lock);
    housekeeper->stopping = true;
    pthread_cond_signal(&housekeeper->stop);
    pthread_mutex_unlock(&housekeeper->lock);
    pthread_join(housekeeper->thread, NULL);
    pthread_cond_destroy(&housekeeper->stop);
    pthread_mutex_destroy(&housekeeper->lock);
    free(housekeeper);
}
