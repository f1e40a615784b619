/* The commands about one job: submit, resubmit, wait, fetch, cancel, delete; and purge. */
#include "clients/client.h"
#include "clients/job.h"
#include "clients/list.h"
#include "clients/progress.h"
#include "clients/rerun.h"
#include "clients/save.h"
#include "clients/submission.h"
#include "gridding/base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Pause before the first poll; each pause is longer than the one before it. */
#define FIRST_PAUSE_SECONDS 0.02
#define LAST_PAUSE_SECONDS  0.5

static void tell_running(struct progress *progress, const json_t *job)
{
    char text[PROGRESS_TEXT];
    bool running = strcmp(client_text(job, "state"), "running") == 0;
    progress_step(job, text);
    progress_tell(progress, running ? json_number_value(json_object_get(job, "progress")) : -1, text);
}

/* Poll the job until it has ended. *out is its last document. */
static int follow(struct server *server, const char *id, json_t **out)
{
    struct progress progress;
    double pause = FIRST_PAUSE_SECONDS, answered = clock_seconds();
    bool out_of_reach = false;
    int rc;
    progress_start(&progress);
    for (;;) {
        json_t *job = NULL;
        rc = job_call(server, "GET", id, "", &job);
        if (!rc) {
            answered = clock_seconds();
            out_of_reach = false;
            if (job_is_final(job)) {
                *out = job;
                break;
            }
            tell_running(&progress, job);
            json_decref(job);
        } else if ((rc == ERR_IO || job_failure_passes(rc)) && clock_seconds() - answered < OUTAGE_SECONDS) {
            if (!out_of_reach) {
                progress_end(&progress);
                fprintf(stderr, "mrirecon: the server does not answer%s; still trying\n",
                        rc == ERR_IO ? "" : " as it should");
            }
            out_of_reach = true;
        } else {
            break;
        }
        rc = server_pause(server, pause);
        if (rc)
            break;
        pause = pause * 1.5 < LAST_PAUSE_SECONDS ? pause * 1.5 : LAST_PAUSE_SECONDS;
    }
    progress_end(&progress);
    if (rc == ERR_CANCELED || out_of_reach)
        fprintf(stderr,
                "mrirecon: job %s continues%s. `mrirecon wait %s` waits for it, `mrirecon fetch %s` gets its result, "
                "`mrirecon cancel %s` stops it.\n",
                id, out_of_reach ? " when its server is back" : "", id, id, id);
    return rc;
}

/* Report how a finished job ended. CLIENT_OK if it succeeded. */
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

/* Download the result, and print its path. */
static int fetch_and_tell(struct server *server, const struct client_options *options, const char *id,
                          const struct client_result *result)
{
    char name[128];
    const char *out = options->out;
    if (!out) {
        snprintf(name, sizeof name, "%s.%s", id, result->ending);
        out = name;
    }
    if (job_fetch(server, id, result, out))
        return client_failed();
    if (strcmp(out, "-") != 0)
        puts(out);
    return CLIENT_OK;
}

/* Continue with the created job: print its id, wait for its end, or download its result. Takes `job`. */
static int go_on(struct server *server, const struct client_options *options, const struct client_result *result,
                 json_t *job)
{
    char *id = strdup(client_text(job, "id"));
    json_decref(job);
    job = NULL;
    int status = CLIENT_FAILED;
    if (!id) {
        err_no_memory("an answer");
        status = client_failed();
    } else if (!options->wait && !options->out) {
        puts(id);
        status = CLIENT_OK;
    } else {
        fprintf(stderr, "job %s\n", id);
        status = follow(server, id, &job) ? client_failed() : tell_end(job);
        if (status == CLIENT_OK && options->out)
            status = fetch_and_tell(server, options, id, result);
        else if (status == CLIENT_OK)
            puts(id);
    }
    json_decref(job);
    free(id);
    return status;
}

