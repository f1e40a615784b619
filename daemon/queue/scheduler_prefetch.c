/* PREFETCH in scheduler.h. */
#include "daemon/queue/scheduler_inside.h"

#include <string.h>
#include <unistd.h>

json_t *prefetch_ids(const struct scheduler *scheduler, bool busy)
{
    json_t *ids = json_array();
    for (int i = 0; i < scheduler->count; i++) {
        const struct worker *worker = &scheduler->slot[i].worker;
        if (*worker->prefetched && (!busy || worker->state == WORKER_BUSY))
            json_array_append_new(ids, json_string(worker->prefetched));
    }
    return ids;
}

json_t *later_ids(const struct scheduler *scheduler)
{
    json_t *ids = prefetch_ids(scheduler, true), *put_back = put_back_ids(scheduler, true);
    json_array_extend(ids, put_back);
    json_decref(put_back);
    for (int i = 0; i < scheduler->count; i++) {
        const char *id;
        json_t *value;
        json_object_foreach (scheduler->slot[i].died_of, id, value) {
            json_array_append_new(ids, json_string(id));
        }
    }
    return ids;
}

/* ---- hints ---- */

static void prefetch_send(struct scheduler *scheduler, struct worker_slot *slot, const struct job *job, int scan,
                          enum wire_arriving arriving, bool of_row)
{
    int64_t shown = 0, most;
    if (strcmp(slot->worker.suspect, job->id) == 0)
        return;
    const int live = live_file(scheduler->core.live, job->id, &shown);
    json_t *files = results_names(job);
    json_t *room = results_room(scheduler, job, &most);
    ready_files_make(scheduler, slot, job, files, most);
    worker_prepare(&slot->worker, job, files, *slot->ready.id ? slot->ready.files : NULL, room, scan, arriving, live,
                   shown);
    json_decref(room);
    json_decref(files);
    if (live >= 0)
        close(live);
    slot->worker.prefetched_early = of_row;
}

void announcement_clear(struct announcement *announcement)
{
    if (*announcement->job.id)
        close(announcement->scan);
    job_clear(&announcement->job);
}

void prefetch_retracted(struct scheduler *scheduler)
{
    pthread_mutex_lock(&scheduler->lock);
    json_t *retracted = scheduler->retracted;
    scheduler->retracted = NULL;
    pthread_mutex_unlock(&scheduler->lock);
    for (int i = 0; retracted && i < scheduler->count; i++)
        if (json_object_get(retracted, scheduler->slot[i].worker.prefetched))
            worker_forget(&scheduler->slot[i].worker);
    json_decref(retracted);
}

/* Whether the worker may take the announced scan: a file that still arrives keeps no complete one from a worker. */
static bool may_take(const struct worker *worker, const struct announcement *announced)
{
    return !*worker->prefetched || (worker->prefetched_file && announced->arriving == ARRIVING_NOT);
}

/* Take the announcement, and find its worker in this state; NULL: there is none. */
static struct worker_slot *announcement_take(struct scheduler *scheduler, enum worker_state state,
                                             struct announcement *next)
{
    struct worker_slot *best = NULL;
    bool idle = false;
    pthread_mutex_lock(&scheduler->lock);
    for (int i = 0; i < scheduler->count; i++) {
        struct worker_slot *slot = &scheduler->slot[i];
        if (!may_take(&slot->worker, &scheduler->announced))
            continue;
        idle = idle || slot->worker.state == WORKER_IDLE;
        if (slot->worker.state == state && slot_better(slot, best))
            best = slot;
    }
    /* What was announced after this turn asked the idle workers, they get in the next one. */
    if (state == WORKER_IDLE ? best != NULL : !idle) {
        *next = scheduler->announced;
        scheduler->announced = (struct announcement){.scan = -1};
    }
    pthread_mutex_unlock(&scheduler->lock);
    /* A busy worker's next scan is one that is there. */
    return state == WORKER_BUSY && next->arriving == ARRIVING_FILE ? NULL : best;
}

