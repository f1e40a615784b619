/* How a job ends: its files to their place, its row in the store, and who waits is told. */
#include "daemon/base/clock.h"
#include "daemon/queue/scheduler_inside.h"

#include <stdio.h>
#include <string.h>

#define KEPT_SECONDS 3.0 /* s that a worker may have a result open after it said that it is complete */

#define PUT_BACK_FIRST 1.0    /* s until a job that was put back may be begun again, the first time */
#define PUT_BACK_LAST  60.0   /* s, after many times */
#define PUT_BACK_KNOWN 3600.0 /* s after which that is forgotten: the job was canceled meanwhile, or never came */

static void forget_run(struct scheduler *scheduler, struct slot *slot, struct run *run)
{
    job_clear(&run->job);
    json_decref(run->results);
    json_decref(run->report);
    *run = (struct run){.outcome = OUTCOME_NONE};
    if (run == &slot->running && slot->worker.state == WORKER_BUSY)
        slot->worker.state = WORKER_IDLE;
    slot_publish(scheduler, slot);
}

/* `code`: of its failure; 0: it succeeded. */
static void drop_scan(struct scheduler *scheduler, const char *id, int code)
{
    int64_t keep = scheduler->core.options->keep_scans;
    if (!store_scan_outlives(code) && (keep == KEEP_NONE || (keep == KEEP_FAILED && !code)))
        spool_remove(scheduler->core.spool, id);
}

/* The least of these that is one. */
static void least_take(int64_t value, const char *name, int64_t *least, const char **of)
{
    if (value > 0 && (*least == 0 || value < *least)) {
        *least = value;
        *of = name;
    }
}

json_t *results_room(const struct scheduler *scheduler, int64_t *most)
{
    const struct core *core = &scheduler->core;
    int64_t now = 0, ever = 0;
    const char *of = "";
    *most = 0;
    least_take(core->options->result_limit, "option result-limit", most, &of);
    least_take(core->options->client_bytes, "option client-bytes", most, &of);
    if (spool_results_room(core->spool, core->options->work_reserve, &now, &ever) == 0) {
        least_take(ever > 0 ? ever : 1, "the size of the disk", most, &of);
        now = now > 0 ? now : 1;
    }
    return json_pack("{s:I, s:s, s:I}", "most", (json_int_t)*most, "most_of", of, "free", (json_int_t)now);
}

/* A worker that was asked to keep to the room and did not is not to be believed. */
static int results_check(const struct run *run)
{
    int64_t sum = 0;
    size_t i;
    json_t *result;
    json_array_foreach (run->results, i, result)
        sum += json_integer_value(json_object_get(result, "bytes"));
    return run->most <= 0 || sum <= run->most
               ? 0
               : err_set_bytes(ERR_INTERNAL, sum, run->most,
                               "The worker wrote %lld bytes of results, and was to write %lld at most. This is a fault "
                               "of the server.",
                               (long long)sum, (long long)run->most);
}

/* The job's files are in their place, then its row says so. */
static int finish_done(struct scheduler *scheduler, struct run *run)
{
    const struct core *core = &scheduler->core;
    const char *id = run->job.id;
    int rc = run->results ? 0 : spool_results_finish(core->spool, id, &run->results);
    if (!rc)
        rc = results_check(run);
    if (rc) {
        run->outcome = disk_is_cause(rc) ? OUTCOME_SHORT : OUTCOME_FAILED;
        run->failure = *err_last();
        return rc;
    }
    rc = store_succeed(core->store, id, run->results, run->report);
    if (rc)
        return rc;
    double seconds = clock_seconds() - run->started;
    metrics_succeeded(core->metrics, run->job.kind, seconds, run->report);
    log_line_about(core->log, LOG_LEVEL_INFO, &(struct log_about){id, run->job.client, 0}, "succeeded in %.3f s on %s",
                   seconds, run->device);
    return 0;
}

