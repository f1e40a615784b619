/* Unfinished uploads, in memory: how many each client has, and how much of the spool each has reserved. Beginning an
 * upload reads nothing of the others from the disk. */
#include "daemon/spool/uploads_parts.h"

#include "daemon/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPEN_MOST = 2048,      /* uploads of all clients: a start reads each of them */
    OPEN_CLIENT_MOST = 256 /* of one */
};

/* Under the lock. NULL: not found. */
static struct open_upload *open_find(const struct uploads *uploads, const char *id)
{
    for (size_t i = 0; i < uploads->opens; i++)
        if (strcmp(uploads->open[i].id, id) == 0)
            return &uploads->open[i];
    return NULL;
}

/* Under the lock. */
static int open_add(struct uploads *uploads, const struct open_upload *upload)
{
    if (uploads->opens == uploads->open_room) {
        size_t room = uploads->open_room ? 2 * uploads->open_room : 64;
        struct open_upload *more = realloc(uploads->open, room * sizeof *more);
        if (!more)
            return err_no_memory("an upload; try again later");
        uploads->open = more;
        uploads->open_room = room;
    }
    uploads->open[uploads->opens++] = *upload;
    return 0;
}

static struct open_upload open_of(const char *id, const char *client, int64_t length)
{
    struct open_upload upload = {.length = length, .touched = clock_seconds()};
    snprintf(upload.id, sizeof upload.id, "%s", id);
    snprintf(upload.client, sizeof upload.client, "%s", client);
    return upload;
}

/* Whether this client may begin another. Under the lock. */
static int open_check(struct uploads *uploads, const struct job *job)
{
    struct quota begun = {0, 0};
    for (size_t i = 0; i < uploads->opens; i++)
        if (strcmp(uploads->open[i].client, job->client) == 0) {
            begun.jobs++;
            begun.bytes += uploads->open[i].length;
        }
    if (begun.jobs >= OPEN_CLIENT_MOST)
        return err_set(
            ERR_QUOTA,
            "This client has %lld unfinished resumable uploads, which is the limit. Complete them, or remove "
            "them (DELETE).",
            (long long)begun.jobs);
    if (uploads->opens >= OPEN_MOST)
        return err_set(ERR_QUEUE_FULL,
                       "There are %zu unfinished resumable uploads, which is the limit. Try again later.",
                       uploads->opens);
    return store_has_quota(uploads->store, job->quota)
               ? store_room(uploads->store, job->client, job->quota, begun, job->bytes, *uploads->queue_limit)
               : 0;
}

int open_begin(struct uploads *uploads, const char *id, const struct job *job)
{
    struct open_upload upload = open_of(id, job->client, job->bytes);
    pthread_mutex_lock(&uploads->open_lock);
    int rc = open_check(uploads, job);
    if (!rc)
        rc = open_add(uploads, &upload);
    pthread_mutex_unlock(&uploads->open_lock);
    return rc;
}

int open_found(struct uploads *uploads, const struct upload *found)
{
    const char *client = json_string_value(json_object_get(found->job, "client"));
    struct open_upload upload = open_of(found->id, client ? client : "", found->length);
    upload.reserved = found->length;
    upload.arrived = found->offset;
    pthread_mutex_lock(&uploads->open_lock);
    const bool known = open_find(uploads, found->id) != NULL;
    int rc = known ? 0 : open_add(uploads, &upload);
    pthread_mutex_unlock(&uploads->open_lock);
    if (!rc && !known)
        spool_count(uploads->spool, found->length);
    return rc;
}

void open_end(struct uploads *uploads, const char *id, bool is_scan)
{
    int64_t reserved = 0;
    pthread_mutex_lock(&uploads->open_lock);
    struct open_upload *upload = open_find(uploads, id);
    if (upload) {
        reserved = upload->reserved;
        *upload = uploads->open[--uploads->opens];
    }
    pthread_mutex_unlock(&uploads->open_lock);
    if (!is_scan)
        spool_release(uploads->spool, reserved);
}

