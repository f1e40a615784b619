/* spool.h: the folders of uploaded scans and of results.
 *
 *   STATE/spool/ID.part       an arriving upload; a start removes it
 *   STATE/spool/ID            a complete upload; its row is committed afterwards
 *   STATE/uploads/            resumable uploads, until they are complete: uploads.h
 *   STATE/spool/ID.checkpoint   a started job's checkpoint; removed when the job has ended
 *   STATE/results/ID.tmp/     results that a worker writes, or will write
 *   STATE/results/.ID.NAME    a result file that is being converted to another format
 *   STATE/results/ID/         a finished job's results; immutable, but files in further formats may be added
 *   STATE/clean-stop          while no daemon runs: the last one closed the job store, whose identity this is
 *   STATE/found-TIME/         leftovers that a job may have owned: ID.scan, ID.results/; TIME: ms since 1970
 *
 * LEFTOVERS. A file without a row in the store was either in progress at a crash, or has lost its row: then it is all
 * that is left of an accepted scan. A start therefore removes it only if it was never complete, or if the last daemon
 * stopped cleanly and the job store is as it left it. Otherwise it is moved to found-TIME/ for SPOOL_FOUND_DAYS.
 *
 * A struct spool may be used by any thread: all but the count of bytes, the syncs and the freer is read-only after
 * spool_create and spool_writer_start. A struct spool_file belongs to one thread at a time, and partly to the writer
 * (OWNERS in spool_writer.h).
 */
#ifndef MRIRECON_DAEMON_SPOOL_H
#define MRIRECON_DAEMON_SPOOL_H

#include "daemon/base/disk.h"
#include "daemon/store/store.h"
#include "recon/recon.h"

#include <stdatomic.h>

enum {
    SPOOL_NAME = 128, /* longest name of a result file, including NUL */
    SPOOL_CHECKPOINT = JOB_ID + 16,
    SPOOL_FOUND_DAYS = 30 /* retention of found-TIME folders */
};

struct spool {
    int state, scans, results, uploads; /* folders */
    bool in_memory;                     /* `scans` is in a tmpfs */
    struct folder_sync scans_sync, uploads_sync;
    /* Removals of uploads' files: begun, ended, and not to be undone (spool_uploads_settle()). */
    _Atomic int64_t uploads_unlinking, uploads_unlinked, uploads_settled;
    struct disk_freer freer;
    int64_t body_limit, limit, reserve;
    _Atomic int64_t used;         /* bytes of uploads, arrived and reserved */
    _Atomic int64_t lacked;       /* bytes; see spool_lacked() */
    _Atomic int found;            /* files and folders in found-TIME/ at the last count */
    _Atomic bool suspect;         /* a write has failed since the last test write */
    pthread_mutex_t trouble_lock; /* of `trouble` */
    struct err trouble;           /* of the last test write; code 0: it succeeded */
    struct spool_writer *writer;  /* NULL: none */
};

/* An upload in progress. */
struct spool_file {
    struct spool *spool;
    char id[JOB_ID];
    int fd;
    int64_t bytes;      /* arrived */
    int64_t reserved;   /* counted in spool->used; at least `bytes` */
    int64_t written;    /* bytes in the file */
    int64_t pushed;     /* bytes for which write-back was requested */
    bool part;          /* not yet complete: named ID.part */
    bool behind;        /* it hands pieces to the writer */
    struct err failure; /* the writer's first; code 0: none */
};

/* Open the folders in `state_dir`, or create them. Fails with ERR_IO (also: another daemon uses it). */
int spool_create(struct spool **out, const char *state_dir, int64_t body_limit, int64_t limit, int64_t reserve);
void spool_free(struct spool *spool);
/* Start a thread that writes large uploads while these arrive (spool_writer.h). Before any upload. Fails with
 * ERR_NO_MEMORY, ERR_INTERNAL. */
int spool_writer_start(struct spool *spool);

/* Findings of a start. */
struct spool_cleaned {
    int removed, lost; /* removed: files without a job; lost: jobs without a scan, which have failed */
    int scans_found, results_found;
    int64_t time; /* TIME of found-TIME/, where these are */
};
/* Remove files without a job, or move them to found-TIME/ (LEFTOVERS), and fail queued jobs whose scan is gone. Before
 * any other use. `clean`: from spool_stop_take(). */
