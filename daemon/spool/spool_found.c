/* Files without a job that may have lost their row (LEFTOVERS in spool.h): whether the job store is as the last daemon
 * left it, and the found-TIME folders. */
#include "daemon/spool/spool.h"

#include "daemon/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK  "clean-stop"
#define FOUND "found-"

enum { MARK_TEXT = 96, DAY_MS = 86400000 };

/* ---- the history of the job store ---- */

/* The identity of jobs.db in one line; false: its log is not empty, or it does not exist. (Readers leave an empty
 * log.) */
static bool mark_print(const struct spool *spool, char text[MARK_TEXT])
{
    struct stat store, log;
    const enum disk_sight seen = disk_look(spool->state, "jobs.db-wal", &log);
    const bool logged = seen == DISK_UNSEEN || (seen == DISK_THERE && log.st_size > 0);
    if (logged || disk_look(spool->state, "jobs.db", &store) != DISK_THERE)
        return false;
    snprintf(text, MARK_TEXT, "%lld %lld %lld.%09ld\n", (long long)store.st_ino, (long long)store.st_size,
             (long long)store.st_mtim.tv_sec, store.st_mtim.tv_nsec);
    return true;
}

bool spool_stop_was_clean(const struct spool *spool)
{
    char now[MARK_TEXT], then[MARK_TEXT] = "";
    int fd = openat(spool->state, MARK, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, then, sizeof then - 1);
    if (fd >= 0)
        close(fd);
    return length > 0 && mark_print(spool, now) && strcmp(now, then) == 0;
}

int spool_stop_take(struct spool *spool, bool *clean)
{
    *clean = spool_stop_was_clean(spool);
    bool gone = unlinkat(spool->state, MARK, 0) == 0 ? fsync(spool->state) == 0 : errno == ENOENT;
    return gone ? 0 : disk_failed("noting that the service runs");
}

void spool_stop_note(struct spool *spool)
{
    char text[MARK_TEXT];
    size_t written;
    if (!mark_print(spool, text))
        return;
    int fd = openat(spool->state, MARK, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool noted = fd >= 0 && disk_write(fd, text, strlen(text), &written) == 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    if (!noted) /* an incomplete mark would not match either */
        unlinkat(spool->state, MARK, 0);
}

/* ---- what is kept aside ---- */

static const char read_me[] =
    "mrirecond moved files here that belong to no job in jobs.db.\n"
    "ID.scan is a completely uploaded scan, which may have been accepted as a job. Submit it again, with its earlier\n"
    "parameters, which were in the job's row:\n"
    "    curl --data-binary @ID.scan 'http://127.0.0.1:8080/v1/jobs?kind=recon'\n"
    "ID.results/ contains the images of such a job, ID.upload a resumable upload.\n"
    "All of these are patient data. mrirecond removes this folder 30 days after its creation; its name is the time of\n"
    "the creation, in ms since 1970.\n";

bool spool_owner_give(const struct spool *spool, const char *name)
{
    struct stat state;
    return fstat(spool->state, &state) == 0 &&
           fchownat(spool->state, name, state.st_uid, state.st_gid, AT_SYMLINK_NOFOLLOW) == 0;
}

static void read_me_write(const struct spool *spool, const char *found)
{
    char path[64];
    size_t written;
    snprintf(path, sizeof path, "%s/README", found);
    int fd = openat(spool->state, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    (void)disk_write(fd, read_me, sizeof read_me - 1, &written);
    close(fd);
    (void)spool_owner_give(spool, path);
}

bool spool_found_keep(const struct spool *spool, int64_t time, int folder, const char *name, const char *kept)
{
    char found[48], path[128];
    snprintf(found, sizeof found, FOUND "%lld", (long long)time);
    snprintf(path, sizeof path, "%s/%s", found, kept);
    if (mkdirat(spool->state, found, 0700) == 0) {
        if (!spool_owner_give(spool, found))
            return false;
        read_me_write(spool, found);
    } else if (errno != EEXIST) {
        return false;
    }
    return renameat(folder, name, spool->state, path) == 0;
}

int spool_found_sync(const struct spool *spool, int64_t time)
{
    char found[48];
    snprintf(found, sizeof found, FOUND "%lld", (long long)time);
    int folder = openat(spool->state, found, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = folder < 0 || fsync(folder) < 0 || fsync(spool->state) < 0
                 ? disk_failed("keeping files aside in found-TIME")
                 : 0;
    if (folder >= 0)
        close(folder);
    return rc;
}

/* Call `each` with the name and time of every found-TIME folder that the disk shows: it is asked again every hour. */
static void found_each(struct spool *spool, void (*each)(void *context, const char *name, int64_t time), void *context)
{
    struct disk_names names;
    int rc = disk_names_read(spool->state, "looking for what is set aside", &names);
    for (const char *name = NULL; !rc && (name = disk_names_next(&names, name));) {
        char *end;
        if (strncmp(name, FOUND, strlen(FOUND)) != 0)
            continue;
        int64_t time = strtoll(name + strlen(FOUND), &end, 10);
        if (time > 0 && !*end)
            each(context, name, time);
    }
    disk_names_free(&names);
}

/* The contents of the folder `name`, without its README: those that are there, or that were removed. */
struct contents {
    struct spool *spool;
    bool remove;
    int count;
};

static void contents_look(struct contents *contents, const char *name)
{
    struct spool *spool = contents->spool;
    int folder = openat(spool->state, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct disk_names names = {.text = NULL};
    int rc = folder < 0 ? -1 : disk_names_read(folder, "looking for what is set aside", &names);
    for (const char *file = NULL; !rc && (file = disk_names_next(&names, file));) {
        struct stat there;
        if (contents->remove && disk_remove(&spool->freer, folder, file) < 0)
            disk_folder_remove(&spool->freer, folder, file);
        const bool gone = disk_look(folder, file, &there) == DISK_MISSING;
        contents->count += strcmp(file, "README") != 0 && gone == contents->remove;
    }
    disk_names_free(&names);
    if (folder >= 0)
        close(folder);
    if (contents->remove)
        unlinkat(spool->state, name, AT_REMOVEDIR);
}

static void found_count(void *context, const char *name, int64_t time)
{
    (void)time;
    contents_look(context, name);
}

int spool_found_count(struct spool *spool)
{
    struct contents contents = {.spool = spool};
    found_each(spool, found_count, &contents);
    return contents.count;
}

static void found_expire(void *context, const char *name, int64_t time)
{
    if (clock_milliseconds() - time > (int64_t)SPOOL_FOUND_DAYS * DAY_MS)
        contents_look(context, name);
}

int spool_found_expire(struct spool *spool)
{
    struct contents contents = {.spool = spool, .remove = true};
    found_each(spool, found_expire, &contents);
    spool->found = spool_found_count(spool);
    return contents.count;
}
