/* The document of a job: what the store and the workers know of it. */
#include "daemon/http/problem.h"
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"
#include "daemon/wire.h"
#include "recon/recon.h"

#include <stdio.h>
#include <string.h>

/* The progress that a worker reports for the job; false: no worker has it. */
static bool progress_of(struct service *service, const struct job *job, struct job_progress *out)
{
    struct worker_status status[WORKERS_MAX];
    int count = scheduler_status(service->scheduler, status);
    const struct kind *kind = kind_find(job->kind);
    for (int i = 0; i < count; i++) {
        if (strcmp(status[i].ending, job->id) == 0) {
            *out = (struct job_progress){1, kind ? kind_steps(kind) - 1 : -1, 0, 0, PROGRESS_TOLD_MOST};
            return true;
        }
        if (strcmp(status[i].job, job->id) == 0) {
            *out = status[i].progress;
            return true;
        }
    }
    return false;
}

/* The progress of a job in any state; false: the job was running when it was read, and no worker has it. */
bool job_progress_known(struct service *service, const struct job *job, struct job_progress *out)
{
    *out = (struct job_progress){.fraction = job->state == JOB_SUCCEEDED ? 1 : 0, .step = -1};
    bool has_worker = (job->state == JOB_RUNNING || job->state == JOB_CANCELING) && progress_of(service, job, out);
    return has_worker || job->state != JOB_RUNNING;
}

json_t *job_progress_pack(const struct job *job, const struct job_progress *progress)
{
    const struct kind *kind = kind_find(job->kind);
    json_t *step = json_null();
    if (kind && progress->step >= 0) {
        const struct kind_step *at = &kind->steps[progress->step];
        bool iterates = at->unit && progress->iterations > 0;
        step = json_pack("{s:s, s:i, s:i, s:s?, s:o, s:o}", "name", at->name, "number", progress->step + 1, "steps",
                         kind_steps(kind), "unit", at->unit, "iteration",
                         iterates ? json_integer((json_int_t)progress->iteration) : json_null(), "iterations",
                         iterates ? json_integer((json_int_t)progress->iterations) : json_null());
    }
    return json_pack("{s:f, s:o}", "progress", progress->fraction, "step", step);
}

/* Seconds that the job ran, or has run so far. */
static json_t *duration_pack(const struct job *job)
{
    int64_t now = job->finished ? job->finished : clock_milliseconds();
    if (!job->started)
        return json_null();
    return json_real(1e-3 * (double)(now > job->started ? now - job->started : 0));
}

/* Parameters with their types: numbers as numbers. Those of a kind that no longer exists are left as text. */
static json_t *parameters_pack(const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    json_t *packed = json_object(), *value;
    const char *name;
    json_object_foreach (job->parameters, name, value) {
        const struct param *param = kind ? kind->params : NULL;
        while (param && param->name && strcmp(param->name, name) != 0)
            param++;
        const char *text = json_string_value(value);
        if (param && param->name && text)
            json_object_set_new(packed, name, param_value_pack(param, text));
        else
            json_object_set(packed, name, value);
    }
    return packed;
}

/* [{name, file, type, bytes, href}]: a result has one name in all formats; the href selects the format. */
static json_t *results_pack(const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    json_t *packed = json_array(), *result;
    size_t i;
    json_array_foreach (job->results, i, result) {
        const char *file = json_string_value(json_object_get(result, "name")), *name = file;
        char href[JOB_ID + SPOOL_NAME + 40];
        struct result_file found;
        if (kind && kind_file_find(kind, file, &found)) {
            name = kind->results[found.result].name;
            snprintf(href, sizeof href, "/v1/jobs/%s/results/%s?format=%s", job->id, name, file + strlen(name) + 1);
        } else {
            snprintf(href, sizeof href, "/v1/jobs/%s/results/%s", job->id, file);
        }
        json_t *one =
            json_pack("{s:s, s:s, s:O, s:O, s:s}", "name", name, "file", file, "type", json_object_get(result, "type"),
                      "bytes", json_object_get(result, "bytes"), "href", href);
        json_array_append_new(packed, one);
    }
    return packed;
}

