#include "daemon/uploads.h"

#include "daemon/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITERS = 1024, NAME = JOB_ID + 8, REAP_SECONDS = 60 };

struct uploads {
    struct spool *spool;
    struct store *store; /* these two from uploads_recover() on */
    const int64_t *queue_limit;
    const struct log *log;
    int folder;
    int64_t lifetime;
    pthread_t reaper;
    bool reaps, stopping;
    pthread_mutex_t lock; /* of `writing` and `stopping` */
    pthread_cond_t stop;
    char writing[WRITERS][JOB_ID];
};

static int unknown(void)
{
    return err_set(ERR_NOT_FOUND,
                   "There is no upload of this id: it expired, was removed, or never was. Begin a new one.");
}

void upload_clear(struct upload *upload)
{
    json_decref(upload->job);
    *upload = (struct upload){.job = NULL};
}

int uploads_create(struct uploads **out, struct spool *spool, const char *state_dir, int64_t lifetime,
                   const struct log *log)
{
    char path[4096];
    struct uploads *uploads = calloc(1, sizeof *uploads);
    if (!uploads)
        return err_set(ERR_NO_MEMORY, "No memory for the list of uploads.");
    uploads->spool = spool;
    uploads->lifetime = lifetime;
    uploads->log = log;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&uploads->stop, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&uploads->lock, NULL);
    snprintf(path, sizeof path, "%s/uploads", state_dir);
    uploads->folder = -1;
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        uploads->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* The folder is named on the disk before anything in it is. */
    if (uploads->folder < 0 || fsync(spool->state) < 0) {
        int result = disk_failed("making the folder of uploads");
        uploads_free(uploads);
        return result;
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
    pthread_mutex_destroy(&uploads->lock);
    free(uploads);
}

/* ---- who writes ---- */

/* Take an upload for oneself. */
static int lock(struct uploads *uploads, const char *id)
{
    int free_slot = -1, result = 0;
    pthread_mutex_lock(&uploads->lock);
    for (int i = 0; i < WRITERS && !result; i++) {
        if (strcmp(uploads->writing[i], id) == 0)
            result = err_set(ERR_UPLOAD_LOCKED, "Another request writes to this upload. Try again when it has ended.");
        else if (!*uploads->writing[i])
            free_slot = i;
    }
    if (!result && free_slot < 0)
        result = err_set(ERR_UPLOAD_LOCKED, "%d uploads are written to at the moment. Try again later.", WRITERS);
    if (!result)
        memcpy(uploads->writing[free_slot], id, JOB_ID);
    pthread_mutex_unlock(&uploads->lock);
    return result;
}

static void unlock(struct uploads *uploads, const char *id)
{
    pthread_mutex_lock(&uploads->lock);
    for (int i = 0; i < WRITERS; i++)
        if (strcmp(uploads->writing[i], id) == 0)
            uploads->writing[i][0] = '\0';
    pthread_mutex_unlock(&uploads->lock);
}

/* ---- files ---- */

static const char *beside(char name[NAME], const char *id, const char *ending)
{
    snprintf(name, NAME, "%.*s%s", JOB_ID - 1, id, ending);
    return name;
}

