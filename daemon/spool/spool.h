/* spool.h: the folders of uploaded scans and of results.
 *
 *   STATE/spool/ID.part       an upload that arrives; a start removes it
 *   STATE/spool/ID            one that has arrived; its row is committed after it
 *   STATE/uploads/             resumable uploads, until they are complete: uploads.h
 *   STATE/results/ID.tmp/     what a worker is writing
 *   STATE/results/.ID.FORMAT  an image that is being written in another format
 *   STATE/results/ID/         a finished job's files; never changed, but files of other formats may be added
 *   STATE/clean-stop          while no daemon runs: the last one closed the job store, and this is what that was then
 *   STATE/found-TIME/         what no job knows of and one may have: ID.scan, ID.results/ (LEFTOVERS); TIME: ms since
 * 1970
 *
 * LEFTOVERS. What has no row in the store was on its way when a crash came, or has lost its row: of a scan that was
 * accepted nothing else would be left. So a start removes a leftover only where it was never complete, or where the
 * last daemon stopped cleanly and the job store is as it left it; else it is kept aside, for SPOOL_FOUND_DAYS.
 *
 * A struct spool may be used by any thread: all but the count of bytes, the syncs and the freer is read-only after
 * spool_create. A struct spool_file belongs to one thread at a time.
 */
#ifndef MRIRECON_DAEMON_SPOOL_H
#define MRIRECON_DAEMON_SPOOL_H

#include "daemon/base/disk.h"
#include "daemon/store/store.h"
#include "recon/image/image.h"

#include <stdatomic.h>

enum {
    SPOOL_NAME = 128,     /* longest name of a result file, with its NUL */
    SPOOL_FOUND_DAYS = 30 /* that leftovers are kept aside */
};

struct spool {
    int state, scans, results; /* folders */
    struct folder_sync scans_sync;
    struct disk_freer freer;
    int64_t body_limit, limit, reserve;
    _Atomic int64_t used;         /* bytes of uploads, arrived and announced */
    _Atomic int64_t lacked;       /* bytes; see spool_lacked() */
    _Atomic int found;            /* files and folders in found-TIME/ when they were last counted */
    _Atomic bool suspect;         /* something could not be written since the last proof */
    pthread_mutex_t trouble_lock; /* of `trouble` */
    struct err trouble;           /* of the last proof; code 0: it went well */
};

/* An upload in progress. */
struct spool_file {
    struct spool *spool;
    char id[JOB_ID];
    int fd;
    int64_t bytes;    /* arrived */
    int64_t reserved; /* counted in spool->used; at least bytes */
    int64_t pushed;   /* bytes that the kernel was told to begin to write */
    bool part;        /* it has not arrived: its name is ID.part */
};

/* Open, or make, the folders in `state_dir`. Fails with ERR_IO (also: another daemon uses it). */
int spool_create(struct spool **out, const char *state_dir, int64_t body_limit, int64_t limit, int64_t reserve);
void spool_free(struct spool *spool);

/* What a start found. */
struct spool_cleaned {
    int removed, lost; /* files that no job owns; jobs whose scan is gone, which have failed */
    int scans_found, results_found;
    int64_t time; /* of found-TIME/, where these are */
};
/* Remove, or keep aside (LEFTOVERS), what no job of the store owns, and fail queued jobs whose scan is gone. Before any
 * other use. `clean`: as spool_stop_take() said. */
int spool_clean(struct spool *spool, struct store *store, bool clean, struct spool_cleaned *out);

/* Whether the last daemon stopped cleanly and the job store is as it left it; _take: from now on it is not, until
 * _note, when the store has been closed. Fails with ERR_IO, ERR_SPOOL_FULL. */
bool spool_stop_was_clean(const struct spool *spool);
int spool_stop_take(struct spool *spool, bool *clean);
void spool_stop_note(struct spool *spool);

/* Move `name` of `folder` to found-TIME/`kept` of the state folder; false: errno says why not. */
bool spool_found_keep(const struct spool *spool, int64_t time, int folder, const char *name, const char *kept);
int spool_found_count(struct spool *spool);
/* Remove those that were kept for SPOOL_FOUND_DAYS; how many files and folders it were. */
int spool_found_expire(struct spool *spool);
/* What root makes in the state folder is its owner's, too: the service is to read it. */
bool spool_owner_give(const struct spool *spool, const char *name);

/* A new id: 26 characters of time and 80 random bits, in lower-case base 32. */
int spool_new_id(char id[JOB_ID]);
bool spool_is_id(const char *text);

