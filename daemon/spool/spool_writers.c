#include "daemon/spool/spool_writers.h"

#include "daemon/base/thread.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
    PUSH_BYTES = 1 << 20, /* the kernel starts write-back after each such step, so that little is left for the fsync */
    PIECE_BYTES = 256 << 10, /* of one buffer: the most that the HTTP library passes at a time */
    PIECES = 4
};

struct spool_writer {
    struct spool_writers *all;
    pthread_t thread;
    pthread_cond_t filled_one, written_one;
    struct spool_file *file;         /* NULL: no piece waits */
    unsigned taken, filled, written; /* pieces, of all uploads so far */
    size_t bytes[PIECES];
    char piece[PIECES][PIECE_BYTES];
};

struct spool_writers {
    pthread_mutex_t lock;
    bool closed;
    int count;
    struct spool_writer writer[];
};

static int file_write(struct spool_file *file, const void *data, size_t bytes)
{
    size_t written;
    if (disk_write(file->fd, data, bytes, &written) < 0)
        return spool_failed(file->spool, "writing the upload");
    file->written += (int64_t)bytes;
    if (file->written - file->pushed < PUSH_BYTES)
        return 0;
    sync_file_range(file->fd, file->pushed, file->written - file->pushed, SYNC_FILE_RANGE_WRITE);
    file->pushed = file->written;
    return spool_room_check(file->spool, 0);
}

/* ---- a writer ---- */

static void *writer_run(void *context)
{
    struct spool_writer *writer = context;
    struct spool_writers *all = writer->all;
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (!all->closed && writer->written == writer->filled)
            pthread_cond_wait(&writer->filled_one, &all->lock);
        if (writer->written == writer->filled)
            break;
        struct spool_file *file = writer->file;
        const unsigned at = writer->written % PIECES;
        const bool failed = file->failure.code != 0;
        pthread_mutex_unlock(&all->lock);
        const int rc = failed ? 0 : file_write(file, writer->piece[at], writer->bytes[at]);
        pthread_mutex_lock(&all->lock);
        if (rc)
            file->failure = *err_last();
        if (++writer->written == writer->taken) {
            file->writer = NULL; /* from here on the upload may be gone */
            writer->file = NULL;
        }
        pthread_cond_signal(&writer->written_one);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* The upload's writer: if it has none, a free one becomes it; NULL: none is free. */
static struct spool_writer *writer_of(struct spool_file *file)
{
    struct spool_writers *all = file->spool->writers;
    for (int i = 0; !file->writer && i < all->count; i++)
        if (!all->writer[i].file) {
            file->writer = &all->writer[i];
            file->writer->file = file;
        }
    return file->writer;
}

/* ---- an upload ---- */

static int piece_write(struct spool_file *file, const void *data, size_t bytes)
{
    struct spool_writers *all = file->spool->writers;
    struct spool_writer *writer = NULL;
    unsigned at = 0;
    pthread_mutex_lock(&all->lock);
    while (!file->failure.code && (writer = writer_of(file)) && writer->taken - writer->written == PIECES)
        pthread_cond_wait(&writer->written_one, &all->lock);
    const int rc = file->failure.code ? err_restore(&file->failure) : 0;
    if (!rc && writer)
        at = writer->taken++ % PIECES;
    pthread_mutex_unlock(&all->lock);
    if (rc)
        return rc;
    if (!writer)
        return file_write(file, data, bytes);
    memcpy(writer->piece[at], data, bytes);
    writer->bytes[at] = bytes;
    pthread_mutex_lock(&all->lock);
    writer->filled++;
    pthread_cond_signal(&writer->filled_one);
    pthread_mutex_unlock(&all->lock);
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
    struct spool_writers *all = file->spool->writers;
    pthread_mutex_lock(&all->lock);
    while (file->writer)
        pthread_cond_wait(&file->writer->written_one, &all->lock);
    const int rc = file->failure.code ? err_restore(&file->failure) : 0;
    pthread_mutex_unlock(&all->lock);
    return rc;
}

/* ---- all writers ---- */

int spool_writers_start(struct spool *spool, int count)
{
    if (count <= 0)
        return 0;
    struct spool_writers *all = calloc(1, sizeof *all + (size_t)count * sizeof *all->writer);
    if (!all)
        return err_no_memory("the threads that write uploads");
    pthread_mutex_init(&all->lock, NULL);
    int rc = 0;
    for (int i = 0; i < count && !rc; i++) {
        struct spool_writer *writer = &all->writer[i];
        writer->all = all;
        pthread_cond_init(&writer->filled_one, NULL);
        pthread_cond_init(&writer->written_one, NULL);
        rc = thread_start(&writer->thread, writer_run, writer, "writes uploads");
        all->count += !rc;
    }
    if (rc)
        spool_writers_free(all);
    else
        spool->writers = all;
    return rc;
}

void spool_writers_free(struct spool_writers *all)
{
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    all->closed = true;
    for (int i = 0; i < all->count; i++)
        pthread_cond_signal(&all->writer[i].filled_one);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < all->count; i++) {
        pthread_join(all->writer[i].thread, NULL);
        pthread_cond_destroy(&all->writer[i].filled_one);
        pthread_cond_destroy(&all->writer[i].written_one);
    }
    pthread_mutex_destroy(&all->lock);
    free(all);
}
