/* diskfault.so, to be preloaded into mrirecond: makes the n-th call that changes something on the disk fail.
 *
 * It counts the calls below that the daemon and its workers make on files under the folder DISKFAULT_STATE. The file
 * DISKFAULT_CONTROL is a struct control that every process maps, and that the test may change at any time.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    _Atomic int64_t counted, fails_at; /* fails_at: number of the first call that fails; 0: none */
    int64_t error, lasts;              /* errno to fail with (0: be killed); whether all later calls fail too */
    _Atomic int64_t failed;            /* number of failed calls */
    char first[96];                    /* the first call that failed, and its file */
    char only[32];                     /* count only calls of these names; "": all that write or add something */
};

static struct control *control;
static const char *state;

/* Decoders inherit the environment, but write nothing below the folder. */
__attribute__((constructor)) static void begin(void)
{
    char name[32] = "";
    const char *path = getenv("DISKFAULT_CONTROL");
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    bool ours = fd >= 0 && read(fd, name, sizeof name - 1) > 0 &&
                (strcmp(name, "mrirecond\n") == 0 || strcmp(name, "mrirecon-worker\n") == 0);
    if (fd >= 0)
        close(fd);
    fd = ours && path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *there = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (there == MAP_FAILED) { /* a test without its fault must not pass */
        perror(path);
        abort();
    }
    state = getenv("DISKFAULT_STATE");
    control = there;
}

/* Not a test's own file beside the folder, whose name begins like the folder's. */
static bool is_in_state(const char *path)
{
    const size_t length = strlen(state);
    return strncmp(path, state, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Whether `name` (NULL: the file or folder itself) of the descriptor `at` lies under the state folder. */
static bool is_below(int at, const char *name)
{
    char link[64], path[4096];
    if (!control || !state)
        return false;
    if (name && *name == '/')
        return is_in_state(name);
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0 && is_in_state(path);
}

/* Calls that are counted only if they are named; "opening": openat() of what is there. */
static bool is_named_only(const char *call)
{
    static const char *const names[] = {"unlinkat", "fstatat", "readdir", "opening"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(call, names[i]) == 0)
            return true;
    return false;
}

/* Whether `names`, separated by spaces, have this call: "unlinkat" does not mean linkat. */
static bool has_name(const char *names, const char *call)
{
    const size_t length = strlen(call);
    for (const char *at = names; (at = strstr(at, call)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

/* Count this call; returns true if it must fail, with errno set. */
static bool fails(const char *call, int at, const char *name)
{
    int before = errno;
    bool asked = control && (*control->only ? has_name(control->only, call) : !is_named_only(call));
    bool counts = asked && is_below(at, name);
    errno = before;
    if (!counts)
        return false;
    int64_t number = atomic_fetch_add(&control->counted, 1) + 1, from = control->fails_at;
    if (!from || number < from || (number > from && !control->lasts))
        return false;
    if (atomic_fetch_add(&control->failed, 1) == 0)
        snprintf(control->first, sizeof control->first, "%s %.80s", call, name ? name : "");
    if (!control->error)
        raise(SIGKILL);
    errno = (int)control->error;
    return true;
}

/* A full disk accepts the first part of a write, if there is one. */
static size_t part(size_t bytes)
{
    return control->error == ENOSPC ? bytes / 2 : 0;
}

#define NEXT(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (!fails("write", fd, NULL))
        return NEXT(write, fd, data, bytes);
    return part(bytes) ? NEXT(write, fd, data, part(bytes)) : -1;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (!fails("pwrite", fd, NULL))
        return NEXT(pwrite, fd, data, bytes, at);
    return part(bytes) ? NEXT(pwrite, fd, data, part(bytes), at) : -1;
}

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    return fails("writev", fd, NULL) ? -1 : NEXT(writev, fd, pieces, count);
}

int fsync(int fd)
{
    return fails("fsync", fd, NULL) ? -1 : NEXT(fsync, fd);
}

int fdatasync(int fd)
{
    return fails("fdatasync", fd, NULL) ? -1 : NEXT(fdatasync, fd);
}

int ftruncate(int fd, off_t bytes)
{
    return fails("ftruncate", fd, NULL) ? -1 : NEXT(ftruncate, fd, bytes);
}

int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    return fails("fallocate", fd, NULL) ? -1 : NEXT(fallocate, fd, mode, at, bytes);
}

int rename(const char *from, const char *to)
{
    return fails("rename", AT_FDCWD, to) ? -1 : NEXT(rename, from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return fails("renameat", to_folder, to) ? -1 : NEXT(renameat, from_folder, from, to_folder, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    return fails("linkat", to_folder, to) ? -1 : NEXT(linkat, from_folder, from, to_folder, to, flags);
}

int unlinkat(int folder, const char *name, int flags)
{
    return fails("unlinkat", folder, name) ? -1 : NEXT(unlinkat, folder, name, flags);
}

int mkdirat(int folder, const char *name, mode_t mode)
{
    return fails("mkdirat", folder, name) ? -1 : NEXT(mkdirat, folder, name, mode);
}

int openat(int folder, const char *name, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return fails(flags & O_CREAT ? "openat" : "opening", folder, name) ? -1 : NEXT(openat, folder, name, flags, mode);
}

int open(const char *name, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return openat(AT_FDCWD, name, flags, mode);
}

int fstatat(int folder, const char *name, struct stat *out, int flags)
{
    return fails("fstatat", folder, name) ? -1 : NEXT(fstatat, folder, name, out, flags);
}

struct dirent *readdir(DIR *stream)
{
    return fails("readdir", dirfd(stream), NULL) ? NULL : NEXT(readdir, stream);
}

/* All offsets are 64-bit here. */
__typeof__(open) open64 __attribute__((alias("open")));
__typeof__(pwrite) pwrite64 __attribute__((alias("pwrite")));
__typeof__(ftruncate) ftruncate64 __attribute__((alias("ftruncate")));
