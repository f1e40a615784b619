#include "daemon/spool/spool_writer.h"

#include "daemon/base/thread.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* The kernel starts write-back after each such step, so that little is left for the fsync. A smaller one leaves
     * less, but takes longer, which counts where the same thread also receives. */
    PUSH_BYTES = 1 << 20,
    PUSH_BEHIND_BYTES = 256 << 10,
    PIECE_BYTES = 256 << 10, /* of one buffer: the most that the HTTP library passes at a time */
    PIECES = 4
};

struct spool_writer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled_one, written_one;
    bool closed;
    struct spool_file *file;         /* NULL: no piece waits */
    unsigned taken, filled, written; /* pieces, of all uploads so far */
    size_t bytes[PIECES];
    char piece[PIECES][PIECE_BYTES];
};

static int file_write(struct spool_file *file, const void *data, size_t bytes)
{
    size_t written;
    if (disk_write(file->fd, data, bytes, &written) < 0)
        return spool_failed(file->spool, "writing the upload");
    file->written += (int64_t)bytes;
    if (file->written - file->pushed < (file->behind ? PUSH_BEHIND_BYTES : PUSH_BYTES))
        return 0;
    sync_file_range(file->fd, file->pushed, file->written - file->pushed, SYNC_FILE_RANGE_WRITE);
    file->pushed = file->written;
    return spool_room_check(file->spool, 0);
}

/* ---- the writer ---- */

static void writer_drop(struct spool_writer *writer)
{
    pthread_cond_destroy(&writer->filled_one);
    pthread_cond_destroy(&writer->written_one);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}

static void *writer_run(void *context)
{
    struct spool_writer *writer = context;
    pthread_mutex_lock(&writer->lock);
    for (;;) {
        while (!writer->closed && writer->written == writer->filled)
            pthread_cond_wait(&writer->filled_one, &writer->lock);
        if (writer->written == writer->filled)
            break;
        struct spool_file *file = writer->file;
        const unsigned at = writer->written % PIECES;
        const bool failed = file->failure.code != 0;
        pthread_mutex_unlock(&writer->lock);
        const int rc = failed ? 0 : file_write(file, writer->piece[at], writer->bytes[at]);
        pthread_mutex_lock(&writer->lock);
        if (rc)
            file->failure = *err_last();
        if (++writer->written == writer->taken)
            writer->file = NULL; /* from here on the upload may be gone */
        pthread_cond_signal(&writer->written_one);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

int spool_writer_start(struct spool *spool)
{
    struct spool_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return err_no_memory("the thread that writes uploads");
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->filled_one, NULL);
    pthread_cond_init(&writer->written_one, NULL);
    const int rc = thread_start(&writer->thread, writer_run, writer, "writes uploads");
    if (rc)
        writer_drop(writer);
    else
        spool->writer = writer;
    return rc;
}

void spool_writer_free(struct spool_writer *writer)
{
    if (!writer)
        return;
    pthread_mutex_lock(&writer->lock);
    writer->closed = true;
    pthread_cond_signal(&writer->filled_one);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    writer_drop(writer);
}

/* ---- an upload ---- */

static int piece_write(struct spool_file *file, const void *data, size_t bytes)
{
    struct spool_writer *writer = file->spool->writer;
    unsigned at = 0;
    pthread_mutex_lock(&writer->lock);
    while (!file->failure.code && writer->file == file && writer->taken - writer->written == PIECES)
        pthread_cond_wait(&writer->written_one, &writer->lock);
    const int rc = file->failure.code ? err_restore(&file->failure) : 0;
    const bool mine = !writer->file || writer->file == file;
    if (!rc && mine) {
        writer->file = file;
        at = writer->taken++ % PIECES;
    }
    pthread_mutex_unlock(&writer->lock);
    if (rc)
        return rc;
    if (!mine)
        return file_write(file, data, bytes);
    memcpy(writer->piece[at], data, bytes);
    writer->bytes[at] = bytes;
    pthread_mutex_lock(&writer->lock);
    writer->filled++;
    pthread_cond_signal(&writer->filled_one);
    pthread_mutex_unlock(&writer->lock);
    return 0;
}

int spool_write(struct spool_file *file, const void *data, size_t bytes)
{
    int rc = 0;
    if (!file->behind || file->bytes == 0)
        return file_write(file, data, bytes);
    for (size_t at = 0; at < bytes && !rc; at += PIECE_BYTES)
        rc = piece_write(file, (const char *)data + at, bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
    return rc;
}

int spool_settle(struct spool_file *file)
{
    if (!file->behind)
        return 0;
    struct spool_writer *writer = file->spool->writer;
    pthread_mutex_lock(&writer->lock);
    while (writer->file == file)
        pthread_cond_wait(&writer->written_one, &writer->lock);
    const int rc = file->failure.code ? err_restore(&file->failure) : 0;
    pthread_mutex_unlock(&writer->lock);
    return rc;
}
