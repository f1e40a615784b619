/* Counts in memory: jobs by state, and for each client its waiting and running jobs and its share. */
#include "daemon/store/store_parts.h"

#include "daemon/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IDLE_CLIENTS = 256,  /* clients without jobs whose shares are remembered */
    SHARES_JOBS = 10000, /* the last jobs, from which a start rebuilds the shares */
    MOST_HELD = 3600000, /* ms */
    RETRY_LEAST = 1,     /* s */
    RETRY_MOST = 120     /* s */
};

#define LEAST_BYTES      (INT64_C(1) << 20) /* the least that a job adds to a share */
#define BYTES_PER_SECOND (64.0 * (1 << 20)) /* weight of a worker's time in a share */

/* ---- clients ---- */

static int64_t waiting_of(const struct client *client)
{
    int64_t sum = 0;
    for (int i = 0; i < PRIORITIES; i++)
        sum += client->waiting[i];
    return sum;
}

static bool is_idle(const struct client *client)
{
    return client->running == 0 && waiting_of(client) == 0;
}

/* Forget clients without jobs and without a share; if there are many, those with shares as well. */
static void clients_forget(struct store *store)
{
    size_t idle = 0, kept = 0;
    for (size_t i = 0; i < store->clients; i++)
        idle += is_idle(&store->client[i]);
    for (size_t i = 0; i < store->clients; i++) {
        const struct client *client = &store->client[i];
        if (!is_idle(client) || (client->given > store->served && idle <= IDLE_CLIENTS))
            store->client[kept++] = *client;
    }
    store->clients = kept;
}

/* Reserve memory for `more` new clients, so that counting cannot fail after the commit. */
static int clients_reserve(struct store *store, size_t more)
{
    if (store->clients + more <= store->clients_room)
        return 0;
    clients_forget(store);
    size_t room = 2 * (store->clients + more);
    struct client *list = realloc(store->client, room * sizeof *list);
    if (!list)
        return err_no_memory("the list of clients; try again later");
    store->client = list;
    store->clients_room = room;
    return 0;
}

/* The client of this name, added if it is new. */
static struct client *client_of(struct store *store, const char *name)
{
    for (size_t i = 0; i < store->clients; i++)
        if (strcmp(store->client[i].name, name) == 0)
            return &store->client[i];
    struct client *client = &store->client[store->clients++];
    *client = (struct client){.given = store->served};
    memcpy(client->name, name, strlen(name) + 1);
    return client;
}

int store_note(struct store *store, const struct tally_entry *entry)
{
    if (store->entries == store->room) {
        size_t room = store->room ? 2 * store->room : 64;
        struct tally_entry *more = realloc(store->entry, room * sizeof *more);
        if (!more)
            return err_no_memory("a change of the job store; try again later");
        store->entry = more;
        store->room = room;
    }
    pthread_mutex_lock(&store->tally_lock);
    int rc = clients_reserve(store, store->entries + 1);
    pthread_mutex_unlock(&store->tally_lock);
    if (!rc)
        store->entry[store->entries++] = *entry;
    return rc;
}

static void client_count(struct store *store, const struct tally_entry *entry, int state, int step)
{
    struct client *client =
        state == JOB_QUEUED || state == JOB_RUNNING || state == JOB_CANCELING ? client_of(store, entry->client) : NULL;
    if (!client)
        return;
    if (state != JOB_QUEUED) {
        client->running += step;
        return;
    }
    if (step > 0 && waiting_of(client) == 0 && client->given < store->served)
        client->given = store->served;
    client->waiting[entry->priority] += step;
    client->waiting_bytes += step * entry->bytes;
}

/* A job started: its bytes are added to the share now, the time it holds a worker when it leaves it. */
static void client_charge(struct store *store, const struct tally_entry *entry)
{
    struct client *client = client_of(store, entry->client);
    if (client->given > store->served)
        store->served = client->given;
    client->given += (double)(entry->bytes > LEAST_BYTES ? entry->bytes : LEAST_BYTES);
}

static void client_charge_time(struct store *store, const struct tally_entry *entry)
{
    client_of(store, entry->client)->given += 1e-3 * (double)entry->held * BYTES_PER_SECOND;
}

