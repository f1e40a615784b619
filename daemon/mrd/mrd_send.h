/* mrd_send.h: what a session sends to its client. The socket does not block; `stop` is an eventfd that becomes readable
 * when the service stops. */
#ifndef MRIRECON_DAEMON_MRD_SEND_H
#define MRIRECON_DAEMON_MRD_SEND_H

#include "gridding/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What sending ends with: false, if the client has gone, takes nothing for `patience` s, or the service stops. */
struct mrd_line {
    int socket, stop;
    double patience;
};

/* TEXT (its failure's code and sentence), then CLOSE. */
bool mrd_send_failure(const struct mrd_line *line, const struct err *failure);
bool mrd_send_close(const struct mrd_line *line);

/* Send a file's bytes from *at up to `end`, and move *at: what the socket takes at once, or, waiting, all of them. */
bool mrd_send_some(const struct mrd_line *line, int file, int64_t *at, int64_t end);
bool mrd_send_part(const struct mrd_line *line, int file, int64_t *at, int64_t end);

/* Where the images begin in a file that is an MRD stream: behind the scan's header, if it has one. */
int64_t mrd_images_start(int file);

/* Send no more, and read what is still to come for a moment: where a socket is closed with bytes unread, the kernel
 * throws away what the client has not read. */
void mrd_linger(const struct mrd_line *line, double seconds);

#endif
