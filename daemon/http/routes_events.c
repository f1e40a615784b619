/* The events of a job (server-sent events): its state whenever it changes, and its progress while it runs. Events are
 * not stored: each is made from the store's and the worker's present state when it is sent, and its id grows with its
 * content. A client that reconnects with Last-Event-ID receives newer events, or 204 (do not reconnect) if it has
 * received the last one. */
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROGRESS_SECONDS  0.25                     /* minimum interval between two progress events */
#define HEARTBEAT_SECONDS 15.0                     /* maximum time without a byte: proxies close idle connections */
#define STATE_IDS         (PROGRESS_TOLD_MOST + 1) /* ids between two states */
#define RETRY_MS          2000                     /* client's delay before it reconnects */

struct stream {
    struct service *service;
    struct MHD_Connection *connection;
    char id[JOB_ID];
    long long told;      /* the id of the newest event that was sent */
    bool ended;          /* the last event is in `text` */
    char *text;          /* what is being sent */
    size_t length, sent; /* bytes of it */
    double spoken;       /* clock_seconds() when the last byte was put into `text` */
    struct waiter waiter;
};

/* Attempts are counted when a worker gets the job; a job that waits, or ended waiting, is at its next attempt. */
static long long event_id(const struct job *job, long long told)
{
    static const int rank[JOB_STATES] = {[JOB_QUEUED] = 0,    [JOB_RUNNING] = 1, [JOB_CANCELING] = 2,
                                         [JOB_SUCCEEDED] = 3, [JOB_FAILED] = 3,  [JOB_CANCELED] = 3};
    long long attempt = job->attempts + (job->started == 0);
    return (attempt * 10 + rank[job->state]) * STATE_IDS + told;
}

static void stream_free(void *context)
{
    struct stream *stream = context;
    free(stream->text);
    free(stream);
}

/* Takes `text`, as the next to send. */
static bool say(struct stream *stream, char *text)
{
    free(stream->text);
    stream->text = text;
    stream->length = text ? strlen(text) : 0;
    stream->sent = 0;
    stream->spoken = clock_seconds();
    return text != NULL;
}

static bool say_event(struct stream *stream, const char *name, long long id, json_t *data)
{
    char *json = data ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL, *text = NULL;
    json_decref(data);
    if (!json || asprintf(&text, "event: %s\nid: %lld\ndata: %s\n\n", name, id, json) < 0)
        text = NULL;
    free(json);
    stream->told = id;
    return say(stream, text);
}

/* The next event or heartbeat, if one is due. false: the stream ends (the job was deleted, or there is no memory). */
static bool stream_look(struct stream *stream, double *next)
{
    struct job job;
    if (job_look_up(stream->service, stream->id, &job) != 0)
        return false;
    struct job_progress progress = job_progress_find(stream->service, &job);
    double now = clock_seconds();
    long long id = event_id(&job, progress.told);
    bool running = job.state == JOB_RUNNING, final = job_state_is_final(job.state), good = true;
    if (id / STATE_IDS > stream->told / STATE_IDS || (final && id > stream->told)) {
        stream->ended = final;
        good = say_event(stream, "state", id, job_document(stream->service, &job));
    } else if (id > stream->told && running) {
        good = say_event(stream, "progress", id, job_progress_pack(&job, &progress));
    } else if (now - stream->spoken >= HEARTBEAT_SECONDS) {
        good = say(stream, strdup(": still here\n\n"));
    }
    double heartbeat = stream->spoken + HEARTBEAT_SECONDS;
    *next = running && now + PROGRESS_SECONDS < heartbeat ? now + PROGRESS_SECONDS : heartbeat;
    job_clear(&job);
    return good;
}

/* The library's buffer is nearly all of a connection's memory, and much of it has been cleared: a quarter of a
 * megabyte for some hundred bytes. 500 streams took 133 MB; they take 9 MB if the pages are returned to the kernel
 * once per stream, and no connection is kept after its stream. */
static void pages_give_back(char *buffer, size_t room)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)buffer + page - 1) / page * page, to = ((uintptr_t)buffer + room) / page * page;
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

/* The library asks for more to send. Returns 0 if the connection was suspended. */
static ssize_t stream_read(void *context, uint64_t position, char *buffer, size_t room)
{
    struct stream *stream = context;
    double next = 0;
    if (stream->waiter.gone)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (position == 0)
        pages_give_back(buffer, room);
    if (stream->sent == stream->length) {
        if (stream->ended || !stream_look(stream, &next))
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (stream->sent == stream->length) {
            if (!waiters_wait(stream->service->core.waiters, &stream->waiter, stream->connection, stream->id, next))
                return MHD_CONTENT_READER_END_OF_STREAM;
            /* A change between stream_look() and waiters_wait() woke nobody: look again. */
            if (!stream_look(stream, &next) || stream->sent < stream->length)
                waiters_wake(stream->service->core.waiters, stream->id);
            return 0;
        }
    }
    size_t bytes = stream->length - stream->sent;
    bytes = bytes < room ? bytes : room;
    memcpy(buffer, stream->text + stream->sent, bytes);
    stream->sent += bytes;
    return (ssize_t)bytes;
}

int route_events(struct request *request)
{
    struct job job;
    int rc = request_job(request, request->part[2], &job);
    if (rc)
        return rc;
    /* An unknown id is ignored: a browser gives up if the answer is not a stream. */
    long long last = number_parse(http_header(request, "Last-Event-ID")), told = last > 0 ? last : 0;
    long long newest = event_id(&job, PROGRESS_TOLD_MOST);
    bool over = job_state_is_final(job.state) && event_id(&job, 0) == told;
    if (told > newest) /* of another job */
        told = 0;
    job_clear(&job);
    if (over)
        return http_answer(request, 204, "", strdup(""), NULL);
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return err_no_memory("a stream of events; try again later");
    stream->service = request->service;
    stream->connection = request->connection;
    memcpy(stream->id, request->part[2], JOB_ID - 1); /* a complete id: the job was found */
    stream->told = told;
    char *hello = NULL;
    if (asprintf(&hello, "retry: %d\n\n", RETRY_MS) < 0)
        hello = NULL;
    if (!say(stream, hello)) {
        stream_free(stream);
        return err_no_memory("a stream of events; try again later");
    }
    /* Ask proxies not to buffer the answer. */
    const char *const headers[] = {"X-Accel-Buffering", "no", "Connection", "close", NULL};
    return http_answer_stream(request, 200, "text/event-stream", stream_read, stream, stream_free, headers);
}
