/* uploads_parts.h: what the files of uploads share. Only daemon/spool/uploads*.c include this. */
#ifndef MRIRECON_DAEMON_UPLOADS_PARTS_H
#define MRIRECON_DAEMON_UPLOADS_PARTS_H

#include "daemon/spool/uploads.h"

enum {
    WRITERS = 1024,
    UPLOAD_NAME = JOB_ID + 8,
    EMPTY_SECONDS = 600 /* of life that an upload has of which nothing has arrived, where its lifetime is longer */
};

/* An upload that one request writes to. */
struct upload_writing {
    char id[JOB_ID]; /* "": none */
    bool lost;       /* for good: nobody knows any more which of its bytes the disk holds, and it cannot be removed */
};

/* An upload that has begun and has not ended. */
struct open_upload {
    char id[JOB_ID], client[JOB_CLIENT];
    int64_t length, reserved; /* reserved: bytes that the spool counts, those that arrived and those that may */
    double touched;           /* clock_seconds() when it was begun, or written to */
    bool lapsed;              /* since then what has not arrived is no longer reserved */
};

struct uploads {
    struct spool *spool;
    struct store *store; /* these two from uploads_recover() on */
    const int64_t *queue_limit;
    const struct log *log;
    int folder;
    int64_t lifetime;
    int64_t clock_offset; /* clock_offset() with which the times of the files go */
    pthread_t reaper;
    bool reaps, stopping;
    pthread_mutex_t lock; /* of `writing`, `stopping`, and the times of files with `clock_offset` */
    pthread_cond_t stop;
    struct upload_writing writing[WRITERS];
    pthread_mutex_t open_lock; /* of the rest; held for memory alone */
    struct open_upload *open;  /* in no order */
    size_t opens, open_room;
};

/* ---- uploads_files.c: of the folder STATE/uploads ---- */

/* The name of the upload's file with this ending ("", ".json", ".chunk"); `name`. */
const char *upload_file(char name[UPLOAD_NAME], const char *id, const char *ending);
void upload_files_remove(int folder, const char *id);
/* The note of an upload, ID.json, a new reference; NULL: there is none that can be read. */
json_t *upload_note_read(int folder, const char *id);
/* The note of an upload that becomes this job, of job->bytes; a new reference. */
json_t *upload_note_pack(const struct job *job, const char *metadata);
/* The job that an upload becomes. Fails with ERR_IO where the note does not say enough. */
int upload_job(const struct upload *upload, struct job *job);
/* How many of an upload's `size` bytes have arrived: without those of a chunk whose checksum nobody has seen yet. -1:
 * its note (ID.chunk) says nothing that can be. */
int64_t upload_arrived(int folder, const char *id, int64_t size);
/* What is wrong with an upload. */
enum upload_fault {
    UPLOAD_SOUND,
    UPLOAD_LEFTOVER,  /* a crash came while it was begun or removed: a start removes what is there */
    UPLOAD_NO_BYTES,  /* only its note is there */
    UPLOAD_BAD_NOTE,  /* there are bytes, and the note does not say what they are */
    UPLOAD_TOO_LONG,  /* there are more bytes than were announced */
    UPLOAD_BAD_CHUNK, /* the note of a chunk is none, or names bytes that are not there */
    UPLOAD_FAULTS
};
/* *arrived, as upload_arrived(), is set for UPLOAD_SOUND. */
enum upload_fault upload_examine(int folder, const char *id, int64_t *arrived);
/* Call `each` with the id of every upload, also of those that lack a file. Fails with ERR_IO. */
int uploads_each(int folder, void (*each)(void *context, const char *id), void *context);

/* ---- uploads_open.c ---- */

/* Count an upload that is about to begin; what its client has begun counts with what it has waiting. Nothing is
 * reserved yet. Fails with ERR_QUOTA, ERR_QUEUE_FULL, ERR_NO_MEMORY. */
int open_begin(struct uploads *uploads, const char *id, const struct job *job);
/* Count one that a start found, all of it reserved. Fails with ERR_NO_MEMORY. */
int open_recover(struct uploads *uploads, const char *id, const char *client, int64_t length);
/* It has ended. is_scan: its bytes stay counted, as those of a scan. */
void open_end(struct uploads *uploads, const char *id, bool is_scan);
/* Bytes of it have arrived, or are about to. */
void open_touch(struct uploads *uploads, const char *id);
/* Reserve what has not arrived, where it is not; `fd`: its file. Fails as spool_reserve(). */
int open_reserve(struct uploads *uploads, const char *id, int fd);
/* Count `bytes` of it as reserved; by how many more that is than before. */
int64_t open_reserved_set(struct uploads *uploads, const char *id, int64_t bytes);
/* Whether there is one of which nothing was touched since `before` (clock_seconds()); `id` is its. Each is found once,
 * until it is touched again. */
bool open_idle_find(struct uploads *uploads, char id[JOB_ID], double before);

/* ---- uploads.c ---- */

/* Take an upload for oneself: nobody else writes to it. Fails with ERR_UPLOAD_LOCKED, ERR_NOT_FOUND (it is lost). */
int upload_lock(struct uploads *uploads, const char *id);
void upload_unlock(struct uploads *uploads, const char *id);
/* Set how many ms the upload, of which `bytes` are there, has left. */
void upload_time_left_set(struct uploads *uploads, const char *id, int64_t bytes, int64_t left);

/* Take back what arrived of a chunk whose checksum nobody saw, or whose end failed: the file ends where the note says.
 * By who has the lock, or at the start. Fails with ERR_IO, ERR_SPOOL_FULL. */
int chunk_take_back(struct uploads *uploads, const char *id);
/* Set the times of all uploads as far as the machine's clock was set since the last call, or since the start: what each
 * has left stays what it was. */
void uploads_clock_follow(struct uploads *uploads);

#endif