static int finish_failed(struct scheduler *scheduler, struct run *run)
{
    const struct core *core = &scheduler->core;
    const char *id = run->job.id;
    bool canceled = run->cancel_at > 0 && !run->timed_out;
    if (run->timed_out)
        run->failure = (struct err){.code = ERR_TIMEOUT, .acquisition = -1, .required = -1, .available = -1};
    if (run->timed_out)
        snprintf(run->failure.text, sizeof run->failure.text,
                 "The job ran longer than %lld s, the limit of this server (option job-time-limit).",
                 (long long)core->options->job_time_limit);
    /* First, for it may be what filled the disk that the row is to be written to. */
    spool_results_remove(core->spool, id);
    int rc = canceled         ? store_canceled(core->store, id)
             : run->scan_lost ? store_fail_lost(core->store, id, &run->failure)
                              : store_fail(core->store, id, &run->failure);
    if (rc)
        return rc;
    double seconds = clock_seconds() - run->started;
    if (canceled)
        metrics_canceled(core->metrics);
    else
        metrics_failed(core->metrics, run->job.kind, run->failure.code, seconds);
    const struct log_about about = {id, run->job.client, canceled ? 0 : run->failure.code};
    log_line_about(core->log, LOG_LEVEL_INFO, &about, "%s after %.3f s%s%s", canceled ? "canceled" : "failed", seconds,
                   canceled ? "" : ": ", canceled ? "" : err_name(run->failure.code));
    return 0;
}

/* SHORTAGES: the job waits for the disk, and a while longer each time. */
static void put_back(struct scheduler *scheduler, const struct run *run)
{
    const char *id = run->job.id;
    double now = clock_seconds();
    const json_t *before = json_object_get(scheduler->put_back, id);
    double pause = 2 * json_number_value(json_object_get(before, "pause"));
    pause = pause < PUT_BACK_FIRST ? PUT_BACK_FIRST : pause > PUT_BACK_LAST ? PUT_BACK_LAST : pause;
    json_object_set_new(scheduler->put_back, id, json_pack("{s:f, s:f}", "until", now + pause, "pause", pause));
    const char *known;
    json_t *entry;
    void *next;
    json_object_foreach_safe(scheduler->put_back, next, known,
                             entry) if (now > json_number_value(json_object_get(entry, "until")) + PUT_BACK_KNOWN)
        json_object_del(scheduler->put_back, known);
    spool_suspect(scheduler->core.spool);
    metrics_put_back(scheduler->core.metrics, run->failure.code);
    const struct log_about about = {id, run->job.client, run->failure.code};
    log_line_about(scheduler->core.log, LOG_LEVEL_WARNING, &about,
                   "queued again, tried after %g s, for it is not at fault: %s", pause, run->failure.text);
}

json_t *put_back_ids(const struct scheduler *scheduler, bool all)
{
    json_t *ids = json_array(), *entry;
    const char *id;
    json_object_foreach (scheduler->put_back, id, entry)
        if (all || clock_seconds() < json_number_value(json_object_get(entry, "until")))
            json_array_append_new(ids, json_string(id));
    return ids;
}

/* Back into the queue, unless a cancel or the second death says otherwise. */
static int finish_requeue(struct scheduler *scheduler, struct run *run)
{
    const struct core *core = &scheduler->core;
    const char *id = run->job.id;
    bool died = run->outcome == OUTCOME_DIED;
    if (run->cancel_at > 0 || (died && run->job.deaths > 0)) {
        run->outcome = OUTCOME_FAILED;
        return finish_failed(scheduler, run);
    }
    spool_results_remove(core->spool, id);
    bool is_short = run->outcome == OUTCOME_SHORT;
    int rc = store_requeue(core->store, id, died ? REQUEUE_DIED : is_short ? REQUEUE_SHORT : REQUEUE_STOPPED);
    if (rc == ERR_CONFLICT) { /* somebody canceled it meanwhile */
        run->cancel_at = clock_seconds();
        run->outcome = OUTCOME_FAILED;
        return finish_failed(scheduler, run);
    }
    if (rc)
        return rc;
    if (died)
        metrics_retried(core->metrics);
    if (is_short)
        put_back(scheduler, run);
    else
        log_line(core->log, LOG_LEVEL_INFO, id, "queued again");
    return 0;
}

