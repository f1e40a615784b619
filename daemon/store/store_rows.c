/* Reading the store: one job, pages of jobs, counts. */
#include "daemon/store/store_parts.h"

#include <stdio.h>
#include <string.h>

static void column_text(sqlite3_stmt *row, int column, char *text, size_t size)
{
    const unsigned char *value = sqlite3_column_text(row, column);
    snprintf(text, size, "%s", value ? (const char *)value : "");
}

static json_t *column_json(sqlite3_stmt *row, int column)
{
    const unsigned char *value = sqlite3_column_text(row, column);
    return value ? json_loads((const char *)value, JSON_ALLOW_NUL, NULL) : NULL;
}

static void job_row_read(sqlite3_stmt *row, struct job *job)
{
    *job = (struct job){.sequence = sqlite3_column_int64(row, 2)};
    column_text(row, 0, job->id, sizeof job->id);
    job->state = (enum job_state)sqlite3_column_int(row, 1);
    column_text(row, 3, job->kind, sizeof job->kind);
    job->bytes = sqlite3_column_int64(row, 4);
    job->created = sqlite3_column_int64(row, 5);
    job->started = sqlite3_column_int64(row, 6);
    job->finished = sqlite3_column_int64(row, 7);
    job->attempts = sqlite3_column_int64(row, 8);
    job->deaths = sqlite3_column_int64(row, 9);
    job->parameters = column_json(row, 10);
    job->formats = column_json(row, 11);
    job->error = column_json(row, 12);
    job->results = column_json(row, 13);
    job->report = column_json(row, 14);
    column_text(row, 15, job->client, sizeof job->client);
    job->priority = (enum job_priority)sqlite3_column_int(row, 16);
    job->deadline = sqlite3_column_int64(row, 17);
    column_text(row, 18, job->key, sizeof job->key);
    column_text(row, 19, job->digest, sizeof job->digest);
    column_text(row, 20, job->name, sizeof job->name);
    job->scan_kept = !job_state_is_final(job->state) || sqlite3_column_int64(row, 21) > 0;
    job->quota.bytes = sqlite3_column_int64(row, 22);
}

int job_rows_read(struct connection *connection, sqlite3_stmt *statement, struct job *jobs, int limit, int *count)
{
    if (!statement)
        return err_last()->code;
    int step, found = 0;
    while ((step = found < limit ? sqlite3_step(statement) : SQLITE_DONE) == SQLITE_ROW)
        job_row_read(statement, &jobs[found++]);
    int rc = step == SQLITE_DONE ? 0 : sql_failed(connection->db, "reading jobs");
    if (rc)
        while (found > 0)
            job_clear(&jobs[--found]);
    sql_release(statement);
    *count = found;
    return rc;
}

int row_not_found(const char *id)
{
    return err_set(ERR_NOT_FOUND, "There is no job %.40s. It may have been deleted.", id);
}

static int row_get(struct store *store, const char *sql, const char *id, struct job *job)
{
    int count = 0;
    pthread_mutex_lock(&store->reader_lock);
    int rc = job_rows_read(&store->reader, sql_prepare(&store->reader, sql, "s", id), job, 1, &count);
    pthread_mutex_unlock(&store->reader_lock);
    return !rc && !count ? row_not_found(id) : rc;
}

int store_get(struct store *store, const char *id, struct job *job)
{
    return row_get(store, "SELECT " JOB_COLUMNS " FROM job WHERE id = ?", id, job);
}

int store_get_brief(struct store *store, const char *id, struct job *job)
{
    return row_get(store, "SELECT " JOB_COLUMNS_BRIEF " FROM job WHERE id = ?", id, job);
}

int store_find_key(struct store *store, const char *client, const char *key, struct job *job)
{
    int count = 0;
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    int rc =
        job_rows_read(reader,
                      sql_prepare(reader, "SELECT " JOB_COLUMNS " FROM job WHERE client = ? AND idempotency_key = ?",
                                  "ss", client, key),
                      job, 1, &count);
    pthread_mutex_unlock(&store->reader_lock);
    return !rc && !count ? err_set(ERR_NOT_FOUND, "There is no job with this idempotency key.") : rc;
}

int store_ended(struct store *store, int64_t before, int state, char (*ids)[JOB_ID], int limit, int *count)
{
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    sqlite3_stmt *statement =
        sql_prepare(reader,
                    "SELECT id FROM job WHERE state > 2 AND finished < ? AND (? < 0 OR state = ?) AND NOT EXISTS "
                    "(SELECT 1 FROM delivery WHERE job = id AND delivery.state < 2) ORDER BY finished LIMIT ?",
                    "iiii", before, (int64_t)state, (int64_t)state, (int64_t)limit);
    int rc = statement ? 0 : err_last()->code, step = SQLITE_DONE;
    *count = 0;
    while (!rc && (step = sqlite3_step(statement)) == SQLITE_ROW)
        column_text(statement, 0, ids[(*count)++], JOB_ID);
    if (!rc && step != SQLITE_DONE)
        rc = sql_failed(reader->db, "reading jobs");
    if (statement)
        sql_release(statement);
    pthread_mutex_unlock(&store->reader_lock);
    return rc;
}

