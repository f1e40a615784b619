#include "daemon/mrd/mrd_session.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/http/submission.h"
#include "daemon/mrd/mrd_config.h"
#include "recon/scan/mrd_frame.h"
#include "daemon/mrd/mrd_images.h"
#include "daemon/mrd/mrd_send.h"
#include "daemon/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT_BYTES = 256 << 10 };
#define LINGER_SECONDS 5.0
#define LOOK_SECONDS   5.0 /* between two checks of a job, in case no wake-up comes */

/* A job's queries; later ones override earlier ones. */
enum { QUERY_SET, QUERY_TEXT, QUERY_MORE };
_Static_assert(QUERY_MORE + 1 == MRD_QUERIES, "all of them");

/* A session while it receives. */
struct arrival {
    const struct mrd_session *session;
    struct mrd_images *images;
    struct mrd_frame frame;
    char *queries[MRD_QUERIES]; /* malloc */
    struct job job;
    struct spool_file upload; /* .spool NULL: the header has not begun */
    uint64_t acquisitions, waveforms;
    bool closed;   /* CLOSE has arrived */
    bool captures; /* the message's body is kept in `text` */
    size_t text_bytes;
    char text[MRD_TEXT_MOST + 1];
};

static bool is_config(unsigned number)
{
    return number == MRD_CONFIG_FILE || number == MRD_CONFIG_TEXT;
}

/* ---- messages ---- */

/* Set the job from the queries so far. */
static int job_read(struct arrival *arrival)
{
    const struct mrd_session *session = arrival->session;
    memcpy(arrival->job.client, session->client, JOB_CLIENT);
    arrival->job.quota = session->quota;
    int rc = mrd_job_read(&arrival->job, session->service->core.options, arrival->queries);
    /* A client of this protocol has no token, so it is no administrator. */
    if (!rc)
        rc = destinations_check(session->service->destinations, arrival->job.destination, session->client, false);
    return rc;
}

/* The scan begins: do all checks that need no acquisition before the first one. */
static int header_begin(struct arrival *arrival)
{
    struct service *service = arrival->session->service;
    if (service->draining)
        return err_set(ERR_DRAINING, "The service is shutting down. Send the scan again when it is back.");
    int rc = job_read(arrival);
    if (!rc)
        rc = store_room(service->core.store, arrival->job.client, arrival->job.quota, (struct quota){0, 0}, 0,
                        service->core.options->queue_limit);
    if (!rc)
        rc = spool_begin(service->core.spool, -1, &arrival->upload);
    if (!rc)
        mrd_images_begin(arrival->images, &service->core, arrival->upload.id);
    return rc;
}

static int message_begin(struct arrival *arrival, unsigned number)
{
    const bool begun = arrival->upload.spool != NULL;
    arrival->captures = is_config(number) || (number == MRD_TEXT && begun && arrival->acquisitions == 0);
    arrival->text_bytes = 0;
    if (number == MRD_HEADER && !begun)
        return header_begin(arrival);
    if (is_config(number) && begun)
        return err_set(ERR_MALFORMED_FILE, "The MRD stream has a configuration after its header.");
    if (!is_config(number) && !begun && number != MRD_CLOSE)
        return err_set(ERR_MALFORMED_FILE,
                       "The MRD stream has a message of number %u before its header (number 3): a stream is a "
                       "configuration, a header, acquisitions, and an end.",
                       number);
    return 0;
}

static int query_keep(struct arrival *arrival, int place, char *query)
{
    free(arrival->queries[place]);
    arrival->queries[place] = query;
    return 0;
}

static int set_find(struct arrival *arrival, const char *name)
{
    char *query = NULL;
    int rc = mrd_config_find(&query, arrival->session->service->core.options->mrd_configs, name);
    return rc ? rc : query_keep(arrival, QUERY_SET, query);
}

