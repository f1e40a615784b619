/* Running a job of any kind. */
#include "recon/kind_run.h"

#include <jansson.h>
#include <string.h>

const struct kind_run *kind_run_find(const struct kind *kind)
{
    for (const struct kind_run *const *run = kind_runs; *run; run++)
        if ((*run)->kind == kind)
            return *run;
    return NULL;
}

void job_outcome_free(struct job_outcome *outcome)
{
    for (int i = 0; i < outcome->results; i++)
        outcome->result[i].free(outcome->result[i].of);
    json_decref(outcome->report);
    *outcome = (struct job_outcome){.results = 0};
}

const struct job_result *job_outcome_find(const struct job_outcome *outcome, const char *name)
{
    for (int i = 0; i < outcome->results; i++)
        if (strcmp(outcome->result[i].name, name) == 0)
            return &outcome->result[i];
    return NULL;
}

int kind_run_job(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                 const struct job_listener *listener)
{
    const struct kind_run *run = kind_run_find(request->kind);
    void *input = NULL;
    int rc = kind_check(request->kind, request->values);
    if (rc == 0)
        rc = run->read(&input, request, listener);
    if (rc == 0)
        rc = run->run(out, dev, request, listener, input);
    run->input_free(input);
    return rc;
}
