/* POST /v1/jobs: a new scan; and POST /v1/jobs/ID/resubmit: the scan of an earlier job again. */
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"
#include "daemon/http/problem.h"
#include "daemon/http/submission.h"
#include "recon/recon.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The form of the job's default result. */
static const struct result_form *default_form(const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    return kind->results[result_default(kind, job)].form;
}

/* The format of the default result that Accept prefers to the job's document; -1: none. */
static int accepted_format(struct request *request)
{
    const struct result_form *form = default_form(&request->job);
    const char *accept = http_header(request, "Accept");
    int best = -1, most = 0, closeness;
    if (!accept)
        return -1;
    int document = accept_quality(accept, "application/json", &closeness);
    if (closeness < 2)
        document = 0;
    for (int i = 0; form->formats[i].name; i++) {
        int quality = accept_quality(accept, form->formats[i].media, &closeness);
        if (closeness >= 2 && quality > most && quality > document) {
            most = quality;
            best = i;
        }
    }
    return best;
}

/* Whether the client accepts images one by one, and the job has images. */
static bool multipart_is_wanted(struct request *request)
{
    const char *accept = http_header(request, "Accept");
    int closeness;
    return accept && form_format_find(default_form(&request->job), "mrd") >= 0 &&
           accept_quality(accept, "multipart/mixed", &closeness) > 0 && closeness >= 2;
}

/* A client that waits must accept the result or the document. One that does not wait always gets the document, since
 * the scan has been received by then. */
static int accept_check(struct request *request)
{
    const struct result_form *form = default_form(&request->job);
    const char *accept = http_header(request, "Accept");
    int closeness;
    bool met = prefer_wait(http_header(request, "Prefer")) < 0 || multipart_is_wanted(request) ||
               accept_quality(accept, "application/json", &closeness);
    for (int i = 0; form->formats[i].name && !met; i++)
        met = accept_quality(accept, form->formats[i].media, &closeness) > 0;
    if (met)
        return 0;
    char media[RESULT_MEDIA];
    result_media(form, media);
    return err_set(
        ERR_NOT_ACCEPTABLE,
        "Accept matches no available format. The result is available as %s, the job's document as application/json.",
        media);
}

/* Read how the client wants to be answered. */
static void wanted_read(struct request *request)
{
    request_wait_read(request);
    request->watched = prefer_has(http_header(request, "Prefer"), "cancel-on-disconnect");
    request->strict = prefer_has(http_header(request, "Prefer"), "handling=strict");
    request->format = accepted_format(request);
    request->multipart = multipart_is_wanted(request) && (request->wait >= 0 || *request->idempotency.key);
    if (request->multipart)
        request->format = form_format_find(default_form(&request->job), "mrd");
    if (request->format > 0)
        json_array_append_new(request->job.formats,
                              json_string(default_form(&request->job)->formats[request->format].name));
}

/* Open a file for the images that a worker makes. If descriptors or disk space are lacking, all are sent at the end. */
static void live_begin(struct request *request)
{
    const struct core *core = &request->service->core;
    const char *id = request->upload.id;
    int file;
    if (spool_live_create(core->spool, id, &file) != 0)
        return;
    if (live_open(core->live, id, file, -1) == 0)
        memcpy(request->live, id, sizeof request->live);
    close(file);
}

/* All checks that need no body are made before its first byte is read. */
int route_submit_begin(struct request *request)
{
    struct service *service = request->service;
    int64_t bytes = http_body_bytes(request);
    const char *coding = http_header(request, "Content-Encoding"), *type = http_header(request, "Content-Type");
    int rc = submission_read(request);
    if (!rc && coding && strcasecmp(coding, "identity") != 0)
        rc = err_set(ERR_UNKNOWN_FORMAT,
                     "The body has the Content-Encoding %.32s, which is not supported. Send the scan uncompressed; "
                     "HDF5 has its own compression.",
                     coding);
    if (!rc)
        rc = accept_check(request);
    if (!rc && type && strncasecmp(type, "multipart/", 10) == 0)
        rc = err_set(ERR_UNKNOWN_FORMAT, "The body is a multipart form, as curl -F sends it. The scan must be the body "
                                         "itself: curl --data-binary @scan.h5, or -X POST -T scan.h5 for a large one.");
    if (!rc && bytes == 0)
        rc = err_set(ERR_EMPTY_BODY, "The body is empty; it should be a scan. With curl: --data-binary @scan.h5.");
    if (!rc)
        rc = idempotency_begin(&request->idempotency, service->keys, request->job.client,
                               http_header(request, "Idempotency-Key"));
    if (!rc)
        rc = digest_begin_content(&request->digest, http_header(request, "Content-Digest"));
    if (!rc && !request->digest.state)
        rc = digest_begin_content(&request->digest, http_header(request, "Repr-Digest"));
    if (!rc)
        rc = spool_begin(service->core.spool, bytes, &request->upload);
    if (rc)
        return rc;
    stream_body_begin(&request->stream, service->scheduler, &request->job, bytes);
    wanted_read(request);
    if (request->multipart)
        live_begin(request);
    idempotency_name(&request->idempotency, request->upload.id);
    return 0;
}

