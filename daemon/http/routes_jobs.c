/* Jobs: one, cancel, delete, purge. */
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"
#include "daemon/queue/jobs.h"
#include "daemon/http/problem.h"
#include "recon/recon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The progress that a worker reports for the job; false: no worker has it. */
static bool progress_of(struct service *service, const struct job *job, struct job_progress *out)
{
    struct worker_status status[WORKERS_MAX];
    int count = scheduler_status(service->scheduler, status);
    const struct kind *kind = kind_find(job->kind);
    for (int i = 0; i < count; i++) {
        if (strcmp(status[i].ending, job->id) == 0) {
            *out = (struct job_progress){1, kind ? kind_steps(kind) - 1 : -1, 0, 0, PROGRESS_TOLD_MOST};
            return true;
        }
        if (strcmp(status[i].job, job->id) == 0) {
            *out = status[i].progress;
            return true;
        }
    }
    return false;
}

/* The progress of a job in any state; false: the job was running when it was read, and no worker has it. */
static bool progress_find(struct service *service, const struct job *job, struct job_progress *out)
{
    *out = (struct job_progress){.fraction = job->state == JOB_SUCCEEDED ? 1 : 0, .step = -1};
    bool has_worker = (job->state == JOB_RUNNING || job->state == JOB_CANCELING) && progress_of(service, job, out);
    return has_worker || job->state != JOB_RUNNING;
}

struct job_progress job_progress_find(struct service *service, const struct job *job)
{
    struct job_progress progress;
    progress_find(service, job, &progress);
    return progress;
}

json_t *job_progress_pack(const struct job *job, const struct job_progress *progress)
{
    const struct kind *kind = kind_find(job->kind);
    json_t *step = json_null();
    if (kind && progress->step >= 0) {
        const struct kind_step *at = &kind->steps[progress->step];
        bool iterates = at->unit && progress->iterations > 0;
        step = json_pack("{s:s, s:i, s:i, s:s?, s:o, s:o}", "name", at->name, "number", progress->step + 1, "steps",
                         kind_steps(kind), "unit", at->unit, "iteration",
                         iterates ? json_integer((json_int_t)progress->iteration) : json_null(), "iterations",
                         iterates ? json_integer((json_int_t)progress->iterations) : json_null());
    }
    return json_pack("{s:f, s:o}", "progress", progress->fraction, "step", step);
}

/* Another client's job gets the same answer as none. */
static int job_unknown(void)
{
    return err_set(ERR_NOT_FOUND,
                   "There is no job with this id; it may have been deleted. GET /v1/jobs lists the jobs.");
}

int job_look_up(struct service *service, const char *id, struct job *job)
{
    struct job_progress progress;
    if (!spool_is_id(id))
        return job_unknown();
    int rc = store_get(service->core.store, id, job);
    /* Running, but no worker has it: it ended in between, or is about to begin. */
    if (!rc && !progress_find(service, job, &progress)) {
        job_clear(job);
        rc = store_get(service->core.store, id, job);
    }
    return rc == ERR_NOT_FOUND ? job_unknown() : rc;
}

bool request_owns(const struct request *request, const char *client)
{
    return role_sees_all(request->identity.role) || strcmp(request->identity.client, client) == 0;
}

int request_job(struct request *request, const char *id, struct job *job)
{
    int rc = job_look_up(request->service, id, job);
    if (rc || request_owns(request, job->client))
        return rc;
    job_clear(job);
    return job_unknown();
}

/* Check that the job exists, and belongs to the client. */
static int request_job_check(struct request *request, const char *id)
{
    struct job job = {.state = JOB_QUEUED};
    int rc = request_job(request, id, &job);
    job_clear(&job);
    return rc;
}

/* Seconds that the job ran, or has run so far. */
static json_t *duration_pack(const struct job *job)
{
    int64_t now = job->finished ? job->finished : clock_milliseconds();
    if (!job->started)
        return json_null();
    return json_real(1e-3 * (double)(now > job->started ? now - job->started : 0));
}

static json_t *time_pack(int64_t milliseconds)
{
    char text[CLOCK_TEXT];
    if (!milliseconds)
        return json_null();
    clock_print(milliseconds, text);
    return json_string(text);
}

