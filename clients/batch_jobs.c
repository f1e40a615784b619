#include "clients/batch_jobs.h"
#include "clients/job.h"
#include "clients/submission.h"
#include "gridding/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    ON_THE_SERVER = 32, /* scans at a time */
    TRIES = 3,          /* attempts to send a scan, and to download its result, if the connection breaks and the server
                         * is alive */
};

#define BUSY_SECONDS 5.0 /* delay after a temporary refusal */

/* ---- one scan ---- */

static void tell(struct batch *batch, const struct scan_entry *scan, const char *detail)
{
    static const char *const ends[] = {
        [SCAN_SUCCEEDED] = "succeeded", [SCAN_FAILED] = "failed", [SCAN_CANCELED] = "was canceled"};
    progress_end(&batch->progress);
    client_print_text(stderr, scan->name);
    fprintf(stderr, " %s%s", ends[scan->state], *detail ? ": " : "");
    client_print_text(stderr, detail);
    fprintf(stderr, *scan->code ? " [%s]\n" : "\n", scan->code);
}

static int ended(struct batch *batch, struct scan_entry *scan, enum scan_state state, const char *code,
                 const char *detail)
{
    scan->state = state;
    snprintf(scan->code, sizeof scan->code, "%s", code);
    tell(batch, scan, detail);
    batch->send_at = 0; /* fewer than the limit are on the server */
    return journal_ended(batch->journal, scan);
}

/* Errors that concern every scan. */
static bool is_of_the_command(int rc)
{
    return rc == ERR_BAD_PARAMETER || rc == ERR_UNKNOWN_PARAMETER || rc == ERR_UNKNOWN_KIND || rc == ERR_BAD_REQUEST ||
           rc == ERR_UNAUTHORIZED || rc == ERR_FORBIDDEN;
}

static void answered(struct batch *batch)
{
    batch->answered = clock_seconds();
    if (batch->waits_for == ERR_IO)
        batch->waits_for = 0;
}

void batch_waits_for_failure(struct batch *batch)
{
    progress_end(&batch->progress);
    fprintf(stderr, "mrirecon: waiting: ");
    client_print_text(stderr, err_last()->text);
    fprintf(stderr, " [%s]\n", err_name(err_last()->code));
}

/* 0, after the failure `rc` was printed, unless it was the last one printed. */
static int wait_for(struct batch *batch, int rc)
{
    if (rc != batch->waits_for)
        batch_waits_for_failure(batch);
    batch->waits_for = rc;
    return 0;
}

/* After a failed call: 0 if a retry later is worth it. An address that has never answered is probably wrong. */
static int later(struct batch *batch, int rc)
{
    const bool gone = batch->answered == 0 || clock_seconds() - batch->answered > OUTAGE_SECONDS;
    if (rc == ERR_IO && gone && !batch->endless)
        return rc;
    if (rc != ERR_IO && !job_failure_passes(rc))
        return rc;
    batch->send_at = clock_seconds() + BUSY_SECONDS;
    return wait_for(batch, rc);
}

/* A scan that could not be sent: it is retried later, or fails, or the batch ends. */
static int not_sent(struct batch *batch, struct scan_entry *scan, int rc)
{
    json_t *alive = NULL;
    const struct err why = *err_last();
    if (rc == ERR_CANCELED || is_of_the_command(rc))
        return rc;
    /* The connection breaks, or the file cannot be read, although the server answers other requests: after several
     * attempts this scan fails, and the others continue. */
    int silence = rc == ERR_IO ? server_call(batch->server, "GET", "/livez", &alive) : 0;
    json_decref(alive);
    if (silence == ERR_CANCELED)
        return silence;
    if (!silence)
        answered(batch);
    bool its_own = rc == ERR_IO && !silence && ++scan->tries == TRIES;
    err_restore(&why);
    if (!its_own && later(batch, rc) == 0)
        return 0;
    return silence ? rc : ended(batch, scan, SCAN_FAILED, err_name(why.code), why.text);
}

