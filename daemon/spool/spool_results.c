/* The results of jobs: files of a worker become an immutable folder. */
#include "daemon/spool/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

bool spool_is_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < SPOOL_NAME && name[0] != '.' && name[0] != '-' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

/* ---- files ---- */

static void temporary_name(const char *id, char name[JOB_ID + 4])
{
    snprintf(name, JOB_ID + 4, "%s.tmp", id);
}

static int result_create(struct spool *spool, int folder, const char *name, int *file)
{
    if (!name || !spool_is_name(name))
        return err_set(ERR_INTERNAL, "A result file cannot be named \"%.32s\".", name ? name : "");
    *file = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return *file < 0 ? spool_failed(spool, "making a result") : 0;
}

int spool_live_create(struct spool *spool, const char *id, int *file)
{
    char name[JOB_ID + 8];
    snprintf(name, sizeof name, ".%s.live", id);
    const int made = openat(spool->results, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made < 0)
        return spool_failed(spool, "creating a file for images that are sent early");
    unlinkat(spool->results, name, 0);
    *file = made;
    return 0;
}

int spool_results_begin(struct spool *spool, const char *id, const json_t *names, int files[KIND_MAX_FILES])
{
    char temporary[JOB_ID + 4];
    int folder, made = 0, count = (int)json_array_size(names);
    temporary_name(id, temporary);
    disk_folder_remove(&spool->freer, spool->results, temporary);
    int rc = disk_folder_open(spool->results, temporary, &folder);
    if (rc != 0) {
        spool_suspect(spool);
        return rc;
    }
    if (count > KIND_MAX_FILES)
        rc = err_set(ERR_INTERNAL, "A job asks for %d result files; %d is the most.", count, KIND_MAX_FILES);
    while (rc == 0 && made < count) {
        rc = result_create(spool, folder, json_string_value(json_array_get(names, (size_t)made)), &files[made]);
        made += rc == 0;
    }
    close(folder);
    while (rc != 0 && made > 0)
        close(files[--made]);
    return rc;
}

/* The kernel grants a read lease only if no process has the file open for writing or mapped. The lease ends with the
 * descriptor. Returns 0 or an errno. */
static int lease_try(int folder, const char *name)
{
    int error = 0, fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
        error = errno;
    if (fd >= 0)
        close(fd);
    return error;
}

/* Whether the file system supports leases, tried on a private file. */
static bool leases_given(int folder)
{
    const char *name = ".lease";
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    close(fd);
    bool given = lease_try(folder, name) == 0;
    unlinkat(folder, name, 0);
    return given;
}

bool spool_results_released(struct spool *spool, const char *id)
{
    enum { TRIES = 20 };
    char name[JOB_ID + 4];
    temporary_name(id, name);
    int folder = openat(spool->results, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct disk_names names = {.text = NULL};
    bool released = true;
    /* Who publishes results that the disk does not show is told so. */
    int rc = folder < 0 ? disk_failed("opening the results") : disk_names_read(folder, "reading the results", &names);
    for (const char *each = NULL; !rc && released && (each = disk_names_next(&names, each));)
        if (spool_is_name(each)) {
            int tries = 0;
            while (lease_try(folder, each) == EAGAIN && ++tries < TRIES)
                poll(NULL, 0, 1);
            released = tries < TRIES;
        }
    released = released || !leases_given(folder);
    disk_names_free(&names);
    if (folder >= 0)
        close(folder);
    return released;
}

static int names_of(struct spool *spool, int folder, struct disk_names *names)
{
    int rc = disk_names_read(folder, "reading the results", names);
    if (rc)
        spool_suspect(spool);
    return rc;
}

/* Add each file of `folder` to `results`. An empty file is a format that the worker could not produce: it is removed,
 * and a later request for it gets the reason from the conversion. */
static int results_list(struct spool *spool, int folder, const struct kind *kind, json_t *results)
{
    struct disk_names names;
    int rc = names_of(spool, folder, &names);
    for (const char *name = NULL; !rc && (name = disk_names_next(&names, name));) {
        struct stat there;
        if (!spool_is_name(name))
            continue;
        if (fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) < 0)
            rc = spool_failed(spool, "reading a result");
        else if (S_ISREG(there.st_mode) && there.st_size == 0)
            rc = unlinkat(folder, name, 0) < 0 ? spool_failed(spool, "removing an empty result") : 0;
        else if (S_ISREG(there.st_mode))
            json_array_append_new(results, json_pack("{s:s, s:s, s:I}", "name", name, "type",
                                                     kind_file_media(kind, name), "bytes", (json_int_t)there.st_size));
    }
    disk_names_free(&names);
    return rc;
}

