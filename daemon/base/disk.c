#include "daemon/base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int disk_failed(const char *doing)
{
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return err_set(ERR_SPOOL_FULL, "The disk is full while %s. Try again later, or free some space.", doing);
    if (errno == EMFILE || errno == ENFILE)
        return err_set(ERR_NO_DESCRIPTORS,
                       "The server has no file descriptors left while %s. Try again later; the server's operator can "
                       "raise the limit (LimitNOFILE in systemd's unit).",
                       doing);
    if (errno == ENOMEM)
        return err_no_memory("%s; try again later", doing);
    return err_set(
        ERR_IO,
        "The disk failed while %s: %s. Try again; if it fails again, the server's operator should check the disk.",
        doing, strerror(errno));
}

bool disk_is_cause(int code)
{
    return code == ERR_SPOOL_FULL || code == ERR_IO || code == ERR_NO_DESCRIPTORS || code == ERR_NO_MEMORY;
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
    const bool made = mkdirat(parent, name, 0700) == 0;
    if (!made && errno != EEXIST) {
        if (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == ENOMEM)
            return disk_failed("making a folder");
        return err_set(ERR_IO,
                       "The folder %s%s cannot be created: %s. Create it for the user that runs mrirecond, or use "
                       "another --state-dir.",
                       name, parent == AT_FDCWD ? "" : " in the state folder", strerror(errno));
    }
    *out = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return disk_failed("opening a folder");
    if (*out < 0)
        return err_set(ERR_IO, "The folder %s%s cannot be opened: %s. %sse another --state-dir.", name,
                       parent == AT_FDCWD ? "" : " in the state folder", strerror(errno),
                       errno == EACCES ? "Run mrirecond as the folder's owner, or u" : "U");
    struct stat owner;
    if (made && parent != AT_FDCWD && geteuid() == 0 && fstat(parent, &owner) == 0 &&
        fchown(*out, owner.st_uid, owner.st_gid) < 0) {
        close(*out);
        return disk_failed("giving a folder to the owner of the state folder");
    }
    return 0;
}

enum disk_sight disk_look(int folder, const char *name, struct stat *out)
{
    if (fstatat(folder, name, out, AT_SYMLINK_NOFOLLOW) == 0)
        return DISK_THERE;
    return errno == ENOENT || errno == ENOTDIR ? DISK_MISSING : DISK_UNSEEN;
}

/* Returns 0 or an errno. */
static int name_add(struct disk_names *names, const char *name)
{
    const size_t length = strlen(name) + 1;
    if (length > names->room - names->bytes) {
        size_t room = 2 * names->room + 4096; /* a name has at most 255 bytes */
        char *more = realloc(names->text, room);
        if (!more)
            return ENOMEM;
        names->text = more;
        names->room = room;
    }
    memcpy(names->text + names->bytes, name, length);
    names->bytes += length;
    return 0;
}

/* Returns 0 or an errno; *out may have some names even then. */
static int names_read(int folder, struct disk_names *out)
{
    *out = (struct disk_names){.text = NULL};
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) {
        error = errno;
        if (fd >= 0)
            close(fd);
    }
    for (struct dirent *entry; !error && (errno = 0, entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = name_add(out, entry->d_name);
    if (stream) {
        error = error ? error : errno;
        closedir(stream);
    }
    return error;
}

int disk_names_read(int folder, const char *doing, struct disk_names *out)
{
    const int error = names_read(folder, out);
    if (!error)
        return 0;
    disk_names_free(out);
    errno = error;
    return disk_failed(doing);
}

const char *disk_names_next(const struct disk_names *names, const char *name)
{
    const char *next = name ? name + strlen(name) + 1 : names->text;
    return next && next < names->text + names->bytes ? next : NULL;
}

void disk_names_free(struct disk_names *names)
{
    free(names->text);
    *names = (struct disk_names){.text = NULL};
}

/* Closing the last descriptor of a removed file frees its blocks. */
static void *free_all(void *context)
{
    struct disk_freer *freer = context;
    pthread_mutex_lock(&freer->lock);
    while (freer->count || !freer->stopping) {
        if (!freer->count) {
            pthread_cond_wait(&freer->news, &freer->lock);
            continue;
        }
        int fd = freer->fd[--freer->count];
        pthread_mutex_unlock(&freer->lock);
        close(fd);
        pthread_mutex_lock(&freer->lock);
    }
    pthread_mutex_unlock(&freer->lock);
    return NULL;
}

void disk_freer_init(struct disk_freer *freer)
{
    *freer = (struct disk_freer){.started = false};
    pthread_mutex_init(&freer->lock, NULL);
    pthread_cond_init(&freer->news, NULL);
}

void disk_freer_end(struct disk_freer *freer)
{
    pthread_mutex_lock(&freer->lock);
    freer->stopping = true;
    pthread_cond_signal(&freer->news);
    pthread_mutex_unlock(&freer->lock);
    if (freer->started)
        pthread_join(freer->thread, NULL);
    pthread_mutex_destroy(&freer->lock);
    pthread_cond_destroy(&freer->news);
}

/* Hand a descriptor to the freer; false: it is busy. */
static bool freer_take(struct disk_freer *freer, int fd)
{
    const int most = sizeof freer->fd / sizeof *freer->fd;
    pthread_mutex_lock(&freer->lock);
    freer->started = freer->started || pthread_create(&freer->thread, NULL, free_all, freer) == 0;
    bool taken = freer->started && freer->count < most;
    if (taken) {
        freer->fd[freer->count++] = fd;
        pthread_cond_signal(&freer->news);
    }
    pthread_mutex_unlock(&freer->lock);
    return taken;
}

int disk_remove(struct disk_freer *freer, int folder, const char *name)
{
    enum { LARGE_BYTES = 64 << 20 };
    struct stat there;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int rc = unlinkat(folder, name, 0), error = errno;
    bool large = fd >= 0 && fstat(fd, &there) == 0 && there.st_size > LARGE_BYTES;
    if (fd >= 0 && !(large && freer_take(freer, fd)))
        close(fd);
    errno = error;
    return rc;
}

bool disk_folder_remove(struct disk_freer *freer, int parent, const char *name)
{
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return false;
    struct disk_names names;
    names_read(folder, &names); /* what it leaves keeps the folder there */
    for (const char *file = NULL; (file = disk_names_next(&names, file));)
        disk_remove(freer, folder, file);
    disk_names_free(&names);
    close(folder);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0;
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
