/* Reads the query of a submission: kind, parameters, name, priority, deadline. */
#include "daemon/http/routes.h"

#include "recon/recon.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEADLINE_MOST = 31 * 86400 }; /* s */

/* The job's properties in a query, other than the parameters of its kind. */
struct about {
    const struct kind *kind;
    enum job_priority priority;
    int64_t deadline; /* s from the acceptance; 0: none */
    char name[HTTP_VALUE];
};

static int kind_read(struct about *about, const char *value)
{
    about->kind = kind_find(value);
    return about->kind
               ? 0
               : err_set(ERR_UNKNOWN_KIND, "There is no job kind \"%.64s\". GET /v1/kinds lists the kinds.", value);
}

static int priority_read(struct about *about, const char *value)
{
    int priority = job_priority_find(value);
    if (priority < 0)
        return err_set(ERR_BAD_PARAMETER, "Parameter priority must be urgent, normal or batch, not \"%.64s\".", value);
    about->priority = (enum job_priority)priority;
    return 0;
}

static int deadline_read(struct about *about, const char *value)
{
    char *end;
    about->deadline = isdigit((unsigned char)*value) && strlen(value) < 10 ? strtoll(value, &end, 10) : 0;
    if (about->deadline < 1 || *end || about->deadline > DEADLINE_MOST)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter deadline must be a whole number of seconds from 1 to %d, not \"%.64s\".",
                       DEADLINE_MOST, value);
    return 0;
}

static int display_name_read(struct about *about, const char *value)
{
    snprintf(about->name, sizeof about->name, "%s", value);
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct about *about, const char *value);
} about_table[] = {
    {"kind", kind_read}, {"priority", priority_read}, {"deadline", deadline_read}, {"name", display_name_read}};
enum { ABOUT = sizeof about_table / sizeof *about_table };

/* The parameter's row in the table; ABOUT: there is none of this name. */
static int about_find(const char *name)
{
    int i = 0;
    while (i < ABOUT && strcmp(about_table[i].name, name) != 0)
        i++;
    return i;
}

static int about_take(void *about, const char *name, const char *value)
{
    int i = about_find(name);
    return i < ABOUT ? about_table[i].read(about, value) : 0;
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

/* Set the job's parameters: those in the query; the others from `base` (may be NULL), or the defaults. Then check the
 * rules between them. */
static int query_parameters_read(struct request *request, const struct kind *kind, const json_t *base)
{
    struct given given = {.kind = kind};
    param_values_init(kind, &given.values);
    int rc = query_each(request->query, given_take, &given);
    for (int i = 0; kind->params[i].name && !rc; i++) {
        const char *before = json_string_value(json_object_get(base, kind->params[i].name));
        if (before && !given.values.value[i].given)
            rc = param_values_set(kind, &given.values, kind->params[i].name, before);
    }
    if (!rc)
        rc = kind_check(kind, &given.values);
    if (rc)
        return rc;
    request->job.parameters = json_object();
    for (int i = 0; kind->params[i].name; i++)
        json_object_set_new(request->job.parameters, kind->params[i].name, json_string(given.values.value[i].text));
    return 0;
}

void submission_name(struct request *request, const char *text)
{
    char *name = request->job.name;
    size_t length = strnlen(text, JOB_NAME);
    *name = '\0';
    if (request->service->core.options->job_names == NAMES_NONE)
        return;
    if (length == JOB_NAME) /* too long: cut at a character's boundary */
        for (length--; length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80;)
            length--;
    memcpy(name, text, length);
    name[length] = '\0';
    err_clean(name);
}

static int room_check(struct request *request)
{
    const struct service *service = request->service;
    int64_t bytes = http_body_bytes(request);
    if (service->draining)
        return err_set(ERR_DRAINING, "The service is shutting down. Send the scan again when it is back.");
    return store_room(service->core.store, request->job.client, request->job.quota, (struct quota){0, 0},
                      bytes > 0 ? bytes : 0, service->core.options->queue_limit);
}

/* The job's client is the sender. If a role that sees all jobs reruns a job and names no client, the new job belongs
 * to the old one's client, who can then find it. */
static int owner_read(struct request *request, const struct job *before)
{
    bool said = !*request->identity.client && http_header(request, "X-Mrirecond-Client");
    if (!before || said || !role_sees_all(request->identity.role))
        return request_client(request, request->job.client);
    memcpy(request->job.client, before->client, JOB_CLIENT);
    return 0;
}

/* Read the whole submission but its scan. `before`: the job that is rerun; NULL: none. */
static int submission_job_read(struct request *request, struct about *about, const struct job *before)
{
    struct job *job = &request->job;
    int rc = query_each(request->query, about_take, about); /* values that are not given are kept */
    if (!rc)
        rc = query_parameters_read(request, about->kind, before ? before->parameters : NULL);
    if (!rc)
        rc = owner_read(request, before);
    if (!rc)
        rc = room_check(request);
    if (rc)
        return rc;
    snprintf(job->kind, sizeof job->kind, "%s", about->kind->name);
    submission_name(request, about->name);
    job->priority = about->priority;
    job->patience = 1000 * about->deadline;
    job->formats = json_array();
    return 0;
}

int submission_read(struct request *request)
{
    struct about about = {.kind = kinds[0], .priority = PRIORITY_NORMAL};
    return submission_job_read(request, &about, NULL);
}

int resubmission_read(struct request *request, const struct job *before)
{
    struct about about = {.kind = kind_find(before->kind), .priority = before->priority};
    const struct kind *kind = about.kind;
    snprintf(about.name, sizeof about.name, "%s", before->name);
    if (!kind)
        return err_set(ERR_UNKNOWN_KIND, "Job %s is of the kind \"%s\", which this version does not have.", before->id,
                       before->kind);
    int rc = submission_job_read(request, &about, before);
    if (!rc && about.kind != kind)
        rc = err_set(ERR_BAD_PARAMETER,
                     "A job keeps its kind when it is resubmitted: leave kind out, or send the scan again.");
    return rc;
}