/* Whether the submission that job.digest describes was made before; then the answer is the job of the first one. */
static int replay(struct request *request)
{
    struct job *job = &request->job, before = {.state = JOB_QUEUED};
    snprintf(job->key, sizeof job->key, "%s", request->idempotency.key);
    int rc = store_find_key(request->service->core.store, job->client, job->key, &before);
    if (rc)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    if (strcmp(before.digest, job->digest) != 0 || strcmp(before.kind, job->kind) != 0 ||
        !json_equal(before.parameters, job->parameters)) {
        rc = err_set(ERR_KEY_REUSED,
                     "This Idempotency-Key was used before, with another scan or other parameters, for job %s. Use a "
                     "new key for a new submission.",
                     before.id);
    } else {
        memcpy(job->id, before.id, sizeof job->id);
        request->replayed = true;
        log_line(request->service->core.log, LOG_LEVEL_INFO, job->id, "submitted again with the same Idempotency-Key");
    }
    job_clear(&before);
    return rc;
}

/* The body is complete: check it, and look its Idempotency-Key up. */
static int body_check(struct request *request)
{
    if (request->upload.bytes == 0)
        return err_set(ERR_EMPTY_BODY, "The body is empty; it should be a scan. With curl: --data-binary @scan.h5.");
    if (!digest_end(&request->digest))
        return err_set(ERR_DIGEST,
                       "The %lld bytes that arrived do not match the %s digest of the request. Send the scan again.",
                       (long long)request->upload.bytes, request->digest.name);
    if (!*request->idempotency.key)
        return 0;
    idempotency_digest(&request->idempotency, request->job.digest);
    return replay(request);
}

/* The body is complete: fsync it, then commit the row. */
int route_submit_work(struct request *request)
{
    struct service *service = request->service;
    request->deadline = clock_seconds() + request->wait;
    int rc = body_check(request);
    if (rc || request->replayed) {
        struct err failure = *err_last();
        stream_body_drop(&request->stream);
        spool_abort(&request->upload);
        idempotency_end(&request->idempotency);
        return rc ? err_restore(&failure) : 0;
    }
    stream_body_end(&request->stream);
    rc = submission_commit(service, &request->job, &request->upload);
    idempotency_end(&request->idempotency); /* from now on the row holds the key */
    if (rc)
        return rc;
    submission_accepted(service, &request->job, "accepted");
    return 0;
}

/* Make a job of the scan of `id`, unless that was done with this key before. */
static int resubmit(struct request *request, const char *id)
{
    struct service *service = request->service;
    struct job *job = &request->job;
    int rc = 0;
    if (*request->idempotency.key) {
        snprintf(job->digest, sizeof job->digest, "resubmit:%.*s", JOB_ID - 1, id); /* no SHA-256 */
        rc = replay(request);
    }
    if (rc || request->replayed)
        return rc;
    rc = spool_link(service->core.spool, id, job->id, &job->bytes);
    if (!rc && (rc = store_submit(service->core.store, job, service->core.options->queue_limit)) != 0) {
        struct err failure = *err_last();
        spool_remove(service->core.spool, job->id);
        job->id[0] = '\0';
        err_restore(&failure);
    }
    if (!rc)
        submission_accepted(service, job, "accepted, with the scan of an earlier job");
    return rc;
}

/* Run a job again, with the scan that was kept. */
int route_resubmit_work(struct request *request)
{
    struct job before;
    const char *id = request->part[2];
    int rc = request_job(request, id, &before);
    if (rc)
        return rc;
    rc = resubmission_read(request, &before);
    job_clear(&before);
    if (!rc)
        rc = accept_check(request);
    if (!rc)
        rc = idempotency_begin(&request->idempotency, request->service->keys, request->job.client,
                               http_header(request, "Idempotency-Key"));
    if (rc)
        return rc;
    wanted_read(request);
    rc = resubmit(request, id);
    idempotency_end(&request->idempotency);
    request->deadline = clock_seconds() + request->wait;
    return rc;
}

