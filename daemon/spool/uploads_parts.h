/* uploads_parts.h: what the files of uploads share. Only daemon/spool/uploads*.c include this. */
#ifndef MRIRECON_DAEMON_UPLOADS_PARTS_H
#define MRIRECON_DAEMON_UPLOADS_PARTS_H

#include "daemon/spool/uploads.h"

enum { WRITERS = 1024, UPLOAD_NAME = JOB_ID + 8 };

/* An upload that one request writes to. */
struct writing {
    char id[JOB_ID]; /* "": none */
    bool lost;       /* for good: nobody knows any more which of its bytes the disk holds, and it cannot be removed */
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
    pthread_mutex_t lock;     /* of `writing`, `stopping`, and the times of files with `clock_offset` */
    pthread_mutex_t counting; /* held from the look at what a client with a quota has begun until one more is */
    pthread_cond_t stop;
    struct writing writing[WRITERS];
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

/* ---- uploads.c ---- */

/* Take back what arrived of a chunk whose checksum nobody saw, or whose end failed: the file ends where the note says.
 * By who has the lock, or at the start. Fails with ERR_IO, ERR_SPOOL_FULL. */
int chunk_take_back(struct uploads *uploads, const char *id);
/* Set the times of all uploads as far as the machine's clock was set since the last call, or since the start: what each
 * has left stays what it was. */
void uploads_clock_follow(struct uploads *uploads);

#endif
