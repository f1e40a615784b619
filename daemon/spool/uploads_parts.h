/* uploads_parts.h: shared by daemon/spool/uploads*.c, and included only there. */
#ifndef MRIRECON_DAEMON_UPLOADS_PARTS_H
#define MRIRECON_DAEMON_UPLOADS_PARTS_H

#include "daemon/spool/uploads.h"

enum {
    WRITERS = 1024,
    UPLOAD_NAME = JOB_ID + 8,
    EMPTY_SECONDS = 600 /* longest lifetime of an upload without a byte */
};

/* What an upload is locked for. */
enum upload_use {
    UPLOAD_WRITE,  /* by a request that writes to it or removes it: others are refused */
    UPLOAD_FINISH, /* by who turns it into a job: others who want to do that wait; who writes is refused */
    UPLOAD_UPKEEP  /* by the upkeep, for a few calls to the file system: others wait */
};

/* An upload that is locked. */
struct upload_writing {
    char id[JOB_ID]; /* "": none */
    enum upload_use use;
    bool checked;  /* a chunk with a checksum arrives: .. */
    int64_t begin; /* .. what has arrived without it */
    bool lost;     /* for good: it is unknown which of its bytes are on the disk, and it cannot be removed */
};

/* An unfinished upload. */
struct open_upload {
    char id[JOB_ID], client[JOB_CLIENT];
    int64_t length, reserved; /* reserved: bytes counted in the spool, arrived and to come */
    int64_t arrived;          /* when its last chunk began or ended */
    double touched;           /* clock_seconds() of its start or last chunk */
    bool lapsed;              /* the reservation of bytes to come has lapsed */
};

struct uploads {
    struct spool *spool;
    struct store *store; /* these two are set by uploads_recover() */
    const _Atomic int64_t *queue_limit;
    struct uploads_listener listener;
    const struct log *log;
    int folder;
    int64_t lifetime;
    int64_t clock_offset; /* clock_offset() that the times of the files follow */
    pthread_t reaper;
    bool reaps, stopping;
    pthread_mutex_t lock;      /* of `writing`, `stopping`, the files' times and `clock_offset` */
    pthread_cond_t stop, kept; /* kept: an upload was unlocked */
    struct upload_writing writing[WRITERS];
    pthread_mutex_t open_lock; /* of the rest; never held across disk access */
    struct open_upload *open;  /* unordered */
    size_t opens, open_room;
};

/* ---- uploads_files.c: of the folder STATE/uploads ---- */

/* The name of the upload's file with this ending ("", ".json", ".chunk"), printed into and returned as `name`. */
const char *upload_file(char name[UPLOAD_NAME], const char *id, const char *ending);
/* Remove the upload's files. 1: done; 0: it had no note, or none any more; -1: it stays, see errno. */
int upload_files_remove(int folder, const char *id);
/* The note of an upload, ID.json, a new reference; NULL: missing or malformed (errno ENOENT), or unreadable. */
json_t *upload_note_read(int folder, const char *id);
/* The note of an upload for this job, of job->bytes; a new reference. */
json_t *upload_note_pack(const struct job *job, const char *metadata);
/* The future job of an upload. Fails with ERR_IO if the note is incomplete. */
int upload_job(const struct upload *upload, struct job *job);
/* ID.chunk is printed so that a part of it is known as one; earlier versions wrote the number alone, which is read. */
#define CHUNK_NOTE "@%lld\n"
/* The offset in ID.chunk, or: */
enum {
    CHUNK_MALFORMED = -1,
    CHUNK_UNREAD = -3, /* it cannot be read: see errno */
    CHUNK_NONE = -2    /* no such file, or a part of it, or zeros: its writing was interrupted before a chunk began */
};
int64_t upload_chunk_read(int folder, const char *id);
/* How many of an upload's `size` bytes have arrived, without an unverified chunk that began at `chunk`.
 * CHUNK_MALFORMED: that is impossible; CHUNK_UNREAD: unknown. */
