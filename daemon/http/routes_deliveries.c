/* Deliveries of ended jobs: the list of all, sending one, and the destinations. */
#include "daemon/http/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_DEFAULT = 50, LIST_MOST = 500 };

struct deliveries_query {
    int64_t limit;
    struct delivery_filter filter;
    char destination[HTTP_VALUE];
};

static int deliveries_take(void *context, const char *name, const char *value)
{
    struct deliveries_query *out = context;
    if (strcmp(name, "limit") == 0) {
        if (!number_in(value, LIST_MOST, &out->limit))
            return err_set(ERR_BAD_PARAMETER, "Parameter limit must be a whole number from 1 to %d.", LIST_MOST);
    } else if (strcmp(name, "cursor") == 0) {
        if (!number_in(value, INT64_MAX, &out->filter.before))
            return err_set(ERR_BAD_PARAMETER, "Parameter cursor must be the \"next\" of an earlier page.");
    } else if (strcmp(name, "state") == 0) {
        out->filter.state = delivery_state_find(value);
        if (out->filter.state < 0)
            return err_set(ERR_BAD_PARAMETER, "Parameter state must be pending, sending, delivered or dead.");
    } else if (strcmp(name, "destination") == 0) {
        out->filter.destination = strcpy(out->destination, value);
    } else {
        return err_set(ERR_UNKNOWN_PARAMETER,
                       "The list of deliveries takes limit, cursor, state and destination, not \"%.64s\".", name);
    }
    return 0;
}

/* `count` deliveries were read: one more than asked for if there is a next page. */
static json_t *page_pack(const struct delivery *list, int count, int64_t limit)
{
    json_t *page = json_array(), *next = json_null();
    char cursor[24];
    if (count > limit) {
        snprintf(cursor, sizeof cursor, "%lld", (long long)list[limit - 1].sequence);
        next = json_string(cursor);
    }
    for (int i = 0; i < count && i < limit; i++) {
        json_t *one = delivery_pack(&list[i]);
        json_object_set_new(one, "job", json_string(list[i].job));
        json_array_append_new(page, one);
    }
    return json_pack("{s:o, s:o}", "deliveries", page, "next", next);
}

int route_deliveries_work(struct request *request)
{
    struct deliveries_query query = {.limit = LIST_DEFAULT, .filter.state = -1};
    int count = 0, rc = query_each(request->query, deliveries_take, &query);
    if (rc)
        return rc;
    /* Deliveries of another client's jobs get the same answer as unknown ones. */
    query.filter.client = role_sees_all(request->identity.role) ? NULL : request->identity.client;
    struct delivery *list = calloc((size_t)query.limit + 1, sizeof *list);
    if (!list)
        return err_no_memory("the list; ask for a shorter one");
    rc = store_deliveries(request->service->core.store, &query.filter, list, (int)query.limit + 1, &count);
    if (!rc)
        request->page = http_json_text(page_pack(list, count, query.limit));
    free(list);
    return rc;
}

int route_deliveries(struct request *request)
{
    char *page = request->page;
    request->page = NULL;
    return http_answer(request, 200, "application/json", page, NULL);
}

int route_deliver_work(struct request *request)
{
    struct service *service = request->service;
    const char *id = request->part[2], *destination = request->part[4];
    struct job job = {.state = JOB_QUEUED};
    struct destination to;
    int rc = request_job(request, id, &job);
    job_clear(&job);
    if (!rc && !destinations_find(service->destinations, destination, &to))
        rc = err_set(ERR_NOT_FOUND, "There is no destination \"%.64s\"; the service's configuration names them.",
                     destination);
    if (!rc)
        rc = store_delivery_send(service->core.store, id, destination);
    if (rc)
        return rc;
    log_line(service->core.log, LOG_LEVEL_INFO, id, "to be sent to %s, as was asked for", to.name);
    outbox_wake(service->outbox);
    return 0;
}

int route_deliver(struct request *request)
{
    return http_answer_json(request, 202,
                            json_pack("{s:s, s:o}", "id", request->part[2], "deliveries",
                                      deliveries_pack(request->service, request->part[2])),
                            NULL);
}

int route_destinations(struct request *request)
{
    const struct identity *identity = &request->identity;
    json_t *list = destinations_list(request->service->destinations, identity->client, identity->role == ROLE_ADMIN);
    return http_answer_json(request, 200, json_pack("{s:o}", "destinations", list), NULL);
}