/* Parameters as a text; those in JSON may name a configuration. */
static int text_read(struct arrival *arrival, int place)
{
    char name[MRD_NAME], *query = NULL;
    int rc = mrd_text_read(&query, name, arrival->text, arrival->text_bytes);
    if (!rc)
        rc = query_keep(arrival, place, query);
    return !rc && *name ? set_find(arrival, name) : rc;
}

/* The first acquisition has arrived, so a worker can start to read the input while the rest arrives. */
static void arrival_announce(struct arrival *arrival)
{
    int scan;
    if (spool_reopen(&arrival->upload, &scan) != 0)
        return;
    memcpy(arrival->job.id, arrival->upload.id, sizeof arrival->job.id);
    scheduler_announce(arrival->session->service->scheduler, &arrival->job, scan, ARRIVING_STREAM);
}

static int message_end(struct arrival *arrival, unsigned number)
{
    arrival->text[arrival->text_bytes] = '\0';
    arrival->acquisitions += number == MRD_ACQUISITION;
    arrival->waveforms += number == MRD_WAVEFORM;
    arrival->closed = number == MRD_CLOSE;
    if (number == MRD_ACQUISITION && arrival->acquisitions == 1)
        arrival_announce(arrival);
    if (number == MRD_CONFIG_FILE)
        return set_find(arrival, arrival->text);
    if (number == MRD_CONFIG_TEXT)
        return text_read(arrival, QUERY_TEXT);
    /* FIRE sends the operator's choices in this way, after the header. */
    if (number != MRD_TEXT || !arrival->captures || *arrival->text != '{')
        return 0;
    int rc = text_read(arrival, QUERY_MORE);
    return rc ? rc : job_read(arrival);
}

/* ---- arrival ---- */

static int part_keep(struct arrival *arrival, const struct mrd_part *part)
{
    const unsigned number = arrival->frame.number;
    if (arrival->captures && !part->first) {
        if (part->count > MRD_TEXT_MOST - arrival->text_bytes)
            return err_set(ERR_LIMIT, "The configuration of an MRD stream has at most %d bytes.", MRD_TEXT_MOST);
        memcpy(arrival->text + arrival->text_bytes, part->bytes, part->count);
        arrival->text_bytes += part->count;
    }
    if (is_config(number) || !arrival->upload.spool)
        return 0;
    return spool_append(&arrival->upload, part->bytes, part->count);
}

static int input_take(struct arrival *arrival, const uint8_t *from, const uint8_t *end)
{
    struct mrd_part part = {.count = 1};
    int rc = 0;
    while (!rc && part.count > 0 && !arrival->closed) {
        rc = mrd_frame_next(&arrival->frame, &from, end, &part);
        if (!rc && part.first)
            rc = message_begin(arrival, arrival->frame.number);
        if (!rc && part.count > 0)
            rc = part_keep(arrival, &part);
        if (!rc && part.last)
            rc = message_end(arrival, arrival->frame.number);
    }
    return rc;
}

static int broken(const struct arrival *arrival, const char *how)
{
    return err_set(ERR_TRUNCATED,
                   "The MRD stream ended without CLOSE, after %llu acquisitions and %llu bytes: %s. The part that "
                   "arrived is not a complete scan.",
                   (unsigned long long)arrival->acquisitions, (unsigned long long)arrival->frame.at, how);
}

/* Wait for bytes, and meanwhile send completed images as far as the client reads them: it may send its whole scan
 * before it reads any. A new client must send its first message soon; later, a scanner may pause for long. */
static int input_wait(const struct arrival *arrival)
{
    const struct mrd_session *session = arrival->session;
    const struct options *options = session->service->core.options;
    const int64_t seconds = arrival->frame.messages ? options->mrd_idle_timeout : options->header_timeout;
    const struct mrd_line line = {session->socket, session->stop, 0};
    const double end = clock_seconds() + (double)seconds;
    for (;;) {
        const bool waits = mrd_images_wait(arrival->images);
        struct pollfd fds[] = {{.fd = session->socket, .events = (short)(waits ? POLLIN | POLLOUT : POLLIN)},
                               {.fd = session->stop, .events = POLLIN},
                               {.fd = arrival->images->event, .events = POLLIN}};
        const double left = end - clock_seconds();
        const int ready = poll(fds, 3, left > 0 ? (int)(1000 * left) + 1 : 0);
        if (fds[1].revents)
            return err_set(ERR_DRAINING, "The service is shutting down. Send the scan again when it is back.");
        if (ready == 0)
            return broken(arrival, "nothing arrived for a long time");
        if ((fds[0].revents & POLLOUT) && !mrd_images_push(arrival->images, &line))
            return broken(arrival, "the client ended the connection");
        if (fds[0].revents & ~POLLOUT)
            return 0;
    }
}

