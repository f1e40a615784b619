/* The end of a worker, and whether the job or the device is at fault (FAULTS in scheduler.h). */
#include "daemon/base/child.h"
#include "daemon/base/clock.h"
#include "daemon/queue/scheduler_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BACKOFF_FIRST 2.0   /* s of back-off of a worker whose device is at fault, the first time */
#define BACKOFF_LAST  120.0 /* s, after many times */

/* The worker died of its job. If this is the second job since it last completed one, its device is suspected. */
static void device_suspect(struct scheduler *scheduler, struct worker_slot *slot)
{
    struct assignment *assignment = &slot->running;
    if (!slot->died_of)
        slot->died_of = json_object();
    json_object_set_new(slot->died_of, assignment->job.id, json_true());
    if (json_object_size(slot->died_of) < 2)
        return;
    assignment->outcome = OUTCOME_REQUEUE;
    slot->backoff = slot->backoff <= 0                 ? BACKOFF_FIRST
                    : slot->backoff * 2 < BACKOFF_LAST ? slot->backoff * 2
                                                       : BACKOFF_LAST;
    double until = clock_seconds() + slot->backoff;
    if (slot->worker.restart_at < until)
        slot->worker.restart_at = until;
    const char *reason = assignment->failure.code == ERR_DEVICE ? assignment->failure.text : slot->worker.note;
    snprintf(slot->why, sizeof slot->why, "backs off after repeated failures: %.*s", (int)sizeof slot->why - 40,
             reason);
    log_line(scheduler->core.log, LOG_LEVEL_ERROR, NULL,
             "device considered faulty, not the jobs: worker %d (%s) %s; next try in %g s, jobs stay in the queue",
             slot->worker.index, slot->worker.device, slot->why, slot->backoff);
}

void device_clear(struct scheduler *scheduler, struct worker_slot *slot)
{
    if (slot->backoff > 0)
        log_line(scheduler->core.log, LOG_LEVEL_INFO, NULL, "worker %d (%s) works again", slot->worker.index,
                 slot->worker.device);
    slot->backoff = 0;
    json_decref(slot->died_of);
    slot->died_of = NULL;
    worker_proved(&slot->worker);
}

/* Whether the worker may have died of the job that it had prefetched and computed ahead, not of this one, of which it
 * has reported nothing. That is assumed of each job only once. */
static bool died_ahead(const struct scheduler *scheduler, const struct assignment *assignment)
{
    return *assignment->ahead && !assignment->begun && !json_object_get(scheduler->died_on, assignment->job.id);
}

void slot_end(struct scheduler *scheduler, struct worker_slot *slot, const char *reason)
{
    char how[CHILD_HOW];
    worker_end(&slot->worker, how, sizeof how);
    snprintf(slot->worker.note, sizeof slot->worker.note, "%s", reason ? reason : how);
    bool expected = slot->running.cancel_at > 0 || slot->running.outcome != OUTCOME_NONE;
    if (*slot->running.job.id && slot->running.outcome == OUTCOME_NONE) {
        slot->running.outcome = OUTCOME_DIED;
        slot->running.finish_at = 0;
        err_set(ERR_WORKER_DIED,
                "The worker process that ran the job %s, twice. The scan or its parameters may need more than this "
                "server has; the server's log may have details.",
                slot->worker.note);
        slot->running.failure = *err_last();
    }
    if (slot->running.outcome == OUTCOME_DIED && slot->running.cancel_at == 0) {
        const bool ahead = died_ahead(scheduler, &slot->running);
        json_object_set_new(scheduler->died_on, slot->running.job.id, json_string(slot->worker.device));
        if (ahead) {
            slot->running.outcome = OUTCOME_REQUEUE;
            memcpy(slot->worker.suspect, slot->running.ahead, sizeof slot->worker.suspect);
        } else {
            device_suspect(scheduler, slot);
        }
    }
    log_line(scheduler->core.log, expected ? LOG_LEVEL_WARNING : LOG_LEVEL_ERROR,
             *slot->running.job.id ? slot->running.job.id : NULL, "worker %d %s; restarting in %.1f s",
             slot->worker.index, slot->worker.note, fmax(slot->worker.restart_at - clock_seconds(), 0));
    slot_publish(scheduler, slot);
}
