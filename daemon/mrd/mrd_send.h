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

/* Images of a file that is an MRD stream of `bytes`, without the scan's header at its beginning, with the end. */
bool mrd_send_images(const struct mrd_line *line, int file, int64_t bytes);

/* Send no more, and read what is still to come for a moment: where a socket is closed with bytes unread, the kernel
 * throws away what the client has not read. */
void mrd_linger(const struct mrd_line *line, double seconds);

#endif