/* Acknowledge what has come at once. A client whose system gathers small pieces (Nagle) sends CLOSE, of two bytes, only
 * when all before it was acknowledged, for which the kernel may wait 40 ms. It does so again after each call. */
static void acknowledge(int socket)
{
    const int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
}

/* Receive until CLOSE. Fails with the stream's error, ERR_TRUNCATED (it broke off), ERR_DRAINING. */
static int stream_receive(struct arrival *arrival)
{
    uint8_t *input = malloc(INPUT_BYTES);
    int rc = input ? 0 : err_no_memory("an MRD session");
    while (!rc && !arrival->closed) {
        rc = input_wait(arrival);
        ssize_t got = rc ? 0 : recv(arrival->session->socket, input, INPUT_BYTES, 0);
        if (!rc && got == 0)
            rc = broken(arrival, "the client ended the connection");
        else if (!rc && got < 0 && errno != EAGAIN && errno != EINTR)
            rc = broken(arrival, strerror(errno));
        if (!rc && got > 0) {
            acknowledge(arrival->session->socket);
            rc = input_take(arrival, input, input + got);
        }
    }
    free(input);
    return rc;
}

static void arrival_clear(struct arrival *arrival)
{
    if (arrival->upload.spool && arrival->acquisitions > 0)
        scheduler_retract(arrival->session->service->scheduler, arrival->upload.id);
    spool_abort(&arrival->upload);
    job_clear(&arrival->job);
    for (int i = 0; i < MRD_QUERIES; i++)
        free(arrival->queries[i]);
}

/* The stream broke off: if an acquisition has arrived, keep the received part as a failed job. */
static bool failure_keep(struct arrival *arrival, const struct err *failure)
{
    struct service *service = arrival->session->service;
    char id[JOB_ID];
    if (failure->code != ERR_TRUNCATED || arrival->acquisitions == 0)
        return false;
    memcpy(id, arrival->upload.id, sizeof id);
    const bool kept = submission_commit_failed(service, &arrival->job, &arrival->upload, failure) == 0;
    scheduler_retract(service->scheduler, id); /* whether or not it is kept */
    if (kept)
        log_line_about(service->core.log, LOG_LEVEL_WARNING,
                       &(struct log_about){arrival->job.id, arrival->job.client, failure->code},
                       "an MRD stream broke off; %lld bytes are kept", (long long)arrival->job.bytes);
    return kept;
}

/* The commit of a job, which waits for the disk, in a thread of its own, so that images can be sent meanwhile. */
struct commit {
    struct arrival *arrival;
    int done; /* eventfd */
    int rc;
    struct err failure;
};

static void *commit_run(void *of)
{
    struct commit *commit = of;
    struct arrival *arrival = commit->arrival;
    commit->rc = submission_commit(arrival->session->service, &arrival->job, &arrival->upload);
    commit->failure = *err_last();
    eventfd_write(commit->done, 1);
    return NULL;
}

