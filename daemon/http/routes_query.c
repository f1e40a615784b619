/* Reads the query of a submission: kind, parameters, name, priority, deadline. */
#include "daemon/http/routes.h"
#include "daemon/http/submission.h"

#include "recon/recon.h"

#include <stdio.h>
#include <string.h>

void submission_name(struct request *request, const char *text)
{
    submission_name_set(&request->job, request->service->core.options, text);
}

static int room_check(struct request *request)
{
    const struct service *service = request->service;
    int64_t bytes = http_body_bytes(request);
    if (service->draining)
        return err_set(ERR_DRAINING, "The service is shutting down. Send the scan again when it is back.");
    return store_room(service->core.store, request->job.client, request->job.quota, (struct quota){0, 0},
                      bytes > 0 ? bytes : 0, service->core.options->queue_limit);
}

/* The job's client is the sender. If a role that sees all jobs reruns a job and names no client, the new job belongs
 * to the old one's client, who can then find it. */
static int owner_read(struct request *request, const struct job *before)
{
    bool said = !*request->identity.client && http_header(request, "X-Mrirecond-Client");
    if (!before || said || !role_sees_all(request->identity.role))
        return request_client(request, request->job.client);
    memcpy(request->job.client, before->client, JOB_CLIENT);
    return 0;
}

/* Read all of the submission but its scan. `before`: the job that is rerun; NULL: none. */
static int submission_job_read(struct request *request, struct submission *about, const struct job *before)
{
    struct job *job = &request->job;
    int rc = submission_about_read(about, request->query);
    if (!rc)
        rc = submission_parameters_read(&job->parameters, about->kind, (const char *const[]){request->query}, 1,
                                        before ? before->parameters : NULL);
    if (!rc)
        rc = owner_read(request, before);
    if (!rc)
        rc = destinations_check(request->service->destinations, about->destination, job->client,
                                request->identity.role == ROLE_ADMIN);
    if (!rc)
        rc = room_check(request);
    if (rc)
        return rc;
    snprintf(job->kind, sizeof job->kind, "%s", about->kind->name);
    submission_name(request, about->name);
    memcpy(job->destination, about->destination, sizeof job->destination);
    job->priority = about->priority;
    job->patience = 1000 * about->deadline;
    job->formats = json_array();
    return 0;
}

int submission_read(struct request *request)
{
    struct submission about = {.kind = kinds[0], .priority = PRIORITY_NORMAL};
    return submission_job_read(request, &about, NULL);
}

int resubmission_read(struct request *request, const struct job *before)
{
    struct submission about = {.kind = kind_find(before->kind), .priority = before->priority};
    const struct kind *kind = about.kind;
    snprintf(about.name, sizeof about.name, "%s", before->name);
    if (!kind)
        return err_set(ERR_UNKNOWN_KIND, "Job %s is of the kind \"%s\", which this version does not have.", before->id,
                       before->kind);
    int rc = submission_job_read(request, &about, before);
    if (!rc && about.kind != kind)
        rc = err_set(ERR_BAD_PARAMETER,
                     "A job keeps its kind when it is resubmitted: leave kind out, or send the scan again.");
    return rc;
}
