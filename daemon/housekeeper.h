/* housekeeper.h: what has to be done to the queue with time: jobs whose deadline has passed are failed, and ended jobs
 * are removed when they are old (option keep-jobs) or when all that is kept takes too much (keep-bytes), oldest first.
 *
 * One thread of its own, which looks each second. Files are removed after their row, so that a crash leaves files
 * without a job, which the next start removes, and never a job without its files.
 */
#ifndef MRIRECON_DAEMON_HOUSEKEEPER_H
#define MRIRECON_DAEMON_HOUSEKEEPER_H

#include "daemon/scheduler.h"

struct housekeeper;

/* `parts` as of the scheduler; all of it must outlive the housekeeper. Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int housekeeper_create(struct housekeeper **out, const struct scheduler_parts *parts);
void housekeeper_free(struct housekeeper *housekeeper);

/* Remove every job that ended before `before` (ms since 1970), in `state` only or in any (-1), with its files. *removed
 * of them are gone, also where it fails. */
int jobs_purge(const struct scheduler_parts *parts, int64_t before, int state, int *removed);

#endif
