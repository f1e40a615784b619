#include "daemon/queue/jobs.h"

#include "daemon/base/clock.h"
#include "daemon/spool/uploads.h"

enum { TOGETHER = 64 }; /* jobs read from the store at a time */

int job_cancel(const struct core *core, struct scheduler *scheduler, const char *id, enum job_state *state)
{
    enum job_state before;
    int rc = store_cancel(core->store, id, &before, state);
    if (rc)
        return rc;
    if (*state == JOB_CANCELED && before == JOB_QUEUED) {
        /* The scheduler never had it. */
        metrics_canceled(core->metrics);
        if (core->options->keep_scans == KEEP_NONE)
            spool_remove(core->spool, id);
        spool_checkpoint_remove(core->spool, id);
        waiters_wake(core->waiters, id);
        /* A worker may have its scan. The scheduler would not find that by the row if it is deleted before its turn. */
        scheduler_retract(scheduler, id);
    }
    scheduler_wake(scheduler);
    return 0;
}

int jobs_remove(const struct core *core, char (*ids)[JOB_ID], int count, int *removed)
{
    int gone = 0, rc = 0;
    for (int i = 0; !rc && i < count; i++)
        rc = upload_forget(core->spool, ids[i]);
    if (!rc)
        rc = spool_uploads_settle(core->spool);
    if (!rc)
        rc = store_delete_all(core->store, ids, count, &gone);
    for (int i = 0; !rc && i < count; i++) {
        if (!*ids[i])
            continue;
        spool_remove(core->spool, ids[i]);
        spool_results_remove(core->spool, ids[i]);
    }
    *removed += gone;
    return rc;
}

int jobs_purge(const struct core *core, int64_t age, int state, int *removed)
{
    char ids[TOGETHER][JOB_ID];
    int64_t now = clock_milliseconds();
    int count, rc = store_ended(core->store, now - 1000 * age, state, ids, 1, &count);
    *removed = 0;
    if (rc || !count) /* the usual case: no need for the store's writer */
        return rc;
    rc = store_time(core->store, &now);
    for (count = TOGETHER; !rc && count == TOGETHER;) {
        rc = store_ended(core->store, now - 1000 * age, state, ids, TOGETHER, &count);
        if (!rc)
            rc = jobs_remove(core, ids, count, removed);
    }
    return rc;
}

int64_t jobs_keep_bytes(const struct options *options, const struct spool *spool)
{
    int64_t most = options->keep_bytes, bytes, free;
    if (most >= 0)
        return most;
    /* If the size of the disk is unknown, nothing is removed. */
    return spool_disk(spool, &bytes, &free) ? 0 : bytes / 100 * -most;
}
