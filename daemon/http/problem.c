#include "daemon/http/problem.h"

#include "daemon/wire.h"

#include <stdio.h>

json_t *problem_pack(const struct err *failure, const char *job)
{
    char type[96];
    snprintf(type, sizeof type, "urn:mrirecond:problem:%s", err_name(failure->code));
    json_t *problem = json_pack("{s:s, s:s, s:i}", "type", type, "title", err_title(failure->code), "status",
                                err_status(failure->code));
    json_t *error = wire_error_pack(failure);
    json_object_update(problem, error);
    json_decref(error);
    if (job)
        json_object_set_new(problem, "job_id", json_string(job));
    return problem;
}

json_t *problem_of(const json_t *error, const char *job)
{
    struct err failure;
    wire_error_unpack(error, &failure);
    return problem_pack(&failure, job);
}