static int send(struct batch *batch, struct scan_entry *scan)
{
    json_t *job = NULL;
    char *file = folder_path(batch->folder, scan->name);
    int rc = file ? 0 : ERR_NO_MEMORY;
    bool readable = file && access(file, R_OK) == 0;
    if (file && !readable && batch->endless && errno != EACCES) {
        /* It is gone, or its folder is away for a while: the next look at the folder tells. */
        scan->not_before = clock_seconds() + BUSY_SECONDS;
        free(file);
        return 0;
    }
    if (file && (!readable || scan->bytes == 0)) {
        rc = ended(batch, scan, SCAN_FAILED, err_name(readable ? ERR_EMPTY_BODY : ERR_IO),
                   readable ? "The file is empty." : strerror(errno));
        free(file);
        return rc;
    }
    if (!rc && !*scan->key)
        rc = journal_sending(batch->journal, scan);
    if (rc) {
        free(file);
        return rc;
    }
    progress_end(&batch->progress);
    rc = submission_send(batch->server, batch->options, batch->path, file, scan->key, &job);
    free(file);
    if (rc)
        return not_sent(batch, scan, rc);
    answered(batch);
    scan->state = SCAN_SENT;
    scan->tries = 0;
    snprintf(scan->id, sizeof scan->id, "%s", client_text(job, "id"));
    json_decref(job);
    return journal_sent(batch->journal, scan);
}

/* Seconds between two times of a job's document; 0: one is missing. */
static double seconds_between(const json_t *job, const char *from, const char *to)
{
    double at[2] = {0, 0};
    const char *const text[2] = {client_text(job, from), client_text(job, to)};
    for (int i = 0; i < 2; i++) {
        struct tm utc = {0};
        const char *rest = strptime(text[i], "%Y-%m-%dT%H:%M:%S", &utc);
        if (!rest)
            return 0;
        at[i] = (double)timegm(&utc) + (*rest == '.' ? strtod(rest, NULL) : 0);
    }
    return at[1] - at[0];
}

/* The job has succeeded: download its result. */
static int save(struct batch *batch, struct scan_entry *scan)
{
    char *image = folder_image_path(batch->out, scan, batch->result.ending);
    int rc = image ? job_fetch(batch->server, scan->id, &batch->result, image) : ERR_NO_MEMORY;
    if (!rc && batch->endless) {
        puts(image);
        fflush(stdout);
    }
    free(image);
    if (!rc)
        return ended(batch, scan, SCAN_SUCCEEDED, "", "");
    if (batch->endless && (rc == ERR_IO || rc == ERR_SPOOL_FULL)) {
        scan->not_before = clock_seconds() + BUSY_SECONDS;
        return wait_for(batch, rc);
    }
    /* The server may have stopped just then: retry later. An error of our own disk does not go away by retrying. */
    if (rc == ERR_IO)
        return ++scan->tries < TRIES ? 0 : rc;
    if (rc == ERR_CANCELED || rc == ERR_SPOOL_FULL || is_of_the_command(rc))
        return rc;
    struct err why = *err_last();
    return later(batch, rc) == 0 ? 0 : ended(batch, scan, SCAN_FAILED, err_name(why.code), why.text);
}

/* Poll the job of a scan. */
static int job_look(struct batch *batch, struct scan_entry *scan)
{
    json_t *job = NULL;
    int rc = job_call(batch->server, "GET", scan->id, "", &job);
    if (rc == ERR_NOT_FOUND) { /* the job was deleted before its result was downloaded */
        answered(batch);
        return journal_sending(batch->journal, scan);
    }
    if (rc)
        return later(batch, rc);
    answered(batch);
    if (strcmp(client_text(job, "state"), "running") == 0) {
        char step[PROGRESS_TEXT];
        progress_step(job, step);
        snprintf(batch->now, sizeof batch->now, "%.60s: %.90s", scan->name, step);
    }
    if (job_is_final(job)) {
        const char *state = client_text(job, "state");
        const json_t *error = json_object_get(job, "error");
        scan->seconds = seconds_between(job, "started", "finished");
        if (strcmp(state, "succeeded") == 0)
            rc = save(batch, scan);
        else
            rc = ended(batch, scan, strcmp(state, "failed") == 0 ? SCAN_FAILED : SCAN_CANCELED,
                       client_text(error, "code"), client_text(error, "detail"));
    }
    json_decref(job);
    return rc;
}

/* ---- all scans ---- */

int batch_count(const struct batch *batch, enum scan_state state)
{
    int count = 0;
    for (int i = 0; i < batch->count; i++)
        count += batch->scan[i].state == state;
    return count;
}

void batch_tell(struct batch *batch)
{
    char text[PROGRESS_TEXT];
    int failed = batch_count(batch, SCAN_FAILED) + batch_count(batch, SCAN_CANCELED);
    int done = batch_count(batch, SCAN_SUCCEEDED) + failed;
    int used =
        snprintf(text, sizeof text, "%d of %d, %d on the server", done, batch->count, batch_count(batch, SCAN_SENT));
    if (failed)
        used += snprintf(text + used, sizeof text - (size_t)used, ", %d failed", failed);
    if (*batch->now)
        snprintf(text + used, sizeof text - (size_t)used, "; %.100s", batch->now);
    progress_tell(&batch->progress, (double)done / batch->count, text);
}

