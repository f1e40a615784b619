/* mrd_send.h: sending to a session's client. The socket is non-blocking; `stop` is an eventfd that becomes readable
 * when the service stops. */
#ifndef MRIRECON_DAEMON_MRD_SEND_H
#define MRIRECON_DAEMON_MRD_SEND_H

#include "gridding/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Functions return false if the client has disconnected, accepts nothing for `patience` s, or the service stops. */
struct mrd_line {
    int socket, stop;
    double patience;
};

/* TEXT (its failure's code and sentence), then CLOSE. */
bool mrd_send_failure(const struct mrd_line *line, const struct err *failure);
bool mrd_send_close(const struct mrd_line *line);

/* Send a file's bytes from *at up to `end`, and advance *at: as many as the socket accepts without blocking, or, if
 * waiting, all. */
bool mrd_send_some(const struct mrd_line *line, int file, int64_t *at, int64_t end);
bool mrd_send_part(const struct mrd_line *line, int file, int64_t *at, int64_t end);

/* Have the connection reset when its socket is closed, and what was not sent yet dropped. */
void mrd_reset(const struct mrd_line *line);

/* Shut down sending, and read the client's remaining bytes for a moment: if a socket is closed with unread bytes, the
 * kernel resets the connection, and the client may lose the last messages. */
void mrd_linger(const struct mrd_line *line, double seconds);

#endif
