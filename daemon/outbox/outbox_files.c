/* The DICOM files of a job that are sent. The converter creates those that do not exist yet. */
#include "daemon/outbox/outbox_parts.h"

#include <string.h>
#include <unistd.h>

void files_close(struct outbox *outbox, struct sending *sending)
{
    if (sending->ticket)
        converter_leave(outbox->converter, sending->ticket);
    sending->ticket = 0;
    while (sending->files > 0)
        close(sending->file[--sending->files]);
}

/* The job's results that can be converted to DICOM, as bits. */
static int results_find(struct outbox *outbox, struct sending *sending)
{
    struct job job;
    int rc = store_get(outbox->core.store, sending->delivery.job, &job);
    if (rc)
        return rc;
    const struct kind *kind = kind_find(job.kind);
    unsigned wanted = kind ? kind_results_wanted(kind, job_results_asked(&job)) : 0;
    for (int i = 0; kind && kind->results[i].name; i++)
        if (form_format_find(kind->results[i].form, "dcm") < 0)
            wanted &= ~(1u << i);
    sending->kind = kind;
    sending->results = wanted;
    if (!wanted || job.state != JOB_SUCCEEDED)
        rc = err_set(ERR_NOT_ACCEPTABLE, "The job has no result that can be written as DICOM.");
    job_clear(&job);
    return rc;
}

/* Open the file of result `i`; ERR_NOT_DONE: it is being converted. */
static int file_open(struct outbox *outbox, struct sending *sending, int i)
{
    struct conversion what = {.kind = sending->kind,
                              .file = {i, form_format_find(sending->kind->results[i].form, "dcm")}};
    char name[SPOOL_NAME];
    int64_t bytes, stamp;
    int fd;
    memcpy(what.id, sending->delivery.job, sizeof what.id);
    conversion_name(&what, name);
    int rc = spool_result_open(outbox->core.spool, what.id, name, &fd, &bytes, &stamp);
    if (rc == ERR_NOT_FOUND) {
        rc = converter_ask(outbox->converter, &what, sending->delivery.client, &sending->ticket);
        return rc ? rc : ERR_NOT_DONE;
    }
    if (rc)
        return rc;
    sending->ticket = 0; /* its conversion has ended */
    sending->file[sending->files++] = fd;
    sending->results &= ~(1u << i);
    return 0;
}

int outbox_files_open(struct outbox *outbox, struct sending *sending)
{
    int rc = sending->kind ? 0 : results_find(outbox, sending);
    for (int i = 0; i < KIND_MAX_RESULTS && !rc; i++)
        if (sending->results >> i & 1)
            rc = file_open(outbox, sending, i);
    return rc;
}
