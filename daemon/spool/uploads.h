/* uploads.h: resumable uploads (tus): bytes arrive in several requests, possibly days apart and across restarts.
 *
 *   STATE/uploads/ID        the bytes that have arrived; the file's size is the upload's offset
 *   STATE/uploads/ID.json   length, kind, client, its quota, name, priority, parameters; written once, at the start
 *   STATE/uploads/ID.chunk  while a chunk with a checksum arrives: the offset to return to if it is cut off
 *
 * The modification time of the first file is the arrival time of its last bytes, on the wall clock; when that is set,
 * the times of all uploads move with it, so that the time left measures elapsed time.
 *
 * An upload has the id of the job that it becomes. A complete upload is linked into the spool, its job is committed,
 * and only then is it removed here; after a crash in between, uploads_recover() completes this.
 *
 * Any thread; one request at a time may write to an upload.
 */
#ifndef MRIRECON_DAEMON_UPLOADS_H
#define MRIRECON_DAEMON_UPLOADS_H

#include "daemon/base/log.h"
#include "daemon/spool/spool.h"

struct uploads;

/* An upload. */
struct upload {
    char id[JOB_ID];
    int64_t length, offset;
    int64_t left; /* ms until it is removed, if no more bytes arrive */
    json_t *job;  /* {kind, client, name, quota, priority, parameters, formats, metadata?}; upload_clear() frees it */
};
void upload_clear(struct upload *upload);

/* A chunk: one request that writes to an upload. */
struct upload_chunk {
    struct uploads *uploads; /* NULL: none */
    char id[JOB_ID];
    int fd;
    int64_t begin, offset, length; /* offsets in the upload: start of this chunk, now; length of the upload */
    bool checked;                  /* it has a checksum: all of it is kept, or nothing */
    bool dropped;                  /* more bytes than announced: none is kept */
};

/* Told of each complete upload that has become a job without a request, in the thread that found it. */
struct uploads_listener {
    void (*accepted)(void *context, const struct job *job);
    void *context;
};

/* `lifetime`: seconds without new bytes after which an upload is removed; at most 600 for an empty one. Fails with
 * ERR_IO, ERR_NO_MEMORY. */
int uploads_create(struct uploads **out, struct spool *spool, const char *state_dir, int64_t lifetime,
                   struct uploads_listener listener, const struct log *log);
/* Ends the thread of uploads_watch(): the listener is told of nothing more. */
void uploads_free(struct uploads *uploads);

/* At a start, after spool_clean: incomplete chunks with a checksum are cut off, complete uploads whose job was not
 * committed become jobs, and the others are counted in the spool. *queue_limit is read at each attempt to make a job.
 * Fails with ERR_IO. */
int uploads_recover(struct uploads *uploads, struct store *store, const _Atomic int64_t *queue_limit, int *resumed);

/* Start the thread that removes expired uploads, and retries complete ones that could not become jobs. After
 * uploads_recover(). Fails with ERR_INTERNAL. */
int uploads_watch(struct uploads *uploads);

/* Begin an upload of job->bytes that becomes this job; fsynced on return. A client's unfinished uploads count with its
 * waiting jobs. Space for all bytes is reserved until the upload has been idle for a minute (or half of its lifetime,
 * if shorter); then only the arrived bytes stay reserved, and the next chunk reserves the rest again. `metadata` (NULL:
 * none) is stored uninterpreted. Fails with ERR_TOO_LARGE, ERR_SPOOL_FULL, ERR_IO, ERR_QUOTA and ERR_QUEUE_FULL (too
 * many unfinished uploads, of this client or of all; or as store_room()). */
int upload_begin(struct uploads *uploads, const struct job *job, const char *metadata, struct upload *out);

/* The failure for an upload that does not exist or belongs to another client: ERR_NOT_FOUND. */
int upload_unknown(void);
/* Fails with ERR_NOT_FOUND, ERR_IO (its files are inconsistent), and as disk_failed(). */
int upload_get(struct uploads *uploads, const char *id, struct upload *out);

/* Begin a chunk at `offset`. Fails with ERR_NOT_FOUND, ERR_UPLOAD_OFFSET, ERR_UPLOAD_LOCKED, ERR_SPOOL_FULL (the
 * reservation had lapsed and the space is in use), ERR_IO. */
int chunk_begin(struct uploads *uploads, const char *id, int64_t offset, bool checked, struct upload_chunk *out);
/* Fails with ERR_TOO_LARGE (beyond the upload's length: nothing of the chunk is kept), ERR_SPOOL_FULL, ERR_IO. */
int chunk_append(struct upload_chunk *chunk, const void *data, size_t bytes);
/* End a chunk, however it ended; arrived bytes are fsynced. `keep`: its checksum matches, or it has none. Otherwise a
 * chunk with a checksum is removed, as is one that the disk failed to store; if removing fails as well, a chunk without
 * a checksum ends the upload. Fails with ERR_IO, ERR_SPOOL_FULL. */
int chunk_end(struct upload_chunk *chunk, bool keep);

/* Is told of a complete upload that is about to become a job, of which no byte can be taken back any more; `scan`: its
 * bytes, open for reading, and the listener's. */
struct upload_whole {
    void (*told)(void *context, const struct job *job, int scan);
    void *context;
};
/* Turn a complete upload into a job and remove the upload; *job is filled. Waits while another thread does so; fails
 * with ERR_NOT_FOUND if that succeeded. Fails as store_submit, and with ERR_UPLOAD_LOCKED; the upload then stays.
 * `whole`: NULL: nobody. */
int upload_finish(struct uploads *uploads, struct store *store, const char *id, int64_t queue_limit,
                  const struct upload_whole *whole, struct job *job);

/* Remove an upload. Fails with ERR_NOT_FOUND, ERR_UPLOAD_LOCKED, ERR_IO, ERR_SPOOL_FULL. */
int upload_remove(struct uploads *uploads, const char *id);

/* Remove what there still is of the upload that has become job `id`, if anything: because that is just being done, or
 * the disk refused it. Before the job is deleted: otherwise the upload would become a job again. Then
 * spool_uploads_settle(). Fails with ERR_IO, ERR_SPOOL_FULL. */
int upload_forget(struct spool *spool, const char *id);

#endif
