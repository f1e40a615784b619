#include "clients/job.h"

#include "clients/progress.h"
#include "clients/save.h"
#include "recon/image/image.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

bool client_format(const struct client_options *options, const char **format, const char **wrong)
{
    *format = image_format_name(IMAGE_H5);
    if (options->format) {
        *wrong = options->format;
        int found = form_format_find(&image_form, options->format);
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

int client_wrong_format(const char *wrong)
{
    fprintf(stderr, "mrirecon: there is no image format \"%s\". The formats are:", wrong);
    for (int i = 0; i < IMAGE_FORMATS; i++)
        fprintf(stderr, " %s", image_format_name((enum image_format)i));
    fprintf(stderr, "; --format names one.\n");
    return CLIENT_USAGE;
}

/* What the reconstruction had doubts about, beside the image that it made. */
static void warnings_tell(const json_t *warnings, const char *image)
{
    const json_t *warning;
    size_t i;
    json_array_foreach (warnings, i, warning) {
        fprintf(stderr, "mrirecon: ");
        client_print_text(stderr, image);
        fprintf(stderr, ": warning: ");
        client_print_text(stderr, json_string_value(warning));
        fputc('\n', stderr);
    }
}

int job_fetch(struct server *server, const char *id, const char *format, const char *out)
{
    struct progress progress;
    const struct server_watch watch = {&progress, progress_moved};
    char *path = NULL, *rest = NULL;
    struct save *save = NULL;
    json_t *warnings = NULL;
    int rc;
    progress_start(&progress);
    if (asprintf(&rest, "/results/image?format=%s", format) < 0)
        return err_no_memory("a request");
    path = job_path(server, id, rest);
    rc = path ? save_create(&save, out) : ERR_NO_MEMORY;
    if (!rc)
        rc = server_download(server, path, save_fd(save), &watch, &warnings);
    if (!rc)
        rc = save_commit(save);
    progress_end(&progress);
    warnings_tell(warnings, strcmp(out, "-") == 0 ? "the image" : out);
    json_decref(warnings);
    save_free(save);
    free(path);
    free(rest);
    return rc;
}
