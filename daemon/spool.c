#include "daemon/spool.h"

#include "daemon/clock.h"
#include "recon/image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The kernel is told to write after so many bytes, so that the final fsync finds little left to do. */
/* The kernel is told to begin to write an upload whenever so much more has come: little is left to sync at its end. */
enum { PUSH_BYTES = 1 << 20 };

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz"; /* Crockford's: no i, l, o, u */

static int io_failed(const char *doing)
{
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return err_set(ERR_SPOOL_FULL, "The disk is full while %s. Try again later, or free some space.", doing);
    return err_set(ERR_IO, "%s failed: %s.", doing, strerror(errno));
}

/* ---- folders ---- */

static int folder_open(int parent, const char *name, int *out)
{
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return err_set(ERR_IO, "The folder %s cannot be made: %s. Make it, or name another --state-dir.", name,
                       strerror(errno));
    *out = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out < 0)
        return err_set(ERR_IO, "The folder %s cannot be opened: %s. Name another --state-dir.", name, strerror(errno));
    return 0;
}

int spool_create(struct spool **out, const char *state_dir, int64_t body_limit, int64_t limit, int64_t reserve)
{
    struct spool *spool = calloc(1, sizeof *spool);
    if (!spool)
        return err_set(ERR_NO_MEMORY, "No memory for the spool.");
    spool->state = spool->scans = spool->results = -1;
    spool->body_limit = body_limit;
    spool->limit = limit;
    spool->reserve = reserve;
    pthread_mutex_init(&spool->scans_sync.lock, NULL);
    pthread_cond_init(&spool->scans_sync.finished_one, NULL);
    int result = folder_open(AT_FDCWD, state_dir, &spool->state);
    if (!result && flock(spool->state, LOCK_EX | LOCK_NB) < 0)
        result = err_set(ERR_IO, "%s is in use by another mrirecond. Stop that one, or name another --state-dir.",
                         state_dir);
    if (!result)
        result = folder_open(spool->state, "spool", &spool->scans);
    if (!result)
        result = folder_open(spool->state, "results", &spool->results);
    if (!result && fsync(spool->state) < 0)
        result = io_failed("making the state folder");
    if (result) {
        spool_free(spool);
        return result;
    }
    *out = spool;
    return 0;
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    const int folders[] = {spool->scans, spool->results, spool->state};
    for (int i = 0; i < 3; i++)
        if (folders[i] >= 0)
            close(folders[i]);
    pthread_mutex_destroy(&spool->scans_sync.lock);
    pthread_cond_destroy(&spool->scans_sync.finished_one);
    free(spool);
}

/* Another reading of a folder that is open; NULL: failed. */
static DIR *folder_read(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !stream)
        close(fd);
    return stream;
}

/* Remove the folder `name` and the files in it. Results hold no folders. */
static void folder_remove(int parent, const char *name)
{
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    DIR *stream = folder_read(folder);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        unlinkat(folder, entry->d_name, 0);
    if (stream)
        closedir(stream);
    close(folder);
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* ---- names ---- */

int spool_new_id(char id[JOB_ID])
{
    unsigned char random[10];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(ERR_INTERNAL, "The system gave no random numbers: %s.", strerror(errno));
    uint64_t time = (uint64_t)clock_milliseconds();
    for (int i = 9; i >= 0; i--, time >>= 5)
        id[i] = digits[time & 31];
    unsigned held = 0, bits = 0;
    for (int i = 0, next = 0; i < 16; i++) {
        if (bits < 5) {
            held = held << 8 | random[next++];
            bits += 8;
        }
        bits -= 5;
        id[10 + i] = digits[held >> bits & 31];
    }
    id[JOB_ID - 1] = '\0';
    return 0;
}

bool spool_is_id(const char *text)
{
    return strlen(text) == JOB_ID - 1 && strspn(text, digits) == JOB_ID - 1;
}

bool spool_is_name(const char *name)
{
    size_t length = strlen(name);
    return length > 0 && length < SPOOL_NAME && name[0] != '.' && name[0] != '-' &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == length;
}

const char *spool_media(const char *name)
{
    const char *ending = strchr(name, '.');
    int format = ending ? image_format_find(ending + 1) : -1;
    if (format >= 0)
        return image_format_media((enum image_format)format);
    return ending && strcmp(ending, ".json") == 0 ? "application/json" : "application/octet-stream";
}

/* ---- what is there at start ---- */

struct row {
    struct job_files job;
    bool scan; /* is on the disk */
};

struct rows {
    struct row *row; /* sorted by job.id once all are there */
    size_t count, room;
};

static int row_add(void *context, const struct job_files *job)
{
    struct rows *rows = context;
    if (rows->count == rows->room) {
        size_t room = rows->room ? 2 * rows->room : 256;
        struct row *more = realloc(rows->row, room * sizeof *more);
        if (!more)
            return 1;
        rows->row = more;
        rows->room = room;
    }
    rows->row[rows->count++] = (struct row){.job = *job};
    return 0;
}

static int row_compare(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->job.id, ((const struct row *)b)->job.id);
}

