#include "clients/job.h"

#include "clients/progress.h"
#include "clients/save.h"

#include <stdlib.h>
#include <string.h>

/* "/v1/jobs/ID" + rest; the caller frees it. NULL (failure set): no memory. */
static char *job_path(struct server *server, const char *id, const char *rest)
{
    char *path = NULL, *escaped = server_escape(server, id);
    if (!escaped || asprintf(&path, "/v1/jobs/%s%s", escaped, rest) < 0) {
        err_no_memory("a request");
        path = NULL;
    }
    free(escaped);
    return path;
}

int job_call(struct server *server, const char *method, const char *id, const char *rest, json_t **out)
{
    char *path = job_path(server, id, rest);
    if (!path)
        return ERR_NO_MEMORY;
    int rc = server_call(server, method, path, out);
    free(path);
    return rc;
}

bool job_is_final(const json_t *job)
{
    const char *state = client_text(job, "state");
    return strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "canceled") == 0;
}

bool job_failure_passes(int code)
{
    return code == ERR_QUEUE_FULL || code == ERR_DRAINING || code == ERR_QUOTA || code == ERR_SPOOL_FULL ||
           code == ERR_NO_DESCRIPTORS || code == ERR_KEY_IN_USE || code == ERR_NO_MEMORY || code == ERR_STORE ||
           code == ERR_CONNECTIONS;
}

/* Print the warnings of the reconstruction. */
static void warnings_tell(const json_t *warnings, const char *result)
{
    const json_t *warning;
    size_t i;
    json_array_foreach (warnings, i, warning) {
        fprintf(stderr, "mrirecon: ");
        client_print_text(stderr, result);
        fprintf(stderr, ": warning: ");
        client_print_text(stderr, json_string_value(warning));
        fputc('\n', stderr);
    }
}

int job_fetch(struct server *server, const char *id, const struct client_result *result, const char *out)
{
    struct progress progress;
    const struct server_watch watch = {&progress, progress_moved};
    char *path = NULL, *rest = NULL;
    struct save *save = NULL;
    json_t *warnings = NULL;
    int rc;
    progress_start(&progress);
    if (asprintf(&rest, "/results/%s?format=%s", result->name, result->format) < 0)
        return err_no_memory("a request");
    path = job_path(server, id, rest);
    rc = path ? save_create(&save, out) : ERR_NO_MEMORY;
    if (!rc)
        rc = server_download(server, path, save_fd(save), &watch, &warnings);
    if (!rc)
        rc = save_commit(save);
    progress_end(&progress);
    warnings_tell(warnings, strcmp(out, "-") == 0 ? "the result" : out);
    json_decref(warnings);
    save_free(save);
    free(path);
    free(rest);
    return rc;
}