static const struct {
    const char *name;
    unsigned fields;
} field_table[] = {
    {"id", JOB_FIELD_ID},
    {"kind", JOB_FIELD_KIND},
    {"state", JOB_FIELD_STATE},
    {"parameters", JOB_FIELD_PARAMETERS},
    {"progress", JOB_FIELD_PROGRESS},
    {"step", JOB_FIELD_STEP},
    {"priority", JOB_FIELD_PRIORITY},
    {"client", JOB_FIELD_CLIENT},
    {"name", JOB_FIELD_NAME},
    {"created", JOB_FIELD_CREATED},
    {"started", JOB_FIELD_STARTED},
    {"finished", JOB_FIELD_FINISHED},
    {"duration", JOB_FIELD_DURATION},
    {"deadline", JOB_FIELD_DEADLINE},
    {"bytes", JOB_FIELD_BYTES},
    {"scan_kept", JOB_FIELD_SCAN_KEPT},
    {"attempts", JOB_FIELD_ATTEMPTS},
    {"error", JOB_FIELD_ERROR},
    {"results", JOB_FIELD_RESULTS},
    {"ahead", JOB_FIELD_AHEAD},
    {"report", JOB_FIELD_REPORT},
    {"deliveries", JOB_FIELD_DELIVERIES},
    {"short", JOB_FIELDS_SHORT},
};

unsigned job_fields_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof field_table / sizeof *field_table; i++)
        if (strlen(field_table[i].name) == length && strncmp(field_table[i].name, name, length) == 0)
            return field_table[i].fields;
    return 0;
}

/* Put a member (taken) into the document if it is asked for. */
static void put(json_t *document, unsigned fields, unsigned field, const char *name, json_t *value)
{
    if (fields & field)
        json_object_set_new(document, name, value);
    else
        json_decref(value);
}

static void times_put(json_t *document, unsigned fields, const struct job *job)
{
    put(document, fields, JOB_FIELD_CREATED, "created", wire_time_pack(job->created));
    put(document, fields, JOB_FIELD_STARTED, "started", wire_time_pack(job->started));
    put(document, fields, JOB_FIELD_FINISHED, "finished", wire_time_pack(job->finished));
    put(document, fields, JOB_FIELD_DURATION, "duration", duration_pack(job));
    put(document, fields, JOB_FIELD_DEADLINE, "deadline", wire_time_pack(job->deadline));
}

static json_t *document_pack(const struct job *job, const struct job_progress *progress, unsigned fields)
{
    json_t *document = json_object(), *told = job_progress_pack(job, progress);
    put(document, fields, JOB_FIELD_ID, "id", json_string(job->id));
    put(document, fields, JOB_FIELD_KIND, "kind", json_string(job->kind));
    put(document, fields, JOB_FIELD_STATE, "state", json_string(job_state_name(job->state)));
    if (fields & JOB_FIELD_PARAMETERS)
        json_object_set_new(document, "parameters", parameters_pack(job));
    put(document, fields, JOB_FIELD_PROGRESS, "progress", json_incref(json_object_get(told, "progress")));
    put(document, fields, JOB_FIELD_STEP, "step", json_incref(json_object_get(told, "step")));
    put(document, fields, JOB_FIELD_PRIORITY, "priority", json_string(job_priority_name(job->priority)));
    put(document, fields, JOB_FIELD_CLIENT, "client", json_string(job->client));
    put(document, fields, JOB_FIELD_NAME, "name", json_string(job->name));
    times_put(document, fields, job);
    put(document, fields, JOB_FIELD_BYTES, "bytes", json_integer(job->bytes));
    put(document, fields, JOB_FIELD_SCAN_KEPT, "scan_kept", json_boolean(job->scan_kept));
    put(document, fields, JOB_FIELD_ATTEMPTS, "attempts", json_integer(job->attempts));
    if (fields & JOB_FIELD_ERROR)
        json_object_set_new(document, "error", job->error ? problem_of(job->error, job->id) : json_null());
    if (fields & JOB_FIELD_RESULTS)
        json_object_set_new(document, "results", results_pack(job));
    put(document, fields, JOB_FIELD_AHEAD, "ahead", json_null());
    if (fields & JOB_FIELD_REPORT)
        json_object_set_new(document, "report", job->report ? json_incref(job->report) : json_object());
    json_decref(told);
    return document;
}

/* A job that ended after it was read is read again: as a running one, it would have no progress. */
json_t *job_document_fields(struct service *service, const struct job *job, unsigned fields)
{
    struct job now = {.id = ""};
    struct job_progress progress;
    if (!job_progress_known(service, job, &progress) && store_get(service->core.store, job->id, &now) == 0) {
        job = &now;
        job_progress_known(service, job, &progress);
    }
    json_t *document = document_pack(job, &progress, fields);
    if (fields & JOB_FIELD_DELIVERIES)
        json_object_set_new(document, "deliveries", deliveries_pack(service, job->id));
    job_clear(&now);
    return document;
}

json_t *job_document(struct service *service, const struct job *job)
{
    json_t *document = job_document_fields(service, job, JOB_FIELDS_ALL);
    int64_t ahead;
    if (job->state == JOB_QUEUED && store_ahead(service->core.store, job, &ahead) == 0)
        json_object_set_new(document, "ahead", json_integer(ahead));
    return document;
}
