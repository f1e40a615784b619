/* At a start: files that a crash left in the folders. */
#include "daemon/spool/spool.h"

#include "daemon/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct job_row {
    struct job_files job;
    bool scan; /* is on the disk */
};

struct rows {
    struct job_row *row; /* sorted by job.id after loading */
    size_t count, room;
};

static int row_add(void *context, const struct job_files *job)
{
    struct rows *rows = context;
    if (rows->count == rows->room) {
        size_t room = rows->room ? 2 * rows->room : 256;
        struct job_row *more = realloc(rows->row, room * sizeof *more);
        if (!more)
            return 1;
        rows->row = more;
        rows->room = room;
    }
    rows->row[rows->count++] = (struct job_row){.job = *job};
    return 0;
}

static int row_compare(const void *a, const void *b)
{
    return strcmp(((const struct job_row *)a)->job.id, ((const struct job_row *)b)->job.id);
}

static struct job_row *row_find(struct rows *rows, const char *id)
{
    struct job_row key = {.scan = false};
    snprintf(key.job.id, sizeof key.job.id, "%s", id);
    return rows->count && spool_is_id(id) ? bsearch(&key, rows->row, rows->count, sizeof key, row_compare) : NULL;
}

/* One pass over the folders. */
struct cleaning {
    struct spool *spool;
    struct rows *rows;
    bool clean; /* files without a row never had one */
    struct spool_cleaned *out;
};

bool spool_has_upload(const struct spool *spool, const char *id)
{
    struct stat there;
    char upload[JOB_ID + 16], part[JOB_ID + 16];
    snprintf(upload, sizeof upload, "uploads/%.*s", JOB_ID - 1, id);
    snprintf(part, sizeof part, "%.*s.part", JOB_ID - 1, id);
    /* Files of one that the disk does not show are kept aside: they may be all that is left of a job. */
    return disk_look(spool->state, upload, &there) == DISK_THERE || disk_look(spool->scans, part, &there) == DISK_THERE;
}

/* Of an upload that was not complete, and so never a job: results that were computed meanwhile. */
static void results_of_part_drop(const struct cleaning *cleaning, const char *part)
{
    char id[JOB_ID];
    snprintf(id, sizeof id, "%.*s", JOB_ID - 1, part);
    if (strcmp(part + strnlen(part, JOB_ID - 1), ".part") == 0 && !row_find(cleaning->rows, id))
        disk_folder_remove(&cleaning->spool->freer, cleaning->spool->results, id);
}

/* A file of `folder` without a job; it stays if it can be neither moved nor removed. */
static void scan_drop(const struct cleaning *cleaning, const char *name, bool has_row)
{
    struct spool *spool = cleaning->spool;
    struct spool_cleaned *out = cleaning->out;
    char kept[JOB_ID + 16];
    if (cleaning->clean || has_row || !spool_is_id(name) || spool_has_upload(spool, name)) {
        out->removed += unlinkat(spool->scans, name, 0) == 0;
        return;
    }
    snprintf(kept, sizeof kept, "%.*s.scan", JOB_ID - 1, name);
    out->scans_found += spool_found_keep(spool, out->time, spool->scans, name, kept);
}

static void result_drop(const struct cleaning *cleaning, const char *name, const struct job_row *row)
{
    struct spool *spool = cleaning->spool;
    struct spool_cleaned *out = cleaning->out;
    char kept[JOB_ID + 16];
    /* The results can be computed again from the scan; a resumable upload becomes its job later. */
    bool again = row ? row->scan || row->job.state != JOB_QUEUED : spool_has_upload(spool, name);
    if (cleaning->clean || again || !spool_is_id(name)) {
        out->removed += disk_folder_remove(&spool->freer, spool->results, name);
        return;
    }
    snprintf(kept, sizeof kept, "%.*s.results", JOB_ID - 1, name);
    out->results_found += spool_found_keep(spool, out->time, spool->results, name, kept);
}

/* Of a job that will be repeated. */
static bool is_checkpoint(struct rows *rows, const char *name)
{
    char id[JOB_ID];
    const char *ending = strchr(name, '.');
    if (!ending || strcmp(ending, ".checkpoint") != 0 || ending - name != JOB_ID - 1)
        return false;
    memcpy(id, name, JOB_ID - 1);
    id[JOB_ID - 1] = '\0';
    const struct job_row *row = row_find(rows, id);
    return row && row->job.state == JOB_QUEUED;
}

