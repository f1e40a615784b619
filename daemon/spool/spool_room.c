/* Whether the disk accepts writes and has room: test writes after a failure, free bytes and inodes. */
#include "daemon/spool/spool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Free inodes below which no upload is accepted, and below which no job starts: a job's results are a folder and a file
 * per format, and each worker runs a job. */
enum { SCANS_INODES = 128, WORK_INODES = 64 };

/* ---- whether the disk accepts writes ---- */

void spool_suspect(struct spool *spool)
{
    spool->suspect = true;
}

int spool_failed(struct spool *spool, const char *doing)
{
    spool_suspect(spool);
    return disk_failed(doing);
}

bool spool_is_suspect(const struct spool *spool)
{
    return spool->suspect;
}

/* Write and fsync a file of one page; a start removes leftovers. */
static int proof_write(struct spool *spool)
{
    static const char page[4096];
    size_t written;
    int fd = openat(spool->scans, "proof", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = fd < 0 || disk_write(fd, page, sizeof page, &written) < 0 || fsync(fd) < 0
                 ? disk_failed("writing a test file to the spool")
                 : 0;
    if (fd >= 0)
        close(fd);
    unlinkat(spool->scans, "proof", 0);
    return rc;
}

void spool_prove(struct spool *spool)
{
    if (!spool->suspect)
        return;
    spool->suspect = false; /* a failure meanwhile is tested next time */
    int rc = proof_write(spool);
    pthread_mutex_lock(&spool->trouble_lock);
    spool->trouble.code = 0;
    if (rc)
        spool->trouble = *err_last();
    pthread_mutex_unlock(&spool->trouble_lock);
    if (rc)
        spool_suspect(spool);
}

/* The failure of the last test write; 0: none. */
static int trouble_check(struct spool *spool)
{
    pthread_mutex_lock(&spool->trouble_lock);
    struct err trouble = spool->trouble;
    pthread_mutex_unlock(&spool->trouble_lock);
    return trouble.code ? err_restore(&trouble) : 0;
}

/* ---- free space and inodes ---- */

/* Free space: bytes beyond the reserve, and inodes. */
struct room {
    int64_t bytes, inodes;
};

static int disk_room_read(struct spool *spool, struct room *out)
{
    struct statvfs disk;
    if (fstatvfs(spool->scans, &disk) < 0)
        return disk_failed("reading the free space of the disk");
    out->bytes = (int64_t)(disk.f_bavail * disk.f_frsize) - spool->reserve;
    out->inodes = disk.f_files > 0 ? (int64_t)disk.f_favail : INT64_MAX; /* 0: allocated dynamically */
    return 0;
}

/* Fails with ERR_SPOOL_FULL if fewer inodes are free. */
static int inodes_check(const struct room *room, int64_t least)
{
    if (room->inodes >= least)
        return 0;
    return err_set(ERR_SPOOL_FULL,
                   "The server's disk has only %lld free inodes. Try again later, or remove some of its files.",
                   (long long)room->inodes);
}

int spool_check(struct spool *spool)
{
    struct room room = {0, 0};
    int rc = trouble_check(spool);
    if (!rc)
        rc = disk_room_read(spool, &room);
    if (!rc && room.bytes <= 0)
        rc = err_set(
            ERR_SPOOL_FULL,
            "The disk has %.1f MB free, and uploads leave %.1f MB free (option spool-reserve). Free some space.",
            1e-6 * (double)(room.bytes + spool->reserve), 1e-6 * (double)spool->reserve);
    return rc ? rc : inodes_check(&room, SCANS_INODES);
}

int spool_work_check(struct spool *spool, int64_t reserve)
{
    struct room room = {0, 0};
    int rc = trouble_check(spool);
    if (!rc && spool->suspect)
        rc = err_set(ERR_IO, "The server's disk refused a write, and is being checked.");
    if (!rc)
        rc = disk_room_read(spool, &room);
    if (!rc && room.bytes + spool->reserve < reserve)
        rc = err_set_bytes(ERR_SPOOL_FULL, reserve, room.bytes + spool->reserve,
                           "The disk has %.1f MB free; a job starts only with at least %.1f MB (option work-reserve). "
                           "Free some space.",
                           1e-6 * (double)(room.bytes + spool->reserve), 1e-6 * (double)reserve);
    return rc ? rc : inodes_check(&room, WORK_INODES);
}

int spool_room_check(struct spool *spool, int64_t more)
{
    struct room room = {0, 0};
    int rc = disk_room_read(spool, &room);
    if (!rc && room.bytes < more)
        return err_set_bytes(ERR_SPOOL_FULL, more, room.bytes > 0 ? room.bytes : 0,
                             "The server's disk has no space for this upload: it has %.1f MB free, and uploads leave "
                             "%.1f MB free (option spool-reserve). Try again later, or free some space.",
                             1e-6 * (double)(room.bytes + spool->reserve), 1e-6 * (double)spool->reserve);
    return rc ? rc : inodes_check(&room, SCANS_INODES);
}

int spool_results_room(struct spool *spool, int64_t reserve, int64_t *free, int64_t *ever)
{
    struct statvfs disk;
    if (fstatvfs(spool->results, &disk) < 0)
        return disk_failed("reading the free space of the disk");
    *free = (int64_t)(disk.f_bavail * disk.f_frsize) - reserve;
    *ever = (int64_t)(disk.f_blocks * disk.f_frsize) - reserve;
    return 0;
}

int spool_free_bytes(struct spool *spool, int64_t *bytes)
{
    struct room room = {0, 0};
    int rc = disk_room_read(spool, &room);
    *bytes = room.bytes;
    return rc;
}

int spool_room(struct spool *spool, int64_t *bytes)
{
    int64_t free = 0;
    int rc = spool_free_bytes(spool, &free);
    *bytes = spool->used + (free > 0 ? free : 0);
    if (spool->limit > 0 && spool->limit < *bytes)
        *bytes = spool->limit;
    return rc;
}

int spool_disk(const struct spool *spool, int64_t *bytes, int64_t *free)
{
    struct statvfs disk;
    if (fstatvfs(spool->state, &disk) < 0)
        return disk_failed("reading the free space of the disk");
    *bytes = (int64_t)(disk.f_blocks * disk.f_frsize);
    *free = (int64_t)(disk.f_bavail * disk.f_frsize);
    return 0;
}
