/* GET /v1/jobs: the list of jobs, with filters. */
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_DEFAULT = 50, LIST_MOST = 500 };

struct list_query {
    int64_t limit, now; /* now: ms since 1970 */
    struct job_filter filter;
    unsigned fields;
    char client[HTTP_VALUE], kind[HTTP_VALUE], name[HTTP_VALUE];
};

/* The bits of all members of a list, as "queued,running"; false: one of them is not found. */
static bool members_find(const char *list, unsigned *out, unsigned (*find)(const char *name, size_t length))
{
    for (const char *name = list;; name++) {
        size_t length = strcspn(name, ",");
        unsigned found = find(name, length);
        if (!found)
            return false;
        *out |= found;
        name += length;
        if (!*name)
            return true;
    }
}

static unsigned state_find(const char *name, size_t length)
{
    unsigned found = 0;
    for (int state = 0; state < JOB_STATES && !found; state++) {
        const char *known = job_state_name((enum job_state)state);
        found = strlen(known) == length && strncmp(known, name, length) == 0 ? 1u << state : 0;
    }
    return found;
}

static int since_read(struct list_query *query, const char *value)
{
    if (!since_parse(value, query->now, &query->filter.since))
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter since must be an age, such as 90 (seconds), 15m, 12h or 7d, or a time in UTC, such "
                       "as 2026-11-22T03:00:00Z, not \"%.64s\".",
                       value);
    return 0;
}

/* A client's name, or its beginning before an asterisk; no name contains one. */
static void client_take(struct list_query *query, const char *value)
{
    size_t length = strlen(value);
    bool begins = length > 0 && value[length - 1] == '*';
    memcpy(query->client, value, length + 1);
    if (begins)
        query->client[length - 1] = 0;
    query->filter.client = !begins || length > 1 ? query->client : NULL;
    query->filter.client_begins = begins;
}

/* Restrict the list to the jobs of one client; false: the filter names another one. */
static bool client_own(struct job_filter *filter, const char *own)
{
    const char *asked = filter->client;
    if (asked && (filter->client_begins ? strncmp(own, asked, strlen(asked)) : strcmp(own, asked)) != 0)
        return false;
    filter->client = own;
    filter->client_begins = false;
    return true;
}

static int list_take(void *context, const char *name, const char *value)
{
    struct list_query *out = context;
    struct job_filter *filter = &out->filter;
    if (strcmp(name, "limit") == 0) {
        if (!number_in(value, LIST_MOST, &out->limit))
            return err_set(ERR_BAD_PARAMETER, "Parameter limit must be a whole number from 1 to %d.", LIST_MOST);
    } else if (strcmp(name, "cursor") == 0) {
        if (!number_in(value, INT64_MAX, &filter->before))
            return err_set(ERR_BAD_PARAMETER, "Parameter cursor must be the \"next\" of an earlier page.");
    } else if (strcmp(name, "state") == 0) {
        if (!members_find(value, &filter->states, state_find))
            return err_set(ERR_BAD_PARAMETER,
                           "Parameter state must be queued, running, canceling, succeeded, failed or "
                           "canceled, or several of these with commas.");
    } else if (strcmp(name, "fields") == 0) {
        if (!members_find(value, &out->fields, job_fields_find))
            return err_set(ERR_BAD_PARAMETER,
                           "Parameter fields must be short, or names of members of a job's document with commas, such "
                           "as id,name,state, not \"%.64s\".",
                           value);
    } else if (strcmp(name, "kind") == 0) {
        filter->kind = strcpy(out->kind, value);
    } else if (strcmp(name, "client") == 0) {
        client_take(out, value);
    } else if (strcmp(name, "name") == 0) {
        filter->name = strcpy(out->name, value);
    } else if (strcmp(name, "since") == 0) {
        return since_read(out, value);
    } else {
        return err_set(ERR_UNKNOWN_PARAMETER,
                       "The list takes limit, cursor, fields, state, client, kind, name and since, not \"%.64s\".",
                       name);
    }
    return 0;
}

/* A page has no reports: neither in the rows that were read for it, nor in that of a job that ended meanwhile and was
 * therefore read again as a whole. */
static json_t *entry_pack(struct request *request, const struct job *job, unsigned fields)
{
    json_t *entry = job_document_fields(request->service, job, fields);
    if (fields & JOB_FIELD_REPORT)
        json_object_set_new(entry, "report", json_object());
    return entry;
}

/* A page of jobs, and the cursor of the next. `count` jobs were read: one more than asked for if there is a next page.
 */
static json_t *list_pack(struct request *request, const struct job *jobs, int count, const struct list_query *query)
{
    int64_t limit = query->limit;
    json_t *list = json_array(), *next = json_null();
    char cursor[24];
    if (count > limit) {
        snprintf(cursor, sizeof cursor, "%lld", (long long)jobs[limit - 1].sequence);
        next = json_string(cursor);
    }
    for (int i = 0; i < count && i < limit; i++)
        json_array_append_new(list, entry_pack(request, &jobs[i], query->fields));
    return json_pack("{s:o, s:o}", "jobs", list, "next", next);
}

int route_jobs_work(struct request *request)
{
    struct list_query query = {.limit = LIST_DEFAULT, .now = clock_milliseconds()};
    const char *own = role_sees_all(request->identity.role) ? NULL : request->identity.client;
    int count = 0, rc = query_each(request->query, list_take, &query);
    if (rc)
        return rc;
    if (!query.fields)
        query.fields = JOB_FIELDS_ALL;
    query.filter.brief = !(query.fields & JOB_FIELDS_LONG);
    struct job *jobs = calloc((size_t)query.limit + 1, sizeof *jobs);
    if (!jobs)
        return err_no_memory("the list; ask for a shorter one");
    /* Another client's jobs are not found. */
    if (!own || client_own(&query.filter, own))
        rc = store_list(request->service->core.store, &query.filter, jobs, (int)query.limit + 1, &count);
    if (!rc)
        request->page = http_json_text(list_pack(request, jobs, count, &query));
    for (int i = 0; i < count; i++)
        job_clear(&jobs[i]);
    free(jobs);
    return rc;
}

int route_jobs(struct request *request)
{
    char *page = request->page;
    request->page = NULL;
    return http_answer(request, 200, "application/json", page, NULL);
}
