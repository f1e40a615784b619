/* mrirecon batch: submits every scan of a folder, waits for the jobs and downloads their results; after an
 * interruption, the same command continues. Only a few scans are on the server at a time, so that uploads and
 * reconstructions overlap and the queue does not fill up. */
#include "clients/batch_jobs.h"
#include "clients/table.h"

#include <stdio.h>

static bool unfinished(const struct batch *batch)
{
    return batch_count(batch, SCAN_NEW) + batch_count(batch, SCAN_SENT) > 0;
}

static int batch_work(struct batch *batch)
{
    int rc = 0;
    while (!rc && unfinished(batch)) {
        bool idle = false;
        rc = batch_round(batch, &idle);
        if (!rc && idle && unfinished(batch))
            rc = server_pause(batch->server, LOOK_SECONDS);
    }
    progress_end(&batch->progress);
    return rc;
}

static void summary(const struct batch *batch)
{
    static const char *const names[] = {[SCAN_NEW] = "not sent",
                                        [SCAN_SENT] = "on the server",
                                        [SCAN_SUCCEEDED] = "succeeded",
                                        [SCAN_FAILED] = "failed",
                                        [SCAN_CANCELED] = "canceled"};
    int width = 4;
    for (int i = 0; i < batch->count; i++)
        if (text_columns(batch->scan[i].name) > width)
            width = text_columns(batch->scan[i].name);
    printf("%-*s  %-13s  %9s  %s\n", width, "scan", "state", "seconds", "job, why");
    for (int i = 0; i < batch->count; i++) {
        const struct scan_entry *scan = &batch->scan[i];
        client_print_text(stdout, scan->name);
        printf("%*s  %-13s  ", width - text_columns(scan->name), "", names[scan->state]);
        if (scan->state == SCAN_SUCCEEDED)
            printf("%9.3f  %s\n", scan->seconds, scan->id);
        else
            printf("%9s  %s%s%s\n", "", scan->id, *scan->id && *scan->code ? "  " : "", scan->code);
    }
    printf("%d of %d succeeded, %d failed", batch_count(batch, SCAN_SUCCEEDED), batch->count,
           batch_count(batch, SCAN_FAILED) + batch_count(batch, SCAN_CANCELED));
    if (batch_count(batch, SCAN_SENT))
        printf(", %d on the server", batch_count(batch, SCAN_SENT));
    if (batch_count(batch, SCAN_NEW))
        printf(", %d not sent", batch_count(batch, SCAN_NEW));
    putchar('\n');
}

/* Report the state that an earlier run has left. */
static void resumed_tell(const struct batch *batch)
{
    int failed = batch_count(batch, SCAN_FAILED) + batch_count(batch, SCAN_CANCELED);
    if (batch_count(batch, SCAN_NEW) < batch->count)
        fprintf(stderr, "mrirecon: continuing a batch: %d of %d scans are done, %d on the server\n",
                batch_count(batch, SCAN_SUCCEEDED) + failed, batch->count, batch_count(batch, SCAN_SENT));
    if (failed)
        fprintf(stderr, "mrirecon: %d failed before; --retry tries them again\n", failed);
}

static int batch_run(struct batch *batch)
{
    int rc = folder_read(batch->folder, &batch->scan, &batch->count);
    if (!rc && batch->count == 0)
        rc = err_set(ERR_IO, "%s contains no scan: no file whose name ends in .h5, .mrd or .npz.", batch->folder);
    if (!rc)
        rc = batch_open(batch);
    if (!rc)
        rc = batch_resume(batch, batch->scan, batch->count);
    if (!rc)
        resumed_tell(batch);
    progress_start(&batch->progress);
    return rc ? rc : batch_work(batch);
}

int client_batch(struct server *server, const struct client_options *options)
{
    struct batch batch;
    int status = batch_create(&batch, server, options, "batch");
    if (status) {
        batch_clear(&batch);
        return status;
    }
    int rc = batch_run(&batch);
    struct err why = *err_last();
    /* If no scan was sent, a table would only hide the reason. */
    bool began = batch.journal && batch_count(&batch, SCAN_NEW) < batch.count;
    if (began)
        summary(&batch);
    if (rc) {
        err_restore(&why);
        status = client_failed();
        if (began)
            fprintf(stderr, "mrirecon: give the same command again to continue.\n");
    } else if (batch_count(&batch, SCAN_SUCCEEDED) < batch.count) {
        status = CLIENT_FAILED;
    }
    batch_clear(&batch);
    return status;
}
