/* housekeeper.h: periodic work on the queue. Fails jobs whose deadline has passed; removes ended jobs by age (option
 * keep-jobs) or total size (keep-bytes), oldest first; removes kept scans when uploads need the space; cancels jobs
 * whose client asked to wait for them and has disconnected.
 *
 * One thread of its own, once a second and when a client disconnects.
 */
#ifndef MRIRECON_DAEMON_HOUSEKEEPER_H
#define MRIRECON_DAEMON_HOUSEKEEPER_H

#include "daemon/queue/scheduler.h"

struct housekeeper;

/* `core` and the scheduler must outlive the housekeeper. Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int housekeeper_create(struct housekeeper **out, const struct core *core, struct scheduler *scheduler);
void housekeeper_free(struct housekeeper *housekeeper);

#endif
