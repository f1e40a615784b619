/* Resumable uploads: tus 1.0 (https://tus.io/protocols/resumable-upload) with the extensions creation, expiration,
 * checksum and termination. The query of the creation is that of POST /v1/jobs; a complete upload becomes a job with
 * the same id. */
#include "daemon/http/http.h"
#include "daemon/http/routes.h"
#include "daemon/http/submission.h"

#include "daemon/base/clock.h"

#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { TUS_HEADERS = 20, TUS_TEXT = 64, METADATA_MOST = 4096 };

/* The headers of an answer about an upload, and the texts that they point to. All zero: none yet. */
struct tus_headers {
    const char *pair[TUS_HEADERS + 1]; /* ends with NULL */
    int count;
    char location[TUS_TEXT], offset[24], length[24], expires[CLOCK_TEXT];
};

static void header_add(struct tus_headers *headers, const char *name, const char *value)
{
    headers->pair[headers->count++] = name;
    headers->pair[headers->count++] = value;
}

/* RFC 9110's form of a date. */
static void date_print(int64_t milliseconds, char text[CLOCK_TEXT])
{
    time_t seconds = (time_t)(milliseconds / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(text, CLOCK_TEXT, "%a, %d %b %Y %H:%M:%S GMT", &utc);
}

static void headers_of(struct tus_headers *headers, const struct upload *upload)
{
    snprintf(headers->offset, sizeof headers->offset, "%lld", (long long)upload->offset);
    snprintf(headers->length, sizeof headers->length, "%lld", (long long)upload->length);
    date_print(clock_milliseconds() + upload->left, headers->expires);
    header_add(headers, "Upload-Offset", headers->offset);
    header_add(headers, "Upload-Length", headers->length);
    header_add(headers, "Upload-Expires", headers->expires);
}

/* An upload that has become a job. */
static void headers_of_job(struct tus_headers *headers, const struct job *job)
{
    snprintf(headers->offset, sizeof headers->offset, "%lld", (long long)job->bytes);
    snprintf(headers->location, sizeof headers->location, "/v1/jobs/%s", job->id);
    header_add(headers, "Upload-Offset", headers->offset);
    header_add(headers, "Upload-Length", headers->offset);
    header_add(headers, "Content-Location", headers->location);
    header_add(headers, "X-Job-Id", job->id);
}

static int version_check(struct request *request)
{
    const char *version = http_header(request, "Tus-Resumable");
    if (!version || strcmp(version, TUS_VERSION) != 0)
        return err_set(ERR_TUS_VERSION, "The header Tus-Resumable must be " TUS_VERSION ", the supported version.");
    return 0;
}

/* Check that the upload exists, and belongs to the client. */
static int upload_check(struct request *request)
{
    struct upload upload = {.job = NULL};
    int rc = upload_get(request->service->uploads, request->part[2], &upload);
    const char *client = json_string_value(json_object_get(upload.job, "client"));
    if (!rc && !request_owns(request, client ? client : ""))
        rc = upload_unknown();
    upload_clear(&upload);
    return rc;
}

int route_uploads_options(struct request *request)
{
    struct tus_headers headers = {.count = 0};
    char most[24];
    snprintf(most, sizeof most, "%lld", (long long)request->service->core.options->body_limit);
    header_add(&headers, "Tus-Version", TUS_VERSION);
    header_add(&headers, "Tus-Extension", "creation,expiration,checksum,termination");
    header_add(&headers, "Tus-Checksum-Algorithm", DIGEST_TUS_ALGORITHMS);
    header_add(&headers, "Tus-Max-Size", most);
    return http_answer(request, 204, "", strdup(""), headers.pair);
}

/* ---- creation ---- */

/* The job's name: the pair `name BASE64` or `filename BASE64` of Upload-Metadata. Other pairs are the client's own and
 * are ignored, as are malformed ones. */
static void name_take(struct request *request, const char *metadata)
{
    static const char *const keys[] = {"name", "filename"};
    for (const char *pair = metadata; pair && !*request->job.name; pair = strchr(pair, ',')) {
        pair += strspn(pair, ", ");
        size_t key = strcspn(pair, " ,"), at = key + strspn(pair + key, " ");
        bool named = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            named |= strlen(keys[i]) == key && strncmp(keys[i], pair, key) == 0;
        const gnutls_datum_t encoded = {(unsigned char *)(uintptr_t)(pair + at), (unsigned)strcspn(pair + at, " ,")};
        gnutls_datum_t raw = {NULL, 0};
        char *text = NULL;
        if (named && encoded.size && gnutls_base64_decode2(&encoded, &raw) == 0)
            text = strndup((char *)raw.data, raw.size);
        if (text)
            submission_name(request, text);
        free(text);
        gnutls_free(raw.data);
    }
}

int route_upload_create_begin(struct request *request)
{
    int rc = version_check(request);
    if (!rc && number_parse(http_header(request, "Upload-Length")) < 1)
        rc =
            err_set(ERR_LENGTH_REQUIRED, "The header Upload-Length must be the size of the scan in bytes, at least 1.");
    if (!rc && http_body_bytes(request) != 0)
        rc = err_set(ERR_BAD_REQUEST, "Send the scan's bytes with PATCH, not with the creation of an upload.");
    const char *metadata = http_header(request, "Upload-Metadata");
    if (!rc && metadata && (strlen(metadata) > METADATA_MOST || !text_is_clean(metadata)))
        rc = err_set(ERR_BAD_REQUEST, "Upload-Metadata may have at most %d bytes of UTF-8 text.", METADATA_MOST);
    if (!rc)
        rc = submission_read(request);
    if (!rc && !*request->job.name)
        name_take(request, metadata);
    return rc;
}

int route_upload_create_work(struct request *request)
{
    struct upload upload = {.job = NULL};
    request->job.bytes = number_parse(http_header(request, "Upload-Length"));
    int rc = upload_begin(request->service->uploads, &request->job, http_header(request, "Upload-Metadata"), &upload);
    if (!rc) {
        memcpy(request->job.id, upload.id, JOB_ID);
        request->left = upload.left;
        log_line(request->service->core.log, LOG_LEVEL_INFO, upload.id, "resumable upload created, %lld bytes",
                 (long long)upload.length);
    }
    upload_clear(&upload);
    return rc;
}

int route_upload_create(struct request *request)
{
    struct tus_headers headers = {.count = 0};
    /* Not looked up again: that might fail, and the upload exists. */
    const struct upload upload = {.length = request->job.bytes, .left = request->left};
    headers_of(&headers, &upload);
    snprintf(headers.location, sizeof headers.location, "/v1/uploads/%s", request->job.id);
    header_add(&headers, "Location", headers.location);
    return http_answer(request, 201, "", strdup(""), headers.pair);
}

/* ---- state ---- */

int route_upload(struct request *request)
{
    struct tus_headers headers = {.count = 0};
    struct upload upload = {.job = NULL};
    struct job job = {.state = JOB_QUEUED};
    const char *id = request->part[2], *metadata;
    int rc = http_header(request, "Tus-Resumable") ? version_check(request) : 0;
    if (!rc)
        rc = upload_check(request);
    if (!rc)
        rc = upload_get(request->service->uploads, id, &upload);
    struct err failure = *err_last();
    if (!rc) {
        headers_of(&headers, &upload);
        metadata = json_string_value(json_object_get(upload.job, "metadata"));
        if (metadata)
            header_add(&headers, "Upload-Metadata", metadata);
        json_t *document = json_pack("{s:s, s:I, s:I, s:O}", "id", id, "length", (json_int_t)upload.length, "offset",
                                     (json_int_t)upload.offset, "job", upload.job);
        rc = http_answer_json(request, 200, document, headers.pair);
    } else if (rc == ERR_NOT_FOUND && request_job(request, id, &job) == 0) {
        headers_of_job(&headers, &job);
        json_t *document = json_pack("{s:s, s:I, s:I, s:s}", "id", id, "length", (json_int_t)job.bytes, "offset",
                                     (json_int_t)job.bytes, "href", headers.location);
        rc = http_answer_json(request, 200, document, headers.pair);
    } else {
        err_restore(&failure);
    }
    upload_clear(&upload);
    job_clear(&job);
    return rc;
}

/* ---- chunks ---- */

int route_upload_append_begin(struct request *request)
{
    const char *type = http_header(request, "Content-Type"), *checksum = http_header(request, "Upload-Checksum");
    int64_t offset = number_parse(http_header(request, "Upload-Offset"));
    int rc = version_check(request);
    if (!rc && (!type || strcasecmp(type, "application/offset+octet-stream") != 0))
        rc = err_set(ERR_UNKNOWN_FORMAT, "The Content-Type of a PATCH must be application/offset+octet-stream.");
    if (!rc && offset < 0)
        rc = err_set(ERR_BAD_REQUEST, "The header Upload-Offset must be the position of these bytes.");
    if (!rc)
        rc = upload_check(request);
    if (!rc)
        rc = checksum ? digest_begin_tus(&request->digest, checksum)
                      : digest_begin_content(&request->digest, http_header(request, "Content-Digest"));
    if (!rc)
        rc = chunk_begin(request->service->uploads, request->part[2], offset, request->digest.state != NULL,
                         &request->chunk);
    int64_t bytes = http_body_bytes(request);
    if (!rc && bytes > request->chunk.length - offset) {
        int64_t length = request->chunk.length;
        chunk_end(&request->chunk, false);
        rc = err_set(ERR_TOO_LARGE, "%lld bytes at offset %lld exceed the %lld bytes of Upload-Length.",
                     (long long)bytes, (long long)offset, (long long)length);
    }
    return rc;
}

/* Let a worker prefetch the scan while its job is committed: not before, because bytes that the disk refuses are cut
 * off, and a worker that had mapped them would be killed. */
struct announcing {
    struct service *service;
    const char *format; /* of the scan, for the metrics */
};

static void announce(void *context, const struct job *job, int scan)
{
    struct announcing *announcing = context;
    announcing->format = ingest_format(job, scan);
    scheduler_announce(announcing->service->scheduler, job, scan, ARRIVING_NOT);
}

static void accepted(struct service *service, const struct job *job, const char *format)
{
    metrics_submitted(service->core.metrics, job->kind);
    metrics_ingested(service->core.metrics, format, job->bytes);
    if (service->scheduler)
        scheduler_wake(service->scheduler);
}

void http_upload_accepted(struct service *service, const struct job *job)
{
    int scan;
    const char *format = "other";
    if (spool_open(service->core.spool, job->id, &scan) == 0) {
        format = ingest_format(job, scan);
        close(scan);
    }
    accepted(service, job, format);
}

/* A complete upload becomes a job. */
static int job_make(struct request *request)
{
    struct service *service = request->service;
    struct announcing announcing = {service, "other"};
    const struct upload_whole whole = {announce, &announcing};
    if (service->draining)
        return err_set(ERR_DRAINING,
                       "The service is shutting down. All bytes have arrived; they become job %s at the next start.",
                       request->part[2]);
    int rc = upload_finish(service->uploads, service->core.store, request->part[2], service->core.options->queue_limit,
                           &whole, &request->job);
    const struct err failure = *err_last();
    /* The search for complete uploads may have come first. */
    if (rc == ERR_NOT_FOUND && request_job(request, request->part[2], &request->job) == 0)
        return 0;
    if (rc) {
        scheduler_retract(service->scheduler, request->part[2]);
        return err_restore(&failure);
    }
    char name[NAME_FOR_LOG];
    const struct log_about about = {request->job.id, request->job.client, 0};
    log_line_about(service->core.log, LOG_LEVEL_INFO, &about, "accepted, %s, %lld bytes, resumable upload%s",
                   request->job.kind, (long long)request->job.bytes, name_for_log(service, &request->job, name));
    accepted(service, &request->job, announcing.format);
    return 0;
}

/* The chunk has arrived; with the last one, the upload becomes a job. */
int route_upload_append_work(struct request *request)
{
    bool good = digest_end(&request->digest), whole = good && request->chunk.offset == request->chunk.length;
    int rc = chunk_end(&request->chunk, good);
    if (!rc && !good)
        rc = err_set(ERR_UPLOAD_CHECKSUM,
                     "The %s of the bytes that arrived does not match Upload-Checksum or Content-Digest; they were "
                     "discarded. Send them again.",
                     request->digest.name);
    return rc || !whole ? rc : job_make(request);
}

int route_upload_append(struct request *request)
{
    struct tus_headers headers = {.count = 0};
    struct upload upload = {.job = NULL};
    if (*request->job.id) {
        headers_of_job(&headers, &request->job);
    } else {
        int rc = upload_get(request->service->uploads, request->part[2], &upload);
        if (rc)
            return rc;
        headers_of(&headers, &upload);
        upload_clear(&upload);
    }
    return http_answer(request, 204, "", strdup(""), headers.pair);
}

/* ---- termination ---- */

int route_upload_delete_work(struct request *request)
{
    int rc = version_check(request);
    if (!rc)
        rc = upload_check(request);
    return rc ? rc : upload_remove(request->service->uploads, request->part[2]);
}

int route_upload_delete(struct request *request)
{
    return http_answer(request, 204, "", strdup(""), NULL);
}