static void client_move(struct store *store, const struct tally_entry *entry)
{
    client_count(store, entry, entry->to, 1);
    client_count(store, entry, entry->from, -1);
    if (entry->from == JOB_QUEUED && entry->to == JOB_RUNNING)
        client_charge(store, entry);
    if (entry->held > 0)
        client_charge_time(store, entry);
}

static void entry_add(struct store *store, const struct tally_entry *entry)
{
    if (entry->from >= 0)
        store->counts[entry->from]--;
    if (entry->to >= 0)
        store->counts[entry->to]++;
    store->kept.scans += entry->kept.scans;
    store->kept.scan_bytes += entry->kept.scan_bytes;
    store->kept.result_bytes += entry->kept.result_bytes;
    client_move(store, entry);
    if (entry->from == JOB_QUEUED || entry->to == JOB_QUEUED)
        drain_count(store, entry->from == JOB_QUEUED);
}

void tally_add(struct store *store)
{
    pthread_mutex_lock(&store->tally_lock);
    for (size_t i = 0; i < store->entries; i++)
        entry_add(store, &store->entry[i]);
    const struct store_listener listener = store->listener;
    pthread_mutex_unlock(&store->tally_lock);
    for (size_t i = 0; i < store->entries; i++) {
        const struct tally_entry *entry = &store->entry[i];
        if (listener.told && entry->from != entry->to)
            listener.told(listener.context, entry->id, entry->client, entry->from, entry->to);
        if (listener.delivering && entry->delivering)
            listener.delivering(listener.context, entry->id, entry->client);
    }
    store->entries = 0;
}

void store_listen(struct store *store, struct store_listener listener)
{
    pthread_mutex_lock(&store->tally_lock);
    store->listener = listener;
    pthread_mutex_unlock(&store->tally_lock);
}

/* ---- the whole store ---- */

/* Rebuild the shares from the last jobs: each was added (-1 -> JOB_QUEUED), started (JOB_QUEUED -> JOB_RUNNING) or
 * removed without (JOB_QUEUED -> -1), and left its worker (JOB_RUNNING -> -1), in this order. For a job that ran twice
 * the row has the second time only; for one canceled while no daemon ran it includes the downtime, so an hour counts at
 * most. Waiting and running jobs are counted after this. */
static int shares_load(struct store *store)
{
    struct connection *writer = &store->writer;
    sqlite3_stmt *statement =
        sql_prepare(writer,
                    "WITH last AS (SELECT client, bytes, priority, created, started, finished, sequence FROM job WHERE "
                    "state <= 2 OR sequence > (SELECT max(sequence) FROM job WHERE state > 0) - ?) "
                    "SELECT client, bytes, priority, -1 AS before, 0 AS after, created AS time, sequence, 0 FROM last "
                    "UNION ALL SELECT client, bytes, priority, 0, 1, started, sequence, 0 FROM last WHERE started > 0 "
                    "UNION ALL SELECT client, bytes, priority, 1, -1, finished, sequence, min(finished - started, ?) "
                    "FROM last WHERE started > 0 AND finished > 0 "
                    "UNION ALL SELECT client, bytes, priority, 0, -1, finished, sequence, 0 FROM last "
                    "WHERE started = 0 AND finished > 0 ORDER BY time, before, sequence",
                    "ii", (int64_t)SHARES_JOBS, (int64_t)MOST_HELD);
    int rc = statement ? 0 : err_last()->code, step = SQLITE_DONE;
    while (!rc && (step = sqlite3_step(statement)) == SQLITE_ROW) {
        struct tally_entry entry = {.from = sqlite3_column_int(statement, 3), .to = sqlite3_column_int(statement, 4)};
        snprintf(entry.client, sizeof entry.client, "%s", (const char *)sqlite3_column_text(statement, 0));
        entry.bytes = sqlite3_column_int64(statement, 1);
        entry.priority = (enum job_priority)sqlite3_column_int(statement, 2);
        entry.held = sqlite3_column_int64(statement, 7);
        rc = clients_reserve(store, 1);
        if (!rc)
            client_move(store, &entry);
    }
    if (!rc && step != SQLITE_DONE)
        rc = sql_failed(writer->db, "reading what clients were given");
    if (statement)
        sql_release(statement);
    for (size_t i = 0; i < store->clients; i++) {
        struct client *client = &store->client[i];
        memset(client->waiting, 0, sizeof client->waiting);
        client->waiting_bytes = client->running = 0;
    }
    return rc;
}