/* A scan that the disk does not show would be taken for lost. */
static int clean_scans(const struct cleaning *cleaning)
{
    struct spool *spool = cleaning->spool;
    struct disk_names names;
    int rc = disk_names_read(spool->scans, "reading the spool", &names);
    for (const char *name = NULL; !rc && (name = disk_names_next(&names, name));) {
        struct stat there;
        if (name[0] == '.')
            continue;
        const enum disk_sight seen = disk_look(spool->scans, name, &there);
        if (seen != DISK_THERE) {
            rc = seen == DISK_MISSING ? 0 : disk_failed("reading the spool");
            continue;
        }
        struct job_row *row = row_find(cleaning->rows, name);
        if (is_checkpoint(cleaning->rows, name))
            continue;
        if (row && row->job.scan_stays) {
            row->scan = true;
            spool->used += there.st_size;
        } else if (S_ISREG(there.st_mode)) {
            results_of_part_drop(cleaning, name);
            scan_drop(cleaning, name, row != NULL);
        }
    }
    disk_names_free(&names);
    return rc;
}

static int clean_results(const struct cleaning *cleaning)
{
    struct spool *spool = cleaning->spool;
    struct disk_names names;
    int rc = disk_names_read(spool->results, "reading the results", &names);
    for (const char *name = NULL; !rc && (name = disk_names_next(&names, name));) {
        /* An interrupted conversion. */
        if (name[0] == '.' && unlinkat(spool->results, name, 0) == 0) {
            cleaning->out->removed++;
            continue;
        }
        /* Results whose success was not committed before the crash; the job runs again. */
        const struct job_row *row = row_find(cleaning->rows, name);
        if (!row || row->job.state != JOB_SUCCEEDED)
            result_drop(cleaning, name, row);
    }
    disk_names_free(&names);
    return rc;
}

/* The commit of an upload's job may have succeeded although it was answered as a failure: the upload's bytes then
 * become the scan, on the disk before their other name is removed. Fails with ERR_SCAN_GONE, ERR_IO, ERR_SPOOL_FULL. */
static int scan_from_upload(struct spool *spool, const struct job_files *job)
{
    struct stat there;
    char path[JOB_ID + 16];
    snprintf(path, sizeof path, "uploads/%s", job->id);
    const enum disk_sight seen = disk_look(spool->state, path, &there);
    if (seen == DISK_MISSING || (seen == DISK_THERE && there.st_size != job->bytes))
        return ERR_SCAN_GONE;
    if (seen == DISK_UNSEEN || linkat(spool->state, path, spool->scans, job->id, 0) < 0 || fsync(spool->scans) < 0)
        return spool_failed(spool, "finding the scan of a job");
    spool->used += there.st_size;
    return 0;
}

int spool_clean(struct spool *spool, struct store *store, bool clean, struct spool_cleaned *out)
{
    struct rows rows = {.row = NULL};
    const struct cleaning cleaning = {spool, &rows, clean, out};
    *out = (struct spool_cleaned){.time = clock_milliseconds()};
    int64_t counts[JOB_STATES], oldest, total = 0;
    int rc = store_counts(store, counts, &oldest);
    for (int i = 0; i < JOB_STATES; i++)
        total += counts[i];
    if (!rc)
        rc = store_each(store, row_add, &rows);
    /* With rows missing, files of jobs would look like leftovers. */
    if (!rc && rows.count != (size_t)total)
        rc = err_no_memory("the list of %lld jobs", (long long)total);
    if (!rc && rows.count)
        qsort(rows.row, rows.count, sizeof *rows.row, row_compare);
    if (!rc)
        rc = clean_scans(&cleaning);
    if (!rc)
        rc = clean_results(&cleaning);
    for (size_t i = 0; !rc && i < rows.count; i++) {
        const struct job_row *row = &rows.row[i];
        if (row->job.state != JOB_QUEUED || row->scan || (rc = scan_from_upload(spool, &row->job)) != ERR_SCAN_GONE)
            continue;
        err_set(ERR_IO, "The uploaded scan is no longer on the server's disk. Submit it again.");
        rc = store_fail_lost(store, row->job.id, err_last());
        out->lost++;
    }
    if (!rc && (out->scans_found || out->results_found))
        rc = spool_found_sync(spool, out->time);
    free(rows.row);
    return rc;
}