static struct row *row_find(struct rows *rows, const char *id)
{
    struct row key = {.scan = false};
    snprintf(key.job.id, sizeof key.job.id, "%s", id);
    return rows->count && spool_is_id(id) ? bsearch(&key, rows->row, rows->count, sizeof key, row_compare) : NULL;
}

static int clean_scans(struct spool *spool, struct rows *rows, int *removed)
{
    DIR *stream = folder_read(spool->scans);
    if (!stream)
        return io_failed("reading the spool");
    for (struct dirent *entry; (entry = readdir(stream));) {
        struct stat there;
        if (entry->d_name[0] == '.' || fstatat(spool->scans, entry->d_name, &there, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        struct row *row = row_find(rows, entry->d_name);
        if (row && row->job.scan_stays) {
            row->scan = true;
            spool->used += there.st_size;
        } else if (S_ISREG(there.st_mode) && unlinkat(spool->scans, entry->d_name, 0) == 0) {
            (*removed)++;
        }
    }
    closedir(stream);
    return 0;
}

static int clean_results(struct spool *spool, struct rows *rows, int *removed)
{
    DIR *stream = folder_read(spool->results);
    if (!stream)
        return io_failed("reading the results");
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        /* An image that was being converted. */
        if (entry->d_name[0] == '.' && unlinkat(spool->results, entry->d_name, 0) == 0) {
            (*removed)++;
            continue;
        }
        /* A result without a committed success was renamed just before a crash; its job runs again. */
        const struct row *row = row_find(rows, entry->d_name);
        if (!row || row->job.state != JOB_SUCCEEDED) {
            folder_remove(spool->results, entry->d_name);
            (*removed)++;
        }
    }
    closedir(stream);
    return 0;
}

int spool_clean(struct spool *spool, struct store *store, int *removed, int *lost)
{
    struct rows rows = {.row = NULL};
    *removed = *lost = 0;
    int64_t counts[JOB_STATES], oldest, total = 0;
    int result = store_counts(store, counts, &oldest);
    for (int i = 0; i < JOB_STATES; i++)
        total += counts[i];
    if (!result)
        result = store_each(store, row_add, &rows);
    /* Without every row, files of jobs would look like orphans. */
    if (!result && rows.count != (size_t)total)
        result = err_set(ERR_NO_MEMORY, "No memory for the list of %lld jobs.", (long long)total);
    if (!result && rows.count)
        qsort(rows.row, rows.count, sizeof *rows.row, row_compare);
    if (!result)
        result = clean_scans(spool, &rows, removed);
    if (!result)
        result = clean_results(spool, &rows, removed);
    for (size_t i = 0; !result && i < rows.count; i++) {
        if (rows.row[i].job.state != JOB_QUEUED || rows.row[i].scan)
            continue;
        err_set(ERR_IO, "The uploaded scan is no longer on the server's disk. Submit it again.");
        result = store_fail(store, rows.row[i].job.id, err_last());
        (*lost)++;
    }
    free(rows.row);
    return result;
}

/* ---- uploads ---- */

int spool_free_bytes(struct spool *spool, int64_t *bytes)
{
    struct statvfs disk;
    if (fstatvfs(spool->scans, &disk) < 0)
        return io_failed("asking for the space on the disk");
    *bytes = (int64_t)(disk.f_bavail * disk.f_frsize) - spool->reserve;
    return 0;
}

/* Count `more` bytes as used; `held` are the sender's already. Fails with ERR_SPOOL_FULL. */
static int used_add(struct spool *spool, int64_t more, int64_t held)
{
    int64_t before = atomic_fetch_add(&spool->used, more);
    if (spool->limit > 0 && before + more > spool->limit) {
        atomic_fetch_sub(&spool->used, more);
        int64_t left = spool->limit - before;
        return err_set_bytes(ERR_SPOOL_FULL, held + more, left > 0 ? left : 0,
                             "The waiting uploads leave no room for %lld bytes more. Try again later.",
                             (long long)more);
    }
    return 0;
}

static int reserve(struct spool_file *file, int64_t more)
{
    int result = used_add(file->spool, more, file->reserved);
    if (!result)
        file->reserved += more;
    return result;
}

/* Whether the disk still has its reserve, with `more` bytes to come. */
static int disk_check(struct spool *spool, int64_t more)
{
    int64_t left = 0;
    int result = spool_free_bytes(spool, &left);
    if (!result && left < more)
        return err_set_bytes(ERR_SPOOL_FULL, more, left > 0 ? left : 0,
                             "The server's disk has no room for this upload. Try again later, or free some space.");
    return result;
}

static int too_large(const struct spool *spool, int64_t bytes)
{
    return err_set_bytes(ERR_TOO_LARGE, bytes, spool->body_limit,
                         "The upload exceeds %lld bytes, the most that this server takes (option body-limit).",
                         (long long)spool->body_limit);
}

int spool_reserve(struct spool *spool, int64_t bytes)
{
    int result = bytes > spool->body_limit ? too_large(spool, bytes) : disk_check(spool, bytes);
    return result ? result : used_add(spool, bytes, 0);
}

void spool_release(struct spool *spool, int64_t bytes)
{
    atomic_fetch_sub(&spool->used, bytes);
}

void spool_count(struct spool *spool, int64_t bytes)
{
    atomic_fetch_add(&spool->used, bytes);
}

int spool_begin(struct spool *spool, int64_t expected, struct spool_file *out)
{
    struct spool_file file = {.spool = spool, .fd = -1};
    int64_t known = expected > 0 ? expected : 0;
    if (known > spool->body_limit)
        return too_large(spool, known);
    int result = spool_new_id(file.id);
    if (!result)
        result = disk_check(spool, known);
    if (!result)
        result = reserve(&file, known);
    if (result)
        return result;
    file.fd = openat(spool->scans, file.id, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file.fd < 0)
        result = io_failed("opening a file in the spool");
    /* Taking the blocks now refuses early what could not be stored; a file system that cannot, need not. */
    else if (known && fallocate(file.fd, FALLOC_FL_KEEP_SIZE, 0, known) < 0 && (errno == ENOSPC || errno == EDQUOT))
        result = io_failed("reserving space for the upload");
    if (result) {
        spool_abort(&file);
        return result;
    }
    *out = file;
    return 0;
}

int spool_append(struct spool_file *file, const void *data, size_t bytes)
{
    struct spool *spool = file->spool;
    int64_t total = file->bytes + (int64_t)bytes;
    int result = 0;
    if (total > spool->body_limit)
        return too_large(spool, total);
    if (total > file->reserved)
        result = reserve(file, total - file->reserved);
    for (size_t done = 0; !result && done < bytes;) {
        ssize_t n = write(file->fd, (const char *)data + done, bytes - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            result = io_failed("writing the upload");
    }
    if (result)
        return result;
    file->bytes = total;
    if (file->bytes - file->pushed >= PUSH_BYTES) {
        sync_file_range(file->fd, file->pushed, file->bytes - file->pushed, SYNC_FILE_RANGE_WRITE);
        file->pushed = file->bytes;
        result = disk_check(spool, 0);
    }
    return result;
}

/* Return once a sync of `folder` that began after this call has ended. */
static int folder_sync(struct folder_sync *sync, int folder)
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
    return errno ? io_failed("syncing the spool") : 0;
}

int spool_adopt(struct spool *spool, int folder, const char *id)
{
    if (linkat(folder, id, spool->scans, id, 0) < 0 && errno != EEXIST)
        return io_failed("moving an upload into the spool");
    return folder_sync(&spool->scans_sync, spool->scans);
}

void spool_disown(struct spool *spool, const char *id)
{
    unlinkat(spool->scans, id, 0);
}

int spool_finish(struct spool_file *file)
{
    if (fsync(file->fd) < 0)
        return io_failed("syncing the upload");
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) < 0)
        return io_failed("closing the upload");
    int result = folder_sync(&file->spool->scans_sync, file->spool->scans);
    if (result)
        return result;
    atomic_fetch_sub(&file->spool->used, file->reserved - file->bytes);
    file->reserved = file->bytes;
    return 0;
}

