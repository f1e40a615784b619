/* GET /v1/events: a stream of server-sent events about all jobs that the sender may see.
 *
 *   reset       the client must load the list of jobs: it has none, or an outdated one. Sent first to a client without
 *               a Last-Event-ID, with one of an earlier run of the service, or with one that is too old; and to a
 * client that read more slowly than the feed's ring was overwritten job         a job was added or changed its state:
 * its short document deliveries  deliveries of a job were added or changed their states: the job's id, and all of them
 *   removed     a job was removed: its id
 *   progress    of a running job; without an id, so it is not repeated
 *
 * A stream holds one text of about TEXT_BYTES at most, however slowly its client reads. */
#include "daemon/http/routes.h"
#include "daemon/http/stream.h"

#include "daemon/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_SECONDS 0.1 /* between two texts: changes in quick succession are sent together */
#define PAUSE_KEY     "pause"
enum { TEXT_BYTES = 32 << 10, FEED_ID = FEED_NAME + 24 };

struct feed_stream {
    struct stream stream; /* first */
    struct identity identity;
    char who[JOB_CLIENT]; /* the client whose streams it counts among */
    int64_t told;         /* number of the newest change sent */
    double progress_at;   /* when progress was last sent */
    struct {
        char id[JOB_ID];
        int64_t told;
    } worker[WORKERS_MAX]; /* last progress sent of each worker's job */
    long generation;       /* of the tokens, at its start */
    char session[SESSION_TEXT];
};

static void feed_stream_free(struct stream *stream)
{
    struct feed_stream *of = (struct feed_stream *)stream;
    readers_leave(stream->service->event_readers, of->who);
    free(of);
}

static const char *feed_client(const struct feed_stream *of)
{
    return role_sees_all(of->identity.role) ? NULL : of->identity.client;
}