int spool_clean(struct spool *spool, struct store *store, bool clean, struct spool_cleaned *out);

/* Whether an upload of this id, which is not a job yet, is there, complete or not: files of the id without a row belong
 * to it. They are copies, or results that were computed meanwhile. */
bool spool_has_upload(const struct spool *spool, const char *id);

/* Whether the last daemon stopped cleanly and the job store is as it left it. _take: clear the mark; _note: set it,
 * when the store has been closed. Fails with ERR_IO, ERR_SPOOL_FULL. */
bool spool_stop_was_clean(const struct spool *spool);
int spool_stop_take(struct spool *spool, bool *clean);
void spool_stop_note(struct spool *spool);

/* Move `name` of `folder` to found-TIME/`kept` of the state folder; false: failed, see errno. */
bool spool_found_keep(const struct spool *spool, int64_t time, int folder, const char *name, const char *kept);
/* fsync found-TIME/ and its name, which is there: before another folder's sync takes the files' earlier names from the
 * disk. Fails with ERR_SPOOL_FULL, ERR_IO. */
int spool_found_sync(const struct spool *spool, int64_t time);
int spool_found_count(struct spool *spool);
/* Remove found-TIME folders older than SPOOL_FOUND_DAYS; returns how many files and folders were removed. */
int spool_found_expire(struct spool *spool);
/* Files that root creates in the state folder get the folder's owner, so that the service can read them. */
bool spool_owner_give(const struct spool *spool, const char *name);

/* A new id: 26 characters of time and 80 random bits, in lower-case base 32. */
int spool_new_id(char id[JOB_ID]);
bool spool_is_id(const char *text);

/* Begin an upload of `expected` bytes (-1: unknown). Fails with ERR_TOO_LARGE, ERR_SPOOL_FULL, ERR_IO. */
int spool_begin(struct spool *spool, int64_t expected, struct spool_file *out);
/* Append bytes. They may be written later; that this failed is told by the next of these calls. Fails likewise. */
int spool_append(struct spool_file *file, const void *data, size_t bytes);
/* Open what has arrived so far, for reading only, once it is in the file. Fails as spool_append(). */
int spool_reopen(struct spool_file *file, int *fd);
/* Have all bytes in the file, fsync file and folder entry and close the file, which stays until spool_remove. Waits for
 * the disk; concurrent callers share the fsync of the folder. Fails with ERR_SPOOL_FULL, ERR_IO. */
int spool_finish(struct spool_file *file);
/* Abandon an upload and remove its file. Also after a failed spool_finish. */
void spool_abort(struct spool_file *file);

/* For resumable uploads (uploads.h): reserve bytes to come (fails with ERR_TOO_LARGE, ERR_SPOOL_FULL, ERR_IO), count
 * bytes already there, and stop counting them. */
int spool_reserve(struct spool *spool, int64_t bytes);
void spool_count(struct spool *spool, int64_t bytes);
void spool_release(struct spool *spool, int64_t bytes);
/* Link the file `id` of `folder` into the spool and fsync; and undo it. Fails with ERR_IO. */
int spool_adopt(struct spool *spool, int folder, const char *id);
void spool_disown(struct spool *spool, const char *id);
/* A power cut may undo the removal of a resumable upload's files: one that was complete would become a job at the next
 * start. After this call it cannot. Before a client is told that such an upload is removed, or a job is deleted, which
 * may have been one. Waits for the disk, if any was removed. Fails with ERR_SPOOL_FULL, ERR_IO. */
int spool_uploads_settle(struct spool *spool);
/* Link the scan of a job as that of a new job, whose id is generated: `fresh`; *bytes: its size. Fails with
 * ERR_SCAN_GONE, ERR_SPOOL_FULL, ERR_IO. */
int spool_link(struct spool *spool, const char *id, char fresh[JOB_ID], int64_t *bytes);

/* Remove the scan of a job; no failure if it is gone already. */
void spool_remove(struct spool *spool, const char *id);
/* Open the scan of a job for reading. Fails with ERR_SCAN_GONE (no such file), and as disk_failed(). */
int spool_open(struct spool *spool, const char *id, int *fd);