static int arrival_commit(struct arrival *arrival)
{
    const struct mrd_session *session = arrival->session;
    const struct mrd_line line = {session->socket, session->stop, 0};
    struct commit commit = {.arrival = arrival, .done = eventfd(0, EFD_CLOEXEC)};
    pthread_t thread;
    const bool beside = commit.done >= 0 && arrival->images->core &&
                        thread_start(&thread, commit_run, &commit, "stores a scan of an MRD session") == 0;
    bool sends = beside;
    if (!beside)
        commit_run(&commit);
    while (sends) {
        const bool waits = mrd_images_wait(arrival->images);
        struct pollfd fds[] = {{.fd = commit.done, .events = POLLIN},
                               {.fd = arrival->images->event, .events = POLLIN},
                               {.fd = session->socket, .events = (short)(waits ? POLLOUT : 0)}};
        sends = poll(fds, 3, -1) >= 0 && !fds[0].revents && !(fds[2].revents & ~POLLOUT) &&
                (!fds[2].revents || mrd_images_push(arrival->images, &line));
    }
    if (beside)
        pthread_join(thread, NULL);
    if (commit.done >= 0)
        close(commit.done);
    return commit.rc ? err_restore(&commit.failure) : 0;
}

/* Receive the stream and make it a job. *id: "": the client only sent CLOSE. */
static int job_receive(const struct mrd_session *session, struct mrd_images *images, char id[JOB_ID])
{
    struct arrival *arrival = calloc(1, sizeof *arrival);
    if (!arrival)
        return err_no_memory("an MRD session");
    arrival->session = session;
    arrival->images = images;
    arrival->upload.fd = -1;
    int rc = stream_receive(arrival);
    if (!rc && arrival->upload.spool)
        rc = arrival_commit(arrival);
    if (!rc && *arrival->job.id) {
        char how[96];
        snprintf(how, sizeof how, "accepted over MRD, %llu acquisitions, %llu waveforms ignored",
                 (unsigned long long)arrival->acquisitions, (unsigned long long)arrival->waveforms);
        submission_accepted(session->service, &arrival->job, how);
    }
    struct err failure = *err_last();
    bool kept = !rc && *arrival->job.id;
    if (rc)
        kept = failure_keep(arrival, &failure);
    memcpy(id, kept ? arrival->job.id : "", kept ? JOB_ID : 1);
    arrival_clear(arrival);
    free(arrival);
    return rc ? err_restore(&failure) : 0;
}

/* ---- answer ---- */

/* Wait for the end of the job, and meanwhile send its images. Fails if the job can't be read, such as after it ended
 * and was deleted; with ERR_DRAINING if the client disconnected or the service stops. */
static int end_wait(const struct mrd_session *session, struct mrd_images *images, const struct mrd_line *line,
                    const char *id, struct job *job)
{
    const struct core *core = &session->service->core;
    struct waiter waiter;
    int rc = 0;
    const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool waits = event >= 0, ended = false;
    while (waits && !ended) {
        struct pollfd fds[] = {{.fd = event, .events = POLLIN},
                               {.fd = session->stop, .events = POLLIN},
                               {.fd = session->socket, .events = 0},
                               {.fd = images->event, .events = POLLIN}};
        eventfd_t woken;
        const bool entered = waiters_enter(core->waiters, &waiter, event, id, clock_seconds() + LOOK_SECONDS);
        rc = store_get(core->store, id, job);
        waits = !rc;
        ended = waits && job_state_is_final(job->state);
        if (waits && !ended) {
            job_clear(job);
            waits = !mrd_images_wait(images) || mrd_images_flush(images, line);
            poll(fds, 4, waits ? (int)(1000 * LOOK_SECONDS) : 0);
            /* At once: the store may be busy with this very job, which begins. */
            if (waits && fds[3].revents && mrd_images_wait(images))
                waits = mrd_images_flush(images, line);
            eventfd_read(event, &woken);
            waits = waits && entered && !fds[1].revents && !fds[2].revents;
        }
        waiters_leave(core->waiters, &waiter);
    }
    if (event >= 0)
        close(event);
    if (rc || ended)
        return rc;
    return err_set(ERR_DRAINING,
                   "The session ends before the job: job %s continues, and its images will be at /v1/jobs/%s/results.",
                   id, id);
}

/* Send the images of a succeeded job. Fails with the error to send to the client; 0: they were sent, or the client has
 * disconnected (*sent). */
