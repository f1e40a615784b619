/* store_check.h: what checking and repairing a state folder share. Only daemon/store_check.c and store_repair.c include
 * this. */
#ifndef MRIRECON_DAEMON_STORE_CHECK_H
#define MRIRECON_DAEMON_STORE_CHECK_H

#include "daemon/state.h"
#include "daemon/store_parts.h"

/* What the folders lack of a job. */
enum lack { LACK_NOTHING, LACK_SCAN, LACK_RESULTS };

/* Of the row id, state, bytes, results (columns 0 to 3 of `row`). */
enum lack row_lacks(const struct spool *spool, sqlite3_stmt *row);

/* Call `each` with the names in `folder` that are ids, and have no row in `connection` (NULL: all); their number, or
 * -1: it cannot be read. `each` may be NULL. */
int orphans_each(struct connection *connection, int folder, void (*each)(void *context, const char *id), void *context);

/* Lock and open the folder. Fails with ERR_IO. */
int state_lock(const char *state_dir, struct spool **out);

/* What there is to say of the folder; `store` receives whether all of jobs.db can be read, `files` whether nothing is
 * lacking beside. */
int state_look(const struct spool *spool, const char *path, FILE *out, bool *store, bool *files);

#endif
