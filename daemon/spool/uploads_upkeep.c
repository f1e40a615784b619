/* Upkeep of uploads outside requests: at a start, and periodically. */
#include "daemon/spool/uploads_parts.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    CLOCK_SECONDS = 1,
    REAP_SECONDS = 60,
    RESERVATION_SECONDS = 60 /* idle time after which the reservation of bytes to come lapses */
};

/* One pass over all uploads. */
struct pass {
    struct uploads *uploads;
    int *count; /* number removed, or resumed */
};

/* Turn a complete upload into a job; `how`: for the log. */
static bool complete(struct uploads *uploads, const struct upload *upload, const char *how)
{
    struct job job = {.state = JOB_QUEUED};
    bool done = upload->offset == upload->length &&
                upload_finish(uploads, uploads->store, upload->id, *uploads->queue_limit, NULL, &job) == 0;
    if (done) {
        log_line_about(uploads->log, LOG_LEVEL_INFO, &(struct log_about){upload->id, job.client, 0},
                       "accepted, %s, %lld bytes, %s", job.kind, (long long)job.bytes, how);
        uploads->listener.accepted(uploads->listener.context, &job);
    }
    job_clear(&job);
    return done;
}

/* Remove an upload whose time is over, unless a chunk has come since it was looked at. */
static bool expire(struct uploads *uploads, const char *id)
{
    struct upload upload = {.job = NULL};
    if (upload_lock(uploads, id, UPLOAD_UPKEEP))
        return false;
    /* If the disk refuses, it is there until the next search. */
    const bool over =
        upload_get(uploads, id, &upload) == 0 && upload.left < 0 && upload_files_remove(uploads->folder, id) >= 0;
    if (over)
        open_end(uploads, id, false);
    upload_clear(&upload);
    upload_unlock(uploads, id);
    return over;
}

static void upload_look_after(void *context, const char *id)
{
    const struct pass *pass = context;
    struct uploads *uploads = pass->uploads;
    struct upload upload;
    if (upload_get(uploads, id, &upload))
        return;
    /* The client may know that all bytes have arrived, but not that the store rejected the job. */
    if (!complete(uploads, &upload, "an upload that was complete") && upload.left < 0)
        *pass->count += expire(uploads, id);
    upload_clear(&upload);
}

/* Free the blocks beyond the `arrived` bytes of the file. */
static void blocks_give_back(struct uploads *uploads, const char *id, int64_t arrived, int64_t length)
{
    int fd = openat(uploads->folder, id, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    /* Which of the two calls frees the blocks behind the end depends on the file system. */
    if (ftruncate(fd, arrived) == 0)
        (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, arrived, length - arrived);
    close(fd);
}

/* Release the reservation of an idle upload, unless a request writes to it. */
static void lapse(struct uploads *uploads, const char *id)
{
    struct upload upload = {.job = NULL};
    if (upload_get(uploads, id, &upload) == 0) {
        blocks_give_back(uploads, id, upload.offset, upload.length);
        upload_time_left_set(uploads, id, upload.offset, upload.left);
        spool_release(uploads->spool, -open_reserved_set(uploads, id, upload.offset));
    }
    upload_clear(&upload);
}

/* Release the reservations of idle uploads. */
static void idle_lapse(struct uploads *uploads)
{
    char id[JOB_ID];
    double seconds = (double)uploads->lifetime / 2;
    double before = clock_seconds() - (seconds < RESERVATION_SECONDS ? seconds : RESERVATION_SECONDS);
    while (open_idle_find(uploads, id, before))
        if (upload_lock(uploads, id, UPLOAD_UPKEEP) == 0) {
            lapse(uploads, id);
            upload_unlock(uploads, id);
        }
}

static void *reap(void *context)
{
    struct uploads *uploads = context;
    double next = 0;
    pthread_mutex_lock(&uploads->lock);
    while (!uploads->stopping) {
        int removed = 0;
        pthread_mutex_unlock(&uploads->lock);
        uploads_clock_follow(uploads);
        idle_lapse(uploads);
        if (clock_seconds() >= next) {
            if (uploads_each(uploads->folder, upload_look_after, &(struct pass){uploads, &removed}) != 0)
                log_line(uploads->log, LOG_LEVEL_WARNING, NULL, "not all resumable uploads were looked at: %s",
                         err_last()->text);
            next = clock_seconds() + (double)(uploads->lifetime < REAP_SECONDS ? uploads->lifetime : REAP_SECONDS);
        }
        if (removed)
            log_line(uploads->log, LOG_LEVEL_INFO, NULL, "%d unfinished uploads expired", removed);
        double until = clock_seconds() + CLOCK_SECONDS;
        pthread_mutex_lock(&uploads->lock);
        if (!uploads->stopping)
            thread_cond_wait(&uploads->stop, &uploads->lock, until);
    }
    pthread_mutex_unlock(&uploads->lock);
    return NULL;
}

static void recover(void *context, const char *id)
{
    const struct pass *pass = context;
    struct uploads *uploads = pass->uploads;
    struct upload upload = {.job = NULL};
    struct job job = {.state = JOB_QUEUED};
    int64_t arrived;
    int known = store_get(uploads->store, id, &job);
    job_clear(&job);
    enum upload_fault fault = upload_examine(uploads->folder, id, &arrived);
    if (known == 0 || fault == UPLOAD_LEFTOVER) {
        upload_forget(uploads->spool, id); /* the job was committed, and the spool counts its scan */
    } else if (fault != UPLOAD_SOUND) {
        log_line(uploads->log, LOG_LEVEL_WARNING, id,
                 "an upload is damaged and stays as it is: mrirecond --check-state");
    } else {
        bool whole = chunk_take_back(uploads, id) == 0;
        if (upload_get(uploads, id, &upload) == 0 && open_found(uploads, &upload) != 0)
            whole = false;
        if (upload.job && whole && known == ERR_NOT_FOUND &&
            complete(uploads, &upload, "an upload that was complete when a crash came"))
            (*pass->count)++;
    }
    upload_clear(&upload);
}

int uploads_recover(struct uploads *uploads, struct store *store, const _Atomic int64_t *queue_limit, int *resumed)
{
    uploads->store = store;
    uploads->queue_limit = queue_limit;
    *resumed = 0;
    return uploads_each(uploads->folder, recover, &(struct pass){uploads, resumed});
}

int uploads_watch(struct uploads *uploads)
{
    int rc = thread_start(&uploads->reaper, reap, uploads, "removes expired uploads");
    uploads->reaps = !rc;
    return rc;
}
