/* store.h: the jobs, in SQLite (WAL, synchronous=FULL): the queue survives a power cut.
 *
 * Only store.c changes a job's state. When a call that changes something returns 0, the change is on the disk; when it
 * fails, nothing has changed. Concurrent changes are committed together and share one fsync (store_parts.h).
 *
 *   queued -> running -> succeeded | failed
 *   running -> queued             the worker or the daemon died, or the daemon was told to stop
 *   queued -> canceled            at once
 *   running -> canceling -> canceled | failed | succeeded (if the job ended first)
 *
 * Any thread. Calls that change something sleep until the fsync; those that read never wait for a writing disk. Times
 * are milliseconds since 1970, UTC; 0: not yet. When the wall clock is set, they move with it (store_clock.c), so that
 * ages, waits and deadlines measure elapsed time.
 */
#ifndef MRIRECON_DAEMON_STORE_H
#define MRIRECON_DAEMON_STORE_H

#include "daemon/store/job.h"
#include "gridding/base/err.h"

struct store;

/* Open the store in the file `path`, or create it. Fails with ERR_STORE (also: made by a newer version). */
int store_create(struct store **out, const char *path);
void store_free(struct store *store);

/* Ageing: a job rises by one priority for each of these milliseconds that it has waited; 0, the initial value:
 * never. */
void store_set_ageing(struct store *store, int64_t milliseconds);

/* Called for each job that was added (from: -1), changed its state, or was removed (to: -1), after the fsync, or after
 * the commit if a power cut may undo the change; `delivering` in the same way for each job whose deliveries were added
 * or changed their state. In the writer's thread: both must be quick and not call the store. NULL: none.
 */
struct store_listener {
    void (*told)(void *context, const char *id, const char *client, int from, int to);
    void (*delivering)(void *context, const char *id, const char *client);
    void *context;
};
/* One listener; of the changes from now on. */
void store_listen(struct store *store, struct store_listener listener);

/* At a start: jobs left running are queued again, jobs left canceling are canceled, and the deaths of queued jobs are
 * reset. */
int store_recover(struct store *store, int *requeued);

/* Default quota of one client: waiting jobs, and bytes of their scans. 0, the initial value: no limit. */
void store_set_quota(struct store *store, int64_t jobs, int64_t bytes);

/* Whether a job of this client with `bytes` would be accepted now; `begun`: what the client is uploading at present,
 * which has no rows. Fails with ERR_QUEUE_FULL (`limit` jobs wait), ERR_QUOTA. */
int store_room(struct store *store, const char *client, struct quota quota, struct quota begun, int64_t bytes,
               int64_t limit);
/* Whether a client with this quota has any limit. */
bool store_has_quota(const struct store *store, struct quota quota);

/* Retry-After for a rejection with `code`: the mean interval between jobs leaving the queue, multiplied by the number
 * of waiting clients after ERR_QUOTA; 1 to 120 s. 0: the queue is not the reason. */
int store_retry_seconds(struct store *store, int code);

/* Add a queued job; sets its sequence, created, deadline and state. Fails as store_room, and with ERR_STORE. */
int store_submit(struct store *store, struct job *job, int64_t limit);

/* Add a job that has failed already: its input broke off. It is never queued. Fails likewise. */
int store_submit_failed(struct store *store, struct job *job, const struct err *failure, int64_t limit);

/* ORDER. The next job is of the highest priority present, where each full ageing time that a job has waited counts as
 * one priority; within a priority, of the client with the smallest share; of that client, the oldest. A client's share
 * is the sum of the bytes of its started jobs (at least 1 MiB per job) and of the time for which they held a worker (64
 * MiB per second, about what a CPU worker reconstructs in a second: scans count alike by both, and a small file that
 * keeps a worker busy counts what it costs others). The time is added when the job leaves its worker. A client that
 * returns after having had no waiting job starts level with the client served last, but keeps a larger share of its
 * own. A start rebuilds the shares from the stored jobs: the last 10,000 that no longer wait, and those that do. */

/* The next job whose id is not in `avoid` (JSON array; NULL: empty). *found: there is one; then *job is the
 * caller's. */
int store_peek(struct store *store, json_t *avoid, struct job *job, bool *found);

/* How many waiting jobs will probably start before this waiting one: by priority and by the present shares, a client's
 * jobs counting with their mean. Later jobs may overtake it, and ageing may move it up. */
int store_ahead(struct store *store, const struct job *job, int64_t *ahead);

/* queued -> running, of the next job whose id is not in `never`; jobs in `avoid` (as above) only if there is no other
 * of the same priority. *found: there was one; then *job is the caller's. */
int store_claim(struct store *store, json_t *avoid, json_t *never, struct job *job, bool *found);

