/* The outbox (deliveries.h). */
#include "daemon/store/store_parts.h"

#include "daemon/base/clock.h"

#include <stdio.h>
#include <string.h>

static const char *const names[DELIVERY_STATES] = {"pending", "sending", "delivered", "dead"};

const char *delivery_state_name(enum delivery_state state)
{
    return names[state];
}

int delivery_state_find(const char *name)
{
    for (int i = 0; i < DELIVERY_STATES; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

void store_route(struct store *store, struct store_router router)
{
    pthread_mutex_lock(&store->tally_lock);
    store->router = router;
    pthread_mutex_unlock(&store->tally_lock);
}

/* ---- in the writer ---- */

/* The names of the destinations of a job that has ended in `state`; NULL: none, or a failure (*rc). */
static json_t *destinations_of(struct store *store, const char *id, enum job_state state, int *rc)
{
    struct connection *writer = &store->writer;
    pthread_mutex_lock(&store->tally_lock);
    const struct store_router router = store->router;
    pthread_mutex_unlock(&store->tally_lock);
    *rc = 0;
    if (!router.route)
        return NULL;
    sqlite3_stmt *job = sql_prepare(writer, "SELECT kind, client, name, asked FROM job WHERE id = ?", "s", id);
    if (!job) {
        *rc = err_last()->code;
        return NULL;
    }
    json_t *found = NULL;
    int step = sqlite3_step(job);
    if (step == SQLITE_ROW) {
        const struct job_end end = {
            (const char *)sqlite3_column_text(job, 0), (const char *)sqlite3_column_text(job, 1),
            (const char *)sqlite3_column_text(job, 2), (const char *)sqlite3_column_text(job, 3), state};
        found = router.route(router.context, &end);
    } else if (step != SQLITE_DONE) {
        *rc = sql_failed(writer->db, "reading a job");
    }
    sql_release(job);
    return found;
}

int deliveries_insert(struct store *store, const char *id, enum job_state state, bool *added)
{
    int rc, changed = 0;
    json_t *list = destinations_of(store, id, state, &rc);
    /* A job that --repair-state runs a second time is not sent a second time. */
    if (!rc && json_array_size(list) > 0)
        rc = sql_change(&store->writer,
                        sql_prepare(&store->writer,
                                    "INSERT OR IGNORE INTO delivery (job, destination, created, due) "
                                    "SELECT ?1, value, ?2, ?2 FROM json_each(?3)",
                                    "sij", id, store->now, list),
                        &changed);
    *added = !rc && changed > 0;
    json_decref(list);
    return rc;
}

int deliveries_wait(struct store *store, const char *id, bool *out)
{
    struct connection *writer = &store->writer;
    int64_t count = 0;
    int rc = sql_number(
        writer, sql_prepare(writer, "SELECT count(*) FROM delivery WHERE job = ? AND state < 2", "s", id), &count);
    *out = count > 0;
    return rc;
}

/* Have the listener told of the job's deliveries after the commit. */
static int deliveries_note(struct store *store, const char *id, const char *client)
{
    struct tally_entry entry = {.from = NO_JOB, .to = NO_JOB, .delivering = true};
    snprintf(entry.id, sizeof entry.id, "%s", id);
    snprintf(entry.client, sizeof entry.client, "%s", client);
    return store_note(store, &entry);
}

int deliveries_recover(struct store *store)
{
    return sql_change(
        &store->writer,
        sql_prepare(&store->writer, "UPDATE delivery SET state = 0, due = ? WHERE state = 1", "i", store->now), NULL);
}

/* ---- reading ---- */

#define COLUMNS                                                                                                      \
    "delivery.sequence, job, destination, client, delivery.state, delivery.attempts, delivery.created, due, ended, " \
    "answer"
#define FROM " FROM delivery JOIN job ON job.id = delivery.job "

static void row_text(sqlite3_stmt *row, int column, char *text, size_t size)
{
    const unsigned char *value = sqlite3_column_text(row, column);
    snprintf(text, size, "%s", value ? (const char *)value : "");
}

static void delivery_read(sqlite3_stmt *row, struct delivery *out)
{
    *out = (struct delivery){.sequence = sqlite3_column_int64(row, 0),
                             .state = (enum delivery_state)sqlite3_column_int(row, 4),
                             .attempts = sqlite3_column_int64(row, 5),
                             .created = sqlite3_column_int64(row, 6),
                             .due = sqlite3_column_int64(row, 7),
                             .ended = sqlite3_column_int64(row, 8)};
    row_text(row, 1, out->job, sizeof out->job);
    row_text(row, 2, out->destination, sizeof out->destination);
    row_text(row, 3, out->client, sizeof out->client);
    row_text(row, 9, out->answer, sizeof out->answer);
}

/* Up to `limit` rows of a SELECT of COLUMNS (NULL: an earlier failure). */
static int deliveries_read(struct connection *connection, sqlite3_stmt *statement, struct delivery *list, int limit,
                           int *count)
{
    if (!statement)
        return err_last()->code;
    int step;
    *count = 0;
    while ((step = *count < limit ? sqlite3_step(statement) : SQLITE_DONE) == SQLITE_ROW)
        delivery_read(statement, &list[(*count)++]);
    int rc = step == SQLITE_DONE ? 0 : sql_failed(connection->db, "reading deliveries");
    sql_release(statement);
    return rc;
}

int store_deliveries(struct store *store, const struct delivery_filter *filter, struct delivery *list, int limit,
                     int *count)
{
    const int64_t older = filter->before > 0 ? filter->before : INT64_MAX;
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    sqlite3_stmt *statement =
        filter->job
            ? sql_prepare(reader, "SELECT " COLUMNS FROM "WHERE job = ? ORDER BY delivery.sequence DESC LIMIT ?", "si",
                          filter->job, (int64_t)limit)
            : sql_prepare(reader,
                          "SELECT " COLUMNS FROM "WHERE delivery.sequence < ?1 AND (?2 < 0 OR delivery.state = ?2) AND "
                          "(?3 IS NULL OR destination = ?3) AND (?4 IS NULL OR client = ?4) "
                          "ORDER BY delivery.sequence DESC LIMIT ?5",
                          "iissi", older, (int64_t)filter->state, filter->destination, filter->client, (int64_t)limit);
    int rc = deliveries_read(reader, statement, list, limit, count);
    pthread_mutex_unlock(&store->reader_lock);
    return rc;
}

int store_delivery_next(struct store *store, json_t *busy, int64_t *due)
{
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    int rc = sql_number(reader,
                        sql_prepare(reader,
                                    "SELECT due FROM delivery WHERE state = 0 AND destination NOT IN "
                                    "(SELECT value FROM json_each(coalesce(?, '[]'))) ORDER BY due LIMIT 1",
                                    "j", busy),
                        due);
    pthread_mutex_unlock(&store->reader_lock);
    return rc;
}

int store_delivery_counts(struct store *store, struct delivery_counts *out)
{
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    sqlite3_stmt *statement =
        sql_prepare(reader, "SELECT state, count(*), min(created) FROM delivery WHERE state <> 2 GROUP BY state", "");
    int rc = statement ? 0 : err_last()->code, step = SQLITE_DONE;
    *out = (struct delivery_counts){0};
    while (!rc && (step = sqlite3_step(statement)) == SQLITE_ROW) {
        const int state = sqlite3_column_int(statement, 0);
        const int64_t oldest = sqlite3_column_int64(statement, 2);
        int64_t *count = state == DELIVERY_PENDING ? &out->pending
                         : state == DELIVERY_DEAD  ? &out->dead
                                                   : &out->sending;
        *count = sqlite3_column_int64(statement, 1);
        if (state != DELIVERY_DEAD && (!out->oldest || oldest < out->oldest))
            out->oldest = oldest;
    }
    if (!rc && step != SQLITE_DONE)
        rc = sql_failed(reader->db, "counting deliveries");
    if (statement)
        sql_release(statement);
    pthread_mutex_unlock(&store->reader_lock);
    return rc;
}

/* ---- changes ---- */

struct delivery_claim {
    const json_t *busy;
    struct delivery *out;
    int count;
};

static int delivery_claim_apply(struct store *store, void *context)
{
    struct delivery_claim *claim = context;
    struct connection *writer = &store->writer;
    int rc = deliveries_read(writer,
                             sql_prepare(writer,
                                         "SELECT " COLUMNS FROM "WHERE delivery.state = 0 AND due <= ? AND destination "
                                         "NOT IN (SELECT value FROM json_each(coalesce(?, '[]'))) ORDER BY due LIMIT 1",
                                         "ij", store->now, claim->busy),
                             claim->out, 1, &claim->count);
    if (rc || !claim->count)
        return rc;
    claim->out->state = DELIVERY_SENDING;
    claim->out->attempts++;
    rc = sql_change(writer,
                    sql_prepare(writer, "UPDATE delivery SET state = 1, attempts = ? WHERE sequence = ?", "ii",
                                claim->out->attempts, claim->out->sequence),
                    NULL);
    return rc ? rc : deliveries_note(store, claim->out->job, claim->out->client);
}

int store_delivery_claim(struct store *store, json_t *busy, struct delivery *out, bool *found)
{
    struct delivery_claim claim = {.busy = busy, .out = out};
    int64_t due = 0;
    *found = false;
    int rc = store_delivery_next(store, busy, &due);
    if (rc || !due || due > clock_milliseconds()) /* the usual case: no need for the writer */
        return rc;
    /* Without fsync: after a power cut it is pending, as store_recover() would have it. */
    rc = store_change_soft(store, delivery_claim_apply, &claim);
    *found = !rc && claim.count > 0;
    return rc;
}

struct delivery_end {
    const struct delivery *delivery;
    enum delivery_state state;
    int64_t pause;
    const char *answer;
};

static int delivery_end_apply(struct store *store, void *context)
{
    const struct delivery_end *end = context;
    struct connection *writer = &store->writer;
    const bool again = end->state == DELIVERY_PENDING;
    int changed = 0;
    int rc = sql_change(writer,
                        sql_prepare(writer,
                                    "UPDATE delivery SET state = ?, due = ?, ended = ?, answer = ? "
                                    "WHERE sequence = ? AND state = 1",
                                    "iiisi", (int64_t)end->state, store->now + end->pause, again ? 0 : store->now,
                                    end->answer, end->delivery->sequence),
                        &changed);
    if (!rc && !changed)
        rc = row_not_found(end->delivery->job);
    return rc ? rc : deliveries_note(store, end->delivery->job, end->delivery->client);
}

int store_delivery_end(struct store *store, const struct delivery *delivery, enum delivery_state state, int64_t pause,
                       const char *answer)
{
    struct delivery_end end = {delivery, state, pause, answer};
    return store_change(store, delivery_end_apply, &end);
}

struct delivery_order {
    const char *id, *destination;
};

/* The job's state and client; *state NO_JOB: there is none of this id. */
static int owner_read(struct store *store, const char *id, int *state, char client[JOB_CLIENT])
{
    struct connection *writer = &store->writer;
    sqlite3_stmt *row = sql_prepare(writer, "SELECT state, client FROM job WHERE id = ?", "s", id);
    if (!row)
        return err_last()->code;
    const int step = sqlite3_step(row);
    *state = step == SQLITE_ROW ? sqlite3_column_int(row, 0) : NO_JOB;
    row_text(row, 1, client, JOB_CLIENT);
    int rc = step == SQLITE_ROW || step == SQLITE_DONE ? 0 : sql_failed(writer->db, "reading a job");
    sql_release(row);
    return rc;
}

static int delivery_send_apply(struct store *store, void *context)
{
    const struct delivery_order *order = context;
    struct connection *writer = &store->writer;
    char client[JOB_CLIENT];
    int state, changed = 0;
    int rc = owner_read(store, order->id, &state, client);
    if (rc)
        return rc;
    if (state == NO_JOB)
        return row_not_found(order->id);
    if (!job_state_is_final((enum job_state)state))
        return err_set(ERR_CONFLICT, "Job %.40s is %s; it can be sent when it has ended.", order->id,
                       job_state_name((enum job_state)state));
    rc = sql_change(writer,
                    sql_prepare(writer,
                                "INSERT INTO delivery (job, destination, created, due) VALUES (?1, ?2, ?3, ?3) "
                                "ON CONFLICT (job, destination) DO UPDATE SET state = 0, attempts = 0, created = ?3, "
                                "due = ?3, ended = 0 WHERE state <> 1",
                                "ssi", order->id, order->destination, store->now),
                    &changed);
    if (!rc && changed)
        rc = deliveries_note(store, order->id, client);
    if (rc || changed)
        return rc;
    return err_set(ERR_CONFLICT, "Job %.40s is just being sent to %s.", order->id, order->destination);
}

int store_delivery_send(struct store *store, const char *id, const char *destination)
{
    struct delivery_order order = {id, destination};
    return store_change(store, delivery_send_apply, &order);
}