int64_t upload_arrived(int64_t chunk, int64_t size);
/* Faults of an upload. */
enum upload_fault {
    UPLOAD_SOUND,
    UPLOAD_UNREAD,    /* the disk does not show it: see errno */
    UPLOAD_LEFTOVER,  /* its start or removal was interrupted: the next start of the daemon removes it */
    UPLOAD_NO_BYTES,  /* a note without bytes */
    UPLOAD_BAD_NOTE,  /* bytes without a usable note */
    UPLOAD_TOO_LONG,  /* more bytes than announced */
    UPLOAD_BAD_CHUNK, /* ID.chunk is malformed or exceeds the file */
    UPLOAD_FAULTS
};
/* *arrived is set for UPLOAD_SOUND. */
enum upload_fault upload_examine(int folder, const char *id, int64_t *arrived);
/* Call `each` once with the id of every upload, complete or missing a file. Fails as disk_failed(), and has called
 * nothing then. */
int uploads_each(int folder, void (*each)(void *context, const char *id), void *context);

/* ---- uploads_open.c ---- */

/* Count an upload about to begin, with its client's waiting jobs; nothing is reserved yet. Fails with ERR_QUOTA,
 * ERR_QUEUE_FULL, ERR_NO_MEMORY. */
int open_begin(struct uploads *uploads, const char *id, const struct job *job);
/* Count an upload that is not counted yet, all of it reserved: it is found at a start, or later if the disk did not
 * show it then. Fails with ERR_NO_MEMORY. */
int open_found(struct uploads *uploads, const struct upload *found);
/* The upload has ended. is_scan: its bytes stay counted, as a scan's. */
void open_end(struct uploads *uploads, const char *id, bool is_scan);
/* Bytes have arrived or are about to: `arrived` so far. */
void open_touch(struct uploads *uploads, const char *id, int64_t arrived);
/* Reserve the bytes to come if they are not; `fd`: its file. Of all uploads of a client, bytes to come may reserve half
 * of the spool's room: fails with ERR_QUOTA, with ERR_SPOOL_FULL if this upload alone exceeds that, or as
 * spool_reserve(). */
int open_reserve(struct uploads *uploads, const char *id, int fd);
/* Set the upload's reserved bytes to `bytes`; returns the difference to before. */
int64_t open_reserved_set(struct uploads *uploads, const char *id, int64_t bytes);
/* Find an upload untouched since `before` (clock_seconds()); `id`: its id. Each is returned once until it is touched
 * again. */
bool open_idle_find(struct uploads *uploads, char id[JOB_ID], double before);

/* ---- uploads_locks.c ---- */

/* Lock an upload against other threads. Fails with ERR_UPLOAD_LOCKED, ERR_NOT_FOUND (it is lost). */
int upload_lock(struct uploads *uploads, const char *id, enum upload_use use);
void upload_unlock(struct uploads *uploads, const char *id);
/* A chunk with a checksum begins: until the unlock, only the `begin` bytes before it have arrived. By the lock's
 * holder. */
void upload_check_begin(struct uploads *uploads, const char *id, int64_t begin);
/* Whether such a chunk arrives; *begin is set. By the holder of uploads->lock. */
bool upload_is_checked(struct uploads *uploads, const char *id, int64_t *begin);
/* Let no other request write to an upload of which it is unknown which bytes are on the disk. By the lock's holder. */
void upload_lock_for_good(struct uploads *uploads, const char *id);
bool upload_is_lost(struct uploads *uploads, const char *id);
/* Fail with `code`: the upload is locked for good. */
int upload_lost(int code);

/* ---- uploads.c ---- */

/* Set the ms left until the upload, with `bytes` arrived bytes, is removed. */
void upload_time_left_set(struct uploads *uploads, const char *id, int64_t bytes, int64_t left);

/* Truncate the file to the offset in ID.chunk, removing a chunk that was not verified or not ended. By the lock's
 * holder, or at a start. Fails with ERR_IO, ERR_SPOOL_FULL. */
int chunk_take_back(struct uploads *uploads, const char *id);
/* Move the times of all uploads by as much as the wall clock was set since the last call or the start, so that the time
 * left of each stays what it was. */
void uploads_clock_follow(struct uploads *uploads);

#endif
