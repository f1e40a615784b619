/* The end of a job: its results are published, its row updated, waiting requests woken. */
#include "daemon/base/clock.h"
#include "daemon/queue/scheduler_inside.h"

#include <stdio.h>
#include <string.h>

#define KEPT_SECONDS 3.0 /* s that a worker may keep a result open after reporting it complete */

#define PUT_BACK_FIRST 1.0    /* s of back-off of a job that was put back, the first time */
#define PUT_BACK_LAST  60.0   /* s, after many times */
#define PUT_BACK_KNOWN 3600.0 /* s after which an entry is dropped: the job was canceled meanwhile */

static void assignment_forget(struct scheduler *scheduler, struct worker_slot *slot, struct assignment *assignment)
{
    job_clear(&assignment->job);
    json_decref(assignment->results);
    json_decref(assignment->report);
    *assignment = (struct assignment){.outcome = OUTCOME_NONE};
    if (assignment == &slot->running && slot->worker.state == WORKER_BUSY)
        slot->worker.state = WORKER_IDLE;
    slot_publish(scheduler, slot);
}

static void file_add(json_t *files, const struct kind *kind, struct result_file file)
{
    char name[KIND_FILE_NAME];
    kind_file_name(kind, file, name);
    json_array_append_new(files, json_string(name));
}

json_t *results_names(const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    const char *asked = job_results_asked(job);
    json_t *files = json_array(), *format;
    size_t i;
    if (!kind)
        return files;
    const int first = kind_result_default(kind, asked);
    for (int r = first; kind->results[r].name; r++) /* none that is wanted is before the default one */
        if (kind_results_wanted(kind, asked) >> r & 1)
            file_add(files, kind, (struct result_file){r, 0});
    json_array_foreach (job->formats, i, format) {
        const char *name = json_string_value(format);
        const int found = name ? form_format_find(kind->results[first].form, name) : -1;
        if (found > 0)
            file_add(files, kind, (struct result_file){first, found});
    }
    return files;
}

/* The least of the limits that apply. */
static void least_take(int64_t value, const char *name, int64_t *least, const char **of)
{
    if (value > 0 && (*least == 0 || value < *least)) {
        *least = value;
        *of = name;
    }
}

json_t *results_room(const struct scheduler *scheduler, const struct job *job, int64_t *most)
{
    const struct core *core = &scheduler->core;
    int64_t now = 0, ever = 0;
    const char *of = "";
    *most = 0;
    least_take(core->options->result_limit, "option result-limit", most, &of);
    if (job->quota.bytes > 0)
        least_take(job->quota.bytes, "bytes= of the client's token", most, &of);
    else
        least_take(core->options->client_bytes, "option client-bytes", most, &of);
    if (spool_results_room(core->spool, core->options->work_reserve, &now, &ever) == 0) {
        least_take(ever > 0 ? ever : 1, "the size of the disk", most, &of);
        now = now > 0 ? now : 1;
    }
    return json_pack("{s:I, s:s, s:I}", "most", (json_int_t)*most, "most_of", of, "free", (json_int_t)now);
}

static int finish_done(struct scheduler *scheduler, struct assignment *assignment)
{
    const struct core *core = &scheduler->core;
    if (assignment->stored && !assignment->synced)
        assignment->outcome = disk_is_cause(assignment->stored) ? OUTCOME_SHORT : OUTCOME_FAILED;
    if (assignment->stored)
        return err_restore(&assignment->failure);
    double seconds = clock_seconds() - assignment->started;
    metrics_succeeded(core->metrics, assignment->job.kind, seconds, assignment->report);
    log_line_about(core->log, LOG_LEVEL_INFO, &(struct log_about){assignment->job.id, assignment->job.client, 0},
                   "succeeded in %.3f s on %s", seconds, assignment->device);
    return 0;
}

