/* disk.h: folders of the state, and the sentence for a disk that fails.
 *
 * Any thread.
 */
#ifndef MRIRECON_DAEMON_DISK_H
#define MRIRECON_DAEMON_DISK_H

#include "gridding/base/err.h"

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>

/* What a system call has left in errno, while `doing` ("syncing the upload"): ERR_SPOOL_FULL where the disk is full,
 * ERR_NO_DESCRIPTORS, ERR_NO_MEMORY, else ERR_IO. */
int disk_failed(const char *doing);
/* Whether a failure with this code is one of those. */
bool disk_is_cause(int code);

/* Write all `bytes`; *written is how many it were. -1: failed, errno says why. */
int disk_write(int fd, const void *data, size_t bytes, size_t *written);

/* Open the folder `name` of `parent` (AT_FDCWD: a path), made where it is not there. Fails with ERR_IO,
 * ERR_SPOOL_FULL. */
int disk_folder_open(int parent, const char *name, int *out);
/* Another reading of a folder that is open; NULL: failed, errno says why. */
DIR *disk_folder_read(int folder);
/* A thread that gives back the blocks of large files which have no name any more: that takes the kernel a third of a
 * second for each gigabyte. */
struct disk_freer {
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t news;
    pthread_t thread; /* from the first large file on */
    bool started, stopping;
    int fd[16], count; /* to be closed */
};
void disk_freer_init(struct disk_freer *freer);
/* Returns when all are closed. */
void disk_freer_end(struct disk_freer *freer);

/* Remove the file `name` of `folder`; -1: failed, errno says why. Where it is large, the freer does what takes time,
 * or, if that has much to do, the caller waits. */
int disk_remove(struct disk_freer *freer, int folder, const char *name);
/* Remove the folder `name` and the files in it; folders in it stay, and it with them. */
void disk_folder_remove(struct disk_freer *freer, int parent, const char *name);

/* Syncs of one folder, shared by those who ask at a time. */
struct folder_sync {
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t finished_one;
    bool busy;
    int64_t started, finished, failed; /* numbers of syncs; failed: the last that did, errno in `error` */
    int error;
};

/* Return once a sync of `folder` that began after this call has ended. Fails with ERR_SPOOL_FULL, ERR_IO. */
int disk_folder_sync(struct folder_sync *sync, int folder);

#endif
