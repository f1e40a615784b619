/* spool_writer.h: a thread that writes an upload to the disk while the next bytes of it arrive.
 *
 * An upload of known and not too small length hands its bytes over in pieces, which are copied; but for the first ones,
 * with which a worker is told of the upload (stream_body.h). The writer belongs to an upload only while pieces of it
 * wait. So a client that pauses does not hold it, and the bytes stay in order if sometimes the writer writes them and
 * sometimes, while it is another upload's, the upload's own thread. A failed write is told by the next call for the
 * upload: of spool_write() or spool_settle(). What waits then is not written.
 *
 * OWNERS. The writer's lock is for which upload it has, for its counts of pieces, and for an upload's `failure`. No
 * call for the disk is made with it. A buffer is its upload's thread's from when it is counted in `taken` until it is
 * in `filled`, then the writer's until it is in `written`. An upload's `fd`, `written` and `pushed` are the writer's
 * while it has the upload, and else its thread's, as all else of struct spool_file always is.
 */
#ifndef MRIRECON_DAEMON_SPOOL_WRITER_H
#define MRIRECON_DAEMON_SPOOL_WRITER_H

#include "daemon/spool/spool.h"

enum { SPOOL_BEHIND_LEAST = 1 << 20 /* bytes of an upload that hands pieces over */ };

/* Append bytes to the upload's file, now or soon, and start their write-back. Fails as spool_append(). */
int spool_write(struct spool_file *file, const void *data, size_t bytes);
/* Wait until all of them are in the file, which is then the calling thread's. Fails as the first failed write did. */
int spool_settle(struct spool_file *file);
/* No upload is in progress. NULL is allowed. */
void spool_writer_free(struct spool_writer *writer);

#endif