/* The end of a job for which the client waited. */
static int answer_end(struct request *request, const struct job *job, const char *const *headers)
{
    if (job->state == JOB_SUCCEEDED && request->format >= 0) {
        const struct kind *kind = kind_find(job->kind);
        const struct result_file file = {result_default(kind, job), request->format};
        int rc = result_answer(request, job, file, headers);
        /* The job has its result, but not in this format: the answer links to it. */
        return rc ? http_answer_problem(request, problem_pack(err_last(), job->id), headers) : 0;
    }
    if (job->state == JOB_SUCCEEDED)
        return http_answer_json(request, 200, job_document(request->service, job), headers);
    if (job->state == JOB_FAILED)
        return http_answer_problem(request, problem_of(job->error, job->id), headers);
    err_set(ERR_CANCELED, "Job %s was canceled before it ended.", job->id);
    return http_answer_problem(request, problem_pack(err_last(), job->id), headers);
}

/* For clients that take any success for the result. */
static int answer_not_done(struct request *request, const struct job *job, const char *const *headers)
{
    const struct kind *kind = kind_find(job->kind);
    const char *name = kind->results[result_default(kind, job)].name;
    err_set(ERR_NOT_DONE,
            "Job %s is still %s after a wait of %d s, and continues: /v1/jobs/%s shows its progress, and "
            "/v1/jobs/%s/results/%s will have its %s. Do not send the file again.",
            job->id, job_state_name(job->state), request->wait, job->id, job->id, name, name);
    return http_answer_problem(request, problem_pack(err_last(), job->id), headers);
}

/* Whether the client waits for a file that it may have before the end of the job is stored (EARLY in scheduler.h). */
static bool may_be_early(const struct request *request, const struct job *job)
{
    return request->wait > 0 && request->format >= 0 && !request->late && !job_state_is_final(job->state);
}

/* Answer so, if the results are there. */
static bool answer_early(struct request *request, struct job *job, const char *const *headers)
{
    json_t *warnings = NULL;
    if (!may_be_early(request, job) || !scheduler_early_tell(request->service->scheduler, job->id, &warnings))
        return false;
    json_decref(job->report);
    job->report = json_object();
    json_object_set_new(job->report, "warnings", warnings ? warnings : json_array());
    const struct result_file file = {result_default(kind_find(job->kind), job), request->format};
    request->late = result_answer_early(request, job, file, headers) != 0;
    return !request->late;
}

/* As request_waits(), also until answer_early() has an answer. */
static bool submission_waits(struct request *request, const struct job *job)
{
    if (!request_waits(request, job))
        return false;
    /* The results may have been shown before; then nobody else wakes this request before the job's end is stored. */
    if (may_be_early(request, job) && scheduler_early(request->service->scheduler, job->id))
        waiters_wake(request->service->core.waiters, job->id);
    return true;
}

int route_submit(struct request *request)
{
    struct service *service = request->service;
    const char *id = request->job.id;
    char location[JOB_ID + 16], applied[64];
    snprintf(location, sizeof location, "/v1/jobs/%s", id);
    snprintf(applied, sizeof applied, "wait=%d%s%s", request->wait, request->watched ? ", cancel-on-disconnect" : "",
             request->strict ? ", handling=strict" : "");
    const char *pairs[12] = {"Location", location, "X-Job-Id", id};
    int count = 4;
    if (request->replayed) {
        pairs[count++] = "Idempotency-Replayed";
        pairs[count++] = "true";
    }
    if (request->wait >= 0) {
        pairs[count++] = "Preference-Applied";
        pairs[count++] = applied;
    }
    struct job job = {.state = JOB_QUEUED};
    int rc = job_look_up(service, id, &job);
    if (!rc && request->multipart && request->wait >= 0) {
        job_clear(&job);
        return images_answer(request, pairs);
    }
    if (!rc && (answer_early(request, &job, pairs) || submission_waits(request, &job))) {
        job_clear(&job);
        return 0;
    }
    if (!rc && request->wait >= 0 && job_state_is_final(job.state)) {
        rc = answer_end(request, &job, pairs);
    } else if (!rc) {
        pairs[count++] = "Retry-After";
        pairs[count++] = "1";
        rc = request->wait >= 0 && request->strict ? answer_not_done(request, &job, pairs)
                                                   : http_answer_json(request, 202, job_document(service, &job), pairs);
    }
    job_clear(&job);
    return rc;
}
