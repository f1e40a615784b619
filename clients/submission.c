#include "clients/submission.h"

#include "clients/progress.h"
#include "recon/recon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Add "&NAME=VALUE". false: no memory. */
static bool query_add(struct server *server, FILE *text, const char *name, size_t length, const char *value)
{
    char *copy = strndup(name, length), *left = copy ? server_escape(server, copy) : NULL;
    char *right = server_escape(server, value);
    bool added = left && right && fprintf(text, "&%s=%s", left, right) > 0;
    free(copy);
    free(left);
    free(right);
    return added;
}

static bool path_begin(struct server *server, FILE *text, const struct client_options *options, const char *again)
{
    char *name = server_escape(server, again ? again : options->kind ? options->kind : "recon");
    bool begun = name && fprintf(text, again ? "/v1/jobs/%s/resubmit?" : "/v1/jobs?kind=%s", name) > 0;
    free(name);
    return begun && (!options->priority || query_add(server, text, "priority", 8, options->priority));
}

/* Check kind and parameters as the server would, before a scan is opened. Kinds and parameters that this program does
 * not know are left to the server, which may be newer; so are all of a resubmission (`again`), whose kind only the
 * server knows.
 */
static int parameters_check(const struct client_options *options, bool again)
{
    const struct kind *kind = kind_find(options->kind ? options->kind : "recon");
    struct param_values values;
    if (!kind || again)
        return 0;
    param_values_init(kind, &values);
    for (int i = 1; i < options->words; i++) {
        char name[64];
        const char *equals = strchr(options->word[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - options->word[i]), options->word[i]);
        if (param_values_set(kind, &values, name, equals + 1) == ERR_BAD_PARAMETER)
            return ERR_BAD_PARAMETER;
    }
    return kind_check(kind, &values);
}

int submission_path(struct server *server, const struct client_options *options, const char *again, char **path)
{
    size_t length = 0;
    int usage = CLIENT_OK;
    char *made = NULL;
    FILE *text = open_memstream(&made, &length);
    bool complete = text && path_begin(server, text, options, again);
    for (int i = 1; i < options->words && complete && !usage; i++) {
        const char *word = options->word[i], *equals = strchr(word, '=');
        if (!equals || equals == word)
            usage =
                client_usage("\"%s\" is not PARAM=VALUE. Only one scan, or one folder, can be sent at a time.", word);
        else if (strncmp(word, "kind=", 5) == 0)
            usage = client_usage("The kind of a job is given by --kind, not as a parameter.");
        else
            complete = query_add(server, text, word, (size_t)(equals - word), equals + 1);
    }
    if (text && fclose(text) != 0)
        complete = false;
    if (!complete && !usage)
        err_no_memory("a request");
    else if (!usage && parameters_check(options, again != NULL) != 0)
        complete = false;
    if (complete && !usage) {
        *path = made;
        return CLIENT_OK;
    }
    free(made);
    return usage ? usage : client_failed();
}

/* The name of the new job; the caller frees it. NULL: none. */
static char *name_of(const struct client_options *options, const char *scan)
{
    bool given = options->unnamed || strcmp(scan, "-") == 0;
    for (int i = 1; i < options->words; i++)
        given |= strncmp(options->word[i], "name=", 5) == 0;
    const char *slash = strrchr(scan, '/');
    char *name = given ? NULL : strdup(slash ? slash + 1 : scan);
    if (name)
        err_clean(name); /* characters that a query must not contain */
    return name;
}

/* `path` with the name appended; the caller frees it. NULL (failure set): no memory. */
static char *path_with(struct server *server, const char *path, const char *name)
{
    char *whole = NULL, *escaped = name ? server_escape(server, name) : NULL;
    if ((name && !escaped) || asprintf(&whole, escaped ? "%s&name=%s" : "%s", path, escaped) < 0) {
        whole = NULL;
        err_no_memory("a request");
    }
    free(escaped);
    return whole;
}

int submission_send(struct server *server, const struct client_options *options, const char *path, const char *scan,
                    const char *key, json_t **job)
{
    struct progress progress;
    const struct server_watch watch = {&progress, progress_moved};
    struct stat there;
    bool standard = strcmp(scan, "-") == 0;
    int fd = standard ? STDIN_FILENO : open(scan, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &there) < 0)
        return err_set(ERR_IO, "%s cannot be read: %s.", scan, strerror(errno));
    int rc = 0;
    if (S_ISDIR(there.st_mode))
        rc = err_set(ERR_IO, "%s is a folder. One scan file is submitted at a time.", scan);
    char *name = name_of(options, scan), *whole = rc ? NULL : path_with(server, path, name);
    if (!rc && !whole)
        rc = ERR_NO_MEMORY;
    progress_start(&progress);
    if (!rc)
        rc = server_upload(server, whole, fd, S_ISREG(there.st_mode) ? there.st_size : -1, key, &watch, job);
    progress_end(&progress);
    free(name);
    free(whole);
    if (!standard)
        close(fd);
    if (!rc && !*client_text(*job, "id")) {
        json_decref(*job);
        rc = err_set(ERR_IO, "The server accepted the scan but returned no job. Does mrirecond run there?");
    }
    return rc;
}