/* Why a started job is queued again. */
enum requeue {
    REQUEUE_STOPPED, /* not because of the job */
    REQUEUE_DIED,    /* its worker died of it */
    REQUEUE_SHORT    /* SHORTAGES in scheduler.h: not counted as an attempt */
};
/* running -> queued. */
int store_requeue(struct store *store, const char *id, enum requeue why);

/* running or canceling -> a final state. `results` and `report` stay the caller's. */
int store_succeed(struct store *store, const char *id, json_t *results, json_t *report);
/* Also of a queued job. After a failed read or write (ERR_IO, ERR_SPOOL_FULL) the scan is kept regardless of
 * store_set_kept_scans(). */
int store_fail(struct store *store, const char *id, const struct err *failure);
bool store_scan_outlives(int code); /* whether the scan is kept after a failure with this code */
/* The same for a job whose scan is lost: its idempotency key is released, because the scan must be sent again. */
int store_fail_lost(struct store *store, const char *id, const struct err *failure);
int store_canceled(struct store *store, const char *id);

/* Cancel a job. *before, *state: its state before and now. Fails with ERR_NOT_FOUND, ERR_CONFLICT (it has ended). */
int store_cancel(struct store *store, const char *id, enum job_state *before, enum job_state *state);

/* Remove the row of a job that has ended. Fails with ERR_NOT_FOUND, ERR_CONFLICT (it has not). */
int store_delete(struct store *store, const char *id);
/* Delete several jobs in one transaction; ids without a job are skipped. The id of a job that is still to be sent
 * somewhere (deliveries.h) becomes "": it stays. *removed: how many were deleted. */
int store_delete_all(struct store *store, char (*ids)[JOB_ID], int count, int *removed);

/* Whether the scans of failed and of succeeded jobs are kept, and counted in struct kept. Initially none are. */
void store_set_kept_scans(struct store *store, bool of_failed, bool of_succeeded);

/* The current time on the clock that all job times follow (store_clock.c). */
int store_time(struct store *store, int64_t *now);

/* Milliseconds by which the wall clock was set since the last call; negative: back. */
int64_t store_clock_set(struct store *store);

/* Fail up to `limit` waiting jobs whose deadline has passed; jobs[limit] is the caller's to job_clear. */
int store_expire(struct store *store, struct job *jobs, int limit, int *count);

/* Ids of up to `limit` jobs that ended before `before`, in one state or any (-1), earliest end first, without those
 * that are still to be sent somewhere (deliveries.h). */
int store_ended(struct store *store, int64_t before, int state, char (*ids)[JOB_ID], int limit, int *count);

/* Disk space of ended jobs: kept scans, and results. */
struct kept {
    int64_t scans, scan_bytes, result_bytes;
};
void store_kept(struct store *store, struct kept *out);

/* The job to remove first for lack of space: of the client whose ended jobs take most of the disk, the one that ended
 * first and takes any. Jobs with a delivery that has not ended stay. id "": there is none. `kept`: the client's bytes.
 */
struct kept_first {
    char id[JOB_ID], client[JOB_CLIENT];
    int64_t kept;
};
int store_kept_first(struct store *store, struct kept_first *out);

/* Count a further result of a job: its image in another format. Fails with ERR_NOT_FOUND. */
int store_kept_add(struct store *store, const char *id, int64_t bytes);

/* Ids of up to `limit` ended jobs whose scans are kept for resubmission (not by store_scan_outlives()), earliest end
 * first. */
int store_kept_scans(struct store *store, char (*ids)[JOB_ID], int limit, int *count);
/* The scan of an ended job is no longer kept; no failure if it was not. Fails with ERR_NOT_FOUND. */
int store_scan_drop(struct store *store, const char *id);

/* The job that a client sent with this idempotency key. Fails with ERR_NOT_FOUND. */
int store_find_key(struct store *store, const char *client, const char *key, struct job *job);

/* One job. Fails with ERR_NOT_FOUND. */
int store_get(struct store *store, const char *id, struct job *job);
/* The same without parameters, formats, results and report. */
int store_get_brief(struct store *store, const char *id, struct job *job);

enum { STORE_LISTS = 2 }; /* lists read concurrently */

/* Up to `limit` jobs of a filter, newest first, without their reports. jobs[limit] is the caller's to job_clear. */
int store_list(struct store *store, const struct job_filter *filter, struct job *jobs, int limit, int *count);

/* Call `each` with every job, oldest first, until it returns non-zero. It must not call the store. */
int store_each(struct store *store, int (*each)(void *context, const struct job_files *job), void *context);

/* Number of jobs in each state, and the time of acceptance of the oldest waiting one (0: none). */
int store_counts(struct store *store, int64_t counts[JOB_STATES], int64_t *oldest);

/* Number of waiting jobs of each priority. */
void store_waiting(struct store *store, int64_t waiting[PRIORITIES]);

/* Whether the store is writable, according to its last change or the test made each second. Does not wait. */
int store_check(struct store *store);

#endif
