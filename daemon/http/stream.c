#include "daemon/http/stream.h"

#include "daemon/base/clock.h"
#include "daemon/http/http_answer.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void stream_free(void *context)
{
    struct stream *stream = context;
    free(stream->text);
    stream->release(stream);
}

bool stream_say(struct stream *stream, char *text)
{
    free(stream->text);
    stream->text = text;
    stream->length = text ? strlen(text) : 0;
    stream->sent = 0;
    stream->spoken = clock_seconds();
    return text != NULL;
}

/* Ask the owner for a text; a heartbeat if there has been none for long. */
static bool stream_look(struct stream *stream, double *next)
{
    *next = INFINITY;
    bool good = stream->look(stream, next);
    bool silent = stream->sent == stream->length;
    if (good && silent && clock_seconds() - stream->spoken >= HEARTBEAT_SECONDS)
        good = stream_say(stream, strdup(": still here\n\n"));
    double heartbeat = stream->spoken + HEARTBEAT_SECONDS;
    *next = *next < heartbeat ? *next : heartbeat;
    return good;
}

/* The library's buffer is nearly all of a connection's memory, and much of it has been cleared: a quarter of a
 * megabyte for some hundred bytes. 500 streams took 133 MB; they take 9 MB if the pages are returned to the kernel
 * once per stream, and no connection is kept after its stream. */
static void pages_give_back(char *buffer, size_t room)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)buffer + page - 1) / page * page, to = ((uintptr_t)buffer + room) / page * page;
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

/* libmicrohttpd asks for more bytes. Returns 0 if the connection was suspended. */
static ssize_t stream_read(void *context, uint64_t position, char *buffer, size_t room)
{
    struct stream *stream = context;
    double next = 0;
    if (stream->waiter.gone)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (position == 0)
        pages_give_back(buffer, room);
    if (stream->sent == stream->length) {
        if (stream->ended || !stream_look(stream, &next))
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (stream->sent == stream->length) {
            char key[WAITER_KEY];
            memcpy(key, stream->key, sizeof key);
            if (!waiters_wait(stream->service->core.waiters, &stream->waiter, stream->connection, key, next))
                return MHD_CONTENT_READER_END_OF_STREAM;
            /* A change between stream_look() and waiters_wait() woke nobody: look again. */
            if (!stream_look(stream, &next) || stream->sent < stream->length)
                waiters_wake(stream->service->core.waiters, key);
            return 0;
        }
    }
    size_t bytes = stream->length - stream->sent;
    bytes = bytes < room ? bytes : room;
    memcpy(buffer, stream->text + stream->sent, bytes);
    stream->sent += bytes;
    return (ssize_t)bytes;
}

int stream_answer(struct request *request, struct stream *stream, char *hello)
{
    stream->service = request->service;
    stream->connection = request->connection;
    if (!stream_say(stream, hello)) {
        stream_free(stream);
        return err_no_memory("a stream of events; try again later");
    }
    /* Ask proxies not to buffer the answer. */
    const char *const headers[] = {"X-Accel-Buffering", "no", "Connection", "close", NULL};
    return http_answer_stream(request, 200, "text/event-stream", stream_read, stream, stream_free, headers);
}