void spool_abort(struct spool_file *file)
{
    if (!file->spool)
        return;
    if (file->fd >= 0)
        close(file->fd);
    unlinkat(file->spool->scans, file->id, 0);
    atomic_fetch_sub(&file->spool->used, file->reserved);
    *file = (struct spool_file){.fd = -1};
}

int spool_link(struct spool *spool, const char *id, char fresh[JOB_ID], int64_t *bytes)
{
    struct spool_file copy = {.spool = spool, .fd = -1};
    struct stat there;
    int result = spool_new_id(copy.id);
    if (!result && fstatat(spool->scans, id, &there, AT_SYMLINK_NOFOLLOW) < 0)
        result = err_set(ERR_SCAN_GONE,
                         "The scan of job %.40s is no longer there: it ended, and this server does not keep such scans "
                         "(option keep-scans). Send the scan again.",
                         id);
    /* Counted in full, as if it were another: the two may be removed in any order. */
    if (!result)
        result = reserve(&copy, there.st_size);
    if (result)
        return result;
    if (linkat(spool->scans, id, spool->scans, copy.id, 0) < 0)
        result = io_failed("linking the scan");
    if (!result)
        result = folder_sync(&spool->scans_sync, spool->scans);
    if (result) {
        struct err failure = *err_last();
        spool_abort(&copy);
        return err_restore(&failure);
    }
    memcpy(fresh, copy.id, JOB_ID);
    *bytes = there.st_size;
    return 0;
}

