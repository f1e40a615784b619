/* The next job (ORDER in store.h). For each client and priority only the oldest job is a candidate. */
#include "daemon/store/store_parts.h"

#include "daemon/base/clock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    if (!b->sequence || a->rank != b->rank)
        return !b->sequence || a->rank < b->rank;
    return a->given != b->given ? a->given < b->given : a->sequence < b->sequence;
}

/* The oldest job of a client and priority that is not in `avoid` and whose deadline has not passed; sequence 0: there
 * is none. */
static int queue_head_read(struct connection *connection, const struct client *client, int priority, int64_t ageing,
                           int64_t now, const json_t *avoid, struct candidate *out)
{
    sqlite3_stmt *statement = sql_prepare(connection,
                                          "SELECT sequence, created FROM job WHERE state = 0 AND client = ? AND "
                                          "priority = ? AND id NOT IN (SELECT value FROM json_each(?)) "
                                          "AND (deadline = 0 OR deadline >= ?) ORDER BY sequence LIMIT 1",
                                          "siji", client->name, (int64_t)priority, avoid, now);
    if (!statement)
        return err_last()->code;
    *out = (struct candidate){.rank = priority, .given = client->given};
    int step = sqlite3_step(statement), rc = 0;
    if (step == SQLITE_ROW) {
        out->sequence = sqlite3_column_int64(statement, 0);
        int64_t waited = now - sqlite3_column_int64(statement, 1);
        if (ageing > 0 && waited > 0)
            out->rank -= waited / ageing;
        if (out->rank < PRIORITY_URGENT)
            out->rank = PRIORITY_URGENT;
    } else if (step != SQLITE_DONE) {
        rc = sql_failed(connection->db, "reading the queue");
    }
    sql_release(statement);
    return rc;
}

int next_find(struct store *store, struct connection *connection, int64_t now, const json_t *avoid,
              struct candidate *out)
{
    struct client *client = NULL;
    struct candidate candidate = {.sequence = 0};
    size_t clients = 0;
    int64_t ageing = atomic_load(&store->ageing);
    *out = candidate;
    int rc = tally_waiting(store, &client, &clients);
    for (size_t i = 0; i < clients; i++)
        for (int priority = 0; !rc && priority < PRIORITIES; priority++) {
            if (!client[i].waiting[priority])
                continue;
            rc = queue_head_read(connection, &client[i], priority, ageing, now, avoid, &candidate);
            if (!rc && candidate.sequence && comes_before(&candidate, out))
                *out = candidate;
        }
    free(client);
    return rc;
}

int next_read(struct connection *connection, const struct candidate *next, struct job *job, int *count)
{
    *count = 0;
    if (!next->sequence)
        return 0;
    return job_rows_read(connection,
                         sql_prepare(connection, "SELECT " JOB_COLUMNS " FROM job WHERE sequence = ? AND state = 0",
                                     "i", next->sequence),
                         job, 1, count);
}

void store_set_ageing(struct store *store, int64_t milliseconds)
{
    atomic_store(&store->ageing, milliseconds);
}

int store_peek(struct store *store, json_t *avoid, struct job *job, bool *found)
{
    int count = 0;
    pthread_mutex_lock(&store->reader_lock);
    struct candidate next;
    int rc = next_find(store, &store->reader, clock_milliseconds(), avoid, &next);
    if (!rc)
        rc = next_read(&store->reader, &next, job, &count);
    pthread_mutex_unlock(&store->reader_lock);
    *found = !rc && count > 0;
    return rc;
}

/* Of the jobs of another client, with the priority of `job`, how many come before it; `level`: the share that the job's
 * own client will have at its turn. */
static int overtaking(struct connection *reader, const struct client *other, const struct job *job, double level,
                      int64_t *count)
{
    int64_t waiting = other->waiting[job->priority];
    double turns = (level - other->given) / tally_mean(other);
    struct candidate head;
    int rc = 0;
    *count = 0;
    if (!waiting || turns < 0)
        return 0;
    *count = turns < (double)waiting ? (int64_t)turns : waiting;
    if ((double)*count < turns) {
        *count += *count < waiting;
    } else if (*count < waiting) { /* equal shares: the older job */
        rc = queue_head_read(reader, other, job->priority, 0, 0, NULL, &head);
        *count += !rc && head.sequence && head.sequence < job->sequence;
    }
    return rc;
}

int store_ahead(struct store *store, const struct job *job, int64_t *ahead)
{
    struct client *client = NULL;
    size_t clients = 0;
    int64_t own = 0, count;
    double level = 0;
    *ahead = 0;
    int rc = tally_waiting(store, &client, &clients);
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    if (!rc)
        rc = sql_number(
            reader,
            sql_prepare(reader,
                        "SELECT count(*) FROM job WHERE state = 0 AND client = ? AND priority = ? AND sequence < ?",
                        "sii", job->client, (int64_t)job->priority, job->sequence),
            &own);
    for (size_t i = 0; !rc && i < clients; i++) {
        for (int priority = 0; priority < (int)job->priority; priority++)
            *ahead += client[i].waiting[priority];
        if (strcmp(client[i].name, job->client) == 0)
            level = client[i].given + (double)own * tally_mean(&client[i]);
    }
    for (size_t i = 0; !rc && i < clients; i++)
        if (strcmp(client[i].name, job->client) != 0) {
            rc = overtaking(reader, &client[i], job, level, &count);
            *ahead += count;
        }
    pthread_mutex_unlock(&store->reader_lock);
    free(client);
    *ahead += own;
    return rc;
}
