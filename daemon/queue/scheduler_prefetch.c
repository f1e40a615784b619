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

/* ---- files that are ready ---- */

static void ready_files_close(struct ready_files *ready)
{
    for (size_t i = 0; i < json_array_size(ready->names); i++)
        close(ready->files[i]);
    json_decref(ready->names);
    *ready = (struct ready_files){.names = NULL};
}

static void ready_files_drop(const struct scheduler *scheduler, struct ready_files *ready)
{
    if (!*ready->id)
        return;
    spool_results_unmake(scheduler->core.spool, ready->id);
    ready_files_close(ready);
}

/* A failure is no harm: the job will report it, if it still fails then. */
static void ready_files_make(struct scheduler *scheduler, struct worker_slot *slot, const char *id, json_t *names)
{
    struct ready_files *ready = &slot->ready;
    ready_files_drop(scheduler, ready);
    /* A worker that forgot the scan in this turn still has files of the same names. */
    for (int i = 0; i < scheduler->count; i++)
        if (strcmp(scheduler->slot[i].ready.id, id) == 0)
            ready_files_drop(scheduler, &scheduler->slot[i].ready);
    if (scheduler->held)
        return;
    if (spool_results_begin(scheduler->core.spool, id, names, ready->files) != 0) {
        spool_results_unmake(scheduler->core.spool, id);
        return;
    }
    memcpy(ready->id, id, sizeof ready->id);
    ready->names = json_incref(names);
}

int ready_files_take(struct scheduler *scheduler, struct worker_slot *slot, const char *id, const json_t *names,
                     int files[KIND_MAX_FILES])
{
    struct ready_files *ready = &slot->ready;
    /* Another worker may have written to its own. */
    for (int i = 0; i < scheduler->count; i++)
        if (strcmp(scheduler->slot[i].ready.id, id) == 0 && &scheduler->slot[i] != slot)
            ready_files_drop(scheduler, &scheduler->slot[i].ready);
    if (strcmp(ready->id, id) != 0 || !json_equal(ready->names, names)) {
        ready_files_drop(scheduler, ready);
        return spool_results_begin(scheduler->core.spool, id, names, files);
    }
    memcpy(files, ready->files, sizeof ready->files);
    json_decref(ready->names);
    *ready = (struct ready_files){.names = NULL};
    return 0;
}

void ready_files_tidy(struct scheduler *scheduler)
{
    for (int i = 0; i < scheduler->count; i++) {
        struct worker_slot *slot = &scheduler->slot[i];
        if (strcmp(slot->ready.id, slot->worker.prefetched) != 0)
            ready_files_drop(scheduler, &slot->ready);
    }
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
    ready_files_make(scheduler, slot, job->id, files);
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

/* Workers forget the scans of retracted announcements. */
static void forget_retracted(struct scheduler *scheduler)
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
    forget_retracted(scheduler);
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
