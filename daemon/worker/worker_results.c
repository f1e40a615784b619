#include "daemon/worker/worker_results.h"

#include "daemon/base/clock.h"
#include "daemon/base/disk.h"
#include "daemon/wire.h"
#include "gridding/base/err.h"
#include "recon/result_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int result_files_read(struct result_files *out, const struct kind *kind, const json_t *names, const int *fds, int count)
{
    *out = (struct result_files){.kind = kind, .count = count};
    if (count < 1 || count > KIND_MAX_FILES || json_array_size(names) != (size_t)count)
        return err_set(ERR_BAD_REQUEST, "A job came with %d files for its results, and names %zu.", count,
                       json_array_size(names));
    for (int i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, (size_t)i));
        if (!name || !kind_file_find(kind, name, &out->file[i]))
            return err_set(ERR_BAD_REQUEST, "A job of kind %s has no result file \"%.32s\".", kind->name,
                           name ? name : "");
        out->fds[i] = fds[i];
    }
    return 0;
}

struct job_room result_room_read(struct result_files *files, const json_t *room)
{
    return (struct job_room){
        .files = files->file,
        .count = files->count,
        .most = (uint64_t)json_integer_value(json_object_get(room, "most")),
        .most_of = json_string_value(json_object_get(room, "most_of")),
        .free = (uint64_t)json_integer_value(json_object_get(room, "free")),
        .fds = files->fds,
        .begun = files->begun,
    };
}

enum { COPIED_BYTES = 1 << 20 };
static const char RESULTS[] = "A result";

/* Files [first, end) that one thread writes, and the outcome. */
struct writing {
    const struct result_files *files;
    const struct job_outcome *outcome;
    const struct made_files *made; /* NULL: they are not written yet */
    int first, end, rc;
    struct err failure;
};

static void synced(const struct result_files *files, off_t bytes)
{
    if (files->synced)
        *files->synced += (unsigned long long)bytes;
}

/* Start write-back of small files early, so that the daemon's fsync finds less to do. Sync large ones completely,
 * because the daemon's scheduler does nothing else during an fsync; in pieces, so that a cancel can end this process in
 * between. The disk has a few pieces at a time: a file that is submitted as a whole keeps a busy disk, and this
 * thread, beyond a cancel. The kernel reports a write-back error once per open file: possibly here. */
static int write_back(const struct result_files *files, int file)
{
    const off_t piece = 4 << 20, ahead = 32 << 20;
    struct stat there;
    sync_file_range(file, 0, ahead, SYNC_FILE_RANGE_WRITE);
    if (fstat(file, &there) < 0)
        return 0;
    if (there.st_size <= ahead) {
        synced(files, there.st_size);
        return 0;
    }
    for (off_t at = 0; at < there.st_size; at += piece) {
        if (result_canceled())
            return result_put_failed(ECANCELED, RESULTS);
        sync_file_range(file, at + ahead, piece, SYNC_FILE_RANGE_WRITE);
        if (sync_file_range(file, at, piece,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) < 0 &&
            (errno == EIO || errno == ENOSPC || errno == EDQUOT))
            return disk_failed("writing the results");
        synced(files, there.st_size - at < piece ? there.st_size - at : piece);
    }
    return 0;
}

double result_files_part(const void *of)
{
    const struct result_files *files = of;
    double bytes = (double)*files->synced;
    struct stat there;
    for (int i = 0; i < files->count; i++)
        bytes += fstat(files->fds[i], &there) == 0 ? (double)there.st_size : 0;
    const double part = files->most ? 0.5 * bytes / (double)files->most : 0;
    return part < 1 ? part : 1;
}

