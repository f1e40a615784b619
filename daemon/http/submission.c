#include "daemon/http/submission.h"

#include "recon/recon.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEADLINE_MOST = 31 * 86400 }; /* s */

static int kind_read(struct submission *submission, const char *value)
{
    submission->kind = kind_find(value);
    return submission->kind
               ? 0
               : err_set(ERR_UNKNOWN_KIND, "There is no job kind \"%.64s\". GET /v1/kinds lists the kinds.", value);
}

static int priority_read(struct submission *submission, const char *value)
{
    int priority = job_priority_find(value);
    if (priority < 0)
        return err_set(ERR_BAD_PARAMETER, "Parameter priority must be urgent, normal or batch, not \"%.64s\".", value);
    submission->priority = (enum job_priority)priority;
    return 0;
}

static int deadline_read(struct submission *submission, const char *value)
{
    char *end;
    submission->deadline = isdigit((unsigned char)*value) && strlen(value) < 10 ? strtoll(value, &end, 10) : 0;
    if (submission->deadline < 1 || *end || submission->deadline > DEADLINE_MOST)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter deadline must be a whole number of seconds from 1 to %d, not \"%.64s\".",
                       DEADLINE_MOST, value);
    return 0;
}

static int display_name_read(struct submission *submission, const char *value)
{
    snprintf(submission->name, sizeof submission->name, "%s", value);
    return 0;
}

static int destination_read(struct submission *submission, const char *value)
{
    if (strlen(value) >= sizeof submission->destination)
        return err_set(ERR_BAD_PARAMETER, "Parameter destination must have at most %d characters.",
                       JOB_DESTINATIONS - 1);
    strcpy(submission->destination, value);
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct submission *submission, const char *value);
} about_table[] = {{"kind", kind_read},
                   {"priority", priority_read},
                   {"deadline", deadline_read},
                   {"name", display_name_read},
                   {"destination", destination_read}};
enum { ABOUT = sizeof about_table / sizeof *about_table };

/* The parameter's row in the table; ABOUT: unknown name. */
static int about_find(const char *name)
{
    int i = 0;
    while (i < ABOUT && strcmp(about_table[i].name, name) != 0)
        i++;
    return i;
}

static int about_take(void *submission, const char *name, const char *value)
{
    int i = about_find(name);
    return i < ABOUT ? about_table[i].read(submission, value) : 0;
}

/* The parameters of a kind in a query. */
struct given {
    const struct kind *kind;
    struct param_values values;
};

static int given_take(void *context, const char *name, const char *value)
{
    struct given *given = context;
    return about_find(name) < ABOUT ? 0 : param_values_set(given->kind, &given->values, name, value);
}

int submission_about_read(struct submission *submission, const char *query)
{
    return query_each(query, about_take, submission);
}

int submission_parameters_read(json_t **out, const struct kind *kind, const char *const *queries, int count,
                               const json_t *base)
{
    struct given given = {.kind = kind};
    int rc = 0;
    param_values_init(kind, &given.values);
    for (int i = 0; i < count && !rc; i++)
        rc = query_each(queries[i], given_take, &given);
    for (int i = 0; kind->params[i].name && !rc; i++) {
        const char *before = json_string_value(json_object_get(base, kind->params[i].name));
        if (before && !given.values.value[i].given)
            rc = param_values_set(kind, &given.values, kind->params[i].name, before);
    }
    if (!rc)
        rc = kind_check(kind, &given.values);
    if (rc)
        return rc;
    *out = json_object();
    for (int i = 0; kind->params[i].name; i++)
        json_object_set_new(*out, kind->params[i].name, json_string(given.values.value[i].text));
    return 0;
}

void submission_name_set(struct job *job, const struct options *options, const char *text)
{
    char *name = job->name;
    size_t length = strnlen(text, JOB_NAME);
    *name = '\0';
    if (options->job_names == NAMES_NONE)
        return;
    if (length == JOB_NAME) /* too long: cut at a character's boundary */
        for (length--; length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80;)
            length--;
    memcpy(name, text, length);
    name[length] = '\0';
    err_clean(name);
}