/* Parameters with their types: numbers as numbers. Those of a kind that no longer exists are left as text. */
static json_t *parameters_pack(const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    json_t *packed = json_object(), *value;
    const char *name;
    json_object_foreach (job->parameters, name, value) {
        const struct param *param = kind ? kind->params : NULL;
        while (param && param->name && strcmp(param->name, name) != 0)
            param++;
        const char *text = json_string_value(value);
        if (param && param->name && text)
            json_object_set_new(packed, name, param_value_pack(param, text));
        else
            json_object_set(packed, name, value);
    }
    return packed;
}

/* [{name, file, type, bytes, href}]: a result has one name in all formats; the href selects the format. */
static json_t *results_pack(const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    json_t *packed = json_array(), *result;
    size_t i;
    json_array_foreach (job->results, i, result) {
        const char *file = json_string_value(json_object_get(result, "name")), *name = file;
        char href[JOB_ID + SPOOL_NAME + 40];
        struct result_file found;
        if (kind && kind_file_find(kind, file, &found)) {
            name = kind->results[found.result].name;
            snprintf(href, sizeof href, "/v1/jobs/%s/results/%s?format=%s", job->id, name, file + strlen(name) + 1);
        } else {
            snprintf(href, sizeof href, "/v1/jobs/%s/results/%s", job->id, file);
        }
        json_t *one =
            json_pack("{s:s, s:s, s:O, s:O, s:s}", "name", name, "file", file, "type", json_object_get(result, "type"),
                      "bytes", json_object_get(result, "bytes"), "href", href);
        json_array_append_new(packed, one);
    }
    return packed;
}

static json_t *document_pack(const struct job *job, const struct job_progress *progress, bool report)
{
    json_t *document = json_pack("{s:s, s:s, s:s, s:o}", "id", job->id, "kind", job->kind, "state",
                                 job_state_name(job->state), "parameters", parameters_pack(job));
    json_object_update_new(document, job_progress_pack(job, progress));
    json_object_set_new(document, "priority", json_string(job_priority_name(job->priority)));
    json_object_set_new(document, "client", json_string(job->client));
    json_object_set_new(document, "name", json_string(job->name));
    json_object_set_new(document, "created", time_pack(job->created));
    json_object_set_new(document, "started", time_pack(job->started));
    json_object_set_new(document, "finished", time_pack(job->finished));
    json_object_set_new(document, "duration", duration_pack(job));
    json_object_set_new(document, "deadline", time_pack(job->deadline));
    json_object_set_new(document, "bytes", json_integer(job->bytes));
    json_object_set_new(document, "attempts", json_integer(job->attempts));
    json_object_set_new(document, "error", job->error ? problem_of(job->error, job->id) : json_null());
    json_object_set_new(document, "results", results_pack(job));
    json_object_set_new(document, "ahead", json_null());
    json_object_set_new(document, "report", report && job->report ? json_incref(job->report) : json_object());
    return document;
}

/* A job that ended after it was read is read again: as a running one, it would have no progress. */
static json_t *document_make(struct service *service, const struct job *job, bool report)
{
    struct job now = {.id = ""};
    struct job_progress progress;
    if (!progress_find(service, job, &progress) && store_get(service->core.store, job->id, &now) == 0) {
        job = &now;
        progress_find(service, job, &progress);
    }
    json_t *document = document_pack(job, &progress, report);
    job_clear(&now);
    return document;
}

json_t *job_document_listed(struct service *service, const struct job *job)
{
    return document_make(service, job, false);
}

json_t *job_document(struct service *service, const struct job *job)
{
    json_t *document = document_make(service, job, true);
    int64_t ahead;
    if (job->state == JOB_QUEUED && store_ahead(service->core.store, job, &ahead) == 0)
        json_object_set_new(document, "ahead", json_integer(ahead));
    return document;
}

void request_wait_read(struct request *request)
{
    const struct options *options = request->service->core.options;
    request->wait = prefer_wait(http_header(request, "Prefer"));
    if (request->wait > options->wait_limit)
        request->wait = (int)options->wait_limit;
}

bool request_waits(struct request *request, const struct job *job)
{
    struct service *service = request->service;
    struct job now;
    if (request->deadline == 0) { /* the first call for a GET */
        request_wait_read(request);
        request->deadline = clock_seconds() + request->wait;
    }
    if (job_state_is_final(job->state) || request->wait <= 0 || request->waiter.gone ||
        clock_seconds() >= request->deadline || !http_wait(request, job->id, request->deadline))
        return false;
    /* The job may have ended before http_wait(); then nobody else wakes this request. */
    int rc = job_look_up(service, job->id, &now);
    if (rc || job_state_is_final(now.state))
        waiters_wake(service->core.waiters, job->id);
    if (!rc)
        job_clear(&now);
    return true;
}

