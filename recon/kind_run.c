/* Running a job of any kind. */
#include "recon/kind_run.h"

#include "gridding/base/err.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* Add to the error of a file of no format of `kind` which other kinds read such files. */
static void others_tell(const struct kind *kind, int fd)
{
    const struct err failure = *err_last();
    struct stat there;
    char names[128] = "";
    const char *format;
    size_t used = 0;
    for (const struct kind *const *other = kinds; *other && fstat(fd, &there) == 0; other++)
        if (*other != kind && used < sizeof names && (*other)->sniff(&format, fd, (uint64_t)there.st_size) == 0)
            used += (size_t)snprintf(names + used, sizeof names - used, "%skind=%s", used ? ", " : "", (*other)->name);
    if (used > 0)
        err_set(ERR_UNKNOWN_FORMAT, "%s Such files are read by %s.", failure.text, names);
    else
        err_restore(&failure);
}

int kind_run_read(void **out, const struct kind_run *run, const struct job_request *request,
                  const struct job_listener *listener)
{
    int rc = run->read(out, request, listener);
    if (rc == ERR_UNKNOWN_FORMAT)
        others_tell(run->kind, request->input);
    return rc;
}

int kind_run_job(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                 const struct job_listener *listener)
{
    const struct kind_run *run = kind_run_find(request->kind);
    void *input = NULL;
    int rc = kind_check(request->kind, request->values);
    if (rc == 0)
        rc = kind_run_read(&input, run, request, listener);
    if (rc == 0)
        rc = run->run(out, dev, request, listener, input);
    run->input_free(input);
    return rc;
}
