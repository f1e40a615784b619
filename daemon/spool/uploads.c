#include "daemon/spool/uploads_parts.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int upload_unknown(void)
{
    return err_set(ERR_NOT_FOUND,
                   "There is no upload with this id: it expired, was removed, or never existed. Create a new one.");
}

static int unfit(void)
{
    return err_set(ERR_IO, "The files of this upload on the server are inconsistent. Create a new one; the server's "
                           "operator can run mrirecond --check-state.");
}

void upload_clear(struct upload *upload)
{
    json_decref(upload->job);
    *upload = (struct upload){.job = NULL};
}

int uploads_create(struct uploads **out, struct spool *spool, const char *state_dir, int64_t lifetime,
                   struct uploads_listener listener, const struct log *log)
{
    char path[4096];
    struct uploads *uploads = calloc(1, sizeof *uploads);
    if (!uploads)
        return err_no_memory("the list of uploads");
    uploads->spool = spool;
    uploads->lifetime = lifetime;
    uploads->listener = listener;
    int64_t now;
    uploads->clock_offset = clock_offset(&now);
    uploads->log = log;
    thread_cond_init(&uploads->stop);
    thread_cond_init(&uploads->kept);
    pthread_mutex_init(&uploads->lock, NULL);
    pthread_mutex_init(&uploads->open_lock, NULL);
    snprintf(path, sizeof path, "%s/uploads", state_dir);
    uploads->folder = -1;
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        uploads->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* The folder's own entry is on the disk before any file in it. */
    if (uploads->folder < 0 || fsync(spool->state) < 0) {
        int rc = disk_failed("making the folder of uploads");
        uploads_free(uploads);
        return rc;
    }
    *out = uploads;
    return 0;
}

void uploads_free(struct uploads *uploads)
{
    if (!uploads)
        return;
    pthread_mutex_lock(&uploads->lock);
    uploads->stopping = true;
    pthread_cond_signal(&uploads->stop);
    pthread_mutex_unlock(&uploads->lock);
    if (uploads->reaps)
        pthread_join(uploads->reaper, NULL);
    if (uploads->folder >= 0)
        close(uploads->folder);
    pthread_cond_destroy(&uploads->stop);
    pthread_cond_destroy(&uploads->kept);
    pthread_mutex_destroy(&uploads->lock);
    pthread_mutex_destroy(&uploads->open_lock);
    free(uploads->open);
    free(uploads);
}

/* ---- when the last bytes arrived ---- */

/* The present time on the clock of the files' times. Under the lock. */
static int64_t time_now(const struct uploads *uploads)
{
    return clock_boot_milliseconds() + uploads->clock_offset;
}

static struct timespec time_at(int64_t milliseconds)
{
    return (struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};
}

static int64_t time_of(const struct stat *file)
{
    return (int64_t)file->st_mtim.tv_sec * 1000 + file->st_mtim.tv_nsec / 1000000;
}

/* Note the arrival of bytes in the file's times. If that fails, the kernel's own time is as good, unless the clock is
 * just being set. */
static void touch(struct uploads *uploads, int fd)
{
    pthread_mutex_lock(&uploads->lock);
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, time_at(time_now(uploads))};
    (void)futimens(fd, times);
    pthread_mutex_unlock(&uploads->lock);
}

/* ms after which an idle upload with `bytes` arrived bytes is removed. */
static int64_t lifetime_of(const struct uploads *uploads, int64_t bytes)
{
    return 1000 * (bytes == 0 && uploads->lifetime > EMPTY_SECONDS ? EMPTY_SECONDS : uploads->lifetime);
}

/* How many bytes of an upload have arrived (-1: its files are inconsistent), and ms until it is removed. Under one
 * lock, so that no chunk with a checksum begins in between: its bytes do not count before it has ended. Such a chunk
 * that the disk refused to remove has its ID.chunk until after its bytes are gone, so that is read first. */
static int upload_look(struct uploads *uploads, const char *id, int64_t *arrived, int64_t *left)
{
    struct stat there;
    int64_t chunk = CHUNK_NONE;
    pthread_mutex_lock(&uploads->lock);
    if (!upload_is_checked(uploads, id, &chunk))
        chunk = upload_chunk_read(uploads->folder, id);
    int rc = chunk == CHUNK_UNREAD ? -1 : fstatat(uploads->folder, id, &there, AT_SYMLINK_NOFOLLOW);
    *arrived = rc < 0 ? 0 : upload_arrived(chunk, there.st_size);
    *left = rc < 0 ? 0 : time_of(&there) + lifetime_of(uploads, there.st_size) - time_now(uploads);
    pthread_mutex_unlock(&uploads->lock);
    return rc;
}

