#include "daemon/http/tls_plain.h"

#include "daemon/http/problem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { DRAIN_BYTES = 64 * 1024 };

/* Closing with unread bytes would reset the connection, and the client might lose the answer. */
static void drain(int fd)
{
    char dropped[4096];
    ssize_t got = 1;
    for (size_t bytes = 0; got > 0 && bytes < DRAIN_BYTES; bytes += (size_t)got)
        got = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
}

static void refuse(int fd)
{
    const struct err failure = {
        .code = ERR_BAD_REQUEST,
        .acquisition = -1,
        .required = -1,
        .available = -1,
        .text = "This port serves TLS and received plain HTTP: use an address that begins with https://."};
    json_t *problem = problem_pack(&failure, NULL);
    char *body = json_dumps(problem, 0), answer[1024];
    int length = snprintf(answer, sizeof answer,
                          "HTTP/1.1 400 Bad Request\r\nContent-Type: " PROBLEM_MEDIA
                          "\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                          body ? strlen(body) : 0, body ? body : "");
    drain(fd);
    if (length < (int)sizeof answer && send(fd, answer, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT) == length)
        shutdown(fd, SHUT_WR);
    free(body);
    json_decref(problem);
}

/* GnuTLS takes 0 for the end of the stream: the handshake fails, and the library closes the connection. */
static ssize_t pull(gnutls_transport_ptr_t context, void *data, size_t size)
{
    struct tls_plain *plain = context;
    ssize_t got = recv(plain->fd, data, size, 0);
    if (plain->decided || got <= 0)
        return got;
    plain->decided = true;
    unsigned char first = *(const unsigned char *)data;
    if (first < 'A' || first > 'Z')
        return got;
    refuse(plain->fd);
    return 0;
}

void tls_plain_watch(struct tls_plain *plain, gnutls_session_t session, int fd)
{
    *plain = (struct tls_plain){.fd = fd};
    gnutls_transport_set_ptr2(session, plain, (gnutls_transport_ptr_t)(intptr_t)fd);
    gnutls_transport_set_pull_function(session, pull);
}