void prefetch_announced(struct scheduler *scheduler, enum worker_state state)
{
    struct announcement next = {.scan = -1};
    prefetch_retracted(scheduler);
    struct worker_slot *best = announcement_take(scheduler, state, &next);
    for (int i = 0; i < scheduler->count; i++) /* it may have been announced when it began to arrive, too */
        if (*next.job.id && strcmp(scheduler->slot[i].worker.prefetched, next.job.id) == 0) {
            scheduler->slot[i].worker.prefetched_file = false;
            best = NULL;
        }
    if (*next.job.id && best)
        prefetch_send(scheduler, best, &next.job, next.scan, next.arriving, true);
    announcement_clear(&next);
}

/* Workers forget the scans of jobs that were canceled or deleted. */
static void forget_gone(struct scheduler *scheduler)
{
    for (int i = 0; i < scheduler->count; i++) {
        struct worker *worker = &scheduler->slot[i].worker;
        struct job job = {.state = JOB_QUEUED};
        if (!*worker->prefetched)
            continue;
        int rc = store_get(scheduler->core.store, worker->prefetched, &job);
        if (!rc)
            worker->prefetched_early = false;
        if (rc == ERR_NOT_FOUND ? !worker->prefetched_early : !rc && job.state != JOB_QUEUED)
            worker_forget(worker);
        job_clear(&job);
    }
}

void prefetch_claimed(struct scheduler *scheduler, struct worker_slot *slot)
{
    struct announcement begun = {.scan = -1};
    /* A worker that were told to prepare the job that it runs would drop what it has computed of it. */
    pthread_mutex_lock(&scheduler->lock);
    if (strcmp(scheduler->announced.job.id, slot->running.job.id) == 0) {
        begun = scheduler->announced;
        scheduler->announced = (struct announcement){.scan = -1};
    }
    pthread_mutex_unlock(&scheduler->lock);
    announcement_clear(&begun);
    for (int i = 0; i < scheduler->count; i++) {
        struct worker *worker = &scheduler->slot[i].worker;
        if (strcmp(worker->prefetched, slot->running.job.id) == 0 ? worker != &slot->worker : worker == &slot->worker)
            worker_forget(worker);
    }
    slot->worker.prefetched[0] = '\0';
}

void prefetch_next(struct scheduler *scheduler)
{
    if (scheduler->prefetch_pending)
        forget_gone(scheduler);
    for (int i = 0; i < scheduler->count && scheduler->prefetch_pending && scheduler->stopping == RUNNING; i++) {
        struct worker_slot *slot = &scheduler->slot[i];
        if (slot->worker.state != WORKER_BUSY || *slot->worker.prefetched)
            continue;
        struct job job;
        json_t *avoid = prefetch_ids(scheduler, false), *put_back = put_back_ids(scheduler, false);
        json_array_extend(avoid, put_back);
        json_decref(put_back);
        if (store_peek(scheduler->core.store, avoid, &job, &scheduler->prefetch_pending) != 0)
            scheduler->prefetch_pending = false;
        json_decref(avoid);
        if (!scheduler->prefetch_pending)
            return;
        int scan;
        if (spool_open(scheduler->core.spool, job.id, &scan) == 0) {
            prefetch_send(scheduler, slot, &job, scan, ARRIVING_NOT, false);
            close(scan);
        }
        job_clear(&job);
    }
    scheduler->prefetch_pending = false;
}

void scheduler_announce(struct scheduler *scheduler, const struct job *job, int scan, enum wire_arriving arriving)
{
    struct announcement fresh = {
        .job = {.parameters = json_deep_copy(job->parameters), .formats = json_deep_copy(job->formats)},
        .scan = scan,
        .arriving = arriving};
    memcpy(fresh.job.id, job->id, sizeof fresh.job.id);
    memcpy(fresh.job.kind, job->kind, sizeof fresh.job.kind);
    pthread_mutex_lock(&scheduler->lock);
    struct announcement before = scheduler->announced;
    scheduler->announced = fresh;
    pthread_mutex_unlock(&scheduler->lock);
    announcement_clear(&before);
    scheduler_wake(scheduler);
}

void scheduler_retract(struct scheduler *scheduler, const char *id)
{
    pthread_mutex_lock(&scheduler->lock);
    if (strcmp(scheduler->announced.job.id, id) == 0)
        announcement_clear(&scheduler->announced);
    if (!scheduler->retracted)
        scheduler->retracted = json_object();
    json_object_set_new(scheduler->retracted, id, json_true());
    pthread_mutex_unlock(&scheduler->lock);
    scheduler_wake(scheduler);
}