void open_touch(struct uploads *uploads, const char *id, int64_t arrived)
{
    pthread_mutex_lock(&uploads->open_lock);
    struct open_upload *upload = open_find(uploads, id);
    if (upload) {
        upload->touched = clock_seconds();
        upload->arrived = arrived;
        upload->lapsed = false;
    }
    pthread_mutex_unlock(&uploads->open_lock);
}

/* ---- what is reserved ---- */

int64_t open_reserved_set(struct uploads *uploads, const char *id, int64_t bytes)
{
    int64_t before = bytes;
    pthread_mutex_lock(&uploads->open_lock);
    struct open_upload *upload = open_find(uploads, id);
    if (upload) {
        before = upload->reserved;
        upload->reserved = bytes;
    }
    pthread_mutex_unlock(&uploads->open_lock);
    return bytes - before;
}

/* Bytes that this client's other uploads have reserved and that have not arrived. Under the lock. */
static int64_t others_to_come(const struct uploads *uploads, const struct open_upload *of)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < uploads->opens; i++) {
        const struct open_upload *upload = &uploads->open[i];
        if (upload != of && strcmp(upload->client, of->client) == 0 && upload->reserved > upload->arrived)
            bytes += upload->reserved - upload->arrived;
    }
    return bytes;
}

/* Whether the upload's bytes to come are within its client's `share`. Under the lock. */
static int share_check(const struct uploads *uploads, const struct open_upload *upload, int64_t share)
{
    int64_t others = others_to_come(uploads, upload), mine = upload->length - upload->arrived;
    if (mine > share)
        return err_set_bytes(ERR_SPOOL_FULL, mine, share,
                             "%lld bytes of this upload are to come. Bytes to come of one client's resumable uploads "
                             "may reserve %lld bytes, half of the space for uploads. Send the scan with POST /v1/jobs.",
                             (long long)mine, (long long)share);
    if (others + mine > share)
        return err_set_bytes(ERR_QUOTA, mine, share - others,
                             "This client's other unfinished resumable uploads have reserved %lld bytes that are still "
                             "to come; with the %lld of this one they would exceed %lld, half of the space for "
                             "uploads. Complete them, or remove them (DELETE).",
                             (long long)others, (long long)mine, (long long)share);
    return 0;
}

/* Count all of the upload as reserved, if the client's share allows. */
static int reserved_fill(struct uploads *uploads, const char *id, int64_t share)
{
    pthread_mutex_lock(&uploads->open_lock);
    struct open_upload *upload = open_find(uploads, id);
    int rc = upload ? share_check(uploads, upload, share) : 0;
    if (upload && !rc)
        upload->reserved = upload->length;
    pthread_mutex_unlock(&uploads->open_lock);
    return rc;
}

int open_reserve(struct uploads *uploads, const char *id, int fd)
{
    pthread_mutex_lock(&uploads->open_lock);
    const struct open_upload *upload = open_find(uploads, id);
    int64_t length = upload ? upload->length : 0, missing = upload ? length - upload->reserved : 0, room = 0;
    pthread_mutex_unlock(&uploads->open_lock);
    if (missing <= 0)
        return 0;
    int rc = spool_room(uploads->spool, &room);
    if (!rc)
        rc = spool_reserve(uploads->spool, missing);
    if (rc)
        return rc;
    rc = reserved_fill(uploads, id, room / 2);
    if (!rc && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, length) < 0 && (errno == ENOSPC || errno == EDQUOT)) {
        rc = spool_failed(uploads->spool, "reserving space for the upload");
        open_reserved_set(uploads, id, length - missing);
    }
    if (rc)
        spool_release(uploads->spool, missing);
    return rc;
}

bool open_idle_find(struct uploads *uploads, char id[JOB_ID], double before)
{
    bool found = false;
    pthread_mutex_lock(&uploads->open_lock);
    for (size_t i = 0; i < uploads->opens && !found; i++) {
        struct open_upload *upload = &uploads->open[i];
        found = upload->touched < before && !upload->lapsed;
        if (found) {
            upload->lapsed = true;
            memcpy(id, upload->id, JOB_ID);
        }
    }
    pthread_mutex_unlock(&uploads->open_lock);
    return found;
}