/* Write a small file whole, onto the disk. */
static int small_write(struct uploads *uploads, const char *name, const char *text)
{
    size_t written;
    int fd = openat(uploads->folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int result = fd < 0 || disk_write(fd, text, strlen(text), &written) < 0 || fsync(fd) < 0
                     ? spool_failed(uploads->spool, "noting an upload")
                     : 0;
    if (fd >= 0)
        close(fd);
    return result;
}

static void files_remove(struct uploads *uploads, const char *id)
{
    char name[NAME];
    unlinkat(uploads->folder, beside(name, id, ".chunk"), 0);
    unlinkat(uploads->folder, beside(name, id, ".json"), 0);
    unlinkat(uploads->folder, beside(name, id, ""), 0);
}

/* The note of an upload, ID.json; NULL: none. */
static json_t *note_read(struct uploads *uploads, const char *id)
{
    char name[NAME];
    int fd =
        spool_is_id(id) ? openat(uploads->folder, beside(name, id, ".json"), O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    json_t *note = fd < 0 ? NULL : json_loadfd(fd, 0, NULL);
    if (fd >= 0)
        close(fd);
    if (note && json_is_integer(json_object_get(note, "length")) && json_is_object(json_object_get(note, "job")))
        return note;
    json_decref(note);
    return NULL;
}

int upload_get(struct uploads *uploads, const char *id, struct upload *out)
{
    char name[NAME];
    struct stat there;
    json_t *note = note_read(uploads, id);
    if (!note || fstatat(uploads->folder, beside(name, id, ""), &there, AT_SYMLINK_NOFOLLOW) < 0) {
        json_decref(note);
        return unknown();
    }
    *out = (struct upload){
        .length = json_integer_value(json_object_get(note, "length")),
        .offset = there.st_size,
        .expires = (int64_t)there.st_mtim.tv_sec * 1000 + there.st_mtim.tv_nsec / 1000000 + uploads->lifetime * 1000,
        .job = json_incref(json_object_get(note, "job")),
    };
    memcpy(out->id, id, JOB_ID);
    json_decref(note);
    return 0;
}

int upload_begin(struct uploads *uploads, int64_t length, json_t *job, struct upload *out)
{
    char id[JOB_ID], name[NAME];
    int result = spool_reserve(uploads->spool, length);
    if (result)
        return result;
    result = spool_new_id(id);
    int fd = result ? -1 : openat(uploads->folder, id, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (!result && fd < 0)
        result = spool_failed(uploads->spool, "beginning an upload");
    if (!result && length && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, length) < 0 && (errno == ENOSPC || errno == EDQUOT))
        result = spool_failed(uploads->spool, "reserving space for the upload");
    json_t *note = json_pack("{s:I, s:O}", "length", (json_int_t)length, "job", job);
    char *text = note ? json_dumps(note, JSON_COMPACT) : NULL;
    json_decref(note);
    if (!result && !text)
        result = err_set(ERR_NO_MEMORY, "No memory for an upload. Try again later.");
    if (!result && fsync(fd) < 0)
        result = spool_failed(uploads->spool, "beginning an upload");
    if (!result)
        result = small_write(uploads, beside(name, id, ".json"), text);
    if (!result && fsync(uploads->folder) < 0)
        result = spool_failed(uploads->spool, "beginning an upload");
    free(text);
    if (fd >= 0)
        close(fd);
    if (!result)
        result = upload_get(uploads, id, out);
    if (result) {
        files_remove(uploads, id);
        spool_release(uploads->spool, length);
    }
    return result;
}

/* ---- chunks ---- */

/* Take back what arrived of a chunk whose checksum nobody saw, or whose end failed: the file ends where the note says.
 * By who has the lock, or at the start. */
static int chunk_take_back(struct uploads *uploads, const char *id)
{
    char name[NAME], text[24] = "";
    int fd = openat(uploads->folder, beside(name, id, ".chunk"), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : disk_failed("taking back a chunk");
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    fd = openat(uploads->folder, beside(name, id, ""), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    /* An empty note was being written: nothing of the chunk had arrived. Bytes that are gone need no taking back. */
    bool bad = fd < 0 ? errno != ENOENT : length > 0 && (ftruncate(fd, strtoll(text, NULL, 10)) < 0 || fsync(fd) < 0);
    int result = bad || unlinkat(uploads->folder, beside(name, id, ".chunk"), 0) < 0
                     ? spool_failed(uploads->spool, "taking back a chunk")
                     : 0;
    if (fd >= 0)
        close(fd);
    return result;
}

int chunk_begin(struct uploads *uploads, const char *id, int64_t offset, bool checked, struct upload_chunk *out)
{
    char name[NAME], text[24];
    struct upload upload = {.job = NULL};
    int result = spool_is_id(id) ? lock(uploads, id) : unknown();
    if (result)
        return result;
    result = chunk_take_back(uploads, id);
    if (!result)
        result = upload_get(uploads, id, &upload);
    struct upload_chunk chunk = {
        .uploads = uploads, .fd = -1, .begin = offset, .offset = offset, .length = upload.length, .checked = checked};
    memcpy(chunk.id, id, JOB_ID);
    if (!result && offset != upload.offset)
        result = err_set(ERR_UPLOAD_OFFSET,
                         "Upload-Offset is %lld, and %lld bytes have arrived. Ask by HEAD, and go on there.",
                         (long long)offset, (long long)upload.offset);
    if (!result) {
        chunk.fd = openat(uploads->folder, beside(name, id, ""), O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
        if (chunk.fd < 0)
            result = disk_failed("opening an upload");
    }
    upload_clear(&upload);
    snprintf(text, sizeof text, "%lld", (long long)offset);
    if (!result && checked)
        result = small_write(uploads, beside(name, id, ".chunk"), text);
    if (result) {
        if (chunk.fd >= 0)
            close(chunk.fd);
        unlock(uploads, id);
        return result;
    }
    *out = chunk;
    return 0;
}

int chunk_append(struct upload_chunk *chunk, const void *data, size_t bytes)
{
    if ((int64_t)bytes > chunk->length - chunk->offset)
        return err_set(ERR_TOO_LARGE, "More than the %lld bytes arrive that Upload-Length announced.",
                       (long long)chunk->length);
    size_t written;
    int result = disk_write(chunk->fd, data, bytes, &written);
    chunk->offset += (int64_t)written;
    return result < 0 ? spool_failed(chunk->uploads->spool, "writing the upload") : 0;
}

int chunk_end(struct upload_chunk *chunk, bool keep)
{
    char name[NAME];
    int result = 0;
    if (!chunk->uploads)
        return 0;
    struct spool *spool = chunk->uploads->spool;
    bool back = chunk->checked && !keep;
    if (!back && fdatasync(chunk->fd) < 0) {
        result = spool_failed(spool, "syncing an upload");
        back = true; /* what a sync did not take may be gone by the next one, which would not tell */
    }
    if (back && (ftruncate(chunk->fd, chunk->begin) < 0 || fdatasync(chunk->fd) < 0))
        result = spool_failed(spool, "taking back a chunk");
    close(chunk->fd);
    if (back)
        chunk->offset = chunk->begin;
    if (!result && chunk->checked && unlinkat(chunk->uploads->folder, beside(name, chunk->id, ".chunk"), 0) < 0)
        result = spool_failed(spool, "ending a chunk");
    unlock(chunk->uploads, chunk->id);
    chunk->uploads = NULL;
    return result;
}

/* ---- the end ---- */

/* The job that an upload becomes. */
static int job_of(const struct upload *upload, struct job *job)
{
    const char *kind = json_string_value(json_object_get(upload->job, "kind"));
    json_t *parameters = json_object_get(upload->job, "parameters"), *formats = json_object_get(upload->job, "formats");
    const char *client = json_string_value(json_object_get(upload->job, "client")),
               *priority = json_string_value(json_object_get(upload->job, "priority"));
    int rank = priority ? job_priority_find(priority) : -1;
    if (!kind || !client || rank < 0 || !json_is_object(parameters) || !json_is_array(formats))
        return err_set(ERR_IO, "The note of upload %s is damaged. Remove the upload, and send the scan again.",
                       upload->id);
    memcpy(job->id, upload->id, JOB_ID);
    snprintf(job->kind, sizeof job->kind, "%s", kind);
    snprintf(job->client, sizeof job->client, "%s", client);
    job->priority = (enum job_priority)rank;
    job->patience = json_integer_value(json_object_get(upload->job, "patience"));
    job->bytes = upload->length;
    job->parameters = json_incref(parameters);
    job->formats = json_incref(formats);
    return 0;
}

int upload_finish(struct uploads *uploads, struct store *store, const char *id, int64_t queue_limit, struct job *job)
{
    struct upload upload = {.job = NULL};
    int result = lock(uploads, id);
    if (result)
        return result;
    result = chunk_take_back(uploads, id);
    if (!result)
        result = upload_get(uploads, id, &upload);
    if (!result && upload.offset != upload.length)
        result = err_set(ERR_UPLOAD_OFFSET, "The upload holds %lld of its %lld bytes.", (long long)upload.offset,
                         (long long)upload.length);
    if (!result)
        result = job_of(&upload, job);
    if (!result)
        result = spool_adopt(uploads->spool, uploads->folder, id);
    if (!result) {
        result = store_submit(store, job, queue_limit);
        if (result)
            spool_disown(uploads->spool, id);
    }
    upload_clear(&upload);
    if (!result)
        files_remove(uploads, id); /* the bytes stay counted: they are the scan's now */
    unlock(uploads, id);
    return result;
}

int upload_remove(struct uploads *uploads, const char *id)
{
    struct upload upload = {.job = NULL};
    int result = spool_is_id(id) ? lock(uploads, id) : unknown();
    if (result)
        return result;
    result = upload_get(uploads, id, &upload);
    if (!result) {
        files_remove(uploads, id);
        spool_release(uploads->spool, upload.length);
    }
    upload_clear(&upload);
    unlock(uploads, id);
    return result;
}

/* Call `each` with the id of every upload. */
static int uploads_each(struct uploads *uploads, void (*each)(struct uploads *uploads, const char *id, void *context),
                        void *context)
{
    DIR *stream = disk_folder_read(uploads->folder);
    if (!stream)
        return disk_failed("reading the uploads");
    for (struct dirent *entry; (entry = readdir(stream));) {
        char id[NAME];
        beside(id, entry->d_name, "");
        /* By its note; bytes without one were begun just before a crash. */
        if (!spool_is_id(id))
            continue;
        char name[NAME];
        const char *ending = entry->d_name + JOB_ID - 1;
        if (strcmp(ending, ".json") == 0 ||
            (!*ending && faccessat(uploads->folder, beside(name, id, ".json"), F_OK, 0) < 0))
            each(uploads, id, context);
    }
    closedir(stream);
    return 0;
}

/* ---- upkeep ---- */

/* Make a complete upload a job; `how` is for the log. */
static bool complete(struct uploads *uploads, const struct upload *upload, const char *how)
{
    struct job job = {.state = JOB_QUEUED};
    bool done = upload->offset == upload->length &&
                upload_finish(uploads, uploads->store, upload->id, *uploads->queue_limit, &job) == 0;
    if (done)
        log_line(uploads->log, LOG_LEVEL_INFO, upload->id, "accepted, %s, %lld bytes, %s", job.kind,
                 (long long)job.bytes, how);
    job_clear(&job);
    return done;
}

static void look_after(struct uploads *uploads, const char *id, void *context)
{
    struct upload upload;
    int *removed = context;
    if (upload_get(uploads, id, &upload))
        return;
    /* Its sender may know that all has arrived, and not that the store did not take the job. */
    if (!complete(uploads, &upload, "an upload that was complete") && upload.expires < clock_milliseconds() &&
        upload_remove(uploads, id) == 0)
        (*removed)++;
    upload_clear(&upload);
}

static void *reap(void *context)
{
    struct uploads *uploads = context;
    pthread_mutex_lock(&uploads->lock);
    while (!uploads->stopping) {
        struct timespec until;
        int removed = 0;
        pthread_mutex_unlock(&uploads->lock);
        uploads_each(uploads, look_after, &removed);
        if (removed)
            log_line(uploads->log, LOG_LEVEL_INFO, NULL, "%d unfinished uploads expired", removed);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += uploads->lifetime < REAP_SECONDS ? uploads->lifetime : REAP_SECONDS;
        pthread_mutex_lock(&uploads->lock);
        if (!uploads->stopping)
            pthread_cond_timedwait(&uploads->stop, &uploads->lock, &until);
    }
    pthread_mutex_unlock(&uploads->lock);
    return NULL;
}

static void recover(struct uploads *uploads, const char *id, void *context)
{
    int *resumed = context;
    struct upload upload;
    struct job job = {.state = JOB_QUEUED};
    bool whole = chunk_take_back(uploads, id) == 0;
    if (upload_get(uploads, id, &upload)) {
        files_remove(uploads, id);
        return;
    }
    if (store_get(uploads->store, id, &job) == 0) {
        files_remove(uploads, id); /* its job was committed, and the spool counts the scan */
    } else {
        spool_count(uploads->spool, upload.length);
        if (whole && complete(uploads, &upload, "an upload that was complete when a crash came"))
            (*resumed)++;
    }
    job_clear(&job);
    upload_clear(&upload);
}

int uploads_recover(struct uploads *uploads, struct store *store, const int64_t *queue_limit, int *resumed)
{
    uploads->store = store;
    uploads->queue_limit = queue_limit;
    *resumed = 0;
    int result = uploads_each(uploads, recover, resumed);
    if (!result) {
        int failed = pthread_create(&uploads->reaper, NULL, reap, uploads);
        uploads->reaps = failed == 0;
        if (failed)
            result = err_set(ERR_INTERNAL, "The thread that removes expired uploads cannot be started: %s.",
                             strerror(failed));
    }
    return result;
}
