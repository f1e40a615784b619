/* spool_writers.h: threads that write uploads to the disk while the next bytes of them arrive.
 *
 * An upload of known and not too small length hands its bytes over in pieces, which are copied; but for the first ones,
 * with which a worker is told of the upload (stream_body.h). A writer belongs to an upload only while pieces of it
 * wait. So a client that pauses holds none, and the bytes stay in order if sometimes a writer writes them and
 * sometimes, when all are taken, the upload's own thread. A failed write is told by the next call for the upload: of
 * spool_write() or spool_settle(). What waits then is not written.
 *
 * OWNERS. One lock, struct spool_writers', is for which upload a writer has, for its counts of pieces, and for an
 * upload's `writer` and `failure`. No call for the disk is made with it. A buffer is its upload's thread's from when it
 * is counted in `taken` until it is in `filled`, then the writer's until it is in `written`. An upload's `fd`,
 * `written` and `pushed` are its writer's while it has one, and else its thread's, as all else of struct spool_file
 * always is.
 */
#ifndef MRIRECON_DAEMON_SPOOL_WRITERS_H
#define MRIRECON_DAEMON_SPOOL_WRITERS_H

#include "daemon/spool/spool.h"

enum { SPOOL_BEHIND_LEAST = 1 << 20 /* bytes of an upload that hands pieces over */ };

/* Append bytes to the upload's file, now or soon, and start their write-back. Fails as spool_append(). */
int spool_write(struct spool_file *file, const void *data, size_t bytes);
/* Wait until all of them are in the file, which is then the calling thread's. Fails as the first failed write did. */
int spool_settle(struct spool_file *file);
/* No upload is in progress. NULL is allowed. */
void spool_writers_free(struct spool_writers *writers);

#endif