/* An entry of an earlier run: a result that is missing is downloaded again, and with --retry what failed is retried. */
static int take_up(const struct batch *batch, struct scan_entry *scan)
{
    char *image = folder_image_path(batch->out, scan, batch->result.ending);
    if (!image)
        return ERR_NO_MEMORY;
    if (scan->whole_name) {
        client_print_text(stderr, scan->name);
        fprintf(stderr, ": another scan differs only in the ending; the image is called ");
        client_print_text(stderr, strrchr(image, '/') + 1);
        fputc('\n', stderr);
    }
    bool failed = scan->state == SCAN_FAILED || scan->state == SCAN_CANCELED;
    if (scan->state == SCAN_SUCCEEDED && access(image, F_OK) != 0)
        scan->state = SCAN_SENT;
    if (failed && batch->options->retry) {
        scan->key[0] = '\0';
        scan->state = SCAN_NEW;
    }
    free(image);
    return 0;
}

int batch_resume(struct batch *batch, struct scan_entry *entry, int count)
{
    int rc = journal_read(batch->journal, entry, count);
    for (int i = 0; !rc && i < count; i++)
        rc = take_up(batch, &entry[i]);
    return rc;
}

int batch_round(struct batch *batch, bool *idle)
{
    int rc = 0, sent = batch_count(batch, SCAN_SENT);
    double looked = clock_seconds();
    for (int i = 0; i < batch->count && !rc && sent < ON_THE_SERVER; i++) {
        const double now = clock_seconds();
        if (batch->scan[i].state != SCAN_NEW || now < batch->send_at || now < batch->scan[i].not_before ||
            now > looked + LOOK_SECONDS)
            continue;
        rc = send(batch, &batch->scan[i]);
        sent += batch->scan[i].state == SCAN_SENT;
        batch_tell(batch);
    }
    batch->now[0] = '\0';
    for (int i = 0; i < batch->count && !rc; i++)
        if (batch->scan[i].state == SCAN_SENT && clock_seconds() >= batch->scan[i].not_before)
            rc = job_look(batch, &batch->scan[i]);
    batch_tell(batch);
    *idle = sent >= ON_THE_SERVER || batch_count(batch, SCAN_NEW) == 0 || clock_seconds() < batch->send_at;
    return rc;
}

/* ---- begin and end ---- */

/* The folder for results must not be the scans' folder: the next run would take a result for a scan. */
static int out_make(struct batch *batch)
{
    struct stat scans, images;
    if (mkdir(batch->out, 0777) != 0 && errno != EEXIST)
        return err_set(ERR_IO, "The folder %s cannot be created: %s. Use --out to give another.", batch->out,
                       strerror(errno));
    if (stat(batch->folder, &scans) != 0 || stat(batch->out, &images) != 0)
        return err_set(ERR_IO, "The folder %s cannot be used: %s.", batch->out, strerror(errno));
    if (scans.st_dev == images.st_dev && scans.st_ino == images.st_ino)
        return err_set(ERR_IO, "The images' folder must differ from the scans'; use --out to give one.");
    return 0;
}

int batch_open(struct batch *batch)
{
    int rc = 0;
    if (!batch->out && !(batch->out = batch->inside = folder_path(batch->folder, "images")))
        rc = ERR_NO_MEMORY;
    if (!rc)
        rc = out_make(batch);
    char *state = rc ? NULL : folder_path(batch->out, "batch.state");
    if (!rc)
        rc = state ? journal_open(&batch->journal, state, batch->path) : ERR_NO_MEMORY;
    free(state);
    return rc;
}

int batch_create(struct batch *batch, struct server *server, const struct client_options *options, const char *priority)
{
    *batch = (struct batch){.server = server, .options = options, .folder = options->word[0], .out = options->out};
    struct client_options form = *options;
    form.out = NULL; /* a folder, whose name does not determine the format */
    if (!form.priority)
        form.priority = priority;
    int status = result_of_submission(&form, &batch->result);
    return status ? status : submission_path(server, &form, NULL, &batch->path);
}

void batch_clear(struct batch *batch)
{
    journal_free(batch->journal);
    folder_free(batch->scan, batch->count);
    free(batch->path);
    free(batch->inside);
}
