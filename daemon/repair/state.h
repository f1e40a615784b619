/* state.h: looking over a state folder that no daemon uses, and repairing its job store.
 *
 * Both lock the folder as a daemon does. They are called by one thread, in a process that serves nothing.
 */
#ifndef MRIRECON_DAEMON_STATE_H
#define MRIRECON_DAEMON_STATE_H

#include "daemon/spool/spool.h"

#include <stdio.h>

/* Before the store is opened by a daemon: fails with ERR_STORE where jobs.db is missing beside scans or results, which
 * a new store would take for orphans. */
int state_expect(const struct spool *spool);

/* Read jobs.db through and compare its rows with the files; write what is found to `out`. Changes nothing. *sound: jobs
 * lack nothing. Fails with ERR_IO (no such folder; a daemon uses it), ERR_STORE (the store is of a newer version). */
int state_check(const char *state_dir, FILE *out, bool *sound);

/* Where it is not sound: write all rows that can be read to a new jobs.db, and keep the old one beside it. Jobs without
 * their scan fail, successes without their results run again or fail; scans and results whose rows are lost are moved
 * to found-TIME/. Fails as state_check(); then the old store is in its place. */
int state_repair(const char *state_dir, FILE *out);

#endif
