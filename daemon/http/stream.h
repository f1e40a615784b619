/* stream.h: answers of server-sent events. The stream's owner is asked for texts; a comment is sent as a heartbeat if
 * there is none for long; in between the connection is suspended.
 *
 * A stream is the first member of its owner's struct, and holds one text at a time.
 */
#ifndef MRIRECON_DAEMON_STREAM_H
#define MRIRECON_DAEMON_STREAM_H

#include "daemon/http/request.h"

#define PROGRESS_SECONDS  0.25              /* minimum interval between two progress events */
#define HEARTBEAT_SECONDS 15.0              /* maximum time without a byte: proxies close idle connections */
#define STREAM_RETRY      "retry: 2000\n\n" /* ms after which a client reconnects */

struct stream {
    /* Call stream_say() if there is a text to send. Set *next to the time (clock_seconds()) of the next call, and
     * stream->key to the key that wakes the stream earlier. false: the stream has ended. */
    bool (*look)(struct stream *stream, double *next);
    void (*release)(struct stream *stream); /* frees the owner's struct */
    struct service *service;
    struct MHD_Connection *connection;
    char key[WAITER_KEY];
    bool ended;          /* `text` is the last one */
    char *text;          /* being sent */
    size_t length, sent; /* bytes of `text` */
    double spoken;       /* when sending the last text began */
    struct waiter waiter;
};

/* Send `text`; takes it (malloc; NULL: no memory). */
bool stream_say(struct stream *stream, char *text);

/* Answer with a stream; takes it. `hello` is its first text. look, release and key are set. Fails with ERR_NO_MEMORY.
 */
int stream_answer(struct request *request, struct stream *stream, char *hello);

#endif
