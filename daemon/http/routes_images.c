/* The images of a job as multipart/mixed, each part sent as soon as its image is made: the answer to a submission that
 * waits, and GET /v1/streams?key=KEY, which a client opens beside a submission that it is still sending.
 *
 * A part is an MRD stream of one image: the message IMAGE, and CLOSE. The last part is the job's document, or a problem
 * if there is no job. Images come from the live file (daemon/queue/live.h), then from the job's result. */
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"
#include "daemon/http/live_result.h"
#include "daemon/http/problem.h"
#include "recon/scan/mrd_message.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_SECONDS 5.0 /* between two looks at the job, in case nothing wakes the request */
#define BOUNDARY     "mrirecond-"

enum phase { PHASE_LIVE, PHASE_RESULT, PHASE_LAST };

struct images {
    struct service *service;
    struct MHD_Connection *connection;
    struct waiter waiter;
    char id[JOB_ID], boundary[JOB_ID];     /* id: of the upload, then of its job */
    char client[JOB_CLIENT], key[JOB_KEY]; /* key "": the answer to a submission */
    char who[JOB_CLIENT];                  /* the client whose streams it counts among; "": none */
    double deadline;                       /* clock_seconds() */
    bool held;                             /* the live entry */
    int live, result;                      /* files; -1: none */
    int64_t sent;                          /* bytes of the live file */
    int64_t at, end;                       /* of the result */
    enum phase phase;
    char *text; /* being sent; then bytes `from` to `to` of `file`, then `after` */
    size_t length, told;
    int file;
    int64_t from, to;
    char after[sizeof BOUNDARY + JOB_ID + 8]; /* an image's CLOSE, and the next boundary */
    size_t after_length, after_told;
};

static void images_free(void *context)
{
    struct images *of = context;
    if (of->held)
        live_close(of->service->core.live, of->id);
    if (of->live >= 0)
        close(of->live);
    if (of->result >= 0)
        close(of->result);
    if (*of->who)
        readers_leave(of->service->image_readers, of->who);
    free(of->text);
    free(of);
}

/* ---- parts ---- */

/* Send `text` (taken; malloc, NULL: no memory). false: no memory. */
static bool text_queue(struct images *of, char *text)
{
    free(of->text);
    of->text = text;
    of->length = text ? strlen(text) : 0;
    of->told = 0;
    return text != NULL;
}

/* Begin the part of the image at *at of a file of `end` bytes, and advance *at. false: there is no complete image. */
static bool image_begin(struct images *of, int file, int64_t *at, int64_t end)
{
    if (!live_image_next(file, *at, end, &of->to))
        return false;
    of->file = file;
    of->from = *at;
    *at = of->to;
    of->after_told = 0;
    char *text = NULL;
    if (asprintf(&text, "Content-Type: application/x-ismrmrd\r\nContent-Length: %lld\r\n\r\n",
                 (long long)(of->to - of->from) + MRD_NUMBER_BYTES) < 0)
        text = NULL;
    return text_queue(of, text);
}

static bool last_begin(struct images *of, const char *media, json_t *document)
{
    char *json = http_json_text(document), *text = NULL;
    of->phase = PHASE_LAST;
    if (!json || asprintf(&text, "Content-Type: %s\r\n\r\n%s\r\n--" BOUNDARY "%s--\r\n", media, json, of->boundary) < 0)
        text = NULL;
    free(json);
    return text_queue(of, text);
}

static bool failure_begin(struct images *of, const char *job)
{
    return last_begin(of, PROBLEM_MEDIA, problem_pack(err_last(), job));
}

/* ---- the job ---- */

static struct result_file stream_of(const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    const int result = result_default(kind, job);
    return (struct result_file){result, form_format_find(kind->results[result].form, "mrd")};
}

/* The job has succeeded: the rest of its images follows. Fails as live_result_check() and spool_result_open(). */
static int result_begin(struct images *of, const struct job *job)
{
    char name[KIND_FILE_NAME];
    int64_t stamp;
    kind_file_name(kind_find(job->kind), stream_of(job), name);
    int rc = spool_result_open(of->service->core.spool, of->id, name, &of->result, &of->end, &stamp);
    if (!rc)
        rc = live_result_check(of->live, of->sent, of->result, of->end, of->id, &of->at);
    of->phase = PHASE_RESULT;
    return rc;
}

/* The upload is not in progress, and has no row: it was given up, or it repeated an earlier submission, whose result
 * then continues the images sent so far: live_result_check(). */
