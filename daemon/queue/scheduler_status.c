#include "daemon/queue/scheduler_inside.h"

#include "recon/recon.h"

#include <string.h>
#include <sys/eventfd.h>

void slot_publish(struct scheduler *scheduler, const struct worker_slot *slot)
{
    struct worker_status *status = &scheduler->status[slot->worker.index];
    pthread_mutex_lock(&scheduler->lock);
    if (strcmp(status->job, slot->running.job.id) != 0)
        status->progress = (struct job_progress){.step = -1};
    status->state = slot->worker.state;
    status->gpu = slot->worker.gpu;
    status->landlock = slot->worker.landlock;
    memcpy(status->wanted, slot->worker.wanted, sizeof status->wanted);
    memcpy(status->device, slot->worker.device, sizeof status->device);
    status->resting = slot->backoff > 0;
    memcpy(status->note, status->resting ? slot->why : slot->worker.note, sizeof status->note);
    memcpy(status->job, slot->running.job.id, sizeof status->job);
    memcpy(status->client, slot->running.job.client, sizeof status->client);
    memcpy(status->kind, slot->running.job.kind, sizeof status->kind);
    memcpy(status->ending, slot->ending.job.id, sizeof status->ending);
    pthread_mutex_unlock(&scheduler->lock);
}

void slot_progress(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message)
{
    struct job_progress *progress = &scheduler->status[slot->worker.index].progress, said;
    const struct kind *kind = kind_find(slot->running.job.kind);
    const char *step = json_string_value(json_object_get(message, "step"));
    said.fraction = json_number_value(json_object_get(message, "fraction"));
    said.step = kind && step ? kind_step_find(kind, step) : -1;
    said.iteration = json_integer_value(json_object_get(message, "iteration"));
    said.iterations = json_integer_value(json_object_get(message, "iterations"));
    if (said.step < 0 || said.iteration < 0 || said.iteration > said.iterations)
        return;
    pthread_mutex_lock(&scheduler->lock);
    said.fraction = said.fraction < progress->fraction ? progress->fraction : said.fraction < 1 ? said.fraction : 1;
    said.told = progress->told + 1;
    /* An unchanged progress message is a sign of life, but no progress. */
    if (said.fraction > progress->fraction || said.step != progress->step || said.iteration != progress->iteration ||
        said.iterations != progress->iterations) {
        slot->running.progressed = slot->worker.heard;
        *progress = said;
    }
    pthread_mutex_unlock(&scheduler->lock);
}

void slot_memory(struct scheduler *scheduler, const struct worker_slot *slot, const json_t *message)
{
    struct worker_status *status = &scheduler->status[slot->worker.index];
    pthread_mutex_lock(&scheduler->lock);
    status->memory_available = json_integer_value(json_object_get(message, "memory_available"));
    status->memory_total = json_integer_value(json_object_get(message, "memory_total"));
    pthread_mutex_unlock(&scheduler->lock);
}

/* Under the lock. NULL: there is none. */
static struct shown *early_find(struct scheduler *scheduler, const char *id)
{
    for (int i = 0; i < EARLY_PLACES * WORKERS_MAX; i++)
        if (strcmp(scheduler->early[i].id, id) == 0)
            return &scheduler->early[i];
    return NULL;
}

void early_show(struct scheduler *scheduler, int place, const char *id, const json_t *report)
{
    struct shown early = {.warnings = json_deep_copy(json_object_get(report, "warnings"))}, old = {.id = ""};
    memcpy(early.id, id, sizeof early.id);
    pthread_mutex_lock(&scheduler->lock);
    struct shown *before = early_find(scheduler, id);
    if (before) {
        old = *before;
        *before = (struct shown){.id = ""};
    }
    early.told = old.told;
    scheduler->early[place] = early;
    pthread_mutex_unlock(&scheduler->lock);
    json_decref(old.warnings);
    waiters_wake(scheduler->core.waiters, id);
}

void early_end(struct scheduler *scheduler, int place)
{
    pthread_mutex_lock(&scheduler->lock);
    json_t *warnings = scheduler->early[place].warnings;
    scheduler->early[place] = (struct shown){.id = ""};
    pthread_mutex_unlock(&scheduler->lock);
    json_decref(warnings);
}

bool scheduler_early(struct scheduler *scheduler, const char *id)
{
    pthread_mutex_lock(&scheduler->lock);
    const bool early = early_find(scheduler, id) != NULL;
    pthread_mutex_unlock(&scheduler->lock);
    return early;
}

bool scheduler_early_tell(struct scheduler *scheduler, const char *id, json_t **warnings)
{
    pthread_mutex_lock(&scheduler->lock);
    struct shown *early = early_find(scheduler, id);
    if (early) {
        early->told = ++scheduler->early_told;
        *warnings = json_deep_copy(early->warnings);
    }
    pthread_mutex_unlock(&scheduler->lock);
    return early != NULL;
}

bool scheduler_early_told(struct scheduler *scheduler, const char *id, char out[JOB_ID])
{
    const struct shown *last = NULL;
    pthread_mutex_lock(&scheduler->lock);
    for (int i = 0; i < EARLY_PLACES * WORKERS_MAX; i++) {
        const struct shown *early = &scheduler->early[i];
        if (early->told > (last ? last->told : 0) && (!*id || strcmp(early->id, id) == 0))
            last = early;
    }
    if (last)
        memcpy(out, last->id, JOB_ID);
    pthread_mutex_unlock(&scheduler->lock);
    return last != NULL;
}

int scheduler_status(struct scheduler *scheduler, struct worker_status status[WORKERS_MAX])
{
    pthread_mutex_lock(&scheduler->lock);
    memcpy(status, scheduler->status, (size_t)scheduler->count * sizeof *status);
    pthread_mutex_unlock(&scheduler->lock);
    return scheduler->count;
}

bool scheduler_is_idle(struct scheduler *scheduler)
{
    bool idle = !scheduler->claiming; /* before the statuses, which show the claimed job once this is false again */
    pthread_mutex_lock(&scheduler->lock);
    for (int i = 0; i < scheduler->count; i++)
        idle = idle && !scheduler->status[i].job[0] && !scheduler->status[i].ending[0];
    pthread_mutex_unlock(&scheduler->lock);
    return idle;
}

bool scheduler_is_held(struct scheduler *scheduler)
{
    return scheduler->held;
}

int scheduler_held_check(struct scheduler *scheduler)
{
    if (!scheduler->held)
        return 0;
    int rc = spool_work_check(scheduler->core.spool, scheduler->core.options->work_reserve);
    if (rc)
        return rc;
    pthread_mutex_lock(&scheduler->lock);
    struct err by = scheduler->held_by;
    pthread_mutex_unlock(&scheduler->lock);
    return err_restore(&by);
}

void scheduler_wake(struct scheduler *scheduler)
{
    eventfd_write(scheduler->wake, 1);
}

double scheduler_turned(struct scheduler *scheduler)
{
    return scheduler->turned;
}