static int finish_failed(struct scheduler *scheduler, struct assignment *assignment)
{
    const struct core *core = &scheduler->core;
    const char *id = assignment->job.id;
    bool canceled = assignment->cancel_at > 0 && !assignment->timed_out;
    if (assignment->timed_out)
        assignment->failure = (struct err){.code = ERR_TIMEOUT, .acquisition = -1, .required = -1, .available = -1};
    if (assignment->timed_out)
        snprintf(assignment->failure.text, sizeof assignment->failure.text,
                 "The job ran longer than %lld s, the limit of this server (option job-time-limit).",
                 (long long)core->options->job_time_limit);
    /* Before the row is written: the results may have filled its disk. */
    spool_results_remove(core->spool, id);
    int rc = canceled                ? store_canceled(core->store, id)
             : assignment->scan_lost ? store_fail_lost(core->store, id, &assignment->failure)
                                     : store_fail(core->store, id, &assignment->failure);
    if (rc)
        return rc;
    double seconds = clock_seconds() - assignment->started;
    if (canceled)
        metrics_canceled(core->metrics);
    else
        metrics_failed(core->metrics, assignment->job.kind, assignment->failure.code, seconds);
    const struct log_about about = {id, assignment->job.client, canceled ? 0 : assignment->failure.code};
    log_line_about(core->log, LOG_LEVEL_INFO, &about, "%s after %.3f s%s%s", canceled ? "canceled" : "failed", seconds,
                   canceled ? "" : ": ", canceled ? "" : err_name(assignment->failure.code));
    return 0;
}

