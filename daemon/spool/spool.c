/* The spool's folders, and incoming scans: writing, limits, fsync. */
#include "daemon/spool/spool_writer.h"

#include "daemon/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz"; /* Crockford's: no i, l, o, u */

/* ---- folders ---- */

/* The lock of a killed daemon may persist for a moment if it was just forking a child, which holds its descriptors
 * until exec. */
static int state_lock(int folder, const char *state_dir)
{
    enum { TRIES = 150, TRY_MS = 20 }; /* that child may stand still for seconds on a loaded machine */
    for (int tries = 0; flock(folder, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (errno != EWOULDBLOCK || tries == TRIES)
            return err_set(ERR_IO, "%s is in use by another mrirecond. Stop that one, or use another --state-dir.",
                           state_dir);
        poll(NULL, 0, TRY_MS);
    }
    return 0;
}

static bool is_in_memory(int folder)
{
    struct statfs system;
    return fstatfs(folder, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

int spool_create(struct spool **out, const char *state_dir, int64_t body_limit, int64_t limit, int64_t reserve)
{
    struct spool *spool = calloc(1, sizeof *spool);
    if (!spool)
        return err_no_memory("the spool");
    spool->state = spool->scans = spool->results = spool->uploads = -1;
    spool->body_limit = body_limit;
    spool->limit = limit;
    spool->reserve = reserve;
    spool->uploads_unlinking = spool->uploads_unlinked = 1; /* perhaps by a daemon that was killed */
    disk_freer_init(&spool->freer);
    pthread_mutex_init(&spool->trouble_lock, NULL);
    pthread_mutex_init(&spool->scans_sync.lock, NULL);
    pthread_cond_init(&spool->scans_sync.finished_one, NULL);
    pthread_mutex_init(&spool->uploads_sync.lock, NULL);
    pthread_cond_init(&spool->uploads_sync.finished_one, NULL);
    int rc = disk_folder_open(AT_FDCWD, state_dir, &spool->state);
    if (!rc)
        rc = state_lock(spool->state, state_dir);
    if (!rc)
        rc = disk_folder_open(spool->state, "spool", &spool->scans);
    if (!rc)
        rc = disk_folder_open(spool->state, "results", &spool->results);
    if (!rc)
        rc = disk_folder_open(spool->state, "uploads", &spool->uploads);
    if (!rc && fsync(spool->state) < 0)
        rc = disk_failed("making the state folder");
    if (rc) {
        spool_free(spool);
        return rc;
    }
    spool->in_memory = is_in_memory(spool->scans);
    *out = spool;
    return 0;
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    spool_writer_free(spool->writer);
    const int folders[] = {spool->scans, spool->results, spool->uploads, spool->state};
    for (int i = 0; i < 4; i++)
        if (folders[i] >= 0)
            close(folders[i]);
    disk_freer_end(&spool->freer);
    pthread_mutex_destroy(&spool->trouble_lock);
    pthread_mutex_destroy(&spool->scans_sync.lock);
    pthread_cond_destroy(&spool->scans_sync.finished_one);
    pthread_mutex_destroy(&spool->uploads_sync.lock);
    pthread_cond_destroy(&spool->uploads_sync.finished_one);
    free(spool);
}

/* ---- ids ---- */

int spool_new_id(char id[JOB_ID])
{
    unsigned char random[10];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(ERR_INTERNAL, "The system returned no random numbers: %s.", strerror(errno));
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

/* ---- scans ---- */

int64_t spool_lacked(struct spool *spool)
{
    return atomic_exchange(&spool->lacked, 0);
}

/* Note how much space a rejected upload of `more` bytes lacked. */
static int lack_note(struct spool *spool, int rc, int64_t more)
{
    if (rc != ERR_SPOOL_FULL || err_last()->available < 0)
        return rc;
    int64_t bytes = more - err_last()->available, before = spool->lacked;
    while (bytes > before && !atomic_compare_exchange_weak(&spool->lacked, &before, bytes))
        ;
    return rc;
}

/* Count `more` bytes as used; `held`: already reserved by this upload. Fails with ERR_SPOOL_FULL. */
static int used_add(struct spool *spool, int64_t more, int64_t held)
{
    int64_t before = atomic_fetch_add(&spool->used, more);
    if (spool->limit > 0 && before + more > spool->limit) {
        atomic_fetch_sub(&spool->used, more);
        int64_t left = spool->limit - before;
        return err_set_bytes(ERR_SPOOL_FULL, held + more, left > 0 ? left : 0,
                             "The waiting uploads leave no space for another %lld bytes. Try again later.",
                             (long long)more);
    }
    return 0;
}

static int reserve(struct spool_file *file, int64_t more)
{
    int rc = used_add(file->spool, more, file->reserved);
    if (!rc)
        file->reserved += more;
    return rc;
}

static int body_too_large(const struct spool *spool, int64_t bytes)
{
    return err_set_bytes(ERR_TOO_LARGE, bytes, spool->body_limit,
                         "The upload exceeds %lld bytes, the limit of this server (option body-limit).",
                         (long long)spool->body_limit);
}

int spool_reserve(struct spool *spool, int64_t bytes)
{
    int rc = bytes > spool->body_limit ? body_too_large(spool, bytes) : spool_room_check(spool, bytes);
    return lack_note(spool, rc ? rc : used_add(spool, bytes, 0), bytes);
}

void spool_release(struct spool *spool, int64_t bytes)
{
    atomic_fetch_sub(&spool->used, bytes);
}

void spool_count(struct spool *spool, int64_t bytes)
{
    atomic_fetch_add(&spool->used, bytes);
}

static const char *part_name(char name[JOB_ID + 8], const char *id)
{
    snprintf(name, JOB_ID + 8, "%s.part", id);
    return name;
}

int spool_begin(struct spool *spool, int64_t expected, struct spool_file *out)
{
    struct spool_file file = {.spool = spool, .fd = -1, .part = true};
    char name[JOB_ID + 8];
    int64_t known = expected > 0 ? expected : 0;
    if (known > spool->body_limit)
        return body_too_large(spool, known);
    int rc = spool_new_id(file.id);
    if (!rc)
        rc = spool_room_check(spool, known);
    if (!rc)
        rc = reserve(&file, known);
    if (lack_note(spool, rc, known))
        return rc;
    file.fd = openat(spool->scans, part_name(name, file.id), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file.fd < 0)
        rc = spool_failed(spool, "opening a file in the spool");
    /* Allocating the blocks now rejects early what could not be stored; file systems without fallocate() are not
     * required to. In memory it would take as long as half of the writing, in which the pages are taken anyway, and
     * spool_room_check() has seen that they are free. */
    else if (known && !spool->in_memory && fallocate(file.fd, FALLOC_FL_KEEP_SIZE, 0, known) < 0 &&
             (errno == ENOSPC || errno == EDQUOT))
        rc = spool_failed(spool, "reserving space for the upload");
    if (rc) {
        spool_abort(&file);
        return rc;
    }
    file.behind = spool->writer && known >= SPOOL_BEHIND_LEAST;
    *out = file;
    return 0;
}

int spool_append(struct spool_file *file, const void *data, size_t bytes)
{
    struct spool *spool = file->spool;
    int64_t total = file->bytes + (int64_t)bytes;
    int rc = 0;
    if (total > spool->body_limit)
        return body_too_large(spool, total);
    if (total > file->reserved)
        rc = reserve(file, total - file->reserved);
    if (!rc)
        rc = spool_write(file, data, bytes);
    if (!rc)
        file->bytes = total;
    return rc;
}

static int names_sync(struct spool *spool, struct folder_sync *sync, int folder)
{
    int rc = disk_folder_sync(sync, folder);
    if (rc)
        spool_suspect(spool);
    return rc;
}

static int scans_sync(struct spool *spool)
{
    return names_sync(spool, &spool->scans_sync, spool->scans);
}

int spool_adopt(struct spool *spool, int folder, const char *id)
{
    if (linkat(folder, id, spool->scans, id, 0) < 0 && errno != EEXIST)
        return spool_failed(spool, "moving an upload into the spool");
    int rc = scans_sync(spool);
    if (rc)
        spool_disown(spool, id);
    return rc;
}

void spool_disown(struct spool *spool, const char *id)
{
    unlinkat(spool->scans, id, 0);
}

int spool_uploads_settle(struct spool *spool)
{
    const int64_t unlinked = spool->uploads_unlinked;
    int rc =
        spool->uploads_settled < spool->uploads_unlinking ? names_sync(spool, &spool->uploads_sync, spool->uploads) : 0;
    if (!rc)
        spool->uploads_settled = unlinked;
    return rc;
}

int spool_reopen(struct spool_file *file, int *fd)
{
    char name[JOB_ID + 8];
    int rc = spool_settle(file);
    if (rc)
        return rc;
    *fd = openat(file->spool->scans, part_name(name, file->id), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return *fd < 0 ? spool_failed(file->spool, "opening the upload") : 0;
}

int spool_finish(struct spool_file *file)
{
    char name[JOB_ID + 8];
    int rc = spool_settle(file);
    if (rc)
        return rc;
    if (fsync(file->fd) < 0)
        return spool_failed(file->spool, "syncing the upload");
    /* A file of this name is complete. */
    if (renameat(file->spool->scans, part_name(name, file->id), file->spool->scans, file->id) < 0)
        return spool_failed(file->spool, "naming the upload");
    file->part = false;
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) < 0)
        return spool_failed(file->spool, "closing the upload");
    rc = scans_sync(file->spool);
    if (rc)
        return rc;
    atomic_fetch_sub(&file->spool->used, file->reserved - file->bytes);
    file->reserved = file->bytes;
    return 0;
}

void spool_abort(struct spool_file *file)
{
    if (!file->spool)
        return;
    spool_settle(file);
    if (file->fd >= 0)
        close(file->fd);
    char name[JOB_ID + 8];
    disk_remove(&file->spool->freer, file->spool->scans, file->part ? part_name(name, file->id) : file->id);
    atomic_fetch_sub(&file->spool->used, file->reserved);
    *file = (struct spool_file){.fd = -1};
}

static int scan_gone(const char *id)
{
    return err_set(ERR_SCAN_GONE,
                   "The scan of job %.40s is no longer there: this server does not keep scans of such jobs (option "
                   "keep-scans), or needed the space. Send the scan again.",
                   id);
}

int spool_link(struct spool *spool, const char *id, char fresh[JOB_ID], int64_t *bytes)
{
    struct spool_file copy = {.spool = spool, .fd = -1};
    struct stat there;
    int rc = spool_new_id(copy.id);
    const enum disk_sight seen = rc ? DISK_MISSING : disk_look(spool->scans, id, &there);
    if (!rc && seen != DISK_THERE)
        rc = seen == DISK_MISSING ? scan_gone(id) : spool_failed(spool, "linking the scan");
    /* Counted in full, like a separate file: the two links may be removed in any order. */
    if (!rc)
        rc = reserve(&copy, there.st_size);
    if (rc)
        return rc;
    if (linkat(spool->scans, id, spool->scans, copy.id, 0) < 0)
        rc = errno == ENOENT ? scan_gone(id) : spool_failed(spool, "linking the scan");
    if (!rc)
        rc = scans_sync(spool);
    if (rc) {
        struct err failure = *err_last();
        spool_abort(&copy);
        return err_restore(&failure);
    }
    memcpy(fresh, copy.id, JOB_ID);
    *bytes = there.st_size;
    return 0;
}

static void checkpoint_name(const char *id, char name[SPOOL_CHECKPOINT])
{
    snprintf(name, SPOOL_CHECKPOINT, "%.*s.checkpoint", JOB_ID - 1, id);
}

int spool_checkpoint_open(struct spool *spool, const char *id, int *fd)
{
    char name[SPOOL_CHECKPOINT];
    checkpoint_name(id, name);
    *fd = openat(spool->scans, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return *fd < 0 ? spool_failed(spool, "opening the job's checkpoint") : 0;
}

void spool_checkpoint_remove(struct spool *spool, const char *id)
{
    char name[SPOOL_CHECKPOINT];
    struct stat there;
    checkpoint_name(id, name);
    if (disk_look(spool->scans, name, &there) == DISK_THERE)
        disk_remove(&spool->freer, spool->scans, name);
}

void spool_remove(struct spool *spool, const char *id)
{
    struct stat there;
    spool_checkpoint_remove(spool, id);
    if (disk_look(spool->scans, id, &there) == DISK_THERE && disk_remove(&spool->freer, spool->scans, id) == 0)
        atomic_fetch_sub(&spool->used, there.st_size);
}

int spool_open(struct spool *spool, const char *id, int *fd)
{
    *fd = openat(spool->scans, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0 && errno == ENOENT)
        return err_set(ERR_SCAN_GONE, "The uploaded scan is no longer on the server's disk. Submit it again.");
    return *fd < 0 ? spool_failed(spool, "opening the uploaded scan") : 0;
}
