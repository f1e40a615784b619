#include "daemon/mrd/mrd_send.h"

#include "daemon/base/clock.h"
#include "recon/scan/mrd_message.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

/* Wait until the socket accepts more. */
static bool line_wait(const struct mrd_line *line)
{
    struct pollfd fds[] = {{.fd = line->socket, .events = POLLOUT}, {.fd = line->stop, .events = POLLIN}};
    return poll(fds, 2, (int)(1000 * line->patience)) > 0 && !fds[1].revents && !(fds[0].revents & (POLLERR | POLLHUP));
}

static bool bytes_send(const struct mrd_line *line, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t sent = send(line->socket, at, count, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR && (errno != EAGAIN || !line_wait(line)))
            return false;
        if (sent > 0) {
            at += sent;
            count -= (size_t)sent;
        }
    }
    return true;
}

bool mrd_send_close(const struct mrd_line *line)
{
    return bytes_send(line, (const uint8_t[]){MRD_CLOSE, 0}, MRD_NUMBER_BYTES);
}

bool mrd_send_failure(const struct mrd_line *line, const struct err *failure)
{
    char text[sizeof failure->text + 64];
    const unsigned length = (unsigned)snprintf(text, sizeof text, "%s: %s", err_name(failure->code), failure->text);
    const uint8_t head[] = {MRD_TEXT, 0, (uint8_t)length, (uint8_t)(length >> 8), 0, 0};
    return bytes_send(line, head, sizeof head) && bytes_send(line, text, length) && mrd_send_close(line);
}

bool mrd_send_some(const struct mrd_line *line, int file, int64_t *at, int64_t end)
{
    while (*at < end) {
        off_t from = *at;
        const ssize_t sent = sendfile(line->socket, file, &from, (size_t)(end - from));
        if (sent < 0 && errno == EAGAIN)
            return true;
        if (sent == 0 || (sent < 0 && errno != EINTR))
            return false;
        *at = from;
    }
    return true;
}

bool mrd_send_part(const struct mrd_line *line, int file, int64_t *at, int64_t end)
{
    bool taken = true;
    while (taken && *at < end)
        taken = mrd_send_some(line, file, at, end) && (*at == end || line_wait(line));
    return taken;
}

void mrd_reset(const struct mrd_line *line)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    setsockopt(line->socket, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void mrd_linger(const struct mrd_line *line, double seconds)
{
    char unread[1 << 14];
    const double end = clock_seconds() + seconds;
    struct pollfd fds[] = {{.fd = line->socket, .events = POLLIN}, {.fd = line->stop, .events = POLLIN}};
    shutdown(line->socket, SHUT_WR);
    for (double left = seconds; left > 0; left = end - clock_seconds()) {
        ssize_t got = recv(line->socket, unread, sizeof unread, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return;
        if (got < 0 && (poll(fds, 2, (int)(1000 * left) + 1) <= 0 || fds[1].revents))
            return;
    }
}