void upload_time_left_set(struct uploads *uploads, const char *id, int64_t bytes, int64_t left)
{
    pthread_mutex_lock(&uploads->lock);
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT},
                                     time_at(time_now(uploads) + left - lifetime_of(uploads, bytes))};
    (void)utimensat(uploads->folder, id, times, AT_SYMLINK_NOFOLLOW);
    pthread_mutex_unlock(&uploads->lock);
}

/* The wall clock was set by `step` ms. */
struct move {
    int folder;
    int64_t step;
};

static void time_move(void *context, const char *id)
{
    const struct move *move = context;
    struct stat there;
    if (disk_look(move->folder, id, &there) != DISK_THERE)
        return;
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, time_at(time_of(&there) + move->step)};
    (void)utimensat(move->folder, id, times, AT_SYMLINK_NOFOLLOW);
}

void uploads_clock_follow(struct uploads *uploads)
{
    int64_t now;
    struct move move = {uploads->folder, clock_offset(&now) - uploads->clock_offset};
    if (llabs(move.step) < CLOCK_STEP_LEAST_MS)
        return;
    pthread_mutex_lock(&uploads->lock);
    if (uploads_each(uploads->folder, time_move, &move) == 0)
        uploads->clock_offset += move.step;
    pthread_mutex_unlock(&uploads->lock);
}

/* ---- files ---- */

