/* Every change of a job's state. Each change runs in the writer (store_parts.h). */
#include "daemon/store/store_parts.h"

#include "daemon/base/clock.h"
#include "daemon/wire.h"

#include <stdio.h>
#include <string.h>

/* ---- what changes share ---- */

int tally_read(struct store *store, const char *id, struct tally_entry *entry, struct kept *kept)
{
    struct connection *writer = &store->writer;
    sqlite3_stmt *statement = sql_prepare(
        writer, "SELECT state, priority, bytes, client, kept, kept_scan, started FROM job WHERE id = ?", "s", id);
    if (!statement)
        return err_last()->code;
    *entry = (struct tally_entry){.from = NO_JOB, .to = NO_JOB};
    snprintf(entry->id, sizeof entry->id, "%s", id);
    int step = sqlite3_step(statement), rc = 0;
    if (step == SQLITE_ROW) {
        entry->from = entry->to = sqlite3_column_int(statement, 0);
        entry->priority = (enum job_priority)sqlite3_column_int(statement, 1);
        entry->bytes = sqlite3_column_int64(statement, 2);
        snprintf(entry->client, sizeof entry->client, "%s", (const char *)sqlite3_column_text(statement, 3));
        int64_t all = sqlite3_column_int64(statement, 4), scan = sqlite3_column_int64(statement, 5);
        if (kept)
            *kept = (struct kept){.scans = scan > 0, .scan_bytes = scan, .result_bytes = all - scan};
        int64_t started = sqlite3_column_int64(statement, 6);
        if ((entry->from == JOB_RUNNING || entry->from == JOB_CANCELING) && started > 0 && store->now > started)
            entry->held = store->now - started;
    } else if (step != SQLITE_DONE) {
        rc = sql_failed(writer->db, "reading a job");
    }
    sql_release(statement);
    return rc;
}

/* The change of the counts when `job` moves. */
static struct tally_entry entry_of(const struct job *job, int from, enum job_state to)
{
    struct tally_entry entry = {.from = from, .to = (int)to, .priority = job->priority, .bytes = job->bytes};
    memcpy(entry.id, job->id, sizeof entry.id);
    memcpy(entry.client, job->client, sizeof entry.client);
    return entry;
}

enum {
    QUEUED = 1 << JOB_QUEUED,
    RUNNING = 1 << JOB_RUNNING,
    CANCELING = 1 << JOB_CANCELING,
};

/* A job's transition from one state to another. */
struct transition {
    const char *id, *doing;
    unsigned from; /* bits of states */
    enum job_state to;
    enum requeue why; /* of JOB_QUEUED */
    bool frees_key, scan_stays;
    const json_t *error;
    json_t *results; /* not changed; to be walked */
    const json_t *report;
};

/* Bytes that an ended job keeps on the disk. */
static struct kept kept_of(const struct store *store, const struct transition *move, int64_t scan)
{
    bool stays =
        move->scan_stays || (move->to == JOB_SUCCEEDED ? store->succeeded_scans_stay : store->failed_scans_stay);
    struct kept kept = {.scans = stays && scan > 0, .scan_bytes = stays ? scan : 0};
    size_t i;
    json_t *result;
    json_array_foreach (move->results, i, result) {
        kept.result_bytes += json_integer_value(json_object_get(result, "bytes"));
    }
    return kept;
}

static int move_apply(struct store *store, void *context)
{
    const struct transition *move = context;
    struct connection *writer = &store->writer;
    struct tally_entry entry;
    int rc = tally_read(store, move->id, &entry, NULL);
    if (rc)
        return rc;
    if (entry.from == NO_JOB || !(move->from & 1u << entry.from))
        return err_set(ERR_CONFLICT, "Job %.40s is not in a state in which %s is possible.", move->id, move->doing);
    if (job_state_is_final(move->to)) {
        entry.kept = kept_of(store, move, entry.bytes);
        rc = sql_change(
            writer,
            sql_prepare(writer,
                        "UPDATE job SET state = ?, finished = ?, error = ?, results = ?, report = ?, "
                        "kept = ?, kept_scan = ?, idempotency_key = iif(?, NULL, idempotency_key) WHERE id = ?",
                        "iijjjiiis", (int64_t)move->to, store->now, move->error, move->results, move->report,
                        entry.kept.scan_bytes + entry.kept.result_bytes, entry.kept.scan_bytes,
                        (int64_t)move->frees_key, move->id),
            NULL);
    } else
        rc = sql_change(writer,
                        sql_prepare(writer,
                                    "UPDATE job SET state = ?, started = 0, deaths = deaths + ?, attempts = attempts - "
                                    "? WHERE id = ?",
                                    "iiis", (int64_t)move->to, (int64_t)(move->why == REQUEUE_DIED),
                                    (int64_t)(move->why == REQUEUE_SHORT), move->id),
                        NULL);
    if (!rc && job_state_is_final(move->to))
        rc = deliveries_insert(store, move->id, move->to, &entry.delivering);
    entry.to = (int)move->to;
    return rc ? rc : store_note(store, &entry);
}

