/* The table of routes, and the page that lists them. */
#include "daemon/http/routes.h"

#include <stdio.h>

const struct route http_routes[] = {
    {"GET", "/", ROLE_READ, NULL, NULL, route_index, 0},
    {"GET", "/", ROLE_NOBODY, NULL, NULL, route_page_home, ROUTE_HTML},
    {"GET", "/ui", ROLE_NOBODY, NULL, NULL, route_page_home, 0},
    {"GET", "/ui/*", ROLE_NOBODY, NULL, NULL, route_page, 0},
    {"POST", "/v1/jobs", ROLE_SUBMIT, route_submit_begin, route_submit_work, route_submit, ROUTE_QUERY},
    {"GET", "/v1/jobs", ROLE_READ, NULL, route_jobs_work, route_jobs, ROUTE_QUERY | ROUTE_LIST | ROUTE_ENDS},
    {"GET", "/v1/jobs/*", ROLE_READ, NULL, NULL, route_job, ROUTE_ENDS},
    {"DELETE", "/v1/jobs", ROLE_ADMIN, NULL, route_purge_work, route_purge, ROUTE_QUERY | ROUTE_ENDS},
    {"DELETE", "/v1/jobs/*", ROLE_SUBMIT, NULL, route_delete_work, route_delete, ROUTE_ENDS},
    {"POST", "/v1/jobs/*/cancel", ROLE_SUBMIT, NULL, route_cancel_work, route_cancel, ROUTE_ENDS},
    {"POST", "/v1/jobs/*/resubmit", ROLE_SUBMIT, NULL, route_resubmit_work, route_submit, ROUTE_QUERY | ROUTE_ENDS},
    {"GET", "/v1/streams", ROLE_READ, NULL, NULL, route_stream, ROUTE_QUERY},
    {"GET", "/v1/events", ROLE_READ, NULL, NULL, route_feed, 0},
    {"GET", "/v1/jobs/*/events", ROLE_READ, NULL, NULL, route_events, ROUTE_ENDS},
    {"GET", "/v1/deliveries", ROLE_READ, NULL, route_deliveries_work, route_deliveries,
     ROUTE_QUERY | ROUTE_LIST | ROUTE_ENDS},
    {"GET", "/v1/destinations", ROLE_READ, NULL, NULL, route_destinations, 0},
    {"POST", "/v1/jobs/*/deliveries/*", ROLE_ADMIN, NULL, route_deliver_work, route_deliver, ROUTE_ENDS},
    {"GET", "/v1/jobs/*/results", ROLE_READ, NULL, NULL, route_results, ROUTE_ENDS},
    {"GET", "/v1/jobs/*/results/*", ROLE_READ, NULL, NULL, route_result, ROUTE_QUERY | ROUTE_ENDS},
    {"OPTIONS", "/v1/uploads", ROLE_NOBODY, NULL, NULL, route_uploads_options, ROUTE_TUS},
    {"POST", "/v1/uploads", ROLE_SUBMIT, route_upload_create_begin, route_upload_create_work, route_upload_create,
     ROUTE_QUERY | ROUTE_TUS},
    {"GET", "/v1/uploads/*", ROLE_READ, NULL, NULL, route_upload, ROUTE_TUS},
    {"PATCH", "/v1/uploads/*", ROLE_SUBMIT, route_upload_append_begin, route_upload_append_work, route_upload_append,
     ROUTE_TUS},
    {"DELETE", "/v1/uploads/*", ROLE_SUBMIT, NULL, route_upload_delete_work, route_upload_delete, ROUTE_TUS},
    {"POST", "/v1/login", ROLE_READ, NULL, NULL, route_login, ROUTE_LOGIN},
    {"GET", "/v1/login", ROLE_READ, NULL, NULL, route_login_show, 0},
    {"DELETE", "/v1/login", ROLE_READ, NULL, NULL, route_logout, ROUTE_LOGIN},
    {"GET", "/v1/kinds", ROLE_READ, NULL, NULL, route_kinds, 0},
    {"GET", "/livez", ROLE_NOBODY, NULL, NULL, route_live, ROUTE_HEALTH},
    {"GET", "/readyz", ROLE_NOBODY, NULL, NULL, route_ready, ROUTE_QUERY | ROUTE_HEALTH},
    {"GET", "/healthz", ROLE_NOBODY, NULL, NULL, route_ready, ROUTE_QUERY | ROUTE_HEALTH},
    {"GET", "/v2/health/live", ROLE_NOBODY, NULL, NULL, route_live, ROUTE_HEALTH},
    {"GET", "/v2/health/ready", ROLE_NOBODY, NULL, NULL, route_ready, ROUTE_QUERY | ROUTE_HEALTH},
    {"GET", "/metrics", ROLE_READ, NULL, NULL, route_metrics, ROUTE_HEALTH},
    {.method = NULL},
};

int route_index(struct request *request)
{
    json_t *paths = json_array();
    for (const struct route *route = http_routes; route->method; route++) {
        if (route->flags & ROUTE_HTML)
            continue;
        char line[96];
        snprintf(line, sizeof line, "%s %s", route->method, route->path);
        json_array_append_new(paths, json_string(line));
    }
    return http_answer_json(
        request, 200, json_pack("{s:s, s:s, s:o}", "service", "mrirecond", "version", MRIRECON_VERSION, "paths", paths),
        NULL);
}
