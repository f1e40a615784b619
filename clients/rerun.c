/* mrirecon resubmit --state STATE ...: run many jobs again. The idempotency key of each is made of its id and of the
 * changed parameters, so that the same command, repeated after an interruption, creates no job twice. */
#include "clients/rerun.h"

#include "clients/job.h"
#include "clients/list.h"
#include "clients/submission.h"
#include "gridding/base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { KEY = 80 };

#define BUSY_SECONDS 5.0 /* delay after a temporary refusal */

struct rerun {
    struct server *server;
    const struct client_options *options;
    double answered; /* time of the server's last answer */
    int waits_for;   /* the failure reported last as the reason for waiting; 0: none */
    int made, before, failed;
};

/* FNV-1a: a hash of the changes. */
static void key_print(char key[KEY], const char *id, const char *path)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *c = strchr(path, '?'); c && *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    snprintf(key, KEY, "resubmit-%.32s-%016llx", id, (unsigned long long)hash);
}

/* Whether to go on waiting after this failure. */
static bool passes(struct rerun *rerun, int rc)
{
    if (rc == ERR_IO)
        return clock_seconds() - rerun->answered < OUTAGE_SECONDS;
    rerun->answered = clock_seconds();
    return job_failure_passes(rc);
}

/* Resubmit one job, and print the outcome. Fails if the others need not be tried. */
static int run_one(struct rerun *rerun, const char *id, const char *path)
{
    char key[KEY];
    json_t *job = NULL;
    bool replayed = false;
    key_print(key, id, path);
    int rc = server_post(rerun->server, path, key, &job, &replayed);
    while (rc && passes(rerun, rc)) {
        if (rc != rerun->waits_for)
            fprintf(stderr, "mrirecon: waiting: %s [%s]\n", err_last()->text, err_name(rc));
        rerun->waits_for = rc;
        rc = server_pause(rerun->server, BUSY_SECONDS);
        if (!rc)
            rc = server_post(rerun->server, path, key, &job, &replayed);
    }
    if (rc == ERR_SCAN_GONE || rc == ERR_NOT_FOUND) {
        fprintf(stderr, "mrirecon: %s: %s [%s]\n", id, err_last()->text, err_name(rc));
        rerun->failed++;
        return 0;
    }
    if (rc)
        return rc;
    rerun->answered = clock_seconds();
    rerun->waits_for = 0;
    printf("%s %s\n", id, client_text(job, "id"));
    json_decref(job);
    rerun->made += !replayed;
    rerun->before += replayed;
    return 0;
}

/* The query of one resubmission. */
static int run_words(struct rerun *rerun, const json_t *job, char **word)
{
    struct client_options one = *rerun->options;
    char *path = NULL;
    word[0] = (char *)(uintptr_t)client_text(job, "id");
    one.word = word;
    one.words = rerun->options->words + 1;
    int status = submission_path(rerun->server, &one, word[0], &path);
    if (!status && run_one(rerun, word[0], path))
        status = client_failed();
    free(path);
    return status;
}

static int wrong(const struct client_options *options)
{
    const char *state = options->state ? options->state : "";
    if (strcmp(state, "failed") != 0 && strcmp(state, "canceled") != 0 && strcmp(state, "succeeded") != 0)
        return client_usage("to resubmit many jobs, give --state: failed, canceled or succeeded.");
    if (options->wait || options->out || options->format || options->result)
        return client_usage(
            "--wait, --out, --result and --format need an ID: many resubmitted jobs are not waited for.");
    return CLIENT_OK;
}

int client_rerun(struct server *server, const struct client_options *options)
{
    struct rerun rerun = {.server = server, .options = options, .answered = clock_seconds()};
    json_t *all = NULL;
    int status = wrong(options);
    if (status)
        return status;
    char **word = calloc((size_t)options->words + 1, sizeof *word);
    if (!word) {
        err_no_memory("a request");
        return client_failed();
    }
    memcpy(word + 1, options->word, (size_t)options->words * sizeof *word);
    if (jobs_find(server, options, &all))
        status = client_failed();
    for (size_t i = json_array_size(all); i > 0 && !status; i--) /* oldest first */
        status = run_words(&rerun, json_array_get(all, i - 1), word);
    if (all) {
        fprintf(stderr, "mrirecon: %d of %zu jobs resubmitted", rerun.made, json_array_size(all));
        if (rerun.before)
            fprintf(stderr, ", %d already before", rerun.before);
        fprintf(stderr, rerun.failed ? ", %d could not be\n" : "\n", rerun.failed);
    }
    if (status && status != CLIENT_USAGE)
        fprintf(stderr, "mrirecon: give the same command again to continue.\n");
    json_decref(all);
    free(word);
    return status ? status : rerun.failed ? CLIENT_FAILED : CLIENT_OK;
}
