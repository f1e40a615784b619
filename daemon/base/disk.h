/* disk.h: folders and files of the state folder, and failures of its disk.
 *
 * Any thread.
 */
#ifndef MRIRECON_DAEMON_DISK_H
#define MRIRECON_DAEMON_DISK_H

#include "gridding/base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* The failure of a system call from errno, during `doing` ("syncing the upload"): ERR_SPOOL_FULL if the disk is full,
 * ERR_NO_DESCRIPTORS, ERR_NO_MEMORY, else ERR_IO. */
int disk_failed(const char *doing);
/* Whether `code` is one of those. */
bool disk_is_cause(int code);

/* Write all `bytes`; *written: how many were. -1: failed, see errno. */
int disk_write(int fd, const void *data, size_t bytes, size_t *written);

/* Open the folder `name` of `parent` (AT_FDCWD: a path), created if missing; one that root creates belongs to
 * the owner of `parent`. Fails with ERR_IO, ERR_SPOOL_FULL. */
int disk_folder_open(int parent, const char *name, int *out);

/* Whether a file is there. One that the disk does not show may be there: it is not missing. */
enum disk_sight { DISK_MISSING, DISK_THERE, DISK_UNSEEN };
/* *out: what the file is, if it is there; links are not followed. DISK_UNSEEN: see errno. */
enum disk_sight disk_look(int folder, const char *name, struct stat *out);

/* The names in a folder, without "." and "..", all read before the first is used. */
struct disk_names {
    char *text; /* each with its NUL */
    size_t bytes, room;
};
/* Fails as disk_failed() of `doing`; *out has no names then. */
__attribute__((warn_unused_result)) int disk_names_read(int folder, const char *doing, struct disk_names *out);
/* The name after `name`, which this returned (NULL: the first); NULL: there is no other. */
const char *disk_names_next(const struct disk_names *names, const char *name);
void disk_names_free(struct disk_names *names);

/* A thread that frees the blocks of large removed files, which takes the kernel a third of a second per gigabyte. */
struct disk_freer {
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t news;
    pthread_t thread; /* started for the first large file */
    bool started, stopping;
    int fd[16], count; /* to be closed */
};
void disk_freer_init(struct disk_freer *freer);
/* Returns when all are closed. */
void disk_freer_end(struct disk_freer *freer);

/* Remove the file `name` of `folder`; -1: failed, see errno. The freer closes a large file; if its list is full, the
 * caller does, and waits. */
int disk_remove(struct disk_freer *freer, int folder, const char *name);
/* Remove the folder `name` and the files in it; if it contains folders, it stays. Returns whether it was removed. */
bool disk_folder_remove(struct disk_freer *freer, int parent, const char *name);

/* fsync of one folder, shared by concurrent callers. */
struct folder_sync {
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t finished_one;
    bool busy;
    int64_t started, finished,
        failed; /* sequence numbers of syncs; failed: the last failed one, its errno in `error` */
    int error;
};

/* Return when an fsync of `folder` that began after this call has completed. Fails with ERR_SPOOL_FULL, ERR_IO. */
int disk_folder_sync(struct folder_sync *sync, int folder);

#endif
