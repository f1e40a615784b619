/* state.h: check of a state folder that no daemon uses, and repair of its job store. Both lock the folder as a daemon
 * does. They are called by one thread, in a process that serves nothing. */
#ifndef MRIRECON_DAEMON_STATE_H
#define MRIRECON_DAEMON_STATE_H

#include "daemon/spool/spool.h"

#include <stdio.h>

/* Called before a daemon opens the store: fails with ERR_STORE if a repair was interrupted, or if jobs.db is missing or
 * empty although there are scans or results, which would be orphans of a new store, or its log, or a copy that a daemon
 * has saved. Fails as disk_failed(). */
int state_expect(const struct spool *spool);

/* Read all of jobs.db and compare its rows with the files; write the findings to `out`. Changes nothing. *sound: no
 * job lacks anything. Fails with ERR_IO (no such folder; a daemon uses it), ERR_STORE (the store is of a newer
 * version). */
int state_check(const char *state_dir, FILE *out, bool *sound);

/* If the folder is not sound: write all readable rows to a new jobs.db, and keep the old one beside it. Jobs without
 * their scan fail; succeeded jobs without their results run again or fail; scans and results whose rows are lost are
 * moved to found-TIME/. Fails as state_check(); then the old store is in its place, or the next call ends the repair.
 */
int state_repair(const char *state_dir, FILE *out);

#endif
