#include "daemon/mrd/mrd_config.h"

#include "daemon/http/submission.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 2048 };

/* ---- the file ---- */

static char *word_next(char **text)
{
    char *word = *text + strspn(*text, " \t\r\n");
    char *end = word + strcspn(word, " \t\r\n");
    *text = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

/* Call `each` with every configuration of the file, until it fails. `where`: for its sentence. */
static int configs_each(const char *path,
                        int (*each)(void *context, const char *where, const char *name, const char *query),
                        void *context)
{
    char line[LINE], where[OPTION_TEXT + 16];
    int rc = 0, number = 0;
    FILE *file = *path ? fopen(path, "re") : NULL;
    if (*path && !file)
        return err_set(ERR_IO, "The configurations of MRD clients, %s, cannot be read: %s.", path, strerror(errno));
    while (!rc && file && fgets(line, sizeof line, file)) {
        char *rest = line;
        const bool whole = strchr(line, '\n') || feof(file);
        snprintf(where, sizeof where, "%s:%d", path, ++number);
        const char *name = word_next(&rest), *query = word_next(&rest);
        if (!*name || *name == '#')
            continue;
        if (!whole || strlen(name) >= MRD_NAME || *word_next(&rest))
            rc = err_set(ERR_BAD_REQUEST, "%s: expected a name and a query, such as `cine kind=recon&frames=20`.",
                         where);
        else
            rc = each(context, where, name, query);
    }
    if (!rc && file && ferror(file))
        rc = err_set(ERR_IO, "The configurations of MRD clients, %s, cannot be read: %s.", path, strerror(errno));
    if (file)
        fclose(file);
    return rc;
}

static int config_check(void *context, const char *where, const char *name, const char *query)
{
    struct options options;
    struct job job = {.id = ""};
    (void)context;
    (void)name;
    options_init(&options);
    char *queries[MRD_QUERIES] = {(char *)(uintptr_t)query};
    int rc = mrd_job_read(&job, &options, queries);
    job_clear(&job);
    return rc ? err_prefix("%s: ", where) : 0;
}

int mrd_configs_check(const char *path)
{
    return configs_each(path, config_check, NULL);
}

struct search {
    const char *name;
    char *query;    /* of the entry found */
    char list[256]; /* of all names */
};

/* The length of a name without ".xml", with which the names of Gadgetron's configurations end. */
static int stem(const char *name)
{
    const size_t length = strlen(name);
    return (int)(length > 4 && strcmp(name + length - 4, ".xml") == 0 ? length - 4 : length);
}

static int config_compare(void *context, const char *where, const char *name, const char *query)
{
    struct search *search = context;
    const size_t used = strlen(search->list);
    (void)where;
    snprintf(search->list + used, sizeof search->list - used, "%s, ", name);
    if (search->query || stem(name) != stem(search->name) || strncmp(name, search->name, (size_t)stem(name)) != 0)
        return 0;
    search->query = strdup(query);
    return search->query ? 0 : err_no_memory("a configuration");
}

/* A query for the kind with this name; "default" is the first kind. */
static int kind_query(char **query, const char *name)
{
    const bool fallback = strcmp(name, "default") == 0;
    const struct kind *kind = fallback ? kinds[0] : kind_find(name);
    if (!kind)
        return 0;
    if (asprintf(query, "kind=%s", kind->name) < 0) {
        *query = NULL;
        return err_no_memory("a configuration");
    }
    return 0;
}

int mrd_config_find(char **query, const char *path, const char *name)
{
    struct search search = {.name = name};
    char plain[MRD_NAME];
    int rc = configs_each(path, config_compare, &search);
    snprintf(plain, sizeof plain, "%.*s", stem(name), name);
    if (!rc && !search.query)
        rc = kind_query(&search.query, plain);
    if (!rc && !search.query) {
        char shown[MRD_NAME];
        snprintf(shown, sizeof shown, "%.64s", name);
        err_clean(shown);
        rc = err_set(ERR_BAD_PARAMETER, "There is no configuration \"%s\"; there are %sdefault and the names of kinds.",
                     shown, search.list);
    }
    if (rc)
        free(search.query);
    else
        *query = search.query;
    return rc;
}

/* ---- texts ---- */

struct query {
    char *text;
    size_t used, room;
};

/* Every byte as %XX, because a value may contain separators. */
static void escaped_put(struct query *query, const char *text)
{
    for (; *text; text++)
        query->used += (size_t)snprintf(query->text + query->used, 4, "%%%02X", (unsigned char)*text);
}

static int value_put(struct query *query, const char *name, const json_t *value)
{
    char number[40];
    const char *text = number;
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        text = json_is_true(value) ? "true" : "false";
    else
        text = json_string_value(value);
    if (!text)
        return err_set(ERR_BAD_PARAMETER, "A parameter in JSON must be a text or a number.");
    if (query->used + 3 * (strlen(name) + strlen(text)) + 4 > query->room)
        return err_set(ERR_LIMIT, "The parameters in JSON take more than %zu bytes.", query->room);
    escaped_put(query, name);
    query->text[query->used++] = '=';
    escaped_put(query, text);
    query->text[query->used++] = '&';
    return 0;
}

/* The members that name a configuration. OpenRecon's choice of a name that is not in its list is the second one, which
 * FIRE's servers prefer to the first unless it is empty. */
static const char *const naming[] = {"config", "customconfig"};

static int named_read(char name[MRD_NAME], json_t *object)
{
    for (size_t i = 0; i < sizeof naming / sizeof *naming; i++) {
        json_t *value = json_object_get(object, naming[i]);
        if (value && (!json_is_string(value) || json_string_length(value) >= MRD_NAME))
            return err_set(ERR_BAD_PARAMETER, "The member %s must be the name of a configuration.", naming[i]);
        if (value && json_string_length(value) > 0)
            snprintf(name, MRD_NAME, "%s", json_string_value(value));
        json_object_del(object, naming[i]);
    }
    return 0;
}

/* An object of parameters as a query. */
static int object_read(struct query *query, char name[MRD_NAME], json_t *object)
{
    const char *key;
    json_t *value;
    int rc = named_read(name, object);
    json_object_foreach (object, key, value)
        if (!rc)
            rc = value_put(query, key, value);
    return rc;
}

static int json_read(struct query *query, char name[MRD_NAME], const char *text, size_t bytes)
{
    json_t *all = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL), *inner = json_object_get(all, "parameters");
    int rc = json_is_object(all) ? object_read(query, name, inner ? inner : all)
                                 : err_set(ERR_BAD_PARAMETER, "The text of the configuration is not a JSON object.");
    if (!rc && query->used > 0)
        query->used--; /* the last & */
    json_decref(all);
    return rc;
}

