#include "daemon/queue/jobs.h"

enum { TOGETHER = 64 }; /* jobs looked at in one go */

int job_cancel(const struct scheduler_parts *parts, struct scheduler *scheduler, const char *id, enum job_state *state)
{
    enum job_state before;
    int result = store_cancel(parts->store, id, &before, state);
    if (result)
        return result;
    if (*state == JOB_CANCELED && before == JOB_QUEUED) {
        /* The scheduler never saw it. */
        metrics_canceled(parts->metrics);
        if (parts->options->keep_scans == KEEP_NONE)
            spool_remove(parts->spool, id);
        waiters_wake(parts->waiters, id);
    }
    scheduler_wake(scheduler);
    return 0;
}

int jobs_remove(const struct scheduler_parts *parts, char (*ids)[JOB_ID], int count, int *removed)
{
    int gone, result = store_delete_all(parts->store, ids, count, &gone);
    for (int i = 0; !result && i < count; i++) {
        spool_remove(parts->spool, ids[i]);
        spool_results_remove(parts->spool, ids[i]);
    }
    *removed += gone;
    return result;
}

int jobs_purge(const struct scheduler_parts *parts, int64_t age, int state, int *removed)
{
    char ids[TOGETHER][JOB_ID];
    int64_t now;
    int count = TOGETHER, result = store_time(parts->store, &now);
    *removed = 0;
    while (!result && count == TOGETHER) {
        result = store_ended(parts->store, now - 1000 * age, state, ids, TOGETHER, &count);
        if (!result)
            result = jobs_remove(parts, ids, count, removed);
    }
    return result;
}
