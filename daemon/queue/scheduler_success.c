/* A success: the results are published, shown (EARLY) and synced, then its row is committed. */
#include "daemon/queue/scheduler_inside.h"

#include <stddef.h>

int results_check(const json_t *results, int64_t most)
{
    int64_t sum = 0;
    size_t i;
    json_t *result;
    json_array_foreach (results, i, result)
        sum += json_integer_value(json_object_get(result, "bytes"));
    return most <= 0 || sum <= most
               ? 0
               : err_set_bytes(ERR_INTERNAL, sum, most,
                               "The worker wrote %lld bytes of results, but had announced at most %lld. This is a bug "
                               "in the server.",
                               (long long)sum, (long long)most);
}

void job_scan_drop(const struct scheduler *scheduler, const char *id, int code)
{
    int64_t keep = scheduler->core.options->keep_scans;
    spool_checkpoint_remove(scheduler->core.spool, id);
    if (!store_scan_outlives(code) && (keep == KEEP_NONE || (keep == KEEP_FAILED && !code)))
        spool_remove(scheduler->core.spool, id);
}

/* Put the results in their place. */
static int results_publish(const struct scheduler *scheduler, struct assignment *assignment)
{
    const struct kind *kind = kind_find(assignment->job.kind);
    const unsigned wanted = kind ? kind_results_wanted(kind, job_results_asked(&assignment->job)) : 0;
    json_t *results = NULL;
    int rc = spool_results_publish(scheduler->core.spool, assignment->job.id, kind, wanted, &results);
    if (!rc)
        rc = results_check(results, assignment->most);
    if (rc)
        json_decref(results);
    else
        assignment->results = results;
    return rc;
}

/* The results are on the disk before the row says so. In a thread of its own: the disk may keep it waiting. */
static void success_store(struct pool_task *task)
{
    struct storing *storing = (struct storing *)((char *)task - offsetof(struct storing, task));
    struct scheduler *scheduler = storing->scheduler;
    struct assignment *assignment = storing->assignment;
    const struct core *core = &scheduler->core;
    const char *id = assignment->job.id;
    int rc = assignment->synced ? 0 : spool_results_sync(core->spool, id);
    assignment->synced = !rc;
    if (!rc)
        rc = store_succeed(core->store, id, assignment->results, assignment->report);
    if (rc)
        assignment->failure = *err_last();
    assignment->stored = rc;
    early_end(scheduler, storing->place);
    waiters_wake(core->waiters, id);
    if (!rc || rc == ERR_CONFLICT)
        job_scan_drop(scheduler, id, 0); /* takes some file systems milliseconds */
    storing->state = STORING_OVER;       /* from here on the assignment belongs to the scheduler's thread */
    scheduler_wake(scheduler);
}

bool success_is_stored(struct scheduler *scheduler, struct worker_slot *slot)
{
    struct storing *storing = &slot->storing;
    struct assignment *assignment = &slot->ending;
    if (storing->state == STORING_NOT) {
        assignment->stored = assignment->results ? 0 : results_publish(scheduler, assignment);
        if (assignment->stored) {
            assignment->failure = *err_last();
            return true;
        }
        if (!assignment->synced)
            early_show(scheduler, early_place(slot, EARLY_ENDING), assignment->job.id, assignment->report);
        storing->task.run = success_store;
        storing->scheduler = scheduler;
        storing->assignment = assignment;
        storing->place = early_place(slot, EARLY_ENDING);
        storing->state = STORING_BEGUN;
        if (!pool_run(scheduler->storers, &storing->task, "results")) /* closed: the service stops */
            success_store(&storing->task);
    }
    if (storing->state == STORING_BEGUN)
        return false;
    storing->state = STORING_NOT;
    return true;
}
