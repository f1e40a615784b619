/* store_check.h: functions shared by check and repair of a state folder. Only daemon/repair/store_check.c,
 * store_repair.c and uploads_check.c include this. */
#ifndef MRIRECON_DAEMON_STORE_CHECK_H
#define MRIRECON_DAEMON_STORE_CHECK_H

#include "daemon/repair/state.h"
#include "daemon/store/store_parts.h"

/* The files that a job lacks. */
enum lack {
    LACK_NOTHING,
    LACK_SCAN,
    LACK_RESULTS,
    LACK_UNREAD /* the disk does not show one, which may be there: see errno */
};

/* Of the row id, state, bytes, results (columns 0 to 3 of `row`). */
enum lack row_lacks(const struct spool *spool, sqlite3_stmt *row);

/* Call `each` (may be NULL) with the names in `folder`, one of the spool's, that are ids of no upload and have no row
 * in `connection` (NULL: none has); *count: their number. Fails as disk_failed(), and has called nothing then. */
int orphans_each(const struct spool *spool, struct connection *connection, int folder,
                 void (*each)(void *context, const char *id), void *context, int *count);
/* The number of such scans and results. */
int orphans_count(const struct spool *spool, struct connection *connection, int *scans, int *results);

/* A repaired store on its way to its place: while it is there, jobs.db may be the old one without its log. */
#define STORE_REPAIRED "jobs.db.repaired"
/* Whether a repair was interrupted then. Fails as disk_failed(). */
int store_is_between(const struct spool *spool, bool *between);
/* Whether jobs.db is there, and neither empty nor, with its log, without tables. Fails as disk_failed(). */
int store_is_there(const struct spool *spool, bool *there);
/* Open jobs.db, which is there, for reading; *version: of its schema. *damaged: its beginning is no store's, and the
 * error says so; else fails if it cannot be opened or read. Close the connection also then. */
int store_open(struct connection *connection, const char *state_dir, int64_t *version, bool *damaged);

/* Sound: all of jobs.db can be read, its jobs lack no files, and resumable uploads are complete. */
struct findings {
    bool store, files, uploads;
};

/* Lock the folder, check it, and print the findings. *spool is the caller's, also on failure (then it may be NULL).
 * Fails as state_check(). */
int state_look(const char *state_dir, FILE *out, struct spool **spool, struct findings *found);

/* Check the uploads and print what is wrong. If `time` is not 0, repair them, moving what cannot be repaired to
 * found-TIME/. *sound: nothing is wrong, or all was repaired. Fails with ERR_IO. */
int uploads_look(const struct spool *spool, int64_t time, FILE *out, bool *sound);

#endif
