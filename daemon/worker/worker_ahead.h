/* worker_ahead.h: computes what is complete of a scan while it arrives, as long as there is no job to run.
 *
 * The reader of messages tells which input is expected, and whom to interrupt for; the thread that owns the device
 * computes, between jobs. One input at a time: the last that was told. Changes nothing but time, and the moment at
 * which images are shown.
 */
#ifndef MRIRECON_WORKER_AHEAD_H
#define MRIRECON_WORKER_AHEAD_H

#include "daemon/worker/worker_fetch.h"

struct ahead;

/* Fails with ERR_NO_MEMORY. */
int ahead_create(struct ahead **out, struct fetcher *fetcher, const struct worker_options *options, int socket);

/* ---- any thread ---- */

/* The input of job `id` is read while it arrives. `live` (taken; -1: none): its live file, of which `shown` bytes were
 * told of. */
void ahead_expect(struct ahead *ahead, const char *id, const struct kind *kind, const struct param_values *values,
                  int live, int64_t shown);
void ahead_forget(struct ahead *ahead, const char *id);
/* Job `id` is to be run, or ("") the worker to end: stop computing, unless it is for this job. */
void ahead_interrupt(struct ahead *ahead, const char *id);

/* ---- the thread that owns the device ---- */

/* There is no job: what ahead_interrupt() stopped may go on. Called under the lock under which a job arrives, so that
 * no interruption is lost. */
void ahead_resume(struct ahead *ahead);
/* The kind of the input that is expected now, to compute of; NULL: none. */
const struct kind_run *ahead_kind(struct ahead *ahead);
/* Compute what has become complete. Fails with ERR_DEVICE alone: the device has failed. */
int ahead_turn(struct ahead *ahead, struct dev *dev, void *cache);
/* What was computed of the input of job `id`; NULL: nothing. *shown is raised to the bytes that were told of. */
const void *ahead_of(struct ahead *ahead, const char *id, int64_t *shown);
/* Job `id` has ended. */
void ahead_end(struct ahead *ahead, const char *id);

#endif
