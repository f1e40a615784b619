/* The commands about one job: submit, wait, fetch, show, cancel, delete; and list. */
#include "clients/client.h"
#include "clients/progress.h"
#include "clients/save.h"
#include "clients/submission.h"
#include "recon/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A job is asked about after this time, then after longer and longer. */
#define FIRST_PAUSE_SECONDS 0.02
#define LAST_PAUSE_SECONDS  0.5
/* A daemon that is being restarted is back within this time. */
#define OUTAGE_SECONDS 60.0

/* "/v1/jobs/ID" + rest; the caller frees it. NULL (failure set): no memory. */
static char *job_path(struct service *service, const char *id, const char *rest)
{
    char *path = NULL, *escaped = service_escape(service, id);
    if (!escaped || asprintf(&path, "/v1/jobs/%s%s", escaped, rest) < 0) {
        err_set(ERR_NO_MEMORY, "There is no memory for a request.");
        path = NULL;
    }
    free(escaped);
    return path;
}

static int job_call(struct service *service, const char *method, const char *id, const char *rest, json_t **out)
{
    char *path = job_path(service, id, rest);
    if (!path)
        return ERR_NO_MEMORY;
    int failure = service_call(service, method, path, out);
    free(path);
    return failure;
}

static bool is_final(const json_t *job)
{
    const char *state = client_text(job, "state");
    return strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "canceled") == 0;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Ask until the job has come to its end. *out is its last document. */
static int follow(struct service *service, const char *id, json_t **out)
{
    struct progress progress;
    double pause = FIRST_PAUSE_SECONDS, answered = seconds_now();
    int failure;
    progress_start(&progress);
    for (;;) {
        json_t *job = NULL;
        failure = job_call(service, "GET", id, "", &job);
        if (!failure) {
            answered = seconds_now();
            const char *state = client_text(job, "state"), *stage = client_text(job, "stage");
            double fraction = json_number_value(json_object_get(job, "progress"));
            if (is_final(job)) {
                *out = job;
                break;
            }
            bool running = strcmp(state, "running") == 0;
            progress_tell(&progress, running ? fraction : -1, running && *stage ? stage : state);
            json_decref(job);
        } else if (failure == ERR_IO && seconds_now() - answered < OUTAGE_SECONDS) {
            progress_tell(&progress, -1, "the server does not answer; still trying");
        } else {
            break;
        }
        failure = service_pause(service, pause);
        if (failure)
            break;
        pause = pause * 1.5 < LAST_PAUSE_SECONDS ? pause * 1.5 : LAST_PAUSE_SECONDS;
    }
    progress_end(&progress);
    if (failure == ERR_CANCELED)
        fprintf(stderr,
                "mrirecon: job %s goes on. `mrirecon wait %s` waits for it, `mrirecon fetch %s` gets its image, "
                "`mrirecon cancel %s` stops it.\n",
                id, id, id, id);
    return failure;
}

/* Say how a finished job ended. CLIENT_OK for one that succeeded. */
static int tell_end(const json_t *job)
{
    const char *id = client_text(job, "id"), *state = client_text(job, "state");
    if (strcmp(state, "succeeded") == 0)
        return CLIENT_OK;
    const json_t *error = json_object_get(job, "error");
    fprintf(stderr, "mrirecon: job %s %s", id, strcmp(state, "failed") == 0 ? "failed: " : "was canceled");
    client_print_text(stderr, client_text(error, "detail"));
    if (*client_text(error, "code"))
        fprintf(stderr, " [%s]", client_text(error, "code"));
    fputc('\n', stderr);
    return CLIENT_FAILED;
}

/* The form asked for: --format, else what the name of the file ends in, else h5. False: *wrong is no form. */
static bool choose_format(const struct client_options *options, const char **format, const char **wrong)
{
    *format = image_format_name(IMAGE_H5);
    if (options->format) {
        *wrong = options->format;
        int found = image_format_find(options->format);
        if (found >= 0)
            *format = image_format_name((enum image_format)found);
        return found >= 0;
    }
    if (!options->out || strcmp(options->out, "-") == 0)
        return true;
    for (int i = 0; i < IMAGE_FORMATS; i++) {
        const char *name = image_format_name((enum image_format)i);
        size_t length = strlen(options->out), ending = strlen(name);
        if (length > ending && options->out[length - ending - 1] == '.' &&
            strcmp(options->out + length - ending, name) == 0) {
            *format = name;
            return true;
        }
    }
    *wrong = options->out;
    struct stat there;
    return stat(options->out, &there) == 0 && !S_ISREG(there.st_mode); /* a pipe or device: h5 */
}

static int wrong_format(const char *wrong)
{
    fprintf(stderr, "mrirecon: no form of image is known by \"%s\". Those there are:", wrong);
    for (int i = 0; i < IMAGE_FORMATS; i++)
        fprintf(stderr, " %s", image_format_name((enum image_format)i));
    fprintf(stderr, "; --format names one.\n");
    return CLIENT_USAGE;
}

