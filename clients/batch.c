/* mrirecon batch: every scan of a folder, sent, waited for and its image fetched; where it breaks off, the same command
 * goes on. Some scans are on the server at a time, so that uploads and reconstructions overlap and its queue is not
 * filled. */
#include "clients/client.h"
#include "clients/job.h"
#include "clients/journal.h"
#include "clients/progress.h"
#include "clients/submission.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    ON_THE_SERVER = 32, /* scans at a time */
    FETCHES = 3,        /* of one image, where the connection breaks */
};

#define LOOK_SECONDS 0.25 /* between looks at the jobs */
#define BUSY_SECONDS 5.0  /* before a server that refused for now is asked again */

struct batch {
    struct service *service;
    const struct client_options *options;
    const char *folder, *out, *format;
    char *path; /* of a submission */
    struct scan_entry *scan;
    int count;
    struct journal *journal;
    struct progress progress;
    double answered; /* when the server did last */
    double send_at;  /* no scan is sent before */
    bool wrong;      /* the server says that the command line is */
};

/* ---- the folder ---- */

static int scan_compare(const void *a, const void *b)
{
    return strcmp(((const struct scan_entry *)a)->name, ((const struct scan_entry *)b)->name);
}

static bool is_scan(const char *name)
{
    const char *ending = strrchr(name, '.');
    return ending && ending != name && (strcmp(ending, ".h5") == 0 || strcmp(ending, ".mrd") == 0);
}

static int scan_add(struct batch *batch, const char *name, const struct stat *there)
{
    json_t *text = json_string(name);
    json_decref(text);
    if (!text)
        return err_set(ERR_IO, "%s holds a file whose name is not UTF-8. Rename it.", batch->folder);
    struct scan_entry *more = realloc(batch->scan, ((size_t)batch->count + 1) * sizeof *more);
    if (more)
        batch->scan = more;
    char *copy = more ? strdup(name) : NULL;
    if (!copy)
        return err_set(ERR_NO_MEMORY, "There is no memory for the list of scans.");
    int64_t changed = (int64_t)there->st_mtim.tv_sec * 1000000000 + there->st_mtim.tv_nsec;
    batch->scan[batch->count++] = (struct scan_entry){.name = copy, .bytes = there->st_size, .changed = changed};
    return 0;
}

static int folder_read(struct batch *batch)
{
    DIR *stream = opendir(batch->folder);
    int failure = 0;
    if (!stream)
        return err_set(ERR_IO, "The folder %s cannot be read: %s.", batch->folder, strerror(errno));
    for (struct dirent *item; !failure && (item = readdir(stream));) {
        struct stat there;
        if (is_scan(item->d_name) && fstatat(dirfd(stream), item->d_name, &there, 0) == 0 && S_ISREG(there.st_mode))
            failure = scan_add(batch, item->d_name, &there);
    }
    closedir(stream);
    if (!failure && batch->count == 0)
        failure = err_set(ERR_IO, "%s holds no scan: no file whose name ends in .h5 or .mrd.", batch->folder);
    if (!failure)
        qsort(batch->scan, (size_t)batch->count, sizeof *batch->scan, scan_compare);
    return failure;
}

/* FOLDER/NAME with another ending; the caller frees it. NULL (failure set): no memory. */
static char *path_of(const char *folder, const char *name, const char *ending)
{
    char *path = NULL;
    int stem = (int)(ending ? strrchr(name, '.') - name : (long)strlen(name));
    if (asprintf(&path, "%s/%.*s%s%s", folder, stem, name, ending ? "." : "", ending ? ending : "") >= 0)
        return path;
    err_set(ERR_NO_MEMORY, "There is no memory for a path.");
    return NULL;
}

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
    return journal_ended(batch->journal, scan);
}

/* Whether the server, as it is now, may take later what it did not take now; and what it refuses whatever scan comes.
 */
static bool is_for_now(int failure)
{
    return failure == ERR_QUEUE_FULL || failure == ERR_DRAINING || failure == ERR_QUOTA || failure == ERR_SPOOL_FULL ||
           failure == ERR_KEY_IN_USE || failure == ERR_NO_MEMORY || failure == ERR_STORE;
}

static bool is_of_the_command(int failure)
{
    return failure == ERR_BAD_PARAMETER || failure == ERR_UNKNOWN_PARAMETER || failure == ERR_UNKNOWN_KIND ||
           failure == ERR_BAD_REQUEST || failure == ERR_UNAUTHORIZED || failure == ERR_FORBIDDEN;
}

/* After a call that failed: 0 where it is worth trying again later. */
static int later(struct batch *batch, int failure)
{
    if (failure == ERR_IO && client_seconds() - batch->answered > OUTAGE_SECONDS)
        return failure;
    if (failure != ERR_IO && !is_for_now(failure))
        return failure;
    batch->send_at = client_seconds() + BUSY_SECONDS;
    return 0;
}