/* Check that --out, if given, can be written, before the server works for it. CLIENT_OK, or the exit status. */
static int out_check(const struct client_options *options)
{
    return options->out && save_check(options->out) ? client_failed() : CLIENT_OK;
}

/* Check that --out is there if an option selects what it saves. CLIENT_OK, or CLIENT_USAGE. */
static int selection_check(const struct client_options *options)
{
    const char *selects = options->format ? "--format" : options->result ? "--result" : NULL;
    if (options->out || !selects)
        return CLIENT_OK;
    return client_usage("%s selects what --out saves; add --out FILE.", selects);
}

int client_submit(struct server *server, const struct client_options *options)
{
    struct client_result result;
    char *path = NULL;
    int status = options->out ? result_of_submission(options, &result) : selection_check(options);
    if (!status)
        status = out_check(options);
    if (!status)
        status = submission_path(server, options, NULL, &path);
    if (status)
        return status;
    json_t *job = NULL;
    int rc = submission_send(server, options, path, options->word[0], NULL, &job);
    free(path);
    if (rc == ERR_CANCELED)
        fprintf(stderr, "mrirecon: %s\n", err_last()->text);
    return rc ? client_failed() : go_on(server, options, &result, job);
}

int client_resubmit(struct server *server, const struct client_options *options)
{
    struct client_result result;
    if (jobs_named(options))
        return client_rerun(server, options);
    if (options->words < 1 || strchr(options->word[0], '='))
        return client_usage("resubmit needs the ID of a job, or --state (failed, canceled or succeeded) for many.");
    char *path = NULL;
    int status = options->out ? result_of_job(server, options, options->word[0], &result) : selection_check(options);
    if (!status)
        status = out_check(options);
    if (!status)
        status = submission_path(server, options, options->word[0], &path);
    if (status)
        return status;
    json_t *job = NULL;
    int rc = server_call(server, "POST", path, &job);
    free(path);
    return rc ? client_failed() : go_on(server, options, &result, job);
}

int client_purge(struct server *server, const struct client_options *options)
{
    json_t *answer = NULL;
    char *path = NULL, *age = options->older ? server_escape(server, options->older) : NULL;
    if (!options->older)
        return client_usage("purge needs --older SECONDS: it removes jobs that ended more than that long ago.");
    if (!age || asprintf(&path, "/v1/jobs?older=%s", age) < 0) {
        free(age);
        err_no_memory("a request");
        return client_failed();
    }
    int rc = server_call(server, "DELETE", path, &answer);
    free(path);
    free(age);
    if (rc)
        return client_failed();
    printf("%lld jobs removed\n", (long long)json_integer_value(json_object_get(answer, "removed")));
    json_decref(answer);
    return CLIENT_OK;
}

int client_wait(struct server *server, const struct client_options *options)
{
    struct client_result result;
    json_t *job = NULL;
    int status = options->out ? result_of_job(server, options, options->word[0], &result) : selection_check(options);
    if (!status)
        status = out_check(options);
    if (status)
        return status;
    if (follow(server, options->word[0], &job))
        return client_failed();
    status = tell_end(job);
    if (status == CLIENT_OK && options->out)
        status = fetch_and_tell(server, options, options->word[0], &result);
    json_decref(job);
    return status;
}

int client_fetch(struct server *server, const struct client_options *options)
{
    struct client_result result;
    int status = result_of_job(server, options, options->word[0], &result);
    return status ? status : fetch_and_tell(server, options, options->word[0], &result);
}

int client_cancel(struct server *server, const struct client_options *options)
{
    json_t *job = NULL;
    if (job_call(server, "POST", options->word[0], "/cancel", &job))
        return client_failed();
    puts(client_text(job, "state"));
    json_decref(job);
    return CLIENT_OK;
}

int client_delete(struct server *server, const struct client_options *options)
{
    json_t *answer = NULL;
    if (job_call(server, "DELETE", options->word[0], "", &answer))
        return client_failed();
    json_decref(answer);
    return CLIENT_OK;
}