void spool_remove(struct spool *spool, const char *id)
{
    struct stat there;
    if (fstatat(spool->scans, id, &there, AT_SYMLINK_NOFOLLOW) == 0 && unlinkat(spool->scans, id, 0) == 0)
        atomic_fetch_sub(&spool->used, there.st_size);
}

int spool_open(struct spool *spool, const char *id, int *fd)
{
    *fd = openat(spool->scans, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? io_failed("opening the uploaded scan") : 0;
}

/* ---- results ---- */

static void temporary_name(const char *id, char name[JOB_ID + 4])
{
    snprintf(name, JOB_ID + 4, "%s.tmp", id);
}

int spool_results_begin(struct spool *spool, const char *id, int *folder)
{
    char name[JOB_ID + 4];
    temporary_name(id, name);
    folder_remove(spool->results, name);
    return folder_open(spool->results, name, folder);
}

/* Sync each file of `folder` and add it to `results`. */
static int results_sync(int folder, json_t *results)
{
    DIR *stream = folder_read(folder);
    if (!stream)
        return io_failed("reading the results");
    int result = 0;
    for (struct dirent *entry; !result && (entry = readdir(stream));) {
        if (!spool_is_name(entry->d_name))
            continue;
        struct stat there;
        int fd = openat(folder, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &there) < 0 || fsync(fd) < 0)
            result = io_failed("syncing a result");
        else if (S_ISREG(there.st_mode))
            json_array_append_new(results, json_pack("{s:s, s:s, s:I}", "name", entry->d_name, "type",
                                                     spool_media(entry->d_name), "bytes", (json_int_t)there.st_size));
        if (fd >= 0)
            close(fd);
    }
    closedir(stream);
    if (!result && fsync(folder) < 0)
        result = io_failed("syncing the results");
    return result;
}

int spool_results_finish(struct spool *spool, const char *id, json_t **results)
{
    char name[JOB_ID + 4];
    struct stat image;
    json_t *list = json_array();
    temporary_name(id, name);
    int folder = openat(spool->results, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int result = folder < 0 ? io_failed("opening the results") : 0;
    if (!result &&
        (fstatat(folder, "image.h5", &image, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(image.st_mode) || image.st_size == 0))
        result = err_set(ERR_INTERNAL, "The worker reported success and left no image. This is a fault of the server.");
    /* Named first, then synced: one commit of the file system's journal takes it all. Without the job's row, which is
     * committed last, a folder of this name counts for nothing. */
    if (!result && renameat(spool->results, name, spool->results, id) < 0) {
        /* An earlier success that was not committed lies in the way. */
        folder_remove(spool->results, id);
        if (renameat(spool->results, name, spool->results, id) < 0)
            result = io_failed("renaming the results");
    }
    if (!result)
        result = results_sync(folder, list);
    if (!result && fsync(spool->results) < 0)
        result = io_failed("syncing the results");
    if (folder >= 0)
        close(folder);
    if (result) {
        json_decref(list);
        return result;
    }
    *results = list;
    return 0;
}

void spool_results_remove(struct spool *spool, const char *id)
{
    char name[JOB_ID + 4];
    temporary_name(id, name);
    folder_remove(spool->results, name);
    folder_remove(spool->results, id);
}

int spool_result_open(struct spool *spool, const char *id, const char *name, int *fd, int64_t *bytes, int64_t *stamp)
{
    char path[JOB_ID + SPOOL_NAME];
    struct stat there;
    if (!spool_is_id(id) || !spool_is_name(name))
        return err_set(ERR_NOT_FOUND, "The job has no result of this name.");
    snprintf(path, sizeof path, "%s/%s", id, name);
    int file = openat(spool->results, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 && errno != ENOENT && errno != ELOOP)
        return io_failed("opening a result");
    if (file < 0 || fstat(file, &there) < 0 || !S_ISREG(there.st_mode)) {
        if (file >= 0)
            close(file);
        return err_set(ERR_NOT_FOUND, "Job %s has no result named \"%s\"; its document lists those there are.", id,
                       name);
    }
    *fd = file;
    *bytes = there.st_size;
    *stamp = (int64_t)there.st_mtim.tv_sec * 1000000000 + there.st_mtim.tv_nsec;
    return 0;
}