static int bytes_write(int file, const char *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        if (result_canceled())
            return result_put_failed(ECANCELED, RESULTS);
        const ssize_t put = write(file, bytes + at, count - at < RESULT_PIECE ? count - at : RESULT_PIECE);
        if (put < 0 && errno != EINTR)
            return disk_failed("writing the results");
        at += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

/* An empty one stays empty: its result cannot be brought into that format. */
static int file_copy(const struct result_files *files, int memory, int file)
{
    struct stat from, to;
    if (fstat(memory, &from) < 0 || fstat(file, &to) < 0)
        return err_set(ERR_INTERNAL, "The results in memory cannot be read (%s).", strerror(errno));
    const size_t count = (size_t)from.st_size;
    if (count == 0 || (from.st_dev == to.st_dev && from.st_ino == to.st_ino))
        return 0;
    char *bytes = mmap(NULL, count, PROT_READ, MAP_SHARED | MAP_POPULATE, memory, 0);
    if (bytes == MAP_FAILED)
        return err_no_memory("%zu bytes of results", count);
    int rc = bytes_write(file, bytes, count);
    munmap(bytes, count);
    return rc == 0 ? write_back(files, file) : rc;
}

/* Whether `file` is the i-th of `made`, with the bytes that were written there. */
static bool is_released(const struct made_files *made, int i, int file)
{
    struct stat there;
    return fstat(file, &there) == 0 && there.st_dev == made->device[i] && there.st_ino == made->inode[i] &&
           there.st_size == made->bytes[i];
}

static int file_write(const struct writing *writing, int i)
{
    const struct result_files *files = writing->files;
    const struct made_files *made = writing->made;
    struct stat there;
    if (made && made->file_of[i] >= 0)
        return file_copy(files, made->file_of[i], files->fds[i]);
    if (made && is_released(made, i, files->fds[i]))
        return 0;
    const struct result_file file = files->file[i];
    const char *name = files->kind->results[file.result].name;
    const struct job_result *result = job_outcome_find(writing->outcome, name);
    if (!result)
        return err_set(ERR_INTERNAL, "The job made no result \"%s\". This is a bug in the server.", name);
    const struct job_begun *begun = &files->begun[i];
    if (begun->finish) {
        int rc = begun->finish(result->of, files->fds[i], begun->at);
        return rc == 0 ? write_back(files, files->fds[i]) : rc;
    }
    /* What was computed ahead may have been written there, and be of no use. */
    const bool used = fstat(files->fds[i], &there) == 0 && there.st_size > 0;
    if (used && (ftruncate(files->fds[i], 0) < 0 || lseek(files->fds[i], 0, SEEK_SET) < 0))
        return disk_failed("writing the results");
    int rc = result->write(result->of, file.format, files->fds[i]);
    if (rc == ERR_NOT_ACCEPTABLE && file.format > 0)
        return 0; /* the file stays empty; the job still has its result in the native format */
    return rc == 0 ? write_back(files, files->fds[i]) : rc;
}

static void *files_write(void *context)
{
    struct writing *writing = context;
    result_cancel_by(writing->files->cancel);
    for (int i = writing->first; i < writing->end && writing->rc == 0; i++)
        writing->rc = file_write(writing, i);
    writing->failure = *err_last();
    result_cancel_by(NULL);
    return NULL;
}

/* Check that no more was written than the kind announced before computing. */
static int promise_check(const struct result_files *files, const struct job_outcome *outcome)
{
    uint64_t written = 0;
    struct stat there;
    for (int i = 0; i < files->count; i++)
        written += fstat(files->fds[i], &there) == 0 ? (uint64_t)there.st_size : 0;
    return !outcome->most_bytes || written <= outcome->most_bytes
               ? 0
               : err_set(
                     ERR_INTERNAL,
                     "The results take %llu bytes, but at most %llu had been announced. This is a bug in the server.",
                     (unsigned long long)written, (unsigned long long)outcome->most_bytes);
}

/* A new thread writes the first file while this one writes the others, which take longer: this thread can reuse its
 * memory, a new one must allocate. A thread takes as long to start as COPIED_BYTES to copy. */
static int files_fill(const struct result_files *files, const struct job_outcome *outcome,
                      const struct made_files *made)
{
    pthread_t thread;
    double start = clock_seconds();
    struct writing first = {.files = files, .outcome = outcome, .made = made, .end = 1};
    struct writing others = {.files = files, .outcome = outcome, .made = made, .first = 1, .end = files->count};
    const bool worth = files->count > 1 && !(made && outcome->most_bytes <= COPIED_BYTES);
    bool beside = worth && pthread_create(&thread, NULL, files_write, &first) == 0;
    if (!beside)
        files_write(&first);
    if (beside || first.rc == 0)
        files_write(&others);
    if (beside)
        pthread_join(thread, NULL);
    json_t *stages = json_object_get(outcome->report, "stages");
    const double before = json_number_value(json_object_get(stages, "write"));
    json_object_set_new(stages, "write", json_real(before + clock_seconds() - start));
    const struct writing *failed = first.rc != 0 ? &first : &others;
    return failed->rc == 0 ? promise_check(files, outcome) : err_restore(&failed->failure);
}

int result_files_write(const struct result_files *files, const struct job_outcome *outcome)
{
    return files_fill(files, outcome, NULL);
}

/* ---- in memory ---- */

int made_files_create(struct made_files *made, struct result_files *files, const struct kind *kind, const json_t *names,
                      const int *own, int count)
{
    const int wanted = (int)json_array_size(names);
    *made = (struct made_files){.count = 0};
    for (; made->count < count; made->count++)
        made->file_of[made->count] = own[made->count];
    for (; made->count < wanted && made->count < KIND_MAX_FILES; made->count++) {
        made->file_of[made->count] = memfd_create("mrirecon-result", MFD_CLOEXEC);
        if (made->file_of[made->count] < 0)
            break;
    }
    int rc = made->count == wanted ? 0 : err_no_memory("%d results", wanted);
    if (rc == 0)
        rc = result_files_read(files, kind, names, made->file_of, wanted);
    if (rc == 0)
        memcpy(made->file, files->file, sizeof made->file);
    else
        made_files_free(made);
    return rc;
}

void made_files_release(struct made_files *made)
{
    for (int i = 0; i < made->count; i++) {
        struct stat there = {.st_ino = 0};
        fstat(made->file_of[i], &there);
        made->device[i] = there.st_dev;
        made->inode[i] = there.st_ino;
        made->bytes[i] = there.st_size;
        close(made->file_of[i]);
        made->file_of[i] = -1;
    }
}

void made_files_free(struct made_files *made)
{
    for (int i = 0; i < made->count; i++)
        if (made->file_of[i] >= 0)
            close(made->file_of[i]);
    made->count = 0;
    made->written = false;
}

bool made_files_match(const struct made_files *made, const struct result_files *files)
{
    bool same = made->count == files->count;
    for (int i = 0; i < made->count && same; i++)
        same = made->file[i].result == files->file[i].result && made->file[i].format == files->file[i].format;
    return same;
}

void made_files_hand(const struct made_files *made, struct result_files *files)
{
    struct stat one, other;
    for (int i = 0; i < made->count; i++)
        if (fstat(made->file_of[i], &one) == 0 && fstat(files->fds[i], &other) == 0 && one.st_dev == other.st_dev &&
            one.st_ino == other.st_ino)
            files->begun[i] = made->begun[i];
}

int made_files_copy(const struct made_files *made, const struct result_files *files, const struct job_outcome *outcome)
{
    return files_fill(files, outcome, made);
}

/* ---- the live file ---- */

/* Whether the file has the first `count` bytes of the part. */
static bool part_begins(const struct live_file *file, const struct job_parts *parts, size_t part, size_t count)
{
    char there[16 << 10];
    for (size_t at = 0, length; at < count; at += length) {
        const char *piece = parts->piece(parts->of, part, at, &length);
        length = length < count - at ? length : count - at;
        length = length < sizeof there ? length : sizeof there;
        if (!piece || pread(file->fd, there, length, (off_t)(part * parts->bytes + at)) != (ssize_t)length ||
            memcmp(there, piece, length) != 0)
            return false;
    }
    return true;
}

/* Append bytes of the part that file->bytes lies in, up to `end`. false: that is not possible. */
static bool part_append(struct live_file *file, const struct job_parts *parts, int64_t end)
{
    size_t length;
    const size_t part = (size_t)file->bytes / parts->bytes, at = (size_t)file->bytes % parts->bytes;
    if (at > 0 && !file->own && !part_begins(file, parts, part, at))
        return false;
    file->own = true;
    const void *piece = parts->piece(parts->of, part, at, &length);
    length = (int64_t)length < end - file->bytes ? length : (size_t)(end - file->bytes);
    const ssize_t put = piece ? pwrite(file->fd, piece, length, file->bytes) : -1;
    file->bytes += put > 0 ? put : 0;
    return put > 0 || (piece && put < 0 && errno == EINTR);
}

void live_file_show(void *of_job, const struct job_parts *parts, size_t count, size_t more)
{
    struct live_file *file = of_job;
    const int64_t before = file->bytes, end = (int64_t)(count * parts->bytes + more);
    if (end <= before)
        file->own = false; /* computed anew */
    while (file->bytes < end && file->fd >= 0)
        if (!part_append(file, parts, end))
            file->fd = -1;
    if (file->bytes == before)
        return;
    json_t *message = json_pack("{s:s, s:s, s:I}", "type", "shown", "id", file->id, "bytes", (json_int_t)file->bytes);
    wire_send(file->socket, message, NULL, 0);
    json_decref(message);
}
