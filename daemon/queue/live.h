/* live.h: images that are sent while a job makes them: for each MRD session, and each request that wants them so
 * (daemon/http/routes_images.c), a file to which a worker appends them.
 *
 * A session or a submission opens an entry for its job's id, and readers may hold it longer. The scheduler
 * passes the file to the worker that has the job, and records how many bytes the worker has reported: whole images, and
 * perhaps the beginning of another. Reported bytes are never overwritten: a second attempt appends after them, in the
 * middle of an image only if that began with the same bytes. These files are not durable; the job's
 * results are, and who sends images compares those that it sent with them.
 *
 * Any thread.
 */
#ifndef MRIRECON_DAEMON_LIVE_H
#define MRIRECON_DAEMON_LIVE_H

#include "daemon/store/job.h"

struct live;

int live_create(struct live **out); /* fails with ERR_NO_MEMORY */
void live_free(struct live *live);  /* no entry is open any more; NULL is fine */

/* Open an entry for job `id`, which keeps a duplicate of `file` (for writing). `event`, an eventfd that signals new
 * images, stays the caller's; -1: requests wait for the key `id` instead (waiters.h). Fails with ERR_NO_MEMORY, ERR_IO.
 */
int live_open(struct live *live, const char *id, int file, int event);
bool live_hold(struct live *live, const char *id);  /* one more holder; false: there is no such entry */
void live_close(struct live *live, const char *id); /* the last holder's ends the entry; none: nothing happens */

/* A descriptor of the entry's file, the caller's, and its reported bytes. -1: there is no such entry. */
int live_file(struct live *live, const char *id, int64_t *shown);

/* The worker reports that the first `bytes` of the file are complete; a number beyond its size is ignored. true: there
 * are new images, and the entry has no eventfd: the caller wakes the requests that wait. */
bool live_show(struct live *live, const char *id, int64_t bytes);
int64_t live_shown(struct live *live, const char *id); /* 0: nothing, or there is no such entry */

#endif
