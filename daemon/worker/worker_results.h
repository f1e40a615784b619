/* worker_results.h: the files of a job's results, received as descriptors with its message (daemon/wire.h). */
#ifndef MRIRECON_WORKER_RESULTS_H
#define MRIRECON_WORKER_RESULTS_H

#include "recon/kind_run.h"

#include <jansson.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Files to write; the first is the native one of the job's default result. */
struct result_files {
    const struct kind *kind;
    struct result_file file[KIND_MAX_FILES];
    int fds[KIND_MAX_FILES]; /* the caller's */
    int count;
    struct job_begun begun[KIND_MAX_FILES]; /* by the job, through its room */
    const atomic_bool *cancel;              /* writing them ends once it is true; NULL: it does not */
    uint64_t most;                          /* bytes of all, at most; 0: not known */
    atomic_ullong *synced; /* bytes of them that need not be handed to the disk any more; NULL: nobody asks */
};

/* How much of the writing of these `struct result_files` is done, from 0 to 1; their `synced` is set. Any thread, while
 * the files are open. */
double result_files_part(const void *files);

/* The bytes of files, written before there are any files: in memory. */
struct made_files {
    struct result_file file[KIND_MAX_FILES];
    int file_of[KIND_MAX_FILES];  /* memfds, or the job's own files; owned. -1: released */
    dev_t device[KIND_MAX_FILES]; /* ... which file that was */
    ino_t inode[KIND_MAX_FILES];
    off_t bytes[KIND_MAX_FILES]; /* ... and its size: a new file may get the inode of one that was removed */
    int count;
    bool written; /* the bytes are there */
    struct job_begun begun[KIND_MAX_FILES];
};

/* A job's live file, to which images are appended as they are completed (daemon/queue/live.h). One thread. */
struct live_file {
    int fd; /* the caller's; -1: no live file */
    int socket;
    const char *id;
    int64_t bytes; /* reported so far, also by an earlier attempt */
    bool own;      /* the image that they end in was begun by this computation */
};

/* For struct job_show: append images, and report them to the daemon. Images that cannot be written are only in the
 * result, and so is the rest of an image that an earlier attempt began with other bytes. */
void live_file_show(void *file, const struct job_parts *parts, size_t count, size_t more);

/* Read the message's names of `count` files: ["image.h5", ...]. Fails with ERR_BAD_REQUEST. */
int result_files_read(struct result_files *out, const struct kind *kind, const json_t *names, const int *fds,
                      int count);

/* The room for these files, which must outlive it and stay where they are, from a job's message; NULL: any room. */
struct job_room result_room_read(struct result_files *files, const json_t *room);

/* Write the job's results, and add the time to its report. The daemon syncs them. Fails as job_result.write(),
 * disk_failed(), and with ERR_CANCELED, ERR_INTERNAL (the job lacks a result, or wrote more than announced). */
int result_files_write(const struct result_files *files, const struct job_outcome *outcome);

/* Files of these names before their job has any: `own`, if there are as many, which are taken; else memory. `files`
 * writes to them. Fails with ERR_BAD_REQUEST, ERR_NO_MEMORY; then there is none. */
int made_files_create(struct made_files *made, struct result_files *files, const struct kind *kind, const json_t *names,
                      const int *own, int count);
/* Close them; they are still known. */
void made_files_release(struct made_files *made);
/* Zero is allowed. */
void made_files_free(struct made_files *made);
/* Whether `made` is of the same files, in the same order. */
bool made_files_match(const struct made_files *made, const struct result_files *files);
/* The job has begun, and writes to `files`, which match: those of `made` that are the same files and were begun are so
 * for it, too. */
void made_files_hand(const struct made_files *made, struct result_files *files);
/* result_files_write() from there, once they are written; nothing is copied to a file that is the same. Fails likewise.
 */
int made_files_copy(const struct made_files *made, const struct result_files *files, const struct job_outcome *outcome);

#endif
