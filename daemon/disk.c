#include "daemon/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int disk_failed(const char *doing)
{
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return err_set(ERR_SPOOL_FULL, "The disk is full while %s. Try again later, or free some space.", doing);
    return err_set(
        ERR_IO,
        "The disk failed while %s: %s. Try again; if it fails again, whoever runs this server has to look at "
        "its disk.",
        doing, strerror(errno));
}

int disk_write(int fd, const void *data, size_t bytes, size_t *written)
{
    const char *at = data;
    *written = 0;
    while (*written < bytes) {
        ssize_t n = write(fd, at + *written, bytes - *written);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0)
            *written += (size_t)n;
    }
    return 0;
}

int disk_folder_open(int parent, const char *name, int *out)
{
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST) {
        if (errno == ENOSPC || errno == EDQUOT || errno == EIO)
            return disk_failed("making a folder");
        return err_set(
            ERR_IO,
            "The folder %s%s cannot be made: %s. Make it for the user that mrirecond runs as, or name another "
            "--state-dir.",
            name, parent == AT_FDCWD ? "" : " in the state folder", strerror(errno));
    }
    *out = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out < 0)
        return err_set(ERR_IO, "The folder %s%s cannot be opened: %s. %same another --state-dir.", name,
                       parent == AT_FDCWD ? "" : " in the state folder", strerror(errno),
                       errno == EACCES ? "Run mrirecond as the user whose it is, or n" : "N");
    return 0;
}

DIR *disk_folder_read(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !stream)
        close(fd);
    return stream;
}

/* Closing a file that has no name any more gives its blocks back. */
static void *blocks_free(void *fd)
{
    close((int)(intptr_t)fd);
    return NULL;
}

int disk_remove(int folder, const char *name)
{
    enum { LARGE_BYTES = 64 << 20 };
    struct stat there;
    pthread_t thread;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int result = unlinkat(folder, name, 0), error = errno;
    if (fd >= 0 && fstat(fd, &there) == 0 && there.st_size > LARGE_BYTES &&
        pthread_create(&thread, NULL, blocks_free, (void *)(intptr_t)fd) == 0)
        pthread_detach(thread);
    else if (fd >= 0)
        close(fd);
    errno = error;
    return result;
}

void disk_folder_remove(int parent, const char *name)
{
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    DIR *stream = disk_folder_read(folder);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        disk_remove(folder, entry->d_name);
    if (stream)
        closedir(stream);
    close(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

int disk_folder_sync(struct folder_sync *sync, int folder)
{
    pthread_mutex_lock(&sync->lock);
    int64_t mine = sync->started + 1; /* one in progress may have begun too early */
    while (sync->finished < mine) {
        if (sync->busy) {
            pthread_cond_wait(&sync->finished_one, &sync->lock);
            continue;
        }
        sync->busy = true;
        int64_t number = ++sync->started;
        pthread_mutex_unlock(&sync->lock);
        int error = fsync(folder) < 0 ? errno : 0;
        pthread_mutex_lock(&sync->lock);
        sync->busy = false;
        sync->finished = number;
        if (error) {
            sync->failed = number;
            sync->error = error;
        }
        pthread_cond_broadcast(&sync->finished_one);
    }
    errno = sync->failed >= mine ? sync->error : 0;
    pthread_mutex_unlock(&sync->lock);
    return errno ? disk_failed("syncing the spool") : 0;
}