/* Count the jobs of a row: state, priority, client, jobs, bytes, kept scans, their bytes. */
static int counts_add(struct store *store, sqlite3_stmt *row)
{
    struct tally_entry entry = {.from = -1, .to = sqlite3_column_int(row, 0)};
    const int64_t count = sqlite3_column_int64(row, 3), bytes = sqlite3_column_int64(row, 4);
    entry.priority = (enum job_priority)sqlite3_column_int(row, 1);
    snprintf(entry.client, sizeof entry.client, "%s", (const char *)sqlite3_column_text(row, 2));
    store->counts[entry.to] += count;
    if (entry.to > JOB_CANCELING) {
        store->kept.result_bytes += bytes;
        store->kept.scans += sqlite3_column_int64(row, 5);
        store->kept.scan_bytes += sqlite3_column_int64(row, 6);
        return 0;
    }
    int rc = clients_reserve(store, 1);
    if (rc)
        return rc;
    struct client *client = client_of(store, entry.client);
    if (entry.to == JOB_QUEUED) {
        client->waiting[entry.priority] += count;
        client->waiting_bytes += bytes;
    } else {
        client->running += count;
    }
    return 0;
}

int tally_load(struct store *store)
{
    struct connection *writer = &store->writer;
    pthread_mutex_lock(&store->tally_lock);
    memset(store->counts, 0, sizeof store->counts);
    store->clients = store->entries = 0;
    store->kept = (struct kept){.scans = 0};
    store->served = 0;
    int rc = shares_load(store);
    sqlite3_stmt *statement =
        sql_prepare(writer,
                    "SELECT state, priority, client, count(*), sum(bytes), 0, 0 FROM job WHERE state <= 2 GROUP BY "
                    "state, priority, client "
                    "UNION ALL SELECT state, 1, '', count(*), sum(kept - kept_scan), sum(kept_scan > 0), "
                    "sum(kept_scan) FROM job WHERE state > 2 GROUP BY state",
                    "");
    int step = SQLITE_DONE;
    if (!rc && !statement)
        rc = err_last()->code;
    while (!rc && (step = sqlite3_step(statement)) == SQLITE_ROW)
        rc = counts_add(store, statement);
    if (!rc && step != SQLITE_DONE)
        rc = sql_failed(writer->db, "counting jobs");
    if (statement)
        sql_release(statement);
    pthread_mutex_unlock(&store->tally_lock);
    return rc;
}

double tally_mean(const struct client *client)
{
    int64_t jobs = waiting_of(client), mean = jobs > 0 ? client->waiting_bytes / jobs : 0;
    return (double)(mean > LEAST_BYTES ? mean : LEAST_BYTES);
}

int tally_waiting(struct store *store, struct client **out, size_t *count)
{
    pthread_mutex_lock(&store->tally_lock);
    struct client *list = malloc((store->clients + 1) * sizeof *list);
    *count = 0;
    for (size_t i = 0; list && i < store->clients; i++)
        if (waiting_of(&store->client[i]) > 0)
            list[(*count)++] = store->client[i];
    pthread_mutex_unlock(&store->tally_lock);
    if (!list)
        return err_no_memory("the list of clients");
    *out = list;
    return 0;
}

/* ---- who is let in ---- */

void store_set_quota(struct store *store, int64_t jobs, int64_t bytes)
{
    store->quota_jobs = jobs;
    store->quota_bytes = bytes;
}

