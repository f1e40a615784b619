/* store.h: the jobs, in SQLite (WAL, synchronous=FULL): the queue survives a power cut.
 *
 * store.c is the only file that changes a job's state. When a call that changes something returns 0, what it did is on
 * the disk; when it fails, nothing was done. Changes that several threads ask for at a time are committed together, so
 * that they share one sync of the disk (store_parts.h tells how).
 *
 *   queued -> running -> succeeded | failed
 *   running -> queued             the worker or the daemon died, or the daemon was told to stop
 *   queued -> canceled            at once
 *   running -> canceling -> canceled | failed | succeeded (the end came first)
 *
 * A struct store may be used by any thread. Calls that change something sleep until the disk has it; those that read
 * never wait for a disk that writes. Times are milliseconds since 1970, UTC; 0: not yet. When the clock of the machine
 * is set, they move with it (store_clock.c): ages, waits and what is left until a deadline are the time that passed.
 */
#ifndef MRIRECON_DAEMON_STORE_H
#define MRIRECON_DAEMON_STORE_H

#include "daemon/store/job.h"
#include "gridding/base/err.h"

struct store;

/* Open or make the store in the file `path`. Fails with ERR_STORE (also: made by a newer version). */
int store_create(struct store **out, const char *path);
void store_free(struct store *store);

/* Milliseconds of waiting that move a job up by one priority; 0, as it begins: none do. */
void store_set_ageing(struct store *store, int64_t milliseconds);

/* At start: what a dead daemon left running is queued again, what it was canceling is canceled; deaths of jobs that
 * wait are forgotten, as is which devices were at fault. */
int store_recover(struct store *store, int *requeued);

/* What one client may have waiting: jobs, and bytes of their scans. 0, as it begins: any number. */
void store_set_quota(struct store *store, int64_t jobs, int64_t bytes);

/* Whether a job of this client with `bytes` would be let in now; `begun`: what else the client has on its way, which no
 * row tells. Fails with ERR_QUEUE_FULL (`limit` jobs wait), ERR_QUOTA. */
int store_room(struct store *store, const char *client, struct quota quota, struct quota begun, int64_t bytes,
               int64_t limit);
/* Whether anything limits what a client with this quota may have waiting. */
bool store_has_quota(const struct store *store, struct quota quota);

/* Seconds after which who was refused with `code` should come back: as long as the queue takes for a job to leave it,
 * of a client that has its share as long as it takes for one of each; 1 to 120. 0: the queue is not why. */
int store_retry_seconds(struct store *store, int code);

/* Add a queued job; sets its sequence, created, deadline and state. Fails as store_room, and with ERR_STORE. */
int store_submit(struct store *store, struct job *job, int64_t limit);

/* ORDER. The next job is one of the highest priority there is, where each full ageing time that a job has waited counts
 * as one priority higher; of those, one of the client that was given least; of those, the oldest. What a client was
 * given is the sum of the bytes of its jobs that were begun, a job counting as 1 MiB at least, and of the time that
 * they held a worker, a second counting as 64 MiB: that is what a CPU worker reconstructs in about a second, so that
 * both weigh alike for scans, and a small file that keeps a worker busy weighs what it costs the others. The time
 * counts when the job leaves its worker. A client that comes back after having had none waiting begins level with the
 * one served last, but keeps what it owes. A start finds the sums again in the jobs that are kept: the last 10,000 that
 * waited no longer, and those that wait.
 */

/* The job that is next among those whose ids are not in `avoid` (JSON array; NULL: none is). *found: there is one; then
 * *job is the caller's. */
int store_peek(struct store *store, json_t *avoid, struct job *job, bool *found);

/* How many jobs that wait are likely to begin before this one, which waits: by priority, and by what clients were given
 * as it is now, where a client's jobs count as what they have on average. Later jobs may overtake it, and its age may
 * move it up. */
int store_ahead(struct store *store, const struct job *job, int64_t *ahead);

/* queued -> running, of the job that is next among those whose ids are not in `never`; of those in `avoid` (as above)
 * only where there is no other of the same priority. *found: there was one; then *job is the caller's. */
int store_claim(struct store *store, json_t *avoid, json_t *never, struct job *job, bool *found);