/* Write and fsync a small file. */
static int small_write(struct uploads *uploads, const char *name, const char *text)
{
    size_t written;
    int fd = openat(uploads->folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = fd < 0 || disk_write(fd, text, strlen(text), &written) < 0 || fsync(fd) < 0
                 ? spool_failed(uploads->spool, "noting an upload")
                 : 0;
    if (fd >= 0)
        close(fd);
    if (rc) /* a part of the text must not be read */
        unlinkat(uploads->folder, name, 0);
    return rc;
}

int upload_get(struct uploads *uploads, const char *id, struct upload *out)
{
    int64_t arrived, left;
    if (upload_is_lost(uploads, id))
        return upload_lost(ERR_NOT_FOUND);
    json_t *note = upload_note_read(uploads->folder, id);
    if (!note || upload_look(uploads, id, &arrived, &left) < 0) {
        int rc = errno == ENOENT ? upload_unknown() : disk_failed("looking for an upload");
        json_decref(note);
        return rc;
    }
    if (arrived < 0) {
        json_decref(note);
        return unfit();
    }
    *out = (struct upload){
        .length = json_integer_value(json_object_get(note, "length")),
        .offset = arrived,
        .left = left,
        .job = json_incref(json_object_get(note, "job")),
    };
    memcpy(out->id, id, JOB_ID);
    json_decref(note);
    return 0;
}

static int files_begin(struct uploads *uploads, const char *id, const struct job *job, const char *metadata)
{
    char name[UPLOAD_NAME];
    int fd = openat(uploads->folder, id, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = fd < 0 ? spool_failed(uploads->spool, "beginning an upload") : open_reserve(uploads, id, fd);
    json_t *note = upload_note_pack(job, metadata);
    char *text = note ? json_dumps(note, JSON_COMPACT) : NULL;
    json_decref(note);
    if (!rc && !text)
        rc = err_no_memory("an upload; try again later");
    if (!rc)
        touch(uploads, fd);
    if (!rc && fsync(fd) < 0)
        rc = spool_failed(uploads->spool, "beginning an upload");
    if (!rc)
        rc = small_write(uploads, upload_file(name, id, ".json"), text);
    if (!rc && fsync(uploads->folder) < 0)
        rc = spool_failed(uploads->spool, "beginning an upload");
    free(text);
    if (fd >= 0)
        close(fd);
    return rc;
}

int upload_begin(struct uploads *uploads, const struct job *job, const char *metadata, struct upload *out)
{
    char id[JOB_ID];
    int rc = spool_new_id(id);
    if (!rc)
        rc = open_begin(uploads, id, job);
    if (rc)
        return rc;
    rc = files_begin(uploads, id, job, metadata);
    if (!rc)
        rc = upload_get(uploads, id, out);
    if (rc) {
        struct err failure = *err_last();
        upload_files_remove(uploads->folder, id);
        open_end(uploads, id, false);
        return err_restore(&failure);
    }
    return 0;
}

/* ---- chunks ---- */

int chunk_take_back(struct uploads *uploads, const char *id)
{
    char name[UPLOAD_NAME];
    struct stat note;
    int64_t arrived;
    const enum disk_sight seen = disk_look(uploads->folder, upload_file(name, id, ".chunk"), &note);
    if (seen != DISK_THERE)
        return seen == DISK_MISSING ? 0 : disk_failed("taking back a chunk");
    const enum upload_fault fault = upload_examine(uploads->folder, id, &arrived);
    if (fault != UPLOAD_SOUND)
        return fault == UPLOAD_UNREAD ? disk_failed("taking back a chunk") : unfit();
    int fd = openat(uploads->folder, id, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    /* As in chunk_end(): after a power cut ID.chunk would undo the next chunk. */
    bool taken = fd >= 0 && ftruncate(fd, arrived) == 0 && fsync(fd) == 0 && unlinkat(uploads->folder, name, 0) == 0 &&
                 fsync(uploads->folder) == 0;
    int rc = taken ? 0 : spool_failed(uploads->spool, "taking back a chunk");
    if (fd >= 0)
        close(fd);
    return rc;
}

/* 0: the upload is a job; else the failure of store_get(). */
static int job_look(struct store *store, const char *id)
{
    struct job job = {.state = JOB_QUEUED};
    int rc = store_get(store, id, &job);
    job_clear(&job);
    return rc;
}

/* upload_get() of an upload that is about to grow or to become a job. What is left of one that is a job is counted as
 * its scan. By the lock's holder. */
static int upload_take(struct uploads *uploads, const char *id, struct upload *out)
{
    int rc = chunk_take_back(uploads, id);
    if (!rc)
        rc = upload_get(uploads, id, out);
    return rc || job_look(uploads->store, id) != ERR_NOT_FOUND ? rc : open_found(uploads, out);
}

int chunk_begin(struct uploads *uploads, const char *id, int64_t offset, bool checked, struct upload_chunk *out)
{
    char name[UPLOAD_NAME], text[24];
    struct upload upload = {.job = NULL};
    int rc = spool_is_id(id) ? upload_lock(uploads, id, UPLOAD_WRITE) : upload_unknown();
    if (rc)
        return rc;
    rc = upload_take(uploads, id, &upload);
    const bool known = !rc;
    struct upload_chunk chunk = {
        .uploads = uploads, .fd = -1, .begin = offset, .offset = offset, .length = upload.length, .checked = checked};
    memcpy(chunk.id, id, JOB_ID);
    if (!rc && offset != upload.offset)
        rc =
            err_set(ERR_UPLOAD_OFFSET,
                    "Upload-Offset is %lld, but %lld bytes have arrived. Get the offset with HEAD, and continue there.",
                    (long long)offset, (long long)upload.offset);
    if (!rc) {
        chunk.fd = openat(uploads->folder, upload_file(name, id, ""), O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
        if (chunk.fd < 0)
            rc = disk_failed("opening an upload");
    }
    if (!rc)
        rc = open_reserve(uploads, id, chunk.fd);
    if (known)
        open_touch(uploads, id, upload.offset);
    upload_clear(&upload);
    snprintf(text, sizeof text, CHUNK_NOTE, (long long)offset);
    if (!rc && checked)
        upload_check_begin(uploads, id, offset);
    if (!rc && checked)
        rc = small_write(uploads, upload_file(name, id, ".chunk"), text);
    if (rc) {
        if (chunk.fd >= 0)
            close(chunk.fd);
        upload_unlock(uploads, id);
        return rc;
    }
    *out = chunk;
    return 0;
}

int chunk_append(struct upload_chunk *chunk, const void *data, size_t bytes)
{
    if ((int64_t)bytes > chunk->length - chunk->offset) {
        /* Otherwise the rejected bytes would complete the upload. */
        chunk->dropped = true;
        if (ftruncate(chunk->fd, chunk->begin) == 0)
            chunk->offset = chunk->begin;
        return err_set(ERR_TOO_LARGE, "The body exceeds the %lld bytes of Upload-Length: none of its bytes were kept.",
                       (long long)chunk->length);
    }
    size_t written;
    int rc = disk_write(chunk->fd, data, bytes, &written);
    chunk->offset += (int64_t)written;
    return rc < 0 ? spool_failed(chunk->uploads->spool, "writing the upload") : 0;
}

/* The disk failed to store a chunk's bytes and to remove them: they can be read, and may not be on the disk. The
 * upload's note is removed; if even that fails, the upload is refused for the life of this process. */
static int give_up(struct upload_chunk *chunk)
{
    struct uploads *uploads = chunk->uploads;
    if (upload_files_remove(uploads->folder, chunk->id) >= 0) {
        open_end(uploads, chunk->id, false);
    } else {
        unlinkat(uploads->folder, chunk->id, 0); /* a start must not take them for arrived */
        upload_lock_for_good(uploads, chunk->id);
    }
    if (fsync(uploads->folder) < 0) /* else a power cut may bring them back */
        spool_suspect(uploads->spool);
    log_line(uploads->log, LOG_LEVEL_ERROR, chunk->id, "upload given up: its bytes may not be on the disk");
    return upload_lost(ERR_IO);
}

int chunk_end(struct upload_chunk *chunk, bool keep)
{
    char name[UPLOAD_NAME];
    int rc = 0;
    if (!chunk->uploads)
        return 0;
    struct spool *spool = chunk->uploads->spool;
    bool back = chunk->dropped || (chunk->checked && !keep);
    touch(chunk->uploads, chunk->fd);
    if (!back && fdatasync(chunk->fd) < 0) {
        rc = spool_failed(spool, "syncing an upload");
        back = true; /* bytes that one fsync failed to write may be missing although the next one succeeds */
    }
    if (back && (ftruncate(chunk->fd, chunk->begin) < 0 || fdatasync(chunk->fd) < 0)) {
        rc = spool_failed(spool, "taking back a chunk");
        if (!chunk->checked) /* otherwise ID.chunk says how much of it counts */
            rc = give_up(chunk);
    }
    close(chunk->fd);
    if (back)
        chunk->offset = chunk->begin;
    open_touch(chunk->uploads, chunk->id, chunk->offset);
    int folder = chunk->uploads->folder;
    /* fsync: after a power cut the file would undo a chunk that was acknowledged. */
    if (!rc && chunk->checked && (unlinkat(folder, upload_file(name, chunk->id, ".chunk"), 0) < 0 || fsync(folder) < 0))
        rc = spool_failed(spool, "ending a chunk");
    upload_unlock(chunk->uploads, chunk->id);
    chunk->uploads = NULL;
    return rc;
}

/* ---- the end ---- */

static void whole_tell(const struct uploads *uploads, const struct upload_whole *whole, const struct job *job)
{
    int scan = openat(uploads->folder, job->id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (scan >= 0)
        whole->told(whole->context, job, scan);
}

int upload_finish(struct uploads *uploads, struct store *store, const char *id, int64_t queue_limit,
                  const struct upload_whole *whole, struct job *job)
{
    struct upload upload = {.job = NULL};
    int rc = upload_lock(uploads, id, UPLOAD_FINISH);
    if (rc)
        return rc;
    rc = upload_take(uploads, id, &upload);
    if (!rc && upload.offset != upload.length)
        rc = err_set(ERR_UPLOAD_OFFSET, "The upload has %lld of its %lld bytes.", (long long)upload.offset,
                     (long long)upload.length);
    if (!rc && job_look(store, id) == 0) {
        upload_forget(uploads->spool, id); /* that it could not be removed then makes it no new job */
        rc = upload_unknown();
    }
    if (!rc)
        rc = upload_job(&upload, job);
    if (!rc && whole)
        whole_tell(uploads, whole, job);
    if (!rc)
        rc = spool_adopt(uploads->spool, uploads->folder, id);
    if (!rc) {
        rc = store_submit(store, job, queue_limit);
        struct err failure = *err_last();
        if (rc && job_look(store, id) == ERR_NOT_FOUND)
            spool_disown(uploads->spool, id);
        if (rc)
            err_restore(&failure);
    }
    upload_clear(&upload);
    if (!rc) {
        upload_forget(uploads->spool, id);
        open_end(uploads, id, true);
    }
    upload_unlock(uploads, id);
    return rc;
}

int upload_remove(struct uploads *uploads, const char *id)
{
    struct upload upload = {.job = NULL};
    int rc = spool_is_id(id) ? upload_lock(uploads, id, UPLOAD_WRITE) : upload_unknown();
    if (rc)
        return rc;
    rc = upload_get(uploads, id, &upload);
    if (!rc)
        rc = upload_forget(uploads->spool, id);
    if (!rc) {
        open_end(uploads, id, false);
        rc = spool_uploads_settle(uploads->spool);
    }
    upload_clear(&upload);
    upload_unlock(uploads, id);
    return rc;
}
