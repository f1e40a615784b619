/* POST /v1/jobs: a scan comes in. */
#include "daemon/routes.h"

#include "daemon/clock.h"
#include "daemon/problem.h"
#include "recon/recon.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the query ---- */

/* What a query says of the job itself, beside the parameters of its kind. */
struct about {
    const struct kind *kind;
    enum job_priority priority;
};

static int kind_read(struct about *about, const char *value)
{
    about->kind = recon_kind_find(value);
    return about->kind ? 0
                       : err_set(ERR_UNKNOWN_KIND,
                                 "There is no kind of job \"%.64s\". GET /v1/kinds lists those there are.", value);
}

static int priority_read(struct about *about, const char *value)
{
    int priority = job_priority_find(value);
    if (priority < 0)
        return err_set(ERR_BAD_PARAMETER, "priority takes urgent, normal or batch, not \"%.64s\".", value);
    about->priority = (enum job_priority)priority;
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct about *about, const char *value);
} about_table[] = {{"kind", kind_read}, {"priority", priority_read}};
enum { ABOUT = sizeof about_table / sizeof *about_table };

/* Its row in the table; ABOUT: the name is none of them. */
static int about_find(const char *name)
{
    int i = 0;
    while (i < ABOUT && strcmp(about_table[i].name, name) != 0)
        i++;
    return i;
}

/* Each at most once; what is not there is as it is by default. */
static int about_read(const char *query, struct about *about)
{
    char name[HTTP_NAME], value[HTTP_VALUE];
    bool found, given[ABOUT] = {false};
    *about = (struct about){.kind = &recon_kinds[0], .priority = PRIORITY_NORMAL};
    for (;;) {
        int result = query_next(&query, name, value, &found);
        if (result || !found)
            return result;
        int i = about_find(name);
        if (i == ABOUT)
            continue;
        if (given[i])
            return err_set(ERR_BAD_PARAMETER, "%s is given twice.", name);
        given[i] = true;
        result = about_table[i].read(about, value);
        if (result)
            return result;
    }
}

/* Put the parameters that the query gives, and all defaults, into the job. */
static int parameters_read(struct request *request, const struct kind *kind)
{
    struct param_values values;
    const char *query = request->query;
    char name[HTTP_NAME], value[HTTP_VALUE];
    bool found;
    param_values_init(kind, &values);
    for (;;) {
        int result = query_next(&query, name, value, &found);
        if (!result && !found)
            break;
        if (!result && about_find(name) < ABOUT)
            continue;
        for (int i = 0; !result && kind->params[i].name; i++)
            if (strcmp(kind->params[i].name, name) == 0 && values.value[i].given)
                result = err_set(ERR_BAD_PARAMETER, "Parameter %s is given twice.", name);
        if (!result)
            result = param_values_set(kind, &values, name, value);
        if (result)
            return result;
    }
    request->job.parameters = json_object();
    for (int i = 0; kind->params[i].name; i++)
        json_object_set_new(request->job.parameters, kind->params[i].name, json_string(values.value[i].text));
    return 0;
}

/* Which form of image the sender names in Accept, and prefers to a document; -1: none. */
static int accepted_format(struct request *request)
{
    const char *accept = http_header(request, "Accept");
    int best = -1, most = 0, closeness;
    if (!accept)
        return -1;
    int document = accept_quality(accept, "application/json", &closeness);
    if (closeness < 2)
        document = 0;
    for (int i = 0; i < IMAGE_FORMATS; i++) {
        int quality = accept_quality(accept, image_format_media((enum image_format)i), &closeness);
        if (closeness >= 2 && quality > most && quality > document) {
            most = quality;
            best = i;
        }
    }
    return best;
}

static int room_check(struct service *service)
{
    int64_t counts[JOB_STATES], oldest;
    if (service->draining)
        return err_set(ERR_DRAINING, "The service is being stopped. Send the scan again when it is back.");
    int result = store_counts(service->store, counts, &oldest);
    if (!result && counts[JOB_QUEUED] >= service->options->queue_limit)
        result = err_set(ERR_QUEUE_FULL, "%lld jobs are waiting, which is the limit. Try again later.",
                         (long long)counts[JOB_QUEUED]);
    return result;
}

int submission_read(struct request *request)
{
    struct about about;
    int result = about_read(request->query, &about);
    if (!result)
        result = parameters_read(request, about.kind);
    if (!result)
        result = request_client(request, request->job.client);
    if (!result)
        result = room_check(request->service);
    if (result)
        return result;
    snprintf(request->job.kind, sizeof request->job.kind, "%s", about.kind->name);
    request->job.priority = about.priority;
    request->job.formats = json_array();
    return 0;
}