/* Open the checkpoint of a job for reading and writing, created empty if missing. Fails as disk_failed().
 * spool_remove() and spool_checkpoint_remove() remove it. */
int spool_checkpoint_open(struct spool *spool, const char *id, int *fd);
void spool_checkpoint_remove(struct spool *spool, const char *id);

/* A live file: for images of a job that are sent before its results exist. It has no name, and is freed with its last
 * descriptor. Fails with ERR_IO, ERR_SPOOL_FULL. */
int spool_live_create(struct spool *spool, const char *id, int *file);

/* Create ID.tmp/ with an empty file for each of `names`, for a worker to write: files[i], the caller's to close. Fails
 * with ERR_INTERNAL (not a name, too many, or one twice), ERR_IO, ERR_SPOOL_FULL; then no descriptor is open. */
int spool_results_begin(struct spool *spool, const char *id, const json_t *names, int files[KIND_MAX_FILES]);
/* Whether no process has a file in ID.tmp/ open for writing, found by file leases; true if the file system has none.
 * Waits some milliseconds before it returns false. */
bool spool_results_released(struct spool *spool, const char *id);
/* Rename ID.tmp/ to ID/: complete, and not yet synced. *results: [{name, type, bytes}] of the files; a new reference.
 * Fails with ERR_INTERNAL (the native file of one of the kind's results `wanted`, a bit for each, is missing or empty),
 * ERR_IO, ERR_SPOOL_FULL. */
int spool_results_publish(struct spool *spool, const char *id, const struct kind *kind, unsigned wanted,
                          json_t **results);
/* fsync the files of ID/, their folder and its name. Waits for the disk. Fails with ERR_IO, ERR_SPOOL_FULL. */
int spool_results_sync(struct spool *spool, const char *id);
/* Remove ID.tmp/, if present. */
void spool_results_unmake(struct spool *spool, const char *id);
/* Remove ID.tmp/ and ID/, if present. */
void spool_results_remove(struct spool *spool, const char *id);
/* Open a result file. *bytes: its size; *stamp: its modification time, ns. Fails with ERR_NOT_FOUND, ERR_IO. */
int spool_result_open(struct spool *spool, const char *id, const char *name, int *fd, int64_t *bytes, int64_t *stamp);
/* Whether `name` may name a result file: letters, digits, dots, dashes, underscores; no leading dot. */
bool spool_is_name(const char *name);

/* Whether the disk accepts writes. Each failed write makes it suspect (spool_failed() is disk_failed() that notes this,
 * for other files of the state folder); spool_prove() then writes a test file, and waits for the disk. spool_check()
 * fails as the test did, or with ERR_SPOOL_FULL if the disk has less than its reserve or too few inodes; it does not
 * wait. */
void spool_suspect(struct spool *spool);
int spool_failed(struct spool *spool, const char *doing);
bool spool_is_suspect(const struct spool *spool);
void spool_prove(struct spool *spool);
int spool_check(struct spool *spool);
/* Whether the disk keeps its reserve of bytes after `more` further ones, and its inodes. Fails with ERR_SPOOL_FULL,
 * ERR_IO. */
int spool_room_check(struct spool *spool, int64_t more);

/* Bytes that uploads may use, waiting and to come: the spool's limit, or what the disk has for them. Fails with
 * ERR_IO. */
int spool_room(struct spool *spool, int64_t *bytes);

/* Whether a job may start: the disk accepts writes, has `reserve` bytes free, and inodes for results. Does not wait.
 * Fails with ERR_SPOOL_FULL, or as the last test write did. */
int spool_work_check(struct spool *spool, int64_t reserve);

/* Bytes that results may use in addition to `reserve`: of the free space, and of the whole disk. */
int spool_results_room(struct spool *spool, int64_t reserve, int64_t *free, int64_t *ever);

/* The most bytes that an upload rejected for lack of space was short of, since the last call. */
int64_t spool_lacked(struct spool *spool);

/* Size and free space of the disk, bytes. Fails with ERR_IO. */
int spool_disk(const struct spool *spool, int64_t *bytes, int64_t *free);

/* Free bytes for uploads beyond the reserve (negative: below it). */
int spool_free_bytes(struct spool *spool, int64_t *bytes);

#endif
