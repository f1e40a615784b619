/* uploads.h: uploads that may break off and go on (tus): bytes arrive in several requests, days apart, across restarts.
 *
 *   STATE/uploads/ID        the bytes that have arrived; the file's size is how far the upload is
 *   STATE/uploads/ID.json   length, kind, client, its quota, name, priority, parameters; written once, at the beginning
 *   STATE/uploads/ID.chunk  while a chunk with a checksum arrives: the offset to go back to if it is cut off
 *
 * The first one's time of modification tells when bytes arrived last, by the machine's clock; when somebody sets that,
 * the times of all uploads move with it: what each has left is the time that passes.
 *
 * The id of an upload is that of the job it becomes. A complete upload is linked into the spool, its job committed, and
 * only then removed here; a crash in between is mended by uploads_recover().
 *
 * Any thread; one request at a time may write to an upload.
 */
#ifndef MRIRECON_DAEMON_UPLOADS_H
#define MRIRECON_DAEMON_UPLOADS_H

#include "daemon/base/log.h"
#include "daemon/spool/spool.h"

struct uploads;

/* What is known of an upload. */
struct upload {
    char id[JOB_ID];
    int64_t length, offset;
    int64_t left; /* ms until it is removed if nothing arrives */
    json_t
        *job; /* {kind, client, name, quota, priority, parameters, formats, metadata?}; upload_clear() gives it back */
};
void upload_clear(struct upload *upload);

/* One request's writing to an upload. */
struct upload_chunk {
    struct uploads *uploads; /* NULL: none */
    char id[JOB_ID];
    int fd;
    int64_t begin, offset, length; /* of the upload: before this chunk, now, in the end */
    bool checked;                  /* it has a checksum: all of it stays, or nothing */
    bool dropped;                  /* more came than was announced: nothing stays */
};

/* `lifetime`: seconds after which an upload that nothing is added to is removed; one that is empty after 600 at most.
 * Fails with ERR_IO, ERR_NO_MEMORY. */
int uploads_create(struct uploads **out, struct spool *spool, const char *state_dir, int64_t lifetime,
                   const struct log *log);
void uploads_free(struct uploads *uploads);

/* At start, after spool_clean: half chunks with a checksum are cut off; complete uploads whose job was not committed
 * become jobs now; the others are counted in the spool. From then on a thread removes those that expire, and makes jobs
 * of those that are complete and could not become one. *queue_limit is read at each. Fails with ERR_IO, ERR_INTERNAL.
 */
int uploads_recover(struct uploads *uploads, struct store *store, const int64_t *queue_limit, int *resumed);

/* Begin an upload of job->bytes that becomes this job, on the disk when this returns; what its client has begun counts
 * with what it has waiting. Room for all of it is reserved, until nothing has arrived for a while (a minute, or half of
 * the lifetime); from then on what has arrived keeps its room, and the rest is reserved again with the next chunk.
 * `metadata` (NULL: none) is kept with it, and not looked into. Fails with ERR_TOO_LARGE, ERR_SPOOL_FULL, ERR_IO,
 * ERR_QUOTA and ERR_QUEUE_FULL (so many have begun and not ended, of this client or of all; or as store_room()). */
int upload_begin(struct uploads *uploads, const struct job *job, const char *metadata, struct upload *out);

/* The failure that is told of an upload which is not there, or not the asker's: ERR_NOT_FOUND. */
int upload_unknown(void);
/* Fails with ERR_NOT_FOUND, ERR_IO. */
int upload_get(struct uploads *uploads, const char *id, struct upload *out);

/* Begin to write at `offset`. Fails with ERR_NOT_FOUND, ERR_UPLOAD_OFFSET, ERR_UPLOAD_LOCKED, ERR_SPOOL_FULL (nothing
 * had arrived for a while, and others took the room), ERR_IO. */
int chunk_begin(struct uploads *uploads, const char *id, int64_t offset, bool checked, struct upload_chunk *out);
/* Fails with ERR_TOO_LARGE (more than the upload's length: nothing of the chunk stays), ERR_SPOOL_FULL, ERR_IO. */
int chunk_append(struct upload_chunk *chunk, const void *data, size_t bytes);
/* The chunk is over, whatever ended it; what arrived is on the disk. `keep`: its checksum fits, or it has none; without
 * it a checked chunk is taken back, as is one that the disk did not take; where that fails, too, a chunk without a
 * checksum ends the upload. Fails with ERR_IO, ERR_SPOOL_FULL. */
int chunk_end(struct upload_chunk *chunk, bool keep);

/* The job that a complete upload is about to become, and its bytes, open for reading: both the caller's. Fails with
 * ERR_NOT_FOUND, ERR_IO. */
int upload_peek(struct uploads *uploads, const char *id, struct job *job, int *scan);

/* Make a complete upload a job; *job is filled. The upload is gone afterwards. Fails as store_submit, and with
 * ERR_UPLOAD_LOCKED; the upload then stays. */
int upload_finish(struct uploads *uploads, struct store *store, const char *id, int64_t queue_limit, struct job *job);

/* Remove an upload. Fails with ERR_NOT_FOUND, ERR_UPLOAD_LOCKED. */
int upload_remove(struct uploads *uploads, const char *id);

#endif