static int job_gone(struct images *of, struct job *job)
{
    if (store_find_key(of->service->core.store, of->client, of->key, job) == 0) {
        if (of->held)
            live_close(of->service->core.live, of->id);
        of->held = false;
        memcpy(of->id, job->id, sizeof of->id);
        return 0;
    }
    return err_set(ERR_TRUNCATED, "The scan ended before it was complete, or was refused: there is no job of it.");
}

/* What follows the images made so far. *waits: nothing yet. false: no memory. */
static bool job_look(struct images *of, bool *waits)
{
    struct service *service = of->service;
    struct job job = {.state = JOB_QUEUED};
    char arriving[JOB_ID];
    /* The key is looked up first: it is released after the row is committed. */
    const bool arrives =
        *of->key && idempotency_find(service->keys, of->client, of->key, arriving) && strcmp(arriving, of->id) == 0;
    int rc = job_look_up(service, of->id, &job);
    if (rc == ERR_NOT_FOUND && !arrives)
        rc = *of->key ? job_gone(of, &job) : rc;
    const bool arriving_yet = rc == ERR_NOT_FOUND && arrives; /* otherwise the job was deleted */
    *waits = (arriving_yet || (!rc && !job_state_is_final(job.state))) && clock_seconds() < of->deadline;
    if (arriving_yet && !*waits)
        rc = err_set(ERR_NOT_DONE, "The wait has ended, and the scan has not arrived yet.");
    if (!rc && job.state == JOB_SUCCEEDED)
        rc = result_begin(of, &job);
    bool good = true;
    if (rc && !*waits)
        good = failure_begin(of, *job.id ? job.id : NULL);
    else if (!*waits && of->phase == PHASE_LIVE)
        good = last_begin(of, "application/json", job_document(service, &job));
    job_clear(&job);
    return good;
}

/* Begin the next part. *waits: there is none yet. false: no memory. */
static bool images_next(struct images *of, bool *waits)
{
    *waits = false;
    bool good = true;
    if (of->phase == PHASE_LIVE) {
        const int64_t shown = of->held ? live_shown(of->service->core.live, of->id) : 0;
        if (image_begin(of, of->live, &of->sent, shown))
            return true;
        good = job_look(of, waits);
    }
    if (!good || of->phase != PHASE_RESULT || image_begin(of, of->result, &of->at, of->end))
        return good;
    struct job job = {.state = JOB_QUEUED};
    if (job_look_up(of->service, of->id, &job))
        return failure_begin(of, NULL);
    good = last_begin(of, "application/json", job_document(of->service, &job));
    job_clear(&job);
    return good;
}

/* ---- the answer ---- */

