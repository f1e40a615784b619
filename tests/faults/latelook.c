/* latelook.so, to be preloaded: while the file LATELOOK_HOLD exists, a thread of the HTTP library that has looked up a
 * job stops: it creates LATELOOK_HOLD.there, and continues when LATELOOK_HOLD is removed; meanwhile the row that it
 * read may have changed. It stops after it has asked the scheduler for the job's progress, which is at the second lock
 * that it releases. The scheduler's own look-ups do not stop, so the job continues. LATELOOK_HOLD.list in the same way
 * stops a thread that has read a page of jobs, before it asks for their progress. LATELOOK_HOLD.wait stops an MRD
 * session that begins to wait for its job, and LATELOOK_HOLD.row one that has looked up its job. LATELOOK_HOLD.note
 * stops a thread of the daemon's own before it reads the note of a resumable upload, and LATELOOK_HOLD.left one that
 * has read its time left; LATELOOK_HOLD.sync stops a request that is about to sync a chunk, LATELOOK_HOLD.whole one
 * that has synced a chunk and released the upload, and LATELOOK_HOLD.link who is about to put a complete upload into
 * the spool. LATELOOK_HOLD.chunk and then LATELOOK_HOLD.first stop a thread of the HTTP library that is about to read
 * where a chunk with a checksum began.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct sqlite3_stmt;
const char *sqlite3_sql(struct sqlite3_stmt *statement);

static _Thread_local int looked;     /* how many more locks are released until the thread stops; 0: it does not */
static _Thread_local char hold[512]; /* the file on which it waits */
static _Thread_local bool waits;     /* it waits for images, as an MRD session does */

/* The thread stops once it has released some more locks, if the file of this name exists. */
static void stop_soon(const char *suffix, int locks)
{
    snprintf(hold, sizeof hold, "%s%s", getenv("LATELOOK_HOLD"), suffix);
    looked = access(hold, F_OK) == 0 ? locks : 0;
}

static bool is_of_http(void)
{
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    return strncmp(name, "MHD", 3) == 0;
}

int sqlite3_clear_bindings(struct sqlite3_stmt *statement)
{
    int (*next)(struct sqlite3_stmt *) = (int (*)(struct sqlite3_stmt *))dlsym(RTLD_NEXT, "sqlite3_clear_bindings");
    const char *sql = sqlite3_sql(statement);
    int result = next(statement);
    const bool reads = sql && strncmp(sql, "SELECT id, state, ", 18) == 0;
    looked = 0;
    if (reads && strstr(sql, " FROM job WHERE sequence < ?"))
        stop_soon(".list", 1);
    else if (reads && strstr(sql, " FROM job WHERE id = ?") && is_of_http())
        stop_soon("", 2);
    else if (reads && strstr(sql, " FROM job WHERE id = ?") && waits)
        stop_soon(".row", 1);
    return result;
}

static void pause_make(int milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL);
}

static void hold_wait(void)
{
    char there[sizeof hold + 8];
    snprintf(there, sizeof there, "%s.there", hold);
    close(open(there, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    while (access(hold, F_OK) == 0)
        pause_make(5);
}

/* The thread stops here, if the file of this name exists. */
static void stop_now(const char *suffix)
{
    stop_soon(suffix, 1);
    if (looked)
        hold_wait();
    looked = 0;
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    int (*next)(pthread_mutex_t *) = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    int result = next(lock);
    if (looked && --looked == 0)
        hold_wait();
    return result;
}

int eventfd(unsigned int count, int flags)
{
    int (*next)(unsigned int, int) = (int (*)(unsigned int, int))dlsym(RTLD_NEXT, "eventfd");
    waits = flags & EFD_NONBLOCK;
    if (waits)
        stop_now(".wait");
    return next(count, flags);
}

int openat(int folder, const char *path, int flags, ...)
{
    int (*next)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
    const char *ending = strrchr(path, '.');
    va_list more;
    va_start(more, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    looked = 0;
    if (ending && (flags & O_ACCMODE) == O_RDONLY && is_of_http()) {
        if (strcmp(ending, ".chunk") == 0)
            stop_now(".chunk"), stop_now(".first");
    } else if (ending && (flags & O_ACCMODE) == O_RDONLY) {
        if (strcmp(ending, ".json") == 0)
            stop_now(".note");
        else if (strcmp(ending, ".chunk") == 0) /* under a lock; then it looks at the time left */
            stop_soon(".left", 1);
    }
    return next(folder, path, flags, mode);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    int (*next)(int, const char *, int, const char *, int) =
        (int (*)(int, const char *, int, const char *, int))dlsym(RTLD_NEXT, "linkat");
    stop_now(".link");
    return next(from_folder, from, to_folder, to, flags);
}

int fdatasync(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    char link[32], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    if (strstr(path, "/uploads/"))
        stop_now(".sync"), stop_soon(".whole", 2);
    return next(fd);
}