/* Why a job that was begun goes back into the queue. */
enum requeue {
    REQUEUE_STOPPED, /* for nothing that it did */
    REQUEUE_DIED,    /* its worker died of it */
    REQUEUE_SHORT    /* the server was short of something of its own: this was no attempt */
};
/* running -> queued. */
int store_requeue(struct store *store, const char *id, enum requeue why);

/* running or canceling -> an end. `results` and `report` stay the caller's. */
int store_succeed(struct store *store, const char *id, json_t *results, json_t *report);
/* Also of a queued job. Where reading or writing failed (ERR_IO, ERR_SPOOL_FULL), its scan stays whatever
 * store_set_kept_scans() says. */
int store_fail(struct store *store, const char *id, const struct err *failure);
bool store_scan_outlives(int code); /* whether it does, of a failure with this code */
/* The same of a job whose scan is gone: its idempotency key is free, for the scan has to be sent again. */
int store_fail_lost(struct store *store, const char *id, const struct err *failure);
int store_canceled(struct store *store, const char *id);

/* Somebody wants a job canceled. *before, *state: what it was, and is now. Fails with ERR_NOT_FOUND, ERR_CONFLICT (it
 * has ended). */
int store_cancel(struct store *store, const char *id, enum job_state *before, enum job_state *state);

/* Remove the row of a job that has ended. Fails with ERR_NOT_FOUND, ERR_CONFLICT (it has not). */
int store_delete(struct store *store, const char *id);
/* The same of several at a time, or of none; those that are not there any more are passed over. *removed: how many
 * were. */
int store_delete_all(struct store *store, char (*ids)[JOB_ID], int count, int *removed);

/* Which scans stay in the spool when their job has ended; it counts them into what is kept. As it begins: none. */
void store_set_kept_scans(struct store *store, bool of_failed, bool of_succeeded);

/* What time it is, by the clock with which the times of all jobs have been moved. */
int store_time(struct store *store, int64_t *now);

/* By how many milliseconds the clock was set since the last call; back: below 0. */
int64_t store_clock_set(struct store *store);

/* Fail up to `limit` jobs that wait and whose deadline has passed; jobs[limit] is the caller's to job_clear. */
int store_expire(struct store *store, struct job *jobs, int limit, int *count);

/* Ids of up to `limit` jobs that ended before `before`, in one state only, or any (-1); the oldest end first. */
int store_ended(struct store *store, int64_t before, int state, char (*ids)[JOB_ID], int limit, int *count);

/* What is on the disk of jobs that have ended: scans that stay, and results. */
struct kept {
    int64_t scans, scan_bytes, result_bytes;
};
void store_kept(struct store *store, struct kept *out);

/* More is kept of a job: its image in another format. Fails with ERR_NOT_FOUND. */
int store_kept_add(struct store *store, const char *id, int64_t bytes);

/* Ids of up to `limit` jobs that have ended and whose scans are kept for them to be run again, not as
 * store_scan_outlives() has it; the oldest end first. */
int store_kept_scans(struct store *store, char (*ids)[JOB_ID], int limit, int *count);
/* The scan of a job that has ended is kept no longer; that it was not kept is no failure. Fails with ERR_NOT_FOUND. */
int store_scan_drop(struct store *store, const char *id);

/* The job that a client sent with this idempotency key. Fails with ERR_NOT_FOUND. */
int store_find_key(struct store *store, const char *client, const char *key, struct job *job);

/* One job. Fails with ERR_NOT_FOUND. */
int store_get(struct store *store, const char *id, struct job *job);

enum { STORE_LISTS = 2 }; /* lists that are read at a time */

/* Up to `limit` jobs of a filter, newest first, without their reports. jobs[limit] is the caller's to job_clear. */
int store_list(struct store *store, const struct job_filter *filter, struct job *jobs, int limit, int *count);

/* Call `each` with every job, oldest first, until it returns non-zero. It must not call the store. */
int store_each(struct store *store, int (*each)(void *context, const struct job_files *job), void *context);

/* Jobs in each state, and when the oldest of those that wait was accepted (0: none waits). */
int store_counts(struct store *store, int64_t counts[JOB_STATES], int64_t *oldest);

/* Jobs of each priority that wait. */
void store_waiting(struct store *store, int64_t waiting[PRIORITIES]);

/* Whether the store can be written, as its last change, or a proof made each second, showed. Does not wait. */
int store_check(struct store *store);

#endif
