/* powercut.so, to be preloaded into mrirecond: records at each sync what the disk is guaranteed to hold.
 *
 * Calls on files below the folder POWERCUT_STATE do not sync. Instead, each fsync and fdatasync is given a number N,
 * and the folder POWERCUT_TRACE gets
 *
 *   N.sync   "file KEY" or "folder KEY" of what was synced, and a line "KEY TYPE BYTES PATH" for each file and folder
 *            that is there; KEY names an inode for good
 *   N.data   what a synced file holds
 *   count    N of the last one that is complete
 *
 * tests/e2e/test_powercut.py makes the folder of a crash after any N from it. Syncs are taken one at a time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int number;
static FILE *listing;
static const char *state, *trace;

/* Workers and decoders inherit the environment, but only the daemon's syncs count. */
__attribute__((constructor)) static void begin(void)
{
    char name[32] = "";
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, name, sizeof name - 1) > 0 && strcmp(name, "mrirecond\n") == 0) {
        state = getenv("POWERCUT_STATE");
        trace = getenv("POWERCUT_TRACE");
    }
    if (fd >= 0)
        close(fd);
}

/* A failure of this library must look neither like a fault of the daemon nor like a success. */
static void give_up(const char *what)
{
    perror(what);
    abort();
}

/* Inode numbers are reused; together with the time of birth they are unique. */
static void key_print(FILE *out, int fd, const char *path)
{
    struct statx there;
    if (statx(fd, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &there) != 0)
        fputs("gone", out);
    else
        fprintf(out, "%llu.%lld.%u", (unsigned long long)there.stx_ino, (long long)there.stx_btime.tv_sec,
                there.stx_btime.tv_nsec);
}

static int list_one(const char *path, const struct stat *there, int type, struct FTW *walk)
{
    (void)walk;
    if (type == FTW_NS) /* removed meanwhile by a worker */
        return 0;
    key_print(listing, AT_FDCWD, path);
    fprintf(listing, " %c %lld %s\n", S_ISDIR(there->st_mode) ? 'd' : 'f', (long long)there->st_size,
            path[strlen(state)] ? path + strlen(state) + 1 : ".");
    return 0;
}

static FILE *trace_open(const char *ending)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d%s", trace, number, ending);
    FILE *file = fopen(path, "we");
    if (!file)
        give_up(path);
    return file;
}

static void data_copy(const char *path)
{
    char block[65536];
    FILE *out = trace_open(".data");
    int in = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    while (in >= 0 && (got = read(in, block, sizeof block)) > 0)
        fwrite(block, 1, (size_t)got, out);
    if (in >= 0)
        close(in);
    if (fclose(out) != 0)
        give_up("copying what was synced");
}

static void note(int fd, bool folder)
{
    char path[64];
    pthread_mutex_lock(&lock);
    number++;
    listing = trace_open(".sync");
    fputs(folder ? "folder " : "file ", listing);
    key_print(listing, fd, "");
    fputc('\n', listing);
    if (nftw(state, list_one, 16, FTW_PHYS) != 0 || fclose(listing) != 0)
        give_up("listing the state folder");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!folder)
        data_copy(path);
    /* A concurrent reader sees the previous number or this one, never an empty file. */
    char count[4096], text[16];
    snprintf(count, sizeof count, "%s/count", trace);
    int length = snprintf(text, sizeof text, "%010d\n", number);
    int file = open(count, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || write(file, text, (size_t)length) != length || close(file) != 0)
        give_up("counting");
    pthread_mutex_unlock(&lock);
}

static int sync_of(int fd, const char *name)
{
    char link[64], path[4096];
    struct stat there;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = trace && state ? readlink(link, path, sizeof path - 1) : -1;
    path[length > 0 ? length : 0] = '\0';
    if (length > 0 && strncmp(path, state, strlen(state)) == 0 && fstat(fd, &there) == 0) {
        note(fd, S_ISDIR(there.st_mode));
        return 0;
    }
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return next(fd);
}

int fsync(int fd)
{
    return sync_of(fd, "fsync");
}

int fdatasync(int fd)
{
    return sync_of(fd, "fdatasync");
}
