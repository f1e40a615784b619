/* For tests: preloaded into mrirecond and its workers, writes into $SYNC_LOG, in their order, what was synced or waited
 * for, what was answered, of which files something was sent, and which sockets received something and acknowledge it at
 * once. While the file $SYNC_BROKEN is there, waiting for the disk and syncing a result fail; if it has text, of any
 * path that contains this. While the file $SYNC_HELD is there, no sync begins; if it has text, only none of such a
 * path. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void note(const char *what, const char *of)
{
    const char *path = getenv("SYNC_LOG");
    int log = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (log < 0)
        return;
    dprintf(log, "%s %s\n", what, of);
    close(log);
}

static void path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
}

static void note_fd(const char *what, int fd)
{
    char path[PATH_MAX];
    path_of(fd, path);
    note(what, path);
}

/* Whether the file that this variable names is there, and the path contains its text, or `usual` if it is empty. */
static int is_named(const char *variable, const char *path, const char *usual)
{
    const char *name = getenv(variable);
    char text[256];
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    return strstr(path, length > 0 ? text : usual) != NULL;
}

static void be_held(int fd)
{
    char path[PATH_MAX];
    path_of(fd, path);
    while (is_named("SYNC_HELD", path, ""))
        usleep(2000);
}

static int is_broken(const char *path)
{
    return is_named("SYNC_BROKEN", path, "/results/");
}

/* Noted when it is done: what stands before a line in the log was on the disk then. */
int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    char path[PATH_MAX];
    be_held(fd);
    path_of(fd, path);
    if (is_broken(path)) {
        errno = EIO;
        return -1;
    }
    int result = real(fd);
    if (result == 0)
        note_fd("sync", fd);
    return result;
}

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    be_held(fd);
    int result = real(fd);
    if (result == 0)
        note_fd("sync", fd);
    return result;
}

int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags)
{
    int (*real)(int, off_t, off_t, unsigned) =
        (int (*)(int, off_t, off_t, unsigned))dlsym(RTLD_NEXT, "sync_file_range");
    if (!(flags & SYNC_FILE_RANGE_WAIT_AFTER))
        return real(fd, offset, bytes, flags);
    char path[PATH_MAX];
    path_of(fd, path);
    if (is_broken(path)) {
        errno = EIO;
        return -1;
    }
    int result = real(fd, offset, bytes, flags);
    if (result == 0)
        note_fd("waited", fd);
    return result;
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    int (*real)(int, const char *, int, const char *) =
        (int (*)(int, const char *, int, const char *))dlsym(RTLD_NEXT, "renameat");
    int result = real(from_folder, from, to_folder, to);
    if (result == 0)
        note("rename", to);
    return result;
}

/* Noted before it goes out. */
static void note_answer(const char *data, size_t bytes)
{
    char status[4] = "";
    if (bytes < 12 || memcmp(data, "HTTP/1.1 ", 9) != 0)
        return;
    memcpy(status, data + 9, 3);
    note("answer", status);
}

ssize_t send(int socket, const void *data, size_t bytes, int flags)
{
    ssize_t (*real)(int, const void *, size_t, int) =
        (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    note_answer(data, bytes);
    return real(socket, data, bytes, flags);
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    ssize_t (*real)(int, const struct msghdr *, int) =
        (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    if (message->msg_iovlen > 0)
        note_answer(message->msg_iov[0].iov_base, message->msg_iov[0].iov_len);
    return real(socket, message, flags);
}

ssize_t writev(int fd, const struct iovec *piece, int pieces)
{
    ssize_t (*real)(int, const struct iovec *, int) =
        (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    if (pieces > 0)
        note_answer(piece[0].iov_base, piece[0].iov_len);
    return real(fd, piece, pieces);
}

ssize_t sendfile(int to, int from, off_t *at, size_t bytes)
{
    ssize_t (*real)(int, int, off_t *, size_t) = (ssize_t(*)(int, int, off_t *, size_t))dlsym(RTLD_NEXT, "sendfile");
    note_fd("send", from);
    return real(to, from, at, bytes);
}

ssize_t recv(int socket, void *data, size_t bytes, int flags)
{
    ssize_t (*real)(int, void *, size_t, int) = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
    ssize_t got = real(socket, data, bytes, flags);
    int error = errno;
    if (got > 0)
        note_fd("received", socket);
    errno = error;
    return got;
}

int setsockopt(int socket, int level, int name, const void *value, socklen_t bytes)
{
    int (*real)(int, int, int, const void *, socklen_t) =
        (int (*)(int, int, int, const void *, socklen_t))dlsym(RTLD_NEXT, "setsockopt");
    int result = real(socket, level, name, value, bytes);
    if (result == 0 && level == IPPROTO_TCP && name == TCP_QUICKACK && *(const int *)value)
        note_fd("acknowledges", socket);
    return result;
}
