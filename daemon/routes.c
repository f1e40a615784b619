/* The table of routes. */
#include "daemon/routes.h"

const struct route http_routes[] = {
    {"GET", "/", ROLE_READ, NULL, NULL, route_index},
    {"POST", "/v1/jobs", ROLE_SUBMIT, route_submit_begin, route_submit_work, route_submit},
    {"GET", "/v1/jobs", ROLE_READ, NULL, NULL, route_jobs},
    {"GET", "/v1/jobs/*", ROLE_READ, NULL, NULL, route_job},
    {"DELETE", "/v1/jobs", ROLE_ADMIN, NULL, route_purge_work, route_purge},
    {"DELETE", "/v1/jobs/*", ROLE_SUBMIT, NULL, route_delete_work, route_delete},
    {"POST", "/v1/jobs/*/cancel", ROLE_SUBMIT, NULL, route_cancel_work, route_cancel},
    {"POST", "/v1/jobs/*/resubmit", ROLE_SUBMIT, NULL, route_resubmit_work, route_submit},
    {"GET", "/v1/jobs/*/events", ROLE_READ, NULL, NULL, route_events},
    {"GET", "/v1/jobs/*/results/*", ROLE_READ, NULL, NULL, route_result},
    {"OPTIONS", "/v1/uploads", ROLE_NOBODY, NULL, NULL, route_uploads_options},
    {"POST", "/v1/uploads", ROLE_SUBMIT, route_upload_create_begin, route_upload_create_work, route_upload_create},
    {"GET", "/v1/uploads/*", ROLE_READ, NULL, NULL, route_upload},
    {"PATCH", "/v1/uploads/*", ROLE_SUBMIT, route_upload_append_begin, route_upload_append_work, route_upload_append},
    {"DELETE", "/v1/uploads/*", ROLE_SUBMIT, NULL, route_upload_delete_work, route_upload_delete},
    {"GET", "/v1/kinds", ROLE_READ, NULL, NULL, route_kinds},
    {"GET", "/livez", ROLE_NOBODY, NULL, NULL, route_live},
    {"GET", "/readyz", ROLE_NOBODY, NULL, NULL, route_ready},
    {"GET", "/healthz", ROLE_NOBODY, NULL, NULL, route_ready},
    {"GET", "/v2/health/live", ROLE_NOBODY, NULL, NULL, route_live},
    {"GET", "/v2/health/ready", ROLE_NOBODY, NULL, NULL, route_ready},
    {"GET", "/metrics", ROLE_READ, NULL, NULL, route_metrics},
    {.method = NULL},
};