/* Begin an upload of `expected` bytes (-1: not known). Fails with ERR_TOO_LARGE, ERR_SPOOL_FULL, ERR_IO. */
int spool_begin(struct spool *spool, int64_t expected, struct spool_file *out);
/* Append bytes. Fails likewise. */
int spool_append(struct spool_file *file, const void *data, size_t bytes);
/* Open for reading alone what has arrived so far. Fails as disk_failed(). */
int spool_reopen(const struct spool_file *file, int *fd);
/* File and folder entry are on the disk; the file is closed and stays until spool_remove. Takes as long as the disk
 * does; those who call it at a time share the sync of the folder. Fails with ERR_SPOOL_FULL, ERR_IO. */
int spool_finish(struct spool_file *file);
/* Give up an upload: nothing stays. Also after a failed spool_finish. */
void spool_abort(struct spool_file *file);

/* For uploads that arrive elsewhere (uploads.h): count bytes that will come (fails with ERR_TOO_LARGE, ERR_SPOOL_FULL,
 * ERR_IO), count those that are there, and no longer count them. */
int spool_reserve(struct spool *spool, int64_t bytes);
void spool_count(struct spool *spool, int64_t bytes);
void spool_release(struct spool *spool, int64_t bytes);
/* Give the file `id` of `folder` that name in the spool, too, on the disk; and take it back. Fails with ERR_IO. */
int spool_adopt(struct spool *spool, int folder, const char *id);
void spool_disown(struct spool *spool, const char *id);
/* The scan of a job once more, for a new job whose id is made: `fresh`, *bytes of it. Fails with ERR_SCAN_GONE,
 * ERR_SPOOL_FULL, ERR_IO. */
int spool_link(struct spool *spool, const char *id, char fresh[JOB_ID], int64_t *bytes);

/* Remove the scan of a job; that it is gone already is no failure. */
void spool_remove(struct spool *spool, const char *id);
/* Open the scan of a job for reading. Fails with ERR_SCAN_GONE (it is not there), and as disk_failed(). */
int spool_open(struct spool *spool, const char *id, int *fd);

/* A fresh ID.tmp/ with an empty file image.FORMAT for each of `formats` (names), for a worker to write: files[i], the
 * caller's to close. Fails with ERR_INTERNAL (no such format, or one twice), ERR_IO, ERR_SPOOL_FULL; then there are no
 * descriptors. */
int spool_results_begin(struct spool *spool, const char *id, const json_t *formats, int files[IMAGE_FORMATS]);
/* Whether nobody has a file in ID.tmp/ open for writing any more. Where the file system has no leases, which tell, it
 * is taken to be so. Waits for some milliseconds before it says no. */
bool spool_results_released(struct spool *spool, const char *id);
/* Sync ID.tmp/ and everything in it, and rename it to ID/. *results: [{name, type, bytes}] of the files that are there;
 * a new reference. Fails with ERR_INTERNAL (there is no image.h5, or an empty file), ERR_IO, ERR_SPOOL_FULL. */
int spool_results_finish(struct spool *spool, const char *id, json_t **results);
/* Remove ID.tmp/ and ID/, whichever is there. */
void spool_results_remove(struct spool *spool, const char *id);
/* Open a result file. *bytes, *stamp (modification time, ns) of it. Fails with ERR_NOT_FOUND, ERR_IO. */
int spool_result_open(struct spool *spool, const char *id, const char *name, int *fd, int64_t *bytes, int64_t *stamp);
/* Whether `name` may name a result file: letters, digits, dots, dashes, underscores; no leading dot. */
bool spool_is_name(const char *name);
/* The media type of a result file, by its ending. */
const char *spool_media(const char *name);

/* Whether the disk takes what is written. Whatever fails to be written makes it suspect (spool_failed() as
 * disk_failed(), for those who write elsewhere in the state folder); spool_prove() then writes a file to see, and takes
 * as long as the disk does. spool_check() fails as that did, or with ERR_SPOOL_FULL where the disk has less than its
 * reserve, or hardly an inode; it does not wait. */
void spool_suspect(struct spool *spool);
int spool_failed(struct spool *spool, const char *doing);
bool spool_is_suspect(const struct spool *spool);
void spool_prove(struct spool *spool);
int spool_check(struct spool *spool);

/* Whether a job may be begun: the disk takes what is written, has `reserve` bytes free, and inodes for results. Does
 * not wait. Fails with ERR_SPOOL_FULL, or as the last proof did. */
int spool_work_check(struct spool *spool, int64_t reserve);

/* Bytes of the disk that results may take beside `reserve`: those that are free, and of an empty one. */
int spool_results_room(struct spool *spool, int64_t reserve, int64_t *free, int64_t *ever);

/* Bytes that the upload which lacked most was short of, of those refused for want of room since this was asked last. */
int64_t spool_lacked(struct spool *spool);

/* Bytes of the disk, and free of them. Fails with ERR_IO. */
int spool_disk(const struct spool *spool, int64_t *bytes, int64_t *free);

/* Bytes free on the disk for uploads beyond the reserve (less than 0: below it). */
int spool_free_bytes(struct spool *spool, int64_t *bytes);

#endif
