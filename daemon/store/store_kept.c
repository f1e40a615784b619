/* Disk space of ended jobs. */
#include "daemon/store/store_parts.h"

#include <stdio.h>

void store_set_kept_scans(struct store *store, bool of_failed, bool of_succeeded)
{
    store->failed_scans_stay = of_failed;
    store->succeeded_scans_stay = of_succeeded;
}

void store_kept(struct store *store, struct kept *out)
{
    pthread_mutex_lock(&store->tally_lock);
    *out = store->kept;
    pthread_mutex_unlock(&store->tally_lock);
}

/* Of this client's jobs. */
static int client_first(struct connection *reader, struct kept_first *out)
{
    sqlite3_stmt *statement =
        sql_prepare(reader,
                    "SELECT id FROM job WHERE client = ? AND kept > 0 AND NOT EXISTS (SELECT 1 "
                    "FROM delivery WHERE job = id AND delivery.state < 2) ORDER BY finished LIMIT 1",
                    "s", out->client);
    if (!statement)
        return err_last()->code;
    int step = sqlite3_step(statement);
    if (step == SQLITE_ROW)
        snprintf(out->id, sizeof out->id, "%s", (const char *)sqlite3_column_text(statement, 0));
    int rc = step == SQLITE_ROW || step == SQLITE_DONE ? 0 : sql_failed(reader->db, "reading which results are kept");
    sql_release(statement);
    return rc;
}

int store_kept_first(struct store *store, struct kept_first *out)
{
    *out = (struct kept_first){.kept = 0};
    struct lister *lister = &store->lister[0]; /* the sums take long */
    pthread_mutex_lock(&lister->lock);
    struct connection *reader = &lister->connection;
    sqlite3_stmt *statement = sql_prepare(
        reader, "SELECT client, sum(kept) AS most FROM job WHERE kept > 0 GROUP BY client ORDER BY most DESC", "");
    int rc = statement ? 0 : err_last()->code, step = SQLITE_DONE;
    while (!rc && !*out->id && (step = sqlite3_step(statement)) == SQLITE_ROW) {
        snprintf(out->client, sizeof out->client, "%s", (const char *)sqlite3_column_text(statement, 0));
        out->kept = sqlite3_column_int64(statement, 1);
        rc = client_first(reader, out);
    }
    if (!rc && !*out->id && step != SQLITE_DONE)
        rc = sql_failed(reader->db, "reading which results are kept");
    if (statement)
        sql_release(statement);
    pthread_mutex_unlock(&lister->lock);
    return rc;
}

struct addition {
    const char *id;
    int64_t bytes;
};

static int kept_add_apply(struct store *store, void *context)
{
    const struct addition *addition = context;
    struct connection *writer = &store->writer;
    struct tally_entry entry;
    int rc = tally_read(store, addition->id, &entry, NULL);
    if (!rc && entry.from == NO_JOB)
        rc = row_not_found(addition->id);
    if (!rc)
        rc = sql_change(
            writer,
            sql_prepare(writer, "UPDATE job SET kept = kept + ? WHERE id = ?", "is", addition->bytes, addition->id),
            NULL);
    entry.kept.result_bytes = addition->bytes;
    return rc ? rc : store_note(store, &entry);
}

int store_kept_add(struct store *store, const char *id, int64_t bytes)
{
    struct addition addition = {id, bytes};
    return store_change_soft(store, kept_add_apply, &addition);
}

/* The scans of store_scan_outlives() stay. */
#define MAY_GO "coalesce(json_extract(error, '$.code'), '') NOT IN (?, ?)"

int store_kept_scans(struct store *store, char (*ids)[JOB_ID], int limit, int *count)
{
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    sqlite3_stmt *statement =
        sql_prepare(reader, "SELECT id FROM job WHERE kept_scan > 0 AND " MAY_GO " ORDER BY finished LIMIT ?", "ssi",
                    err_name(ERR_IO), err_name(ERR_SPOOL_FULL), (int64_t)limit);
    int rc = statement ? 0 : err_last()->code, step = SQLITE_DONE;
    *count = 0;
    while (!rc && (step = sqlite3_step(statement)) == SQLITE_ROW)
        snprintf(ids[(*count)++], JOB_ID, "%s", (const char *)sqlite3_column_text(statement, 0));
    if (!rc && step != SQLITE_DONE)
        rc = sql_failed(reader->db, "reading which scans are kept");
    if (statement)
        sql_release(statement);
    pthread_mutex_unlock(&store->reader_lock);
    return rc;
}

static int scan_drop_apply(struct store *store, void *context)
{
    const char *id = context;
    struct connection *writer = &store->writer;
    struct tally_entry entry;
    struct kept kept = {.scans = 0};
    int rc = tally_read(store, id, &entry, &kept);
    if (!rc && entry.from == NO_JOB)
        rc = row_not_found(id);
    if (rc || !kept.scans)
        return rc;
    rc = sql_change(writer,
                    sql_prepare(writer, "UPDATE job SET kept = kept - kept_scan, kept_scan = 0 WHERE id = ?", "s", id),
                    NULL);
    entry.kept = (struct kept){.scans = -1, .scan_bytes = -kept.scan_bytes};
    return rc ? rc : store_note(store, &entry);
}

int store_scan_drop(struct store *store, const char *id)
{
    return store_change(store, scan_drop_apply, (void *)(uintptr_t)id);
}
