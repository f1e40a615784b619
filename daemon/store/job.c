#include "daemon/store/job.h"

#include <string.h>

static const struct {
    const char *name;
    bool final;
} states[JOB_STATES] = {
    [JOB_QUEUED] = {"queued", false},      [JOB_RUNNING] = {"running", false}, [JOB_CANCELING] = {"canceling", false},
    [JOB_SUCCEEDED] = {"succeeded", true}, [JOB_FAILED] = {"failed", true},    [JOB_CANCELED] = {"canceled", true},
};

const char *job_state_name(enum job_state state)
{
    return states[state].name;
}

int job_state_find(const char *name)
{
    for (int i = 0; i < JOB_STATES; i++)
        if (strcmp(states[i].name, name) == 0)
            return i;
    return -1;
}

bool job_state_is_final(enum job_state state)
{
    return states[state].final;
}

static const char *const priorities[PRIORITIES] = {
    [PRIORITY_URGENT] = "urgent", [PRIORITY_NORMAL] = "normal", [PRIORITY_BATCH] = "batch"};

const char *job_priority_name(enum job_priority priority)
{
    return priorities[priority];
}

int job_priority_find(const char *name)
{
    for (int i = 0; i < PRIORITIES; i++)
        if (strcmp(priorities[i], name) == 0)
            return i;
    return -1;
}

const char *job_results_asked(const struct job *job)
{
    return json_string_value(json_object_get(job->parameters, "results"));
}

void job_clear(struct job *job)
{
    json_decref(job->parameters);
    json_decref(job->formats);
    json_decref(job->error);
    json_decref(job->results);
    json_decref(job->report);
    *job = (struct job){.sequence = 0};
}