/* Bytes of the part that is being sent; 0: it is over. */
static ssize_t part_read(struct images *of, char *buffer, size_t room)
{
    if (of->told < of->length) {
        const size_t left = of->length - of->told, bytes = left < room ? left : room;
        memcpy(buffer, of->text + of->told, bytes);
        of->told += bytes;
        return (ssize_t)bytes;
    }
    if (of->from < of->to) {
        const int64_t left = of->to - of->from;
        const ssize_t got = pread(of->file, buffer, left < (int64_t)room ? (size_t)left : room, of->from);
        of->from += got > 0 ? got : 0;
        return got > 0 ? got : MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t left = of->after_length - of->after_told, bytes = left < room ? left : room;
    memcpy(buffer, of->after + of->after_told, bytes);
    of->after_told += bytes;
    return (ssize_t)bytes;
}

/* Suspend until there is more; false: the service stops. */
static bool images_wait(struct images *of)
{
    struct waiters *waiters = of->service->core.waiters;
    char id[JOB_ID];
    bool waits = false;
    double until = clock_seconds() + LOOK_SECONDS;
    memcpy(id, of->id, sizeof id);
    if (!waiters_wait(waiters, &of->waiter, of->connection, id, until < of->deadline ? until : of->deadline))
        return false;
    /* A change since the last look woke nobody: look again. */
    if (!images_next(of, &waits) || !waits)
        waiters_wake(waiters, id);
    return true;
}

/* libmicrohttpd asks for more bytes. Returns 0 if the connection was suspended. */
static ssize_t images_read(void *context, uint64_t position, char *buffer, size_t room)
{
    struct images *of = context;
    bool waits = false;
    (void)position;
    if (of->waiter.gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    ssize_t bytes = part_read(of, buffer, room);
    if (bytes != 0)
        return bytes;
    if (of->phase == PHASE_LAST)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!images_next(of, &waits))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (waits)
        return images_wait(of) ? 0 : MHD_CONTENT_READER_END_WITH_ERROR;
    return part_read(of, buffer, room);
}

/* Whether the images of job `id`, or of the upload that will be this job, are there as an MRD stream. */
static int images_check(const struct images *of)
{
    struct job job = {.state = JOB_QUEUED};
    bool there = of->held;
    int rc = there ? 0 : job_look_up(of->service, of->id, &job);
    size_t i;
    json_t *format;
    json_array_foreach (job.formats, i, format)
        there = there || strcmp(json_string_value(format), "mrd") == 0;
    job_clear(&job);
    if (there || (rc && rc != ERR_NOT_FOUND))
        return there ? 0 : rc;
    return err_set(ERR_CONFLICT,
                   "This scan was submitted without Accept: multipart/mixed, so its images are not sent one by one. "
                   "They are at /v1/jobs/ID/results when the job has succeeded.");
}

static int images_send(struct request *request, struct images *of, const char *const *headers)
{
    struct live *live = request->service->core.live;
    char media[sizeof "multipart/mixed; boundary=" BOUNDARY + JOB_ID];
    int64_t shown;
    of->service = request->service;
    of->connection = request->connection;
    of->result = -1;
    of->held = live_hold(live, of->id);
    of->live = of->held ? live_file(live, of->id, &shown) : -1;
    int rc = images_check(of);
    if (rc) {
        const struct err failure = *err_last();
        images_free(of);
        return err_restore(&failure);
    }
    memcpy(of->boundary, of->id, sizeof of->boundary);
    of->after[0] = MRD_CLOSE;
    of->after_length = of->after_told =
        MRD_NUMBER_BYTES + (size_t)snprintf(of->after + MRD_NUMBER_BYTES, sizeof of->after - MRD_NUMBER_BYTES,
                                            "\r\n--" BOUNDARY "%s\r\n", of->boundary);
    /* The answer begins with the boundary that an image ends with. */
    if (!text_queue(of, strdup(of->after + MRD_NUMBER_BYTES + 2))) {
        images_free(of);
        return err_no_memory("the answer; try again later");
    }
    snprintf(media, sizeof media, "multipart/mixed; boundary=" BOUNDARY "%s", of->boundary);
    return http_answer_stream(request, 200, media, images_read, of, images_free, headers);
}

int images_answer(struct request *request, const char *const *headers)
{
    struct images *of = calloc(1, sizeof *of);
    if (!of)
        return err_no_memory("the answer; try again later");
    memcpy(of->id, request->job.id, sizeof of->id);
    of->deadline = request->deadline;
    of->waiter.cancel = request->watched;
    return images_send(request, of, headers);
}

static int key_take(void *context, const char *name, const char *value)
{
    struct images *of = context;
    if (strcmp(name, "key") != 0)
        return err_set(ERR_UNKNOWN_PARAMETER, "Streams are found by the parameter key, not by \"%.64s\".", name);
    if (strlen(value) >= sizeof of->key)
        return err_set(ERR_BAD_PARAMETER, "Parameter key must have at most %d characters.", JOB_KEY - 1);
    strcpy(of->key, value);
    return 0;
}

/* The upload in progress, or the job, with the key. */
static int key_find(struct request *request, struct images *of)
{
    struct job job = {.state = JOB_QUEUED};
    if (!*of->key)
        return err_set(ERR_BAD_PARAMETER, "Parameter key is missing: the Idempotency-Key of the submission whose "
                                          "images are wanted.");
    int rc = request_client(request, of->client);
    if (rc || idempotency_find(request->service->keys, of->client, of->key, of->id))
        return rc;
    rc = store_find_key(request->service->core.store, of->client, of->key, &job);
    memcpy(of->id, job.id, sizeof of->id);
    job_clear(&job);
    return rc != ERR_NOT_FOUND
               ? rc
               : err_set(ERR_NOT_FOUND, "You have submitted no scan with this Idempotency-Key, or its head has not "
                                        "arrived yet. Ask again when it has.");
}

int route_stream(struct request *request)
{
    struct images *of = calloc(1, sizeof *of);
    if (!of)
        return err_no_memory("the answer; try again later");
    request_wait_read(request);
    of->deadline = request->wait >= 0 ? clock_seconds() + request->wait : INFINITY;
    int rc = query_each(request->query, key_take, of);
    if (!rc)
        rc = key_find(request, of);
    char who[JOB_CLIENT] = "";
    request_counted(request, who);
    if (!rc)
        rc = readers_join(request->service->image_readers, who);
    if (rc) {
        free(of);
        return rc;
    }
    memcpy(of->who, who, sizeof of->who);
    return images_send(request, of, NULL);
}
