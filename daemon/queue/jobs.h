/* jobs.h: canceling and removing jobs with all that belongs to them: row, files, counters, waiting requests. Any
 * thread; may wait for the disk.
 *
 * Files are removed after the row. A crash in between leaves files without a job, which the next start removes, and
 * never a job without its files.
 */
#ifndef MRIRECON_DAEMON_JOBS_H
#define MRIRECON_DAEMON_JOBS_H

#include "daemon/queue/scheduler.h"

/* As store_cancel(): a waiting job is canceled and its scan removed; a running one is stopped by the scheduler. */
int job_cancel(const struct core *core, struct scheduler *scheduler, const char *id, enum job_state *state);

/* Remove ended jobs with their files, skipping those already removed and those still to be sent somewhere. *removed is
 * increased by the number removed, on failure as well. */
int jobs_remove(const struct core *core, char (*ids)[JOB_ID], int count, int *removed);

/* Remove every job that ended more than `age` seconds ago, in `state` only or in any (-1). *removed: how many, on
 * failure as well. */
int jobs_purge(const struct core *core, int64_t age, int state, int *removed);

/* Bytes that may be kept of ended jobs (option keep-bytes); 0: any. */
int64_t jobs_keep_bytes(const struct options *options, const struct spool *spool);

#endif