static int send(struct batch *batch, struct scan_entry *scan)
{
    json_t *job = NULL;
    char *file = path_of(batch->folder, scan->name, NULL);
    int failure = file ? 0 : ERR_NO_MEMORY;
    if (file && access(file, R_OK) != 0) {
        failure = ended(batch, scan, SCAN_FAILED, "io-error", strerror(errno));
        free(file);
        return failure;
    }
    if (!failure && !*scan->key)
        failure = journal_sending(batch->journal, scan);
    if (failure) {
        free(file);
        return failure;
    }
    progress_end(&batch->progress);
    failure = submission_send(batch->service, batch->path, file, scan->key, &job);
    free(file);
    if (!failure) {
        batch->answered = client_seconds();
        scan->state = SCAN_SENT;
        snprintf(scan->id, sizeof scan->id, "%s", client_text(job, "id"));
        json_decref(job);
        return journal_sent(batch->journal, scan);
    }
    if (failure == ERR_CANCELED || is_of_the_command(failure)) {
        batch->wrong = failure != ERR_CANCELED;
        return failure;
    }
    if (failure != ERR_IO)
        batch->answered = client_seconds();
    struct err why = *err_last();
    if (later(batch, failure) == 0)
        return 0;
    return failure == ERR_IO ? err_restore(&why) : ended(batch, scan, SCAN_FAILED, err_name(why.code), why.text);
}

/* Seconds between two times of a job's document; 0: one is not there. */
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

/* The job has its image: so have we. */
static int save(struct batch *batch, struct scan_entry *scan)
{
    char *image = path_of(batch->out, scan->name, batch->format);
    int failure = image ? job_fetch(batch->service, scan->id, batch->format, image) : ERR_NO_MEMORY;
    free(image);
    if (!failure)
        return ended(batch, scan, SCAN_SUCCEEDED, "", "");
    /* The server may have gone down just then; that the image cannot be written here does not pass by trying. */
    return failure == ERR_IO && ++scan->tries < FETCHES ? 0 : failure;
}

/* How far a scan is that was sent. */
static int look(struct batch *batch, struct scan_entry *scan)
{
    json_t *job = NULL;
    int failure = job_call(batch->service, "GET", scan->id, "", &job);
    if (failure == ERR_NOT_FOUND) { /* it was deleted before its image was fetched */
        batch->answered = client_seconds();
        return journal_sending(batch->journal, scan);
    }
    if (failure)
        return later(batch, failure);
    batch->answered = client_seconds();
    if (job_is_final(job)) {
        const char *state = client_text(job, "state");
        const json_t *error = json_object_get(job, "error");
        scan->seconds = seconds_between(job, "started", "finished");
        if (strcmp(state, "succeeded") == 0)
            failure = save(batch, scan);
        else
            failure = ended(batch, scan, strcmp(state, "failed") == 0 ? SCAN_FAILED : SCAN_CANCELED,
                            client_text(error, "code"), client_text(error, "detail"));
    }
    json_decref(job);
    return failure;
}

/* ---- all scans ---- */

static int count_of(const struct batch *batch, enum scan_state state)
{
    int count = 0;
    for (int i = 0; i < batch->count; i++)
        count += batch->scan[i].state == state;
    return count;
}

static void tell_all(struct batch *batch)
{
    char text[64];
    int failed = count_of(batch, SCAN_FAILED) + count_of(batch, SCAN_CANCELED);
    int done = count_of(batch, SCAN_SUCCEEDED) + failed;
    snprintf(text, sizeof text, "%d of %d, %d on the server, %d failed", done, batch->count, count_of(batch, SCAN_SENT),
             failed);
    if (batch->progress.terminal)
        progress_tell(&batch->progress, (double)done / batch->count, text);
}

/* What an earlier run left: images that are gone are made again, and with --retry what failed is tried again. */
static int take_up(struct batch *batch)
{
    int known = 0;
    for (int i = 0; i < batch->count; i++) {
        struct scan_entry *scan = &batch->scan[i];
        char *image = path_of(batch->out, scan->name, batch->format);
        if (!image)
            return ERR_NO_MEMORY;
        bool failed = scan->state == SCAN_FAILED || scan->state == SCAN_CANCELED;
        if (scan->state == SCAN_SUCCEEDED && access(image, F_OK) != 0)
            scan->state = SCAN_SENT;
        if (failed && batch->options->retry) {
            scan->key[0] = '\0';
            scan->state = SCAN_NEW;
        }
        known += *scan->key != '\0';
        free(image);
    }
    if (known)
        fprintf(stderr, "mrirecon: going on with a batch: %d of %d scans are done, %d on the server\n",
                count_of(batch, SCAN_SUCCEEDED) + count_of(batch, SCAN_FAILED) + count_of(batch, SCAN_CANCELED),
                batch->count, count_of(batch, SCAN_SENT));
    return 0;
}

