/* Result files of a job that has not begun: made, given to a worker, and published when it has computed the job ahead.
 */
#include "daemon/queue/scheduler_inside.h"

#include <string.h>
#include <unistd.h>

/* ---- before they are written ---- */

static void ready_files_close(struct ready_files *ready)
{
    for (size_t i = 0; ready->open && i < json_array_size(ready->names); i++)
        close(ready->files[i]);
    ready->open = false;
}

static void ready_files_clear(struct ready_files *ready)
{
    ready_files_close(ready);
    json_decref(ready->names);
    json_decref(ready->results);
    json_decref(ready->report);
    *ready = (struct ready_files){.names = NULL};
}

static void ready_files_drop(struct scheduler *scheduler, struct worker_slot *slot)
{
    struct ready_files *ready = &slot->ready;
    if (!*ready->id)
        return;
    if (ready->report) {
        early_end(scheduler, early_place(slot, EARLY_READY));
        spool_results_remove(scheduler->core.spool, ready->id);
        waiters_wake(scheduler->core.waiters, ready->id); /* requests that wait for its end see what is true */
    } else {
        spool_results_unmake(scheduler->core.spool, ready->id);
    }
    ready_files_clear(ready);
}

/* Another worker may have written to its own files of this job. */
static void others_drop(struct scheduler *scheduler, const struct worker_slot *slot, const char *id)
{
    for (int i = 0; i < scheduler->count; i++)
        if (strcmp(scheduler->slot[i].ready.id, id) == 0 && &scheduler->slot[i] != slot)
            ready_files_drop(scheduler, &scheduler->slot[i]);
}

void ready_files_make(struct scheduler *scheduler, struct worker_slot *slot, const struct job *job, json_t *names,
                      int64_t most)
{
    struct ready_files *ready = &slot->ready;
    const struct kind *kind = kind_find(job->kind);
    ready_files_drop(scheduler, slot);
    /* A worker that forgot the scan in this turn still has files of the same names. */
    others_drop(scheduler, slot, job->id);
    if (scheduler->held || !kind)
        return;
    if (spool_results_begin(scheduler->core.spool, job->id, names, ready->files) != 0) {
        spool_results_unmake(scheduler->core.spool, job->id);
        return;
    }
    memcpy(ready->id, job->id, sizeof ready->id);
    ready->names = json_incref(names);
    ready->open = true;
    ready->kind = kind;
    ready->wanted = kind_results_wanted(kind, job_results_asked(job));
    ready->most = most;
}

int ready_files_take(struct scheduler *scheduler, struct worker_slot *slot, const char *id, const json_t *names,
                     int files[KIND_MAX_FILES])
{
    struct ready_files *ready = &slot->ready;
    others_drop(scheduler, slot, id);
    if (strcmp(ready->id, id) != 0 || ready->report || !json_equal(ready->names, names)) {
        ready_files_drop(scheduler, slot);
        return spool_results_begin(scheduler->core.spool, id, names, files);
    }
    memcpy(files, ready->files, sizeof ready->files);
    ready->open = false;
    ready_files_clear(ready);
    return 0;
}

void ready_files_tidy(struct scheduler *scheduler)
{
    for (int i = 0; i < scheduler->count; i++)
        if (strcmp(scheduler->slot[i].ready.id, scheduler->slot[i].worker.prefetched) != 0)
            ready_files_drop(scheduler, &scheduler->slot[i]);
}

/* ---- written ---- */

void ready_files_made(struct scheduler *scheduler, struct worker_slot *slot, json_t *report)
{
    struct ready_files *ready = &slot->ready;
    const struct core *core = &scheduler->core;
    json_t *results = NULL;
    if (!ready->open)
        return;
    ready_files_close(ready);
    /* After any failure the job is given to the worker when its turn comes, and the worker tells what is wrong. */
    if (!spool_results_released(core->spool, ready->id) ||
        spool_results_publish(core->spool, ready->id, ready->kind, ready->wanted, &results) != 0) {
        ready_files_drop(scheduler, slot);
        return;
    }
    ready->results = results;
    ready->report = json_incref(report);
    if (results_check(results, ready->most) != 0)
        ready_files_drop(scheduler, slot);
    else if (!scheduler->held && scheduler->stopping == RUNNING)
        early_show(scheduler, early_place(slot, EARLY_READY), ready->id, report);
}

bool ready_files_end(struct scheduler *scheduler, struct worker_slot *slot, const json_t *names, int64_t most)
{
    struct ready_files *ready = &slot->ready;
    struct assignment *assignment = &slot->running;
    if (strcmp(ready->id, assignment->job.id) != 0 || !ready->report || !json_equal(ready->names, names) ||
        results_check(ready->results, most) != 0)
        return false;
    assignment->most = most;
    assignment->results = json_incref(ready->results);
    assignment->report = json_incref(ready->report);
    assignment->outcome = OUTCOME_DONE;
    early_show(scheduler, early_place(slot, EARLY_RUNNING), ready->id, ready->report);
    ready_files_clear(ready);
    return true;
}