static void event_print(FILE *out, const char *name, const char *id, json_t *data)
{
    fprintf(out, "event: %s\n", name);
    if (id)
        fprintf(out, "id: %s\n", id);
    fputs("data: ", out);
    json_dumpf(data, out, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputs("\n\n", out);
    json_decref(data);
}

static void reset_print(FILE *out, const struct feed *feed, int64_t number, const char *reason)
{
    char id[FEED_ID];
    snprintf(id, sizeof id, "%s-%lld", feed_name(feed), (long long)number);
    event_print(out, "reset", id, json_pack("{s:s}", "reason", reason));
}

/* The deliveries of a job; of a removed job there are none. */
static void deliveries_print(FILE *out, struct service *service, const struct feed_entry *entry, const char *id)
{
    json_t *deliveries = deliveries_pack(service, entry->id);
    if (json_array_size(deliveries) > 0)
        event_print(out, "deliveries", id, json_pack("{s:s, s:O}", "id", entry->id, "deliveries", deliveries));
    json_decref(deliveries);
}

/* The text of a change, created once and cached for the other streams. A removed job has none: its removal follows. */
static void change_print(FILE *out, struct service *service, struct feed_entry *entry)
{
    char id[FEED_ID];
    size_t size = 0;
    struct job job;
    if (entry->text) {
        fputs(entry->text, out);
        free(entry->text);
        return;
    }
    FILE *made = open_memstream(&entry->text, &size);
    if (!made)
        return;
    snprintf(id, sizeof id, "%s-%lld", feed_name(service->feed), (long long)entry->number);
    if (entry->what == FEED_REMOVED) {
        event_print(made, "removed", id, json_pack("{s:s}", "id", entry->id));
    } else if (entry->what == FEED_DELIVERIES) {
        deliveries_print(made, service, entry, id);
    } else if (store_get_brief(service->core.store, entry->id, &job) == 0) {
        event_print(made, "job", id, job_document_fields(service, &job, JOB_FIELDS_SHORT));
        job_clear(&job);
    }
    fclose(made);
    if (entry->text && size > 0) {
        feed_keep(service->feed, entry->number, entry->text);
        fputs(entry->text, out);
    }
    free(entry->text);
}

/* As many of the changes not yet sent as fit into one text. */
static void changes_print(FILE *out, struct feed_stream *of)
{
    struct service *service = of->stream.service;
    struct feed_entry entry = {.number = 0};
    enum feed_found found = FEED_NEXT;
    while (ftell(out) < TEXT_BYTES &&
           (found = feed_next(service->feed, of->told, feed_client(of), &entry)) == FEED_NEXT) {
        change_print(out, service, &entry);
        of->told = entry.number;
    }
    if (found == FEED_LOST)
        reset_print(out, service->feed, entry.number, "behind");
    if (found != FEED_NEXT)
        of->told = entry.number;
}

/* Append the progress of running jobs. Returns whether there are any that the sender may see. */
static bool progress_print(FILE *out, struct feed_stream *of, bool due)
{
    struct worker_status status[WORKERS_MAX];
    int count = scheduler_status(of->stream.service->scheduler, status);
    bool running = false;
    for (int i = 0; i < count; i++) {
        const char *client = feed_client(of);
        if (!*status[i].job || (client && strcmp(status[i].client, client) != 0))
            continue;
        running = true;
        bool same = strcmp(of->worker[i].id, status[i].job) == 0;
        if (!due || status[i].progress.told == 0 || (same && of->worker[i].told == status[i].progress.told))
            continue;
        memcpy(of->worker[i].id, status[i].job, JOB_ID);
        of->worker[i].told = status[i].progress.told;
        struct job job = {.state = JOB_RUNNING};
        memcpy(job.kind, status[i].kind, sizeof job.kind);
        json_t *data = json_pack("{s:s}", "id", status[i].job);
        json_object_update_new(data, job_progress_pack(&job, &status[i].progress));
        event_print(out, "progress", NULL, data);
    }
    return running;
}

static bool may_still_see(const struct feed_stream *of)
{
    const struct service *service = of->stream.service;
    struct identity identity;
    double end;
    if (tokens_generation(service->tokens) != of->generation)
        return false;
    return !*of->session || sessions_identify(service->sessions, of->session, clock_seconds(), &identity, &end) == 0;
}

/* false: the sender's rights have changed, or there is no memory. */
static bool feed_stream_look(struct stream *stream, double *next)
{
    struct feed_stream *of = (struct feed_stream *)stream;
    double now = clock_seconds();
    char *text = NULL;
    size_t size = 0;
    if (!may_still_see(of))
        return false;
    /* Less than PAUSE_SECONDS after a text, only time wakes the stream. */
    bool paused = now < stream->spoken + PAUSE_SECONDS;
    snprintf(stream->key, sizeof stream->key, "%s", paused ? PAUSE_KEY : FEED_KEY);
    *next = stream->spoken + PAUSE_SECONDS;
    if (paused)
        return true;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return false;
    changes_print(out, of);
    bool due = now >= of->progress_at + PROGRESS_SECONDS;
    if (due)
        of->progress_at = now;
    bool running = progress_print(out, of, due);
    *next = running ? of->progress_at + PROGRESS_SECONDS : now + HEARTBEAT_SECONDS;
    if (fclose(out) != 0) {
        free(text);
        return false;
    }
    if (size > 0)
        return stream_say(stream, text);
    free(text);
    return true;
}

/* The number after this feed's name in a Last-Event-ID; -1: it is not of this feed. */
static int64_t last_read(const struct feed *feed, const char *header)
{
    size_t length = strlen(feed_name(feed));
    if (!header || strncmp(header, feed_name(feed), length) != 0 || header[length] != '-')
        return -1;
    return number_parse(header + length + 1);
}

/* The first text, and the number from which the stream continues. */
static char *hello_make(struct feed_stream *of, struct feed *feed, const char *header)
{
    char *text = NULL;
    size_t size = 0;
    struct feed_entry entry = {.number = 0};
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fputs(STREAM_RETRY, out);
    of->told = last_read(feed, header);
    bool lost = feed_next(feed, of->told, NULL, &entry) == FEED_LOST;
    free(entry.text);
    if (lost) {
        reset_print(out, feed, entry.number, !header ? "start" : of->told < 0 ? "restart" : "behind");
        of->told = entry.number;
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

int route_feed(struct request *request)
{
    struct service *service = request->service;
    struct feed_stream *of = calloc(1, sizeof *of);
    if (!of)
        return err_no_memory("a stream of events; try again later");
    of->identity = request->identity;
    of->generation = tokens_generation(service->tokens);
    memcpy(of->session, request->session, sizeof of->session);
    request_counted(request, of->who);
    int rc = readers_join(service->event_readers, of->who);
    if (rc) {
        free(of);
        return rc;
    }
    of->stream.look = feed_stream_look;
    of->stream.release = feed_stream_free;
    of->stream.service = service;
    return stream_answer(request, &of->stream, hello_make(of, service->feed, http_header(request, "Last-Event-ID")));
}
