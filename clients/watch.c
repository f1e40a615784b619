/* mrirecon watch: a batch that does not end: each scan that appears in a folder, or changes there, is reconstructed
 * once its file has settled. The folder is read again and again instead of being watched by inotify, which does not see
 * what another machine writes to a shared file system. */
#include "clients/batch_jobs.h"
#include "gridding/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define FOLDER_SECONDS 0.5 /* between two readings of the folder */
/* A file counts as complete if its size and time have not changed for this time. If its writer only paused, the scan
 * fails as truncated, and is sent again when it has changed. */
#define SETTLE_SECONDS 2.0

static int name_compare(const void *a, const void *b)
{
    return strcmp(((const struct scan_entry *)a)->name, ((const struct scan_entry *)b)->name);
}

static bool same_file(const struct scan_entry *a, const struct scan_entry *b)
{
    return a->bytes == b->bytes && a->changed == b->changed;
}

/* Move the state of the entry `known` to `fresh`, which keeps its name. */
static void entry_move(struct scan_entry *fresh, struct scan_entry *known)
{
    char *name = fresh->name;
    *fresh = *known;
    fresh->name = name;
    known->state = SCAN_NEW; /* the old entry has no state any more */
}

/* Jobs on the server whose file was removed: their results are still saved. */
static int keep_sent(struct batch *batch, struct scan_entry **fresh, int *count)
{
    for (int i = 0; i < batch->count; i++) {
        if (batch->scan[i].state != SCAN_SENT)
            continue;
        struct scan_entry *more = realloc(*fresh, ((size_t)*count + 1) * sizeof *more);
        if (more)
            *fresh = more;
        char *name = more ? strdup(batch->scan[i].name) : NULL;
        if (!name)
            return err_no_memory("the list of scans");
        (*fresh)[*count] = (struct scan_entry){.name = name};
        entry_move(&(*fresh)[(*count)++], &batch->scan[i]);
    }
    if (*count > 0)
        qsort(*fresh, (size_t)*count, sizeof **fresh, name_compare);
    return 0;
}

/* Fill in an earlier run's state of entries that this run sees for the first time, and the time from which they may be
 * sent. */
static int entries_begin(struct batch *batch, struct scan_entry **seen, int count)
{
    struct scan_entry *entry = calloc((size_t)count, sizeof *entry);
    if (!entry)
        return err_no_memory("the list of scans");
    for (int i = 0; i < count; i++) {
        entry[i] = *seen[i];
        entry[i].not_before = clock_seconds() + SETTLE_SECONDS;
    }
    int rc = batch_resume(batch, entry, count);
    for (int i = 0; i < count; i++)
        *seen[i] = entry[i];
    free(entry);
    return rc;
}

/* Fill in the entries of `fresh`: from those of the batch, or as new. The job of a file that has changed ends first. */
static int entries_take(struct batch *batch, struct scan_entry *fresh, int count)
{
    struct scan_entry **seen = calloc((size_t)count + 1, sizeof *seen);
    int news = 0;
    if (!seen)
        return err_no_memory("the list of scans");
    for (int i = 0; i < count; i++) {
        struct scan_entry *known =
            !batch->scan ? NULL
                         : bsearch(&fresh[i], batch->scan, (size_t)batch->count, sizeof *batch->scan, name_compare);
        if (known && (same_file(known, &fresh[i]) || known->state == SCAN_SENT))
            entry_move(&fresh[i], known);
        else
            seen[news++] = &fresh[i];
    }
    int rc = news ? entries_begin(batch, seen, news) : 0;
    free(seen);
    return rc;
}

/* Replace the batch's scans by those that are now in the folder. */
static int folder_look(struct batch *batch)
{
    struct scan_entry *fresh = NULL;
    int count = 0, rc = folder_read(batch->folder, &fresh, &count);
    if (!rc)
        rc = entries_take(batch, fresh, count);
    if (!rc)
        rc = keep_sent(batch, &fresh, &count);
    if (rc) {
        folder_free(fresh, count);
        return rc;
    }
    folder_free(batch->scan, batch->count);
    batch->scan = fresh;
    batch->count = count;
    return 0;
}

static int watch_work(struct batch *batch)
{
    double looked = clock_seconds();
    bool away = false; /* the folder is missing: its file system may be unmounted for a while */
    for (;;) {
        bool idle = false;
        int rc = batch_round(batch, &idle);
        if (!rc)
            rc = server_pause(batch->server, LOOK_SECONDS);
        if (!rc && clock_seconds() >= looked + FOLDER_SECONDS) {
            rc = folder_look(batch);
            if (rc == ERR_IO && !away)
                batch_waits_for_failure(batch);
            away = rc == ERR_IO;
            rc = away ? 0 : rc;
            looked = clock_seconds();
        }
        if (rc)
            return rc;
    }
}

int client_watch(struct server *server, const struct client_options *options)
{
    struct batch batch;
    int status = batch_create(&batch, server, options, "normal");
    if (status) {
        batch_clear(&batch);
        return status;
    }
    batch.endless = true;
    progress_start(&batch.progress);
    int rc = batch_open(&batch);
    if (!rc)
        rc = folder_look(&batch);
    if (!rc)
        rc = watch_work(&batch);
    progress_end(&batch.progress);
    status = client_failed();
    batch_clear(&batch);
    return status;
}