/* SHORTAGES: back-off of the job, and the disk is probed. */
static void put_back(struct scheduler *scheduler, const struct assignment *assignment)
{
    const char *id = assignment->job.id;
    double now = clock_seconds();
    const json_t *before = json_object_get(scheduler->put_back, id);
    double pause = 2 * json_number_value(json_object_get(before, "pause"));
    pause = pause < PUT_BACK_FIRST ? PUT_BACK_FIRST : pause > PUT_BACK_LAST ? PUT_BACK_LAST : pause;
    json_object_set_new(scheduler->put_back, id, json_pack("{s:f, s:f}", "until", now + pause, "pause", pause));
    const char *known;
    json_t *entry;
    void *next;
    json_object_foreach_safe (scheduler->put_back, next, known, entry)
        if (now > json_number_value(json_object_get(entry, "until")) + PUT_BACK_KNOWN)
            json_object_del(scheduler->put_back, known);
    spool_suspect(scheduler->core.spool);
    metrics_put_back(scheduler->core.metrics, assignment->failure.code);
    const struct log_about about = {id, assignment->job.client, assignment->failure.code};
    log_line_about(scheduler->core.log, LOG_LEVEL_WARNING, &about,
                   "queued again, next try after %g s, not the job's fault: %s", pause, assignment->failure.text);
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

/* Queue the job again, unless it was canceled or this is its second death. */
static int finish_requeue(struct scheduler *scheduler, struct assignment *assignment)
{
    const struct core *core = &scheduler->core;
    const char *id = assignment->job.id;
    bool died = assignment->outcome == OUTCOME_DIED;
    if (assignment->cancel_at > 0 || (died && assignment->job.deaths > 0)) {
        assignment->outcome = OUTCOME_FAILED;
        return finish_failed(scheduler, assignment);
    }
    spool_results_remove(core->spool, id);
    bool is_short = assignment->outcome == OUTCOME_SHORT;
    int rc = store_requeue(core->store, id, died ? REQUEUE_DIED : is_short ? REQUEUE_SHORT : REQUEUE_STOPPED);
    if (rc == ERR_CONFLICT) { /* it was canceled meanwhile */
        assignment->cancel_at = clock_seconds();
        assignment->outcome = OUTCOME_FAILED;
        return finish_failed(scheduler, assignment);
    }
    if (rc)
        return rc;
    if (died)
        metrics_retried(core->metrics);
    if (is_short)
        put_back(scheduler, assignment);
    else
        log_line(core->log, LOG_LEVEL_INFO, id, "queued again");
    return 0;
}

/* Whether a result reported complete is still open for writing. A process that the worker is just forking has the files
 * for a moment; a compromised worker keeps them, is killed, and the job is repeated. */
static bool is_kept(struct scheduler *scheduler, struct worker_slot *slot, struct assignment *assignment)
{
    double now = clock_seconds();
    if (spool_results_released(scheduler->core.spool, assignment->job.id))
        return false;
    if (assignment->kept <= 0)
        assignment->kept = now;
    if (now - assignment->kept < KEPT_SECONDS) {
        assignment->finish_at = now + STORE_RETRY_SECONDS;
        return true;
    }
    /* The worker's next job is not at fault. */
    if (assignment != &slot->running && *slot->running.job.id && slot->running.outcome == OUTCOME_NONE)
        slot->running.outcome = OUTCOME_REQUEUE;
    slot_end(scheduler, slot, "still had a completed result open for writing and was killed");
    err_set(ERR_WORKER_DIED, "The worker process that ran the job could still change its result after it was done, "
                             "twice. The server's log may have details.");
    assignment->failure = *err_last();
    assignment->outcome = OUTCOME_DIED;
    return false;
}

static void assignment_finish(struct scheduler *scheduler, struct worker_slot *slot, struct assignment *assignment)
{
    static int (*const how[])(struct scheduler *, struct assignment *) = {[OUTCOME_DONE] = finish_done,
                                                                          [OUTCOME_FAILED] = finish_failed,
                                                                          [OUTCOME_DIED] = finish_requeue,
                                                                          [OUTCOME_SHORT] = finish_requeue,
                                                                          [OUTCOME_REQUEUE] = finish_requeue};
    const struct core *core = &scheduler->core;
    if (assignment->outcome == OUTCOME_NONE || clock_seconds() < assignment->finish_at)
        return;
    if (assignment->outcome == OUTCOME_DONE && !assignment->results && is_kept(scheduler, slot, assignment))
        return;
    if (assignment->outcome == OUTCOME_DONE && !success_is_stored(scheduler, slot))
        return;
    enum outcome before = assignment->outcome;
    int rc = how[before](scheduler, assignment);
    if (rc && assignment->outcome != before) /* a success whose results cannot be published is a failure */
        rc = how[assignment->outcome](scheduler, assignment);
    if (rc && rc != ERR_CONFLICT) {
        log_line(core->log, LOG_LEVEL_ERROR, assignment->job.id, "its outcome cannot be stored, retrying: %s",
                 err_last()->text);
        assignment->finish_at = clock_seconds() + STORE_RETRY_SECONDS;
        return;
    }
    if (rc)
        log_line(core->log, LOG_LEVEL_ERROR, assignment->job.id, "%s", err_last()->text);
    char id[JOB_ID];
    bool canceled = assignment->cancel_at > 0 && !assignment->timed_out;
    int code = assignment->outcome == OUTCOME_DONE ? 0 : canceled ? ERR_CANCELED : assignment->failure.code;
    bool ended = assignment->outcome == OUTCOME_DONE || assignment->outcome == OUTCOME_FAILED;
    memcpy(id, assignment->job.id, sizeof id);
    assignment_forget(scheduler, slot, assignment);
    waiters_wake(core->waiters, id);
    if (ended) {
        json_object_del(scheduler->put_back, id);
        if (code)
            job_scan_drop(scheduler, id, code);
    }
}

bool slot_move_on(struct scheduler *scheduler, struct worker_slot *slot)
{
    if (slot->running.outcome == OUTCOME_NONE || *slot->ending.job.id)
        return false;
    slot->ending = slot->running;
    slot->running = (struct assignment){.outcome = OUTCOME_NONE};
    if (slot->worker.state == WORKER_BUSY)
        slot->worker.state = WORKER_IDLE;
    slot_publish(scheduler, slot);
    return true;
}

void slot_finish(struct scheduler *scheduler, struct worker_slot *slot)
{
    assignment_finish(scheduler, slot, &slot->ending);
    if (slot_move_on(scheduler, slot))
        assignment_finish(scheduler, slot, &slot->ending);
}
