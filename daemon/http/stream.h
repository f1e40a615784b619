/* stream.h: answers of server-sent events: a text is sent when there is something to say, a comment when there has been
 * nothing for long, and the connection is suspended in between.
 *
 * A stream is embedded first in what its owner keeps of it, and holds one text at a time.
 */
#ifndef MRIRECON_DAEMON_STREAM_H
#define MRIRECON_DAEMON_STREAM_H

#include "daemon/http/request.h"

#define PROGRESS_SECONDS  0.25              /* minimum interval between two progress events */
#define HEARTBEAT_SECONDS 15.0              /* maximum time without a byte: proxies close idle connections */
#define STREAM_RETRY      "retry: 2000\n\n" /* ms after which a client whose connection broke comes back */

struct stream {
    /* What there is to say now: stream_say(), or nothing. Set *next to the time (clock_seconds()) of the next look, and
     * stream->key to what wakes it before. false: the stream is over. */
    bool (*look)(struct stream *stream, double *next);
    void (*release)(struct stream *stream); /* frees the owner's struct */
    struct service *service;
    struct MHD_Connection *connection;
    char key[WAITER_KEY];
    bool ended;          /* what is being sent is the last */
    char *text;          /* what is being sent */
    size_t length, sent; /* bytes of it */
    double spoken;       /* when the last text was begun */
    struct waiter waiter;
};

/* Put `text`, which is taken (malloc; NULL: no memory), up for sending. */
bool stream_say(struct stream *stream, char *text);

/* Answer with a stream, which is taken; `hello` is its first text. look, release and key are set. Fails with
 * ERR_NO_MEMORY. */
int stream_answer(struct request *request, struct stream *stream, char *hello);

#endif
