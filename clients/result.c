#include "clients/result.h"

#include "clients/job.h"
#include "recon/image/image.h"

#include <string.h>
#include <sys/stat.h>

/* The value of the PARAM=VALUE word for `results`; NULL: there is none. */
static const char *results_word(const struct client_options *options)
{
    const char *value = NULL;
    for (int i = 1; i < options->words; i++)
        if (strncmp(options->word[i], "results=", 8) == 0)
            value = options->word[i] + 8;
    return value;
}

/* The format that the ending of `path` names; -1: none. */
static int ending_find(const struct result_form *form, const char *path)
{
    const size_t length = strlen(path);
    for (int i = 0; form->formats[i].name; i++) {
        const size_t ending = strlen(form->formats[i].name);
        if (length > ending && path[length - ending - 1] == '.' &&
            strcmp(path + length - ending, form->formats[i].name) == 0)
            return i;
    }
    return -1;
}

/* The index of the format in the form; -1: not found. */
static int format_find(const struct client_options *options, const struct result_form *form)
{
    struct stat there;
    if (options->format)
        return form_format_find(form, options->format);
    if (!options->out || strcmp(options->out, "-") == 0)
        return 0;
    int found = ending_find(form, options->out);
    if (found < 0 && stat(options->out, &there) == 0 && !S_ISREG(there.st_mode))
        found = 0; /* a pipe or a device */
    return found;
}

static int format_unknown(const struct client_options *options, const char *result, const struct result_form *form)
{
    fprintf(stderr, "mrirecon: the result \"%s\" has no format \"%s\". Its formats are:", result,
            options->format ? options->format : options->out);
    for (int i = 0; form->formats[i].name; i++)
        fprintf(stderr, " %s", form->formats[i].name);
    fprintf(stderr, "; --format selects one.\n");
    return CLIENT_USAGE;
}

static int result_unknown(const struct client_options *options, const struct kind *kind)
{
    fprintf(stderr, "mrirecon: jobs of the kind \"%s\" have no result \"%s\". Their results are:", kind->name,
            options->result);
    for (int i = 0; kind->results[i].name; i++)
        fprintf(stderr, " %s", kind->results[i].name);
    fprintf(stderr, ".\n");
    return CLIENT_USAGE;
}

/* Choose a result of a job of this kind, whose parameter `results` is `wanted` (NULL: the default). */
static int choose(const struct client_options *options, const struct kind *kind, const char *wanted,
                  struct client_result *out)
{
    const int first = kind_result_default(kind, wanted);
    const int result = options->result ? kind_result_find(kind, options->result) : first;
    if (result < 0)
        return result_unknown(options, kind);
    const char *name = kind->results[result].name;
    if (!(kind_results_wanted(kind, wanted) >> result & 1))
        return client_usage("the job does not give the result \"%s\". Add it to the parameter results.", name);
    const struct result_form *form = kind->results[result].form;
    const int format = format_find(options, form);
    if (format < 0)
        return format_unknown(options, name, form);
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->format, sizeof out->format, "%s", form->formats[format].name);
    if (result == first)
        snprintf(out->ending, sizeof out->ending, "%s", out->format);
    else
        kind_file_name(kind, (struct result_file){result, format}, out->ending);
    return CLIENT_OK;
}

/* A kind of a newer server: only a result that is an image can be saved. */
static int choose_image(const struct client_options *options, struct client_result *out)
{
    const char *name = options->result ? options->result : "image";
    const int format = format_find(options, &image_form);
    if (format < 0)
        return format_unknown(options, name, &image_form);
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->format, sizeof out->format, "%s", image_form.formats[format].name);
    snprintf(out->ending, sizeof out->ending, "%s", out->format);
    return CLIENT_OK;
}

int result_of_submission(const struct client_options *options, struct client_result *out)
{
    const struct kind *kind = kind_find(options->kind ? options->kind : "recon");
    return kind ? choose(options, kind, results_word(options), out) : choose_image(options, out);
}

/* Whether any result of any kind has the format; checked before the server is asked. */
static bool format_exists(const char *format)
{
    for (const struct kind *const *of = kinds, *kind; (kind = *of); of++)
        for (int i = 0; kind->results[i].name; i++)
            if (form_format_find(kind->results[i].form, format) >= 0)
                return true;
    return false;
}

int result_of_job(struct server *server, const struct client_options *options, const char *id,
                  struct client_result *out)
{
    json_t *job = NULL;
    if (options->format && !format_exists(options->format))
        return client_usage("there is no format \"%s\".", options->format);
    if (job_call(server, "GET", id, "", &job))
        return client_failed();
    const struct kind *kind = kind_find(client_text(job, "kind"));
    const char *word = results_word(options);
    const char *wanted = json_string_value(json_object_get(json_object_get(job, "parameters"), "results"));
    int status = kind ? choose(options, kind, word ? word : wanted, out) : choose_image(options, out);
    json_decref(job);
    return status;
}