/* Whether what was said to be complete can still be written to. A process that the worker is just starting has its
 * files for a moment; one that was taken over keeps them, is killed, and the job is repeated. */
static bool is_kept(struct scheduler *scheduler, struct slot *slot, struct run *run)
{
    double now = clock_seconds();
    if (spool_results_released(scheduler->core.spool, run->job.id))
        return false;
    if (run->kept <= 0)
        run->kept = now;
    if (now - run->kept < KEPT_SECONDS) {
        run->finish_at = now + STORE_RETRY_SECONDS;
        return true;
    }
    /* Another job that it has by now is not to blame. */
    if (run != &slot->running && *slot->running.job.id && slot->running.outcome == OUTCOME_NONE)
        slot->running.outcome = OUTCOME_REQUEUE;
    slot_end(scheduler, slot, "still had a completed result open for writing and was killed");
    err_set(ERR_WORKER_DIED,
            "The worker process that ran the job could still change its result when it was done, twice. The server's "
            "log may say more.");
    run->failure = *err_last();
    run->outcome = OUTCOME_DIED;
    return false;
}

static void finish_run(struct scheduler *scheduler, struct slot *slot, struct run *run)
{
    static int (*const how[])(struct scheduler *, struct run *) = {[OUTCOME_DONE] = finish_done,
                                                                   [OUTCOME_FAILED] = finish_failed,
                                                                   [OUTCOME_DIED] = finish_requeue,
                                                                   [OUTCOME_SHORT] = finish_requeue,
                                                                   [OUTCOME_REQUEUE] = finish_requeue};
    const struct core *core = &scheduler->core;
    if (run->outcome == OUTCOME_NONE || clock_seconds() < run->finish_at)
        return;
    if (run->outcome == OUTCOME_DONE && !run->results && is_kept(scheduler, slot, run))
        return;
    enum outcome before = run->outcome;
    int rc = how[before](scheduler, run);
    if (rc && run->outcome != before) /* a success that could not be kept is a failure */
        rc = how[run->outcome](scheduler, run);
    if (rc && rc != ERR_CONFLICT) {
        log_line(core->log, LOG_LEVEL_ERROR, run->job.id, "its outcome cannot be stored, retrying: %s",
                 err_last()->text);
        run->finish_at = clock_seconds() + STORE_RETRY_SECONDS;
        return;
    }
    if (rc)
        log_line(core->log, LOG_LEVEL_ERROR, run->job.id, "%s", err_last()->text);
    char id[JOB_ID];
    bool canceled = run->cancel_at > 0 && !run->timed_out;
    int code = run->outcome == OUTCOME_DONE ? 0 : canceled ? ERR_CANCELED : run->failure.code;
    bool ended = run->outcome == OUTCOME_DONE || run->outcome == OUTCOME_FAILED;
    memcpy(id, run->job.id, sizeof id);
    forget_run(scheduler, slot, run);
    waiters_wake(core->waiters, id);
    if (ended) {
        json_object_del(scheduler->put_back, id);
        drop_scan(scheduler, id, code);
    }
}

bool slot_move_on(struct scheduler *scheduler, struct slot *slot)
{
    if (slot->running.outcome == OUTCOME_NONE || *slot->ending.job.id)
        return false;
    slot->ending = slot->running;
    slot->running = (struct run){.outcome = OUTCOME_NONE};
    if (slot->worker.state == WORKER_BUSY)
        slot->worker.state = WORKER_IDLE;
    slot_publish(scheduler, slot);
    return true;
}

void slot_finish(struct scheduler *scheduler, struct slot *slot)
{
    finish_run(scheduler, slot, &slot->ending);
    if (slot_move_on(scheduler, slot))
        finish_run(scheduler, slot, &slot->ending);
}