int mrd_text_read(char **query, char name[MRD_NAME], const char *text, size_t bytes)
{
    while (bytes > 0 && strchr(" \t\r\n", text[bytes - 1])) /* and a NUL at its end */
        bytes--;
    while (bytes > 0 && strchr(" \t\r\n", *text) && *text) {
        text++;
        bytes--;
    }
    name[0] = '\0';
    if (memchr(text, '\0', bytes))
        return err_set(ERR_BAD_PARAMETER, "The text of the configuration has a NUL byte.");
    if (bytes > 0 && *text == '<')
        return err_set(
            ERR_BAD_PARAMETER,
            "The text of the configuration is XML, a chain of Gadgetron's gadgets, which this service does not "
            "have. Send parameters (method=cg&iterations=20, or JSON), or name a configuration.");
    struct query made = {.room = 4 * MRD_TEXT_MOST + bytes};
    made.text = malloc(made.room);
    if (!made.text)
        return err_no_memory("a configuration");
    int rc = 0;
    if (bytes > 0 && *text == '{') {
        rc = json_read(&made, name, text, bytes);
    } else {
        memcpy(made.text, text, bytes);
        made.used = bytes;
    }
    made.text[made.used] = '\0';
    if (rc)
        free(made.text);
    else
        *query = made.text;
    return rc;
}

/* ---- the job ---- */

struct result_file mrd_result(const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    const int result = kind_result_default(kind, job_results_asked(job));
    return (struct result_file){result, form_format_find(kind->results[result].form, "mrd")};
}

/* Whether the kind reads MRD streams, and the job's first result can be sent as one. */
static int fit_check(const struct kind *kind, const struct job *job)
{
    if (kind_reads(kind, "stream") && mrd_result(job).format >= 0)
        return 0;
    return err_set(ERR_BAD_PARAMETER, "Jobs of kind %s do not make images of MRD streams.", kind->name);
}

int mrd_job_read(struct job *job, const struct options *options, char *const queries[MRD_QUERIES])
{
    struct submission submission = {.kind = kinds[0], .priority = PRIORITY_NORMAL};
    const char *given[MRD_QUERIES];
    int count = 0, rc = 0;
    for (int i = 0; i < MRD_QUERIES && !rc; i++)
        if (queries[i]) {
            given[count++] = queries[i];
            rc = query_check(queries[i]);
            if (!rc)
                rc = submission_about_read(&submission, queries[i]);
        }
    json_t *parameters = NULL;
    if (!rc)
        rc = submission_parameters_read(&parameters, submission.kind, given, count, NULL);
    if (rc)
        return rc;
    json_decref(job->parameters);
    json_decref(job->formats);
    job->parameters = parameters;
    job->formats = json_pack("[s]", "mrd");
    snprintf(job->kind, sizeof job->kind, "%s", submission.kind->name);
    submission_name_set(job, options, submission.name);
    memcpy(job->destination, submission.destination, sizeof job->destination);
    job->priority = submission.priority;
    job->patience = 1000 * submission.deadline;
    return fit_check(submission.kind, job);
}
