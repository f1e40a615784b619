/* store_check.h: what checking and repairing a state folder share. Only daemon/repair/store_check.c, store_repair.c and
 * uploads_check.c include this. */
#ifndef MRIRECON_DAEMON_STORE_CHECK_H
#define MRIRECON_DAEMON_STORE_CHECK_H

#include "daemon/repair/state.h"
#include "daemon/store/store_parts.h"

/* What the folders lack of a job. */
enum lack { LACK_NOTHING, LACK_SCAN, LACK_RESULTS };

/* Of the row id, state, bytes, results (columns 0 to 3 of `row`). */
enum lack row_lacks(const struct spool *spool, sqlite3_stmt *row);

/* Call `each` with the names in `folder` that are ids, and have no row in `connection` (NULL: all); their number, or
 * -1: it cannot be read. `each` may be NULL. */
int orphans_each(struct connection *connection, int folder, void (*each)(void *context, const char *id), void *context);

/* What is sound: all of jobs.db can be read, its jobs lack no files, and resumable uploads are as they should be. */
struct findings {
    bool store, files, uploads;
};

/* Lock the folder, look it through, and say what there is to say. *spool is the caller's, also on failure (then it may
 * be NULL). Fails as state_check(). */
int state_look(const char *state_dir, FILE *out, struct spool **spool, struct findings *found);

/* Look through the uploads, say what is wrong, and, where `time` is not 0, mend it, keeping aside in found-TIME/ what
 * cannot be. *sound: nothing is wrong, or no longer. Fails with ERR_IO. */
int uploads_look(const struct spool *spool, int64_t time, FILE *out, bool *sound);

#endif