int route_job(struct request *request)
{
    struct job job;
    char applied[24];
    const char *headers[5] = {NULL};
    int rc = request_job(request, request->part[2], &job), used = 0;
    if (rc)
        return rc;
    if (!request_waits(request, &job)) {
        if (!job_state_is_final(job.state)) {
            headers[used++] = "Retry-After";
            headers[used++] = "1";
        }
        if (request->wait >= 0) {
            snprintf(applied, sizeof applied, "wait=%d", request->wait);
            headers[used++] = "Preference-Applied";
            headers[used++] = applied;
        }
        rc = http_answer_json(request, 200, job_document(request->service, &job), headers);
    }
    job_clear(&job);
    return rc;
}

int route_cancel_work(struct request *request)
{
    struct service *service = request->service;
    const char *id = request->part[2];
    enum job_state state;
    int rc = request_job_check(request, id);
    if (!rc)
        rc = job_cancel(&service->core, service->scheduler, id, &state);
    if (!rc)
        log_line(service->core.log, LOG_LEVEL_INFO, id, "cancellation requested; the job is %s", job_state_name(state));
    return rc;
}

int route_cancel(struct request *request)
{
    struct job job;
    int rc = store_get(request->service->core.store, request->part[2], &job);
    if (rc)
        return rc;
    rc = http_answer_json(request, 202, job_document(request->service, &job), NULL);
    job_clear(&job);
    return rc;
}

int route_delete_work(struct request *request)
{
    struct service *service = request->service;
    const char *id = request->part[2];
    int rc = request_job_check(request, id);
    if (!rc)
        rc = store_delete(service->core.store, id);
    if (rc)
        return rc;
    /* Without a row, they belong to no job: the next start removes files that a crash leaves here. */
    spool_remove(service->core.spool, id);
    spool_results_remove(service->core.spool, id);
    log_line(service->core.log, LOG_LEVEL_INFO, id, "deleted");
    return 0;
}

int route_delete(struct request *request)
{
    return http_answer(request, 204, "", strdup(""), NULL);
}

struct purge_query {
    int64_t older; /* s */
    int state;
};

static int purge_take(void *context, const char *name, const char *value)
{
    struct purge_query *out = context;
    if (strcmp(name, "older") == 0) {
        if (strcmp(value, "0") == 0)
            out->older = 0;
        else if (!number_in(value, INT32_MAX, &out->older))
            return err_set(ERR_BAD_PARAMETER, "Parameter older must be a whole number of seconds.");
    } else if (strcmp(name, "state") == 0) {
        out->state = job_state_find(value);
        if (out->state < 0 || !job_state_is_final((enum job_state)out->state))
            return err_set(ERR_BAD_PARAMETER,
                           "Parameter state must be succeeded, failed or canceled: only finished jobs can be removed.");
    } else {
        return err_set(ERR_UNKNOWN_PARAMETER, "A purge takes older and state, not \"%.64s\".", name);
    }
    return 0;
}

/* ?older=SECONDS[&state=STATE]. The age is required so that a DELETE of a mistyped path does not remove all jobs. */
static int purge_query_read(const char *query, struct purge_query *out)
{
    *out = (struct purge_query){-1, -1};
    int rc = query_each(query, purge_take, out);
    if (!rc && out->older < 0)
        rc = err_set(ERR_BAD_PARAMETER,
                     "A purge requires older=SECONDS: jobs that ended more than SECONDS ago are removed.");
    return rc;
}

int route_purge_work(struct request *request)
{
    struct service *service = request->service;
    struct purge_query query;
    int rc = purge_query_read(request->query, &query);
    if (!rc)
        rc = jobs_purge(&service->core, query.older, query.state, &request->removed);
    if (request->removed)
        log_line(service->core.log, LOG_LEVEL_INFO, NULL, "purge: %d ended jobs removed", request->removed);
    return rc;
}

int route_purge(struct request *request)
{
    return http_answer_json(request, 200, json_pack("{s:i}", "removed", request->removed), NULL);
}