/* ---- transitions ---- */

/* Jobs that were being canceled when the last daemon ended. One by one, so that deliveries are added for each. */
static int canceling_end(struct store *store)
{
    struct connection *writer = &store->writer;
    for (;;) {
        char id[JOB_ID] = "";
        sqlite3_stmt *row =
            sql_prepare(writer, "SELECT id FROM job WHERE state = ? LIMIT 1", "i", (int64_t)JOB_CANCELING);
        if (!row)
            return err_last()->code;
        int step = sqlite3_step(row), rc = 0;
        if (step == SQLITE_ROW)
            snprintf(id, sizeof id, "%s", (const char *)sqlite3_column_text(row, 0));
        else if (step != SQLITE_DONE)
            rc = sql_failed(writer->db, "reading a job");
        sql_release(row);
        if (rc || !*id)
            return rc;
        rc = move_apply(store,
                        &(struct transition){.id = id, .from = CANCELING, .to = JOB_CANCELED, .doing = "cancellation"});
        if (rc)
            return rc;
    }
}

static int recover_apply(struct store *store, void *requeued)
{
    struct connection *writer = &store->writer;
    int rc = sql_change(writer,
                        sql_prepare(writer, "UPDATE job SET state = ?, started = 0 WHERE state = ?", "ii",
                                    (int64_t)JOB_QUEUED, (int64_t)JOB_RUNNING),
                        requeued);
    /* After a restart it is not known whether the device was at fault: earlier deaths are not counted. */
    if (!rc)
        rc = sql_change(
            writer,
            sql_prepare(writer, "UPDATE job SET deaths = 0 WHERE state = ? AND deaths > 0", "i", (int64_t)JOB_QUEUED),
            NULL);
    if (!rc)
        rc = canceling_end(store);
    if (!rc)
        rc = deliveries_recover(store);
    return rc ? rc : tally_load(store);
}

int store_recover(struct store *store, int *requeued)
{
    return store_change(store, recover_apply, requeued);
}

struct job_addition {
    struct job *job;
    int64_t limit, sequence, created, deadline;
};

static int submit_apply(struct store *store, void *context)
{
    struct job_addition *submission = context;
    const struct job *job = submission->job;
    struct connection *writer = &store->writer;
    int rc = tally_room(store, job->client, job->quota, job->bytes, submission->limit);
    if (rc)
        return rc;
    submission->created = store->now;
    submission->deadline = job->patience > 0 ? store->now + job->patience : 0;
    rc = sql_change(writer,
                    sql_prepare(writer,
                                "INSERT INTO job (id, state, kind, bytes, created, parameters, formats, "
                                "client, priority, deadline, idempotency_key, digest, name, asked, quota) "
                                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                "sisiijjsiissssi", job->id, (int64_t)JOB_QUEUED, job->kind, job->bytes,
                                submission->created, job->parameters, job->formats, job->client, (int64_t)job->priority,
                                submission->deadline, *job->key ? job->key : NULL, *job->digest ? job->digest : NULL,
                                job->name, job->destination, job->quota.bytes),
                    NULL);
    submission->sequence = sqlite3_last_insert_rowid(writer->db);
    if (rc)
        return rc;
    struct tally_entry entry = entry_of(job, NO_JOB, JOB_QUEUED);
    return store_note(store, &entry);
}

int store_submit(struct store *store, struct job *job, int64_t limit)
{
    struct job_addition submission = {.job = job, .limit = limit};
    int rc = store_change(store, submit_apply, &submission);
    if (rc)
        return rc;
    job->sequence = submission.sequence;
    job->created = submission.created;
    job->deadline = submission.deadline;
    job->state = JOB_QUEUED;
    return 0;
}

struct claim {
    const json_t *avoid, *never;
    struct job *job;
    int count;
};