/* Download a job's image into a file that appears whole or not at all. */
static int fetch(struct service *service, const char *id, const char *format, const char *out)
{
    struct progress progress;
    const struct service_watch watch = {&progress, progress_moved};
    char *path = NULL, *rest = NULL;
    struct save *save = NULL;
    int failure;
    progress_start(&progress);
    if (asprintf(&rest, "/results/image?format=%s", format) < 0)
        return err_set(ERR_NO_MEMORY, "There is no memory for a request.");
    path = job_path(service, id, rest);
    failure = path ? save_create(&save, out) : ERR_NO_MEMORY;
    if (!failure)
        failure = service_download(service, path, save_fd(save), &watch);
    if (!failure)
        failure = save_commit(save);
    progress_end(&progress);
    save_free(save);
    free(path);
    free(rest);
    return failure;
}

/* Fetch, and say where the image is. */
static int fetch_and_tell(struct service *service, const struct client_options *options, const char *id,
                          const char *format)
{
    char name[128];
    const char *out = options->out;
    if (!out) {
        snprintf(name, sizeof name, "%s.%s", id, format);
        out = name;
    }
    if (fetch(service, id, format, out))
        return client_failed();
    if (strcmp(out, "-") != 0)
        puts(out);
    return CLIENT_OK;
}

/* What follows once there is a job: its id, or its end, or its image. `job` is taken. */
static int go_on(struct service *service, const struct client_options *options, const char *format, json_t *job)
{
    char *id = strdup(client_text(job, "id"));
    json_decref(job);
    job = NULL;
    int code = CLIENT_FAILED;
    if (!id) {
        err_set(ERR_NO_MEMORY, "There is no memory for an answer.");
        code = client_failed();
    } else if (!options->wait && !options->out) {
        puts(id);
        code = CLIENT_OK;
    } else {
        fprintf(stderr, "job %s\n", id);
        code = follow(service, id, &job) ? client_failed() : tell_end(job);
        if (code == CLIENT_OK && options->out)
            code = fetch_and_tell(service, options, id, format);
        else if (code == CLIENT_OK)
            puts(id);
    }
    json_decref(job);
    free(id);
    return code;
}

int client_submit(struct service *service, const struct client_options *options)
{
    const char *format, *wrong;
    if (options->out && !choose_format(options, &format, &wrong))
        return wrong_format(wrong);
    char *path = NULL;
    int usage = submission_path(service, options, NULL, &path);
    if (usage)
        return usage;
    json_t *job = NULL;
    int failure = submission_send(service, path, options->word[0], NULL, &job);
    free(path);
    if (failure == ERR_CANCELED)
        fprintf(stderr, "mrirecon: the upload was broken off; there is no job.\n");
    return failure ? client_failed() : go_on(service, options, format, job);
}

int client_resubmit(struct service *service, const struct client_options *options)
{
    const char *format, *wrong;
    if (options->out && !choose_format(options, &format, &wrong))
        return wrong_format(wrong);
    char *path = NULL;
    int usage = submission_path(service, options, options->word[0], &path);
    if (usage)
        return usage;
    json_t *job = NULL;
    int failure = service_call(service, "POST", path, &job);
    free(path);
    return failure ? client_failed() : go_on(service, options, format, job);
}

int client_purge(struct service *service, const struct client_options *options)
{
    json_t *answer = NULL;
    char *path = NULL, *age = options->older ? service_escape(service, options->older) : NULL;
    if (!options->older)
        return client_usage("purge needs --older: it removes jobs that ended longer ago than so many seconds.");
    if (!age || asprintf(&path, "/v1/jobs?older=%s", age) < 0) {
        free(age);
        err_set(ERR_NO_MEMORY, "There is no memory for a request.");
        return client_failed();
    }
    int failure = service_call(service, "DELETE", path, &answer);
    free(path);
    free(age);
    if (failure)
        return client_failed();
    printf("%lld jobs removed\n", (long long)json_integer_value(json_object_get(answer, "removed")));
    json_decref(answer);
    return CLIENT_OK;
}

int client_wait(struct service *service, const struct client_options *options)
{
    const char *format, *wrong;
    json_t *job = NULL;
    if (options->out && !choose_format(options, &format, &wrong))
        return wrong_format(wrong);
    if (follow(service, options->word[0], &job))
        return client_failed();
    int code = tell_end(job);
    if (code == CLIENT_OK && options->out)
        code = fetch_and_tell(service, options, options->word[0], format);
    json_decref(job);
    return code;
}

int client_fetch(struct service *service, const struct client_options *options)
{
    const char *format, *wrong;
    if (!choose_format(options, &format, &wrong))
        return wrong_format(wrong);
    return fetch_and_tell(service, options, options->word[0], format);
}

int client_cancel(struct service *service, const struct client_options *options)
{
    json_t *job = NULL;
    if (job_call(service, "POST", options->word[0], "/cancel", &job))
        return client_failed();
    puts(client_text(job, "state"));
    json_decref(job);
    return CLIENT_OK;
}

int client_delete(struct service *service, const struct client_options *options)
{
    json_t *answer = NULL;
    if (job_call(service, "DELETE", options->word[0], "", &answer))
        return client_failed();
    json_decref(answer);
    return CLIENT_OK;
}