/* `all`: all waiting jobs; `jobs`, `waiting`: this client's waiting jobs and their bytes. */
static int room(const struct store *store, struct quota quota, int64_t all, int64_t limit, int64_t jobs,
                int64_t waiting, int64_t bytes)
{
    int64_t most_jobs = quota.jobs > 0 ? quota.jobs : store->quota_jobs,
            most_bytes = quota.bytes > 0 ? quota.bytes : store->quota_bytes;
    if (all >= limit)
        return err_set(ERR_QUEUE_FULL, "%lld jobs are waiting, which is the limit. Try again later.", (long long)all);
    if (most_jobs > 0 && jobs >= most_jobs)
        return err_set(ERR_QUOTA,
                       "This client has %lld waiting jobs, which is its limit (option client-jobs, or its token). Try "
                       "again when some have started.",
                       (long long)jobs);
    if (most_bytes > 0 && waiting + bytes > most_bytes)
        return err_set_bytes(ERR_QUOTA, bytes, most_bytes > waiting ? most_bytes - waiting : 0,
                             "The waiting scans of this client take %lld bytes; this one would exceed its limit of "
                             "%lld (option client-bytes, or its token). Try again when some have started.",
                             (long long)waiting, (long long)most_bytes);
    return 0;
}

/* A client's waiting jobs and their bytes. */
static void waiting_read(struct store *store, const char *name, int64_t *jobs, int64_t *bytes)
{
    *jobs = *bytes = 0;
    pthread_mutex_lock(&store->tally_lock);
    for (size_t i = 0; i < store->clients; i++)
        if (strcmp(store->client[i].name, name) == 0) {
            *jobs = waiting_of(&store->client[i]);
            *bytes = store->client[i].waiting_bytes;
        }
    pthread_mutex_unlock(&store->tally_lock);
}

bool store_has_quota(const struct store *store, struct quota quota)
{
    return quota.jobs > 0 || quota.bytes > 0 || store->quota_jobs > 0 || store->quota_bytes > 0;
}

int store_room(struct store *store, const char *client, struct quota quota, struct quota begun, int64_t bytes,
               int64_t limit)
{
    int64_t jobs, waiting;
    waiting_read(store, client, &jobs, &waiting);
    jobs += begun.jobs;
    waiting += begun.bytes;
    pthread_mutex_lock(&store->tally_lock);
    int64_t all = store->counts[JOB_QUEUED];
    pthread_mutex_unlock(&store->tally_lock);
    return room(store, quota, all, limit, jobs, waiting, bytes);
}

int tally_room(struct store *store, const char *client, struct quota quota, int64_t bytes, int64_t limit)
{
    int64_t jobs, waiting, all = store->counts[JOB_QUEUED]; /* only this thread changes it */
    waiting_read(store, client, &jobs, &waiting);
    for (size_t i = 0; i < store->entries; i++) {
        const struct tally_entry *entry = &store->entry[i];
        int64_t step = (entry->to == JOB_QUEUED) - (entry->from == JOB_QUEUED);
        bool same = strcmp(entry->client, client) == 0;
        all += step;
        jobs += same ? step : 0;
        waiting += same ? step * entry->bytes : 0;
    }
    return room(store, quota, all, limit, jobs, waiting, bytes);
}

/* Number of clients with waiting jobs. Under the lock. */
static size_t clients_waiting(const struct store *store)
{
    size_t count = 0;
    for (size_t i = 0; i < store->clients; i++)
        count += waiting_of(&store->client[i]) > 0;
    return count;
}

int store_retry_seconds(struct store *store, int code)
{
    if (code != ERR_QUEUE_FULL && code != ERR_QUOTA && code != ERR_SPOOL_FULL)
        return 0;
    pthread_mutex_lock(&store->tally_lock);
    double pause = store->drain.pause, now = clock_seconds();
    /* The present interval is longer than the mean. */
    if (store->drain.since > 0 && now - store->drain.since > pause)
        pause = now - store->drain.since;
    /* A client's jobs start in its turn, after one of each other client. */
    if (code == ERR_QUOTA)
        pause *= (double)clients_waiting(store);
    pthread_mutex_unlock(&store->tally_lock);
    return pause < RETRY_LEAST ? RETRY_LEAST : pause > RETRY_MOST ? RETRY_MOST : (int)ceil(pause);
}

void store_waiting(struct store *store, int64_t waiting[PRIORITIES])
{
    memset(waiting, 0, sizeof *waiting * PRIORITIES);
    pthread_mutex_lock(&store->tally_lock);
    for (size_t i = 0; i < store->clients; i++)
        for (int p = 0; p < PRIORITIES; p++)
            waiting[p] += store->client[i].waiting[p];
    pthread_mutex_unlock(&store->tally_lock);
}