static int claim_apply(struct store *store, void *context)
{
    struct claim *claim = context;
    struct job *job = claim->job;
    struct connection *writer = &store->writer;
    struct candidate next, other = {.sequence = 0};
    int rc = next_find(store, writer, store->now, claim->never, &next);
    if (!rc && claim->avoid)
        rc = next_find(store, writer, store->now, claim->avoid, &other);
    /* A job that another worker has prefetched is left to that worker, unless the alternative has a lower priority. */
    if (other.sequence && other.rank == next.rank)
        next = other;
    if (!rc)
        rc = next_read(writer, &next, job, &claim->count);
    if (rc || !claim->count)
        return rc;
    job->state = JOB_RUNNING;
    job->started = store->now;
    job->attempts++;
    rc = sql_change(writer,
                    sql_prepare(writer, "UPDATE job SET state = ?, started = ?, attempts = attempts + 1 WHERE id = ?",
                                "iis", (int64_t)JOB_RUNNING, job->started, job->id),
                    NULL);
    if (rc)
        return rc;
    struct tally_entry entry = entry_of(job, JOB_QUEUED, JOB_RUNNING);
    return store_note(store, &entry);
}

int store_claim(struct store *store, json_t *avoid, json_t *never, struct job *job, bool *found)
{
    struct claim claim = {.avoid = avoid, .never = never, .job = job};
    int64_t waiting[PRIORITIES];
    store_waiting(store, waiting);
    *found = false;
    if (waiting[PRIORITY_URGENT] + waiting[PRIORITY_NORMAL] + waiting[PRIORITY_BATCH] == 0)
        return 0;
    /* Without fsync: after a power cut the job is queued, as store_recover() would have it. */
    int rc = store_change_soft(store, claim_apply, &claim);
    if (rc && claim.count)
        job_clear(job);
    if (!rc)
        *found = claim.count > 0;
    return rc;
}

static int end(struct store *store, struct transition move)
{
    move.from = QUEUED | RUNNING | CANCELING;
    return store_change(store, move_apply, &move);
}

int store_succeed(struct store *store, const char *id, json_t *results, json_t *report)
{
    return end(store, (struct transition){
                          .id = id, .to = JOB_SUCCEEDED, .doing = "success", .results = results, .report = report});
}

static int job_fail(struct store *store, const char *id, const struct err *failure, bool frees_key)
{
    json_t *error = wire_error_pack(failure);
    struct transition move = {.id = id, .to = JOB_FAILED, .doing = "failure", .error = error, .frees_key = frees_key};
    move.scan_stays = !frees_key && store_scan_outlives(failure->code);
    int rc = end(store, move);
    json_decref(error);
    return rc;
}

struct failed_submission {
    struct job_addition submission;
    struct transition move;
};

static int submit_failed_apply(struct store *store, void *context)
{
    struct failed_submission *failed = context;
    int rc = submit_apply(store, &failed->submission);
    return rc ? rc : move_apply(store, &failed->move);
}

int store_submit_failed(struct store *store, struct job *job, const struct err *failure, int64_t limit)
{
    json_t *error = wire_error_pack(failure);
    struct failed_submission failed = {
        .submission = {.job = job, .limit = limit},
        .move = {.id = job->id, .from = QUEUED, .to = JOB_FAILED, .doing = "failure", .error = error}};
    int rc = store_change(store, submit_failed_apply, &failed);
    json_decref(error);
    if (rc)
        return rc;
    job->sequence = failed.submission.sequence;
    job->created = failed.submission.created;
    job->state = JOB_FAILED;
    return 0;
}

bool store_scan_outlives(int code)
{
    return code == ERR_IO || code == ERR_SPOOL_FULL;
}

int store_fail(struct store *store, const char *id, const struct err *failure)
{
    return job_fail(store, id, failure, false);
}

int store_fail_lost(struct store *store, const char *id, const struct err *failure)
{
    return job_fail(store, id, failure, true);
}

int store_canceled(struct store *store, const char *id)
{
    return end(store, (struct transition){.id = id, .to = JOB_CANCELED, .doing = "cancellation"});
}

int store_requeue(struct store *store, const char *id, enum requeue why)
{
    struct transition move = {.id = id, .from = RUNNING, .to = JOB_QUEUED, .doing = "another try", .why = why};
    return store_change(store, move_apply, &move);
}

struct cancellation {
    const char *id;
    enum job_state before, now;
};

static int cancel_apply(struct store *store, void *context)
{
    struct cancellation *cancellation = context;
    struct connection *writer = &store->writer;
    const char *id = cancellation->id;
    struct tally_entry entry;
    int rc = tally_read(store, id, &entry, NULL), state = entry.from;
    if (rc)
        return rc;
    if (state == NO_JOB)
        return row_not_found(id);
    if (state == JOB_SUCCEEDED || state == JOB_FAILED)
        return err_set(ERR_CONFLICT, "Job %.40s has already %s; there is nothing to cancel.", id,
                       job_state_name(state));
    cancellation->before = (enum job_state)state;
    cancellation->now = state == JOB_QUEUED ? JOB_CANCELED : state == JOB_RUNNING ? JOB_CANCELING : state;
    if ((int)cancellation->now == state)
        return 0;
    if (state == JOB_QUEUED)
        return move_apply(store,
                          &(struct transition){.id = id, .from = QUEUED, .to = JOB_CANCELED, .doing = "cancellation"});
    rc = sql_change(
        writer, sql_prepare(writer, "UPDATE job SET state = ? WHERE id = ?", "is", (int64_t)JOB_CANCELING, id), NULL);
    entry.to = JOB_CANCELING;
    entry.held = 0;
    return rc ? rc : store_note(store, &entry);
}

