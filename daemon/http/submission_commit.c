#include "daemon/http/submission.h"

#include "recon/recon.h"

#include <stdio.h>
#include <string.h>

const char *ingest_format(const struct job *job, int input)
{
    const struct kind *kind = kind_find(job->kind);
    const char *format;
    return !kind || kind->sniff(&format, input, (uint64_t)job->bytes) ? "other" : format;
}

const char *name_for_log(const struct service *service, const struct job *job, char text[NAME_FOR_LOG])
{
    bool told = *job->name && service->core.options->job_names == NAMES_LOG;
    text[0] = '\0';
    if (told)
        snprintf(text, NAME_FOR_LOG, ", \"%s\"", job->name);
    return text;
}

void submission_accepted(struct service *service, const struct job *job, const char *how)
{
    metrics_submitted(service->core.metrics, job->kind);
    char name[NAME_FOR_LOG];
    log_line_about(service->core.log, LOG_LEVEL_INFO, &(struct log_about){job->id, job->client, 0},
                   "%s, %s, %s, %lld bytes%s", how, job->kind, job_priority_name(job->priority), (long long)job->bytes,
                   name_for_log(service, job, name));
    scheduler_wake(service->scheduler);
}

/* The row could not be committed. */
static int commit_undo(struct job *job, struct spool_file *upload)
{
    struct err failure = *err_last();
    job->id[0] = '\0';
    spool_abort(upload);
    return err_restore(&failure);
}

int submission_commit(struct service *service, struct job *job, struct spool_file *upload)
{
    const char *format = "other";
    int scan;
    job->bytes = upload->bytes;
    memcpy(job->id, upload->id, sizeof job->id);
    if (spool_reopen(upload, &scan) == 0) {
        format = ingest_format(job, scan);
        scheduler_announce(service->scheduler, job, scan, ARRIVING_NOT);
    }
    int rc = spool_finish(upload);
    if (!rc)
        rc = store_submit(service->core.store, job, service->core.options->queue_limit);
    if (rc) {
        scheduler_retract(service->scheduler, upload->id);
        return commit_undo(job, upload);
    }
    *upload = (struct spool_file){.fd = -1}; /* now the job's */
    metrics_ingested(service->core.metrics, format, job->bytes);
    return 0;
}

int submission_commit_failed(struct service *service, struct job *job, struct spool_file *upload,
                             const struct err *failure)
{
    const struct core *core = &service->core;
    job->bytes = upload->bytes;
    memcpy(job->id, upload->id, sizeof job->id);
    int rc = spool_finish(upload);
    if (!rc)
        rc = store_submit_failed(core->store, job, failure, core->options->queue_limit);
    if (rc)
        return commit_undo(job, upload);
    *upload = (struct spool_file){.fd = -1};
    metrics_submitted(core->metrics, job->kind);
    metrics_failed(core->metrics, job->kind, failure->code, 0);
    if (core->options->keep_scans == KEEP_NONE)
        spool_remove(core->spool, job->id);
    return 0;
}
