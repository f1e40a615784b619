/* jobs.h: what is done to a job beside its row: files, counters, and those who wait for it. Any thread; takes as long
 * as the disk does.
 *
 * Files are removed after their row, so that a crash leaves files without a job, which the next start removes, and
 * never a job without its files.
 */
#ifndef MRIRECON_DAEMON_JOBS_H
#define MRIRECON_DAEMON_JOBS_H

#include "daemon/queue/scheduler.h"

/* As store_cancel(): a job that waits is canceled, with its scan; one that runs is stopped by the scheduler. */
int job_cancel(const struct core *core, struct scheduler *scheduler, const char *id, enum job_state *state);

/* Remove ended jobs with their files; those that somebody else removed meanwhile are passed over. *removed grows by
 * those that were removed, also where it fails. */
int jobs_remove(const struct core *core, char (*ids)[JOB_ID], int count, int *removed);

/* Remove every job that ended more than `age` seconds ago, in `state` only or in any (-1). *removed of them are gone,
 * also where it fails. */
int jobs_purge(const struct core *core, int64_t age, int state, int *removed);

/* Bytes that may be kept of ended jobs (option keep-bytes); 0: any. */
int64_t jobs_keep_bytes(const struct options *options, const struct spool *spool);

#endif