int store_cancel(struct store *store, const char *id, enum job_state *before, enum job_state *state)
{
    struct cancellation cancellation = {.id = id};
    int rc = store_change(store, cancel_apply, &cancellation);
    if (rc)
        return rc;
    *before = cancellation.before;
    *state = cancellation.now;
    return 0;
}

static int delete_apply(struct store *store, void *context)
{
    const char *id = context;
    struct connection *writer = &store->writer;
    struct tally_entry entry;
    struct kept kept = {.scans = 0};
    int rc = tally_read(store, id, &entry, &kept);
    if (rc)
        return rc;
    if (entry.from == NO_JOB)
        return row_not_found(id);
    if (!job_state_is_final((enum job_state)entry.from))
        return err_set(ERR_CONFLICT, "Job %.40s is %s. Cancel it first: POST /v1/jobs/%.40s/cancel.", id,
                       job_state_name((enum job_state)entry.from), id);
    rc = sql_change(writer, sql_prepare(writer, "DELETE FROM job WHERE id = ?", "s", id), NULL);
    entry.to = NO_JOB;
    entry.kept = (struct kept){-kept.scans, -kept.scan_bytes, -kept.result_bytes};
    return rc ? rc : store_note(store, &entry);
}

int store_delete(struct store *store, const char *id)
{
    return store_change(store, delete_apply, (void *)(uintptr_t)id);
}

struct removal {
    char (*ids)[JOB_ID];
    int count, removed;
};

static int delete_all_apply(struct store *store, void *context)
{
    struct removal *removal = context;
    int rc = 0;
    removal->removed = 0;
    for (int i = 0; !rc && i < removal->count; i++) {
        char *id = removal->ids[i];
        bool stays = false;
        rc = deliveries_wait(store, id, &stays);
        if (stays)
            *id = '\0';
        if (rc || stays)
            continue;
        rc = delete_apply(store, id);
        removal->removed += !rc;
        if (rc == ERR_NOT_FOUND)
            rc = 0;
    }
    return rc;
}

int store_delete_all(struct store *store, char (*ids)[JOB_ID], int count, int *removed)
{
    struct removal removal = {ids, count, 0};
    int rc = store_change(store, delete_all_apply, &removal);
    *removed = rc ? 0 : removal.removed;
    return rc;
}

/* ---- deadlines ---- */

struct expiry {
    struct job *jobs;
    int limit, count;
    json_t *error;
};

static int expire_apply(struct store *store, void *context)
{
    struct expiry *expiry = context;
    struct connection *writer = &store->writer;
    int rc = job_rows_read(writer,
                           sql_prepare(writer,
                                       "SELECT " JOB_COLUMNS " FROM job WHERE state = 0 AND deadline > 0 AND "
                                       "deadline < ? ORDER BY deadline LIMIT ?",
                                       "ii", store->now, (int64_t)expiry->limit),
                           expiry->jobs, expiry->limit, &expiry->count);
    for (int i = 0; !rc && i < expiry->count; i++) {
        struct transition move = {.id = expiry->jobs[i].id, .from = QUEUED, .to = JOB_FAILED, .doing = "failure"};
        move.error = expiry->error;
        rc = move_apply(store, &move);
    }
    return rc;
}

int store_expire(struct store *store, struct job *jobs, int limit, int *count)
{
    int64_t due = 0;
    pthread_mutex_lock(&store->reader_lock);
    struct connection *reader = &store->reader;
    int rc = sql_number(
        reader, sql_prepare(reader, "SELECT min(deadline) FROM job WHERE state = 0 AND deadline > 0", ""), &due);
    pthread_mutex_unlock(&store->reader_lock);
    *count = 0;
    if (rc || due == 0 || due >= clock_milliseconds())
        return rc;
    err_set(ERR_DEADLINE,
            "The job was still waiting at its deadline. Submit it again with a later deadline or a higher priority.");
    struct expiry expiry = {.jobs = jobs, .limit = limit, .error = wire_error_pack(err_last())};
    rc = store_change(store, expire_apply, &expiry);
    json_decref(expiry.error);
    for (int i = 0; rc && i < expiry.count; i++)
        job_clear(&jobs[i]);
    if (!rc)
        *count = expiry.count;
    return rc;
}
