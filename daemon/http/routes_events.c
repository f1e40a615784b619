/* The events of a job (server-sent events): its state whenever it changes, and its progress while it runs. Events are
 * not stored: each is made from the store's and the worker's present state when it is sent, and its id grows with its
 * content, except that a job which is put back (SHORTAGES in scheduler.h) has its ids again. A client that reconnects
 * with Last-Event-ID receives newer events, or 204 (do not reconnect) if it has received the last one. */
#include "daemon/http/routes.h"
#include "daemon/http/stream.h"

#include "daemon/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_IDS (PROGRESS_TOLD_MOST + 1) /* ids from one state to the next */

struct job_stream {
    struct stream stream; /* first */
    char id[JOB_ID];
    long long told; /* the id of the newest event that was sent */
};

/* Attempts are counted when a worker gets the job; a job that waits, or ended waiting, is at its next attempt. */
static long long event_id(const struct job *job, long long told)
{
    static const int rank[JOB_STATES] = {[JOB_QUEUED] = 0,    [JOB_RUNNING] = 1, [JOB_CANCELING] = 2,
                                         [JOB_SUCCEEDED] = 3, [JOB_FAILED] = 3,  [JOB_CANCELED] = 3};
    long long attempt = job->attempts + (job->started == 0);
    return (attempt * 10 + rank[job->state]) * STATE_IDS + told;
}

static void job_stream_free(struct stream *stream)
{
    free(stream);
}

static bool say_event(struct job_stream *of, const char *name, long long id, json_t *data)
{
    char *json = data ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL, *text = NULL;
    json_decref(data);
    if (!json || asprintf(&text, "event: %s\nid: %lld\ndata: %s\n\n", name, id, json) < 0)
        text = NULL;
    free(json);
    of->told = id;
    return stream_say(&of->stream, text);
}

/* false: the job was removed, or there is no memory. */
static bool job_stream_look(struct stream *stream, double *next)
{
    struct job_stream *of = (struct job_stream *)stream;
    struct job job;
    if (job_look_up(stream->service, of->id, &job) != 0)
        return false;
    struct job_progress progress;
    const bool known = job_progress_known(stream->service, &job, &progress);
    long long id = event_id(&job, progress.told);
    bool running = job.state == JOB_RUNNING, final = job_state_is_final(job.state), good = true;
    /* Progress that goes back is that of another try, after the job was put back. */
    const bool again = running && known && id < of->told;
    if (id / STATE_IDS != of->told / STATE_IDS || (final && id > of->told) || again) {
        stream->ended = final;
        good = say_event(of, "state", id, job_document(stream->service, &job));
    } else if (id > of->told && running) {
        good = say_event(of, "progress", id, job_progress_pack(&job, &progress));
    }
    if (running)
        *next = clock_seconds() + PROGRESS_SECONDS;
    job_clear(&job);
    return good;
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
    struct job_stream *of = calloc(1, sizeof *of);
    if (!of)
        return err_no_memory("a stream of events; try again later");
    of->stream.look = job_stream_look;
    of->stream.release = job_stream_free;
    memcpy(of->stream.key, request->part[2], JOB_ID - 1); /* a complete id: the job was found */
    memcpy(of->id, request->part[2], JOB_ID - 1);
    of->told = told;
    return stream_answer(request, &of->stream, strdup(STREAM_RETRY));
}