/* Everything that can be refused is, before a byte of the body is taken. */
int route_submit_begin(struct request *request)
{
    struct service *service = request->service;
    int64_t bytes = http_body_bytes(request);
    const char *coding = http_header(request, "Content-Encoding");
    int result = submission_read(request);
    if (!result && coding && strcasecmp(coding, "identity") != 0)
        result = err_set(ERR_UNKNOWN_FORMAT,
                         "The body is sent with Content-Encoding: %.32s, which is not taken. Send the "
                         "scan as it is; HDF5 has compression of its own.",
                         coding);
    if (!result && bytes == 0)
        result = err_set(ERR_EMPTY_BODY, "The body is empty; it should be a scan. With curl: --data-binary @scan.h5.");
    if (!result)
        result = digest_begin_content(&request->digest, http_header(request, "Content-Digest"));
    if (!result)
        result = spool_begin(service->spool, bytes, &request->upload);
    if (result)
        return result;
    request->wait = prefer_wait(http_header(request, "Prefer"));
    if (request->wait > service->options->wait_limit)
        request->wait = (int)service->options->wait_limit;
    request->format = accepted_format(request);
    if (request->format > IMAGE_H5)
        json_array_append_new(request->job.formats, json_string(image_format_name((enum image_format)request->format)));
    return 0;
}

/* The body is complete: onto the disk with it, then the row. */
int route_submit_work(struct request *request)
{
    struct service *service = request->service;
    int result = 0;
    if (request->upload.bytes == 0)
        result = err_set(ERR_EMPTY_BODY, "The body is empty; it should be a scan. With curl: --data-binary @scan.h5.");
    if (!result && !digest_end(&request->digest))
        result = err_set(ERR_DIGEST,
                         "The %lld bytes that arrived do not have the %s digest that Content-Digest tells. "
                         "Send the scan again.",
                         (long long)request->upload.bytes, request->digest.name);
    request->job.bytes = request->upload.bytes;
    memcpy(request->job.id, request->upload.id, sizeof request->job.id);
    if (!result) {
        scheduler_announce(service->scheduler, &request->job);
        result = spool_finish(&request->upload);
    }
    if (!result)
        result = store_submit(service->store, &request->job, service->options->queue_limit);
    if (result) {
        struct err failure = *err_last();
        scheduler_retract(service->scheduler, request->job.id);
        request->job.id[0] = '\0';
        spool_abort(&request->upload);
        return err_restore(&failure);
    }
    request->upload = (struct spool_file){.fd = -1}; /* the job's now */
    metrics_submitted(service->metrics, request->job.kind, request->job.bytes);
    log_line(service->log, LOG_LEVEL_INFO, request->job.id, "accepted, %s, %s, %lld bytes", request->job.kind,
             job_priority_name(request->job.priority), (long long)request->job.bytes);
    scheduler_wake(service->scheduler);
    request->deadline = clock_seconds() + request->wait;
    return 0;
}

/* The end of a job that the sender waited for. */
static int answer_end(struct request *request, const struct job *job, const char *const *headers)
{
    if (job->state == JOB_SUCCEEDED && request->format >= 0)
        return result_answer(request, job->id, (enum image_format)request->format, headers);
    if (job->state == JOB_SUCCEEDED)
        return http_answer_json(request, 200, job_document(request->service, job), headers);
    if (job->state == JOB_FAILED)
        return http_answer_problem(request, problem_of(job->error, job->id), headers);
    err_set(ERR_CANCELED, "Job %s was canceled before it ended.", job->id);
    return http_answer_problem(request, problem_pack(err_last(), job->id), headers);
}

int route_submit(struct request *request)
{
    struct service *service = request->service;
    const char *id = request->job.id;
    char location[JOB_ID + 16], applied[24];
    snprintf(location, sizeof location, "/v1/jobs/%s", id);
    snprintf(applied, sizeof applied, "wait=%d", request->wait);
    const char *const headers[] = {
        "Location", location, "X-Job-Id", id, request->wait >= 0 ? "Preference-Applied" : NULL, applied, NULL};
    const char *const later[] = {
        "Location", location, "X-Job-Id", id, "Retry-After", "1", request->wait >= 0 ? "Preference-Applied" : NULL,
        applied,    NULL};
    struct job job = {.state = JOB_QUEUED};
    int result = job_look_up(service, id, &job);
    bool ended = result || job_state_is_final(job.state);
    if (!ended && request->wait > 0 && clock_seconds() < request->deadline &&
        http_wait(request, id, request->deadline)) {
        /* It may have ended between the look and the wait; then the wake-up is ours to give. */
        job_clear(&job);
        result = job_look_up(service, id, &job);
        if (result || job_state_is_final(job.state))
            waiters_wake(service->waiters, id);
        job_clear(&job);
        return 0;
    }
    if (!result && request->wait >= 0 && ended)
        result = answer_end(request, &job, headers);
    else if (!result)
        result = http_answer_json(request, 202, job_document(service, &job), later);
    job_clear(&job);
    return result;
}
