/* Jobs: one, cancel, delete, purge. */
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"
#include "daemon/queue/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    /* Running, but no worker has it: it has just ended, or is about to start. */
    if (!rc && !job_progress_known(service, job, &progress)) {
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
        rc = upload_forget(service->core.spool, id);
    if (!rc)
        rc = spool_uploads_settle(service->core.spool);
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