static int run(struct batch *batch)
{
    int failure = 0;
    batch->answered = client_seconds();
    while (!failure && count_of(batch, SCAN_NEW) + count_of(batch, SCAN_SENT) > 0) {
        int sent = count_of(batch, SCAN_SENT);
        double looked = client_seconds();
        for (int i = 0; i < batch->count && !failure && sent < ON_THE_SERVER; i++) {
            if (batch->scan[i].state != SCAN_NEW || client_seconds() < batch->send_at ||
                client_seconds() > looked + LOOK_SECONDS)
                continue;
            failure = send(batch, &batch->scan[i]);
            sent += batch->scan[i].state == SCAN_SENT;
            tell_all(batch);
        }
        for (int i = 0; i < batch->count && !failure; i++)
            if (batch->scan[i].state == SCAN_SENT)
                failure = look(batch, &batch->scan[i]);
        tell_all(batch);
        bool idle = sent >= ON_THE_SERVER || count_of(batch, SCAN_NEW) == 0 || client_seconds() < batch->send_at;
        if (!failure && idle && count_of(batch, SCAN_NEW) + count_of(batch, SCAN_SENT) > 0)
            failure = service_pause(batch->service, LOOK_SECONDS);
    }
    progress_end(&batch->progress);
    return failure;
}

static void summary(const struct batch *batch)
{
    static const char *const names[] = {[SCAN_NEW] = "not sent",
                                        [SCAN_SENT] = "on the server",
                                        [SCAN_SUCCEEDED] = "succeeded",
                                        [SCAN_FAILED] = "failed",
                                        [SCAN_CANCELED] = "canceled"};
    int width = 4;
    for (int i = 0; i < batch->count; i++)
        if ((int)strlen(batch->scan[i].name) > width)
            width = (int)strlen(batch->scan[i].name);
    printf("%-*s  %-13s  %9s  %s\n", width, "scan", "state", "seconds", "job, or why");
    for (int i = 0; i < batch->count; i++) {
        const struct scan_entry *scan = &batch->scan[i];
        client_print_text(stdout, scan->name);
        printf("%*s  %-13s  ", width - (int)strlen(scan->name), "", names[scan->state]);
        if (scan->state == SCAN_SUCCEEDED)
            printf("%9.3f  %s\n", scan->seconds, scan->id);
        else
            printf("%9s  %s\n", "", *scan->code ? scan->code : scan->id);
    }
    printf("%d of %d succeeded, %d failed\n", count_of(batch, SCAN_SUCCEEDED), batch->count,
           count_of(batch, SCAN_FAILED) + count_of(batch, SCAN_CANCELED));
}

/* The folder for images, which is not that of the scans: an image would be taken for a scan the next time. */
static int out_make(struct batch *batch)
{
    struct stat scans, images;
    if (mkdir(batch->out, 0777) != 0 && errno != EEXIST)
        return err_set(ERR_IO, "The folder %s cannot be made: %s.", batch->out, strerror(errno));
    if (stat(batch->folder, &scans) != 0 || stat(batch->out, &images) != 0)
        return err_set(ERR_IO, "The folder %s cannot be used: %s.", batch->out, strerror(errno));
    if (scans.st_dev == images.st_dev && scans.st_ino == images.st_ino)
        return err_set(ERR_IO, "Images go to another folder than that of the scans; name one by --out.");
    return 0;
}

static int batch_run(struct batch *batch)
{
    char *state = NULL, *inside = NULL;
    int failure = 0;
    if (!batch->out && !(batch->out = inside = path_of(batch->folder, "images", NULL)))
        failure = ERR_NO_MEMORY;
    if (!failure)
        failure = folder_read(batch);
    if (!failure)
        failure = out_make(batch);
    if (!failure && !(state = path_of(batch->out, "batch.state", NULL)))
        failure = ERR_NO_MEMORY;
    if (!failure)
        failure = journal_open(&batch->journal, state, batch->path, batch->scan, batch->count);
    if (!failure)
        failure = take_up(batch);
    progress_start(&batch->progress);
    if (!failure)
        failure = run(batch);
    free(state);
    free(inside);
    return failure;
}

int client_batch(struct service *service, const struct client_options *options)
{
    struct batch batch = {
        .service = service, .options = options, .folder = options->word[0], .out = options->out, .path = NULL};
    const char *wrong;
    struct client_options form = *options;
    form.out = NULL; /* a folder, whose name says nothing of the form */
    if (!client_format(&form, &batch.format, &wrong))
        return client_wrong_format(wrong);
    if (!form.priority)
        form.priority = "batch";
    int code = submission_path(service, &form, NULL, &batch.path);
    if (code)
        return code;
    int failure = batch_run(&batch);
    struct err why = *err_last();
    bool began = batch.journal != NULL && !batch.wrong;
    if (began)
        summary(&batch);
    if (failure) {
        err_restore(&why);
        code = client_failed();
        if (began)
            fprintf(stderr, "mrirecon: the same command goes on where this one ended.\n");
    } else if (count_of(&batch, SCAN_SUCCEEDED) < batch.count) {
        code = CLIENT_FAILED;
    }
    journal_free(batch.journal);
    for (int i = 0; i < batch.count; i++)
        free(batch.scan[i].name);
    free(batch.scan);
    free(batch.path);
    return code;
}
