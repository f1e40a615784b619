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
    char client[HTTP_VALUE], name[HTTP_VALUE];
};

static int since_read(struct list_query *query, const char *value)
{
    if (!since_parse(value, query->now, &query->filter.since))
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter since must be an age, such as 90 (seconds), 15m, 12h or 7d, or a time in UTC, such "
                       "as 2026-11-22T03:00:00Z, not \"%.64s\".",
                       value);
    return 0;
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
        filter->state = job_state_find(value);
        if (filter->state < 0)
            return err_set(ERR_BAD_PARAMETER,
                           "Parameter state must be queued, running, canceling, succeeded, failed or canceled.");
    } else if (strcmp(name, "client") == 0) {
        filter->client = strcpy(out->client, value);
    } else if (strcmp(name, "name") == 0) {
        filter->name = strcpy(out->name, value);
    } else if (strcmp(name, "since") == 0) {
        return since_read(out, value);
    } else {
        return err_set(ERR_UNKNOWN_PARAMETER,
                       "The list takes limit, cursor, state, client, name and since, not \"%.64s\".", name);
    }
    return 0;
}

/* A page of jobs, and the cursor of the next. `count` jobs were read: one more than asked for if there is a next page.
 */
static json_t *list_pack(struct request *request, const struct job *jobs, int count, int64_t limit)
{
    json_t *list = json_array(), *next = json_null();
    char cursor[24];
    if (count > limit) {
        snprintf(cursor, sizeof cursor, "%lld", (long long)jobs[limit - 1].sequence);
        next = json_string(cursor);
    }
    for (int i = 0; i < count && i < limit; i++)
        json_array_append_new(list, job_document_listed(request->service, &jobs[i]));
    return json_pack("{s:o, s:o}", "jobs", list, "next", next);
}

int route_jobs_work(struct request *request)
{
    struct list_query query = {.limit = LIST_DEFAULT, .filter.state = -1, .now = clock_milliseconds()};
    const char *own = role_sees_all(request->identity.role) ? NULL : request->identity.client;
    int count = 0, rc = query_each(request->query, list_take, &query);
    if (!rc && request_is_gone(request))
        rc = err_set(ERR_CANCELED, "The client disconnected before it got the list.");
    if (rc)
        return rc;
    struct job *jobs = calloc((size_t)query.limit + 1, sizeof *jobs);
    if (!jobs)
        return err_no_memory("the list; ask for a shorter one");
    /* Another client's jobs are not found. */
    bool others = own && query.filter.client && strcmp(own, query.filter.client) != 0;
    if (own)
        query.filter.client = own;
    if (!others)
        rc = store_list(request->service->core.store, &query.filter, jobs, (int)query.limit + 1, &count);
    if (!rc)
        request->page = http_json_text(list_pack(request, jobs, count, query.limit));
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