/* By name, time, kind or several states: in the search index only; the other columns are read for the hits. */
#define SEARCH(columns)                                                                                             \
    "SELECT " columns " FROM job WHERE sequence IN (SELECT sequence FROM job INDEXED BY job_search WHERE "          \
    "sequence < ?1 AND (?2 = 0 OR (?2 >> state & 1)) AND (?3 IS NULL OR substr(client, 1, ?8) = ?3) AND "           \
    "(?4 IS NULL OR kind = ?4) AND (?5 IS NULL OR instr(lower(name), lower(?5))) AND max(created, finished) >= ?6 " \
    "ORDER BY sequence DESC LIMIT ?7) ORDER BY sequence DESC LIMIT ?7"

/* A page by one index: of clients (which contains the state; "+state" keeps SQLite from the index of states), of
 * states, or of all jobs. */
#define NEWEST " ORDER BY sequence DESC LIMIT ?"
#define PAGES(columns)                                                                                             \
    {                                                                                                              \
        "SELECT " columns " FROM job WHERE sequence < ?" NEWEST,                                                   \
            "SELECT " columns " FROM job WHERE sequence < ? AND state = ?" NEWEST,                                 \
            "SELECT " columns " FROM job WHERE sequence < ? AND client = ?" NEWEST,                                \
            "SELECT " columns " FROM job WHERE sequence < ? AND client = ? AND +state = ?" NEWEST, SEARCH(columns) \
    }

enum page { PAGE_ALL, PAGE_STATE, PAGE_CLIENT, PAGE_CLIENT_STATE, PAGE_SEARCH, PAGES };

static sqlite3_stmt *list_prepare(struct connection *reader, const struct job_filter *filter, int64_t limit)
{
    static const char *const pages[2][PAGES] = {PAGES(JOB_COLUMNS_LIST), PAGES(JOB_COLUMNS_BRIEF)};
    const char *const *page = pages[filter->brief], *client = filter->client;
    int64_t older = filter->before > 0 ? filter->before : INT64_MAX, state = 0;
    bool one_state = filter->states && (filter->states & (filter->states - 1)) == 0;
    while (one_state && !(filter->states >> state & 1))
        state++;
    bool begins = client && filter->client_begins;
    if (filter->name || filter->kind || begins || filter->since > 0 || (filter->states && !one_state))
        return sql_prepare(reader, page[PAGE_SEARCH], "iisssiii", older, (int64_t)filter->states, client, filter->kind,
                           filter->name, filter->since, limit, begins ? (int64_t)strlen(client) : (int64_t)JOB_CLIENT);
    if (client && one_state)
        return sql_prepare(reader, page[PAGE_CLIENT_STATE], "isii", older, client, state, limit);
    if (client)
        return sql_prepare(reader, page[PAGE_CLIENT], "isi", older, client, limit);
    if (one_state)
        return sql_prepare(reader, page[PAGE_STATE], "iii", older, state, limit);
    return sql_prepare(reader, page[PAGE_ALL], "ii", older, limit);
}

int store_list(struct store *store, const struct job_filter *filter, struct job *jobs, int limit, int *count)
{
    int i = 0;
    while (i < STORE_LISTS && pthread_mutex_trylock(&store->lister[i].lock) != 0)
        i++;
    if (i == STORE_LISTS)
        pthread_mutex_lock(&store->lister[i = 0].lock);
    struct connection *reader = &store->lister[i].connection;
    int rc = job_rows_read(reader, list_prepare(reader, filter, limit), jobs, limit, count);
    pthread_mutex_unlock(&store->lister[i].lock);
    return rc;
}

int store_each(struct store *store, int (*each)(void *context, const struct job_files *job), void *context)
{
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    sqlite3_stmt *statement =
        sql_prepare(reader, "SELECT id, state, kept_scan > 0, bytes FROM job ORDER BY sequence", "");
    int rc = statement ? 0 : err_last()->code, step = SQLITE_DONE, stop = 0;
    while (!rc && !stop && (step = sqlite3_step(statement)) == SQLITE_ROW) {
        struct job_files job = {.state = (enum job_state)sqlite3_column_int(statement, 1),
                                .bytes = sqlite3_column_int64(statement, 3)};
        column_text(statement, 0, job.id, sizeof job.id);
        job.scan_stays = !job_state_is_final(job.state) || sqlite3_column_int(statement, 2) ||
                         (job.state == JOB_SUCCEEDED ? store->succeeded_scans_stay : store->failed_scans_stay);
        stop = each(context, &job);
    }
    if (!rc && !stop && step != SQLITE_DONE)
        rc = sql_failed(reader->db, "reading jobs");
    if (statement)
        sql_release(statement);
    pthread_mutex_unlock(&store->reader_lock);
    return rc;
}

int store_counts(struct store *store, int64_t counts[JOB_STATES], int64_t *oldest)
{
    pthread_mutex_lock(&store->tally_lock);
    memcpy(counts, store->counts, sizeof store->counts);
    pthread_mutex_unlock(&store->tally_lock);
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    int rc = sql_number(reader,
                        sql_prepare(reader, "SELECT created FROM job WHERE state = ? ORDER BY sequence LIMIT 1", "i",
                                    (int64_t)JOB_QUEUED),
                        oldest);
    pthread_mutex_unlock(&store->reader_lock);
    return rc;
}
