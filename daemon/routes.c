/* The table of routes. */
#include "daemon/routes.h"

const struct route http_routes[] = {
    {"GET", "/", NULL, route_index},
    {"POST", "/v1/jobs", route_submit_begin, route_submit},
    {"GET", "/v1/jobs", NULL, route_jobs},
    {"GET", "/v1/jobs/*", NULL, route_job},
    {"DELETE", "/v1/jobs/*", NULL, route_delete},
    {"POST", "/v1/jobs/*/cancel", NULL, route_cancel},
    {"GET", "/v1/jobs/*/results/*", NULL, route_result},
    {"GET", "/v1/kinds", NULL, route_kinds},
    {"GET", "/livez", NULL, route_live},
    {"GET", "/readyz", NULL, route_ready},
    {"GET", "/healthz", NULL, route_ready},
    {"GET", "/v2/health/live", NULL, route_live},
    {"GET", "/v2/health/ready", NULL, route_ready},
    {"GET", "/metrics", NULL, route_metrics},
    {.method = NULL},
};