/* fsync each file of `folder`. */
static int files_sync(struct spool *spool, int folder)
{
    struct disk_names names;
    int rc = names_of(spool, folder, &names);
    for (const char *name = NULL; !rc && (name = disk_names_next(&names, name));) {
        if (!spool_is_name(name))
            continue;
        int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
            rc = spool_failed(spool, "syncing a result");
        if (fd >= 0)
            close(fd);
    }
    disk_names_free(&names);
    return rc;
}

/* Check that the native file of each result exists and is not empty. */
static int natives_check(struct spool *spool, int folder, const struct kind *kind, unsigned wanted)
{
    for (int i = 0; kind && kind->results[i].name; i++) {
        char name[KIND_FILE_NAME];
        struct stat there;
        kind_file_name(kind, (struct result_file){i, 0}, name);
        if (!(wanted >> i & 1))
            continue;
        const enum disk_sight seen = disk_look(folder, name, &there);
        if (seen == DISK_UNSEEN)
            return spool_failed(spool, "reading a result");
        if (seen == DISK_MISSING || !S_ISREG(there.st_mode) || there.st_size == 0)
            return err_set(ERR_INTERNAL,
                           "The worker reported success but wrote no result \"%s\". This is a bug in the server.",
                           kind->results[i].name);
    }
    return 0;
}

int spool_results_publish(struct spool *spool, const char *id, const struct kind *kind, unsigned wanted,
                          json_t **results)
{
    char name[JOB_ID + 4];
    json_t *list = json_array();
    temporary_name(id, name);
    int folder = openat(spool->results, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = folder < 0 ? spool_failed(spool, "opening the results") : 0;
    if (!rc)
        rc = natives_check(spool, folder, kind, wanted);
    if (!rc)
        rc = results_list(spool, folder, kind, list);
    /* Rename before fsync: one commit of the file system's journal covers both. The folder has no effect after a crash
     * until the job's row is committed, which comes last. */
    if (!rc && renameat(spool->results, name, spool->results, id) < 0) {
        /* An earlier success that was not committed has left a folder. */
        disk_folder_remove(&spool->freer, spool->results, id);
        if (renameat(spool->results, name, spool->results, id) < 0)
            rc = spool_failed(spool, "renaming the results");
    }
    if (folder >= 0)
        close(folder);
    if (rc) {
        json_decref(list);
        return rc;
    }
    *results = list;
    return 0;
}

int spool_results_sync(struct spool *spool, const char *id)
{
    int folder = openat(spool->results, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = folder < 0 ? spool_failed(spool, "opening the results") : files_sync(spool, folder);
    if (!rc && (fsync(folder) < 0 || fsync(spool->results) < 0))
        rc = spool_failed(spool, "syncing the results");
    if (folder >= 0)
        close(folder);
    return rc;
}

void spool_results_unmake(struct spool *spool, const char *id)
{
    char name[JOB_ID + 4];
    temporary_name(id, name);
    disk_folder_remove(&spool->freer, spool->results, name);
}

void spool_results_remove(struct spool *spool, const char *id)
{
    spool_results_unmake(spool, id);
    disk_folder_remove(&spool->freer, spool->results, id);
}

int spool_result_open(struct spool *spool, const char *id, const char *name, int *fd, int64_t *bytes, int64_t *stamp)
{
    char path[JOB_ID + SPOOL_NAME];
    struct stat there;
    if (!spool_is_id(id) || !spool_is_name(name))
        return err_set(ERR_NOT_FOUND, "The job has no result with this name.");
    snprintf(path, sizeof path, "%s/%s", id, name);
    int file = openat(spool->results, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 && errno != ENOENT && errno != ELOOP)
        return disk_failed("opening a result");
    if (file < 0 || fstat(file, &there) < 0 || !S_ISREG(there.st_mode)) {
        if (file >= 0)
            close(file);
        return err_set(ERR_NOT_FOUND, "Job %s has no result named \"%s\"; its document lists the results.", id, name);
    }
    *fd = file;
    *bytes = there.st_size;
    *stamp = (int64_t)there.st_mtim.tv_sec * 1000000000 + there.st_mtim.tv_nsec;
    return 0;
}