static int images_send(const struct mrd_session *session, struct mrd_images *images, const struct mrd_line *line,
                       const struct job *job, bool *sent)
{
    char name[KIND_FILE_NAME];
    int file;
    int64_t bytes, stamp;
    kind_file_name(kind_find(job->kind), mrd_result(job), name);
    int rc = spool_result_open(session->service->core.spool, job->id, name, &file, &bytes, &stamp);
    if (rc)
        return rc;
    rc = mrd_images_finish(images, line, file, bytes, sent);
    close(file);
    return rc;
}

/* Why a job has no images. */
static int end_failure(const struct job *job)
{
    struct err failure;
    if (job->state == JOB_CANCELED)
        return err_set(ERR_CANCELED, "Job %s was canceled before it ended.", job->id);
    wire_error_unpack(job->error, &failure);
    return err_restore(&failure);
}

/* A text may only follow a complete image: in the middle of one, no client may take the end for the image's. */
static bool failure_send(struct mrd_images *images, const struct mrd_line *line, const struct err *failure)
{
    const struct err told = *failure;
    if (!mrd_images_flush(images, line))
        return false;
    if (!mrd_images_within(images))
        return mrd_send_failure(line, &told);
    log_line(images->core->log, LOG_LEVEL_WARNING, images->id,
             "the MRD session is reset in the middle of an image: %s: %s", err_name(told.code), told.text);
    images->reset = true;
    mrd_reset(line);
    return true;
}

/* Send the client the outcome of its job. */
static enum metrics_session answer(const struct mrd_session *session, struct mrd_images *images,
                                   const struct mrd_line *line, const char *id)
{
    struct job job = {.id = ""};
    bool sent = false;
    int rc = end_wait(session, images, line, id, &job);
    const bool left = rc == ERR_DRAINING;
    if (!rc)
        rc = job.state == JOB_SUCCEEDED ? images_send(session, images, line, &job, &sent) : end_failure(&job);
    if (rc)
        sent = failure_send(images, line, err_last());
    job_clear(&job);
    return left || !sent ? METRICS_SESSION_LEFT : rc ? METRICS_SESSION_FAILED : METRICS_SESSION_ANSWERED;
}

static enum metrics_session session_serve(const struct mrd_session *session, struct mrd_images *images,
                                          const struct mrd_line *line, char id[JOB_ID])
{
    if (session->refusal.code) {
        mrd_send_failure(line, &session->refusal);
        return METRICS_SESSION_REFUSED;
    }
    int rc = job_receive(session, images, id);
    if (!rc && *id)
        return answer(session, images, line, id);
    if (!rc) {
        mrd_send_close(line);
        return METRICS_SESSION_EMPTY;
    }
    const struct err failure = *err_last();
    if (rc == ERR_INTERNAL || rc == ERR_STORE || rc == ERR_IO)
        log_line_about(session->service->core.log, LOG_LEVEL_ERROR, &(struct log_about){NULL, session->client, rc},
                       "%s", failure.text);
    metrics_rejected(session->service->core.metrics, rc);
    failure_send(images, line, &failure);
    return rc == ERR_TRUNCATED ? METRICS_SESSION_BROKEN : METRICS_SESSION_REFUSED;
}

void mrd_session_run(const struct mrd_session *session)
{
    const struct core *core = &session->service->core;
    const struct mrd_line line = {session->socket, session->stop, (double)core->options->idle_timeout};
    char id[JOB_ID] = "";
    metrics_session_began(core->metrics);
    struct mrd_images images = {.file = -1, .event = -1};
    enum metrics_session end = session_serve(session, &images, &line, id);
    const bool reset = images.reset;
    mrd_images_end(&images);
    metrics_session_ended(core->metrics, end);
    log_line_about(core->log, LOG_LEVEL_AUDIT, &(struct log_about){*id ? id : NULL, session->client, 0},
                   "audit: client=%s peer=%s MRD session %s", session->client, session->peer,
                   metrics_session_name(end));
    if (!reset)
        mrd_linger(&line, LINGER_SECONDS);
}
