/* housekeeper.h: what has to be done to the queue with time: jobs whose deadline has passed are failed, and ended jobs
 * are removed when they are old (option keep-jobs) or when all that is kept takes too much (keep-bytes), oldest first;
 * kept scans give way to uploads. And jobs are canceled whose sender waited, went away, and had asked for that.
 *
 * One thread of its own, which looks each second, and when somebody goes away.
 */
#ifndef MRIRECON_DAEMON_HOUSEKEEPER_H
#define MRIRECON_DAEMON_HOUSEKEEPER_H

#include "daemon/queue/scheduler.h"

struct housekeeper;

/* `core` as of the scheduler; all of it and the scheduler must outlive the housekeeper. Fails with ERR_NO_MEMORY,
 * ERR_INTERNAL. */
int housekeeper_create(struct housekeeper **out, const struct core *core, struct scheduler *scheduler);
void housekeeper_free(struct housekeeper *housekeeper);

#endif
