#include "daemon/http/listen.h"

#include "daemon/http/http_parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

enum { BACKLOG = 512 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool address_is_local(const union address *address)
{
    if (address->any.sa_family == AF_INET)
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

/* Parse the value of an option. */
static int listen_address_read(const char *option, const char *text, union address *address, socklen_t *length)
{
    char host[HTTP_NAME];
    int port, rc = address_split(text, host, &port);
    if (rc)
        return rc;
    *address = (union address){.v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}};
    *length = sizeof address->v4;
    if (strcmp(host, "localhost") == 0)
        strcpy(host, "127.0.0.1");
    if (inet_pton(AF_INET, host, &address->v4.sin_addr) == 1)
        return 0;
    address->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    *length = sizeof address->v6;
    if (inet_pton(AF_INET6, host, &address->v6.sin6_addr) != 1)
        return err_set(ERR_BAD_PARAMETER,
                       "Option %s: \"%s\" is not an address; give a numeric one, such as 127.0.0.1 or [::1].", option,
                       host);
    return 0;
}

static int guard(const struct options *options, bool local, const char *what)
{
    if (local || (*options->tls_certificate && *options->tokens))
        return 0;
    return err_set(
        ERR_BAD_PARAMETER,
        "%s can be reached from other machines. That requires TLS (options tls-certificate and tls-key) and tokens "
        "(option tokens; mrirecond --new-token creates one); without them, listen on 127.0.0.1 or [::1].",
        what);
}

/* Advice for an address that cannot be served. */
static const char *advice(int error)
{
    return error == EADDRINUSE
               ? " Another program uses it, perhaps another mrirecond: stop that one, or use another port."
           : error == EACCES
               ? " Ports below 1024 are reserved for root: use a higher one, or let systemd pass it (mrirecond.socket)."
           : error == EADDRNOTAVAIL ? " It is not an address of this machine: `ip address` lists them."
                                    : "";
}

static int adopt(struct listen_socket *out, const struct options *options, int count)
{
    union address address;
    socklen_t length = sizeof address;
    int fd = SD_LISTEN_FDS_START;
    if (count > 1)
        return err_set(ERR_BAD_PARAMETER, "%d sockets were passed; only one can be served.", count);
    if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0 || getsockname(fd, &address.any, &length) < 0 ||
        (address.any.sa_family != AF_INET && address.any.sa_family != AF_INET6))
        return err_set(ERR_BAD_PARAMETER, "The socket that was passed does not listen on an internet address.");
    int rc = guard(options, address_is_local(&address), "The address of the socket that was passed");
    if (rc)
        return rc;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    out->fd = fd;
    out->local = address_is_local(&address);
    return 0;
}

/* The address of options->listen, if it may be served. */
static int address_find(const struct options *options, union address *address, socklen_t *length)
{
    char what[OPTION_TEXT + 16];
    int rc = listen_address_read("listen", options->listen, address, length);
    snprintf(what, sizeof what, "Option listen: %s", options->listen);
    return rc ? rc : guard(options, address_is_local(address), what);
}

/* Listen at the address that is the value of an option. */
static int socket_open(struct listen_socket *out, const char *option, const char *text, const union address *address,
                       socklen_t length)
{
    int one = 1, fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, &address->any, length) < 0 || listen(fd, BACKLOG) < 0) {
        int rc = err_set(ERR_IO, "Option %s: %s cannot be served: %s.%s", option, text, strerror(errno), advice(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    out->fd = fd;
    out->local = address_is_local(address);
    return 0;
}

static int open_own(struct listen_socket *out, const struct options *options)
{
    union address address;
    socklen_t length;
    int rc = address_find(options, &address, &length);
    return rc ? rc : socket_open(out, "listen", options->listen, &address, length);
}

/* Ask the socket itself: a socket that systemd passed need not match the option. */
static void listener_name_read(struct listen_socket *out)
{
    union address address;
    socklen_t length = sizeof address;
    char number[INET6_ADDRSTRLEN] = "";
    if (getsockname(out->fd, &address.any, &length) < 0)
        return;
    bool v4 = address.any.sa_family == AF_INET;
    inet_ntop(address.any.sa_family, v4 ? (void *)&address.v4.sin_addr : (void *)&address.v6.sin6_addr, number,
              sizeof number);
    out->port = ntohs(v4 ? address.v4.sin_port : address.v6.sin6_port);
    snprintf(out->name, sizeof out->name, v4 ? "%s:%d" : "[%s]:%d", number, out->port);
}

int listen_check(const struct options *options)
{
    union address address;
    socklen_t length;
    return sd_listen_fds(0) > 0 ? 0 : address_find(options, &address, &length);
}

int listen_open(struct listen_socket *out, const struct options *options)
{
    int handed = sd_listen_fds(1), rc = handed > 0 ? adopt(out, options, handed) : open_own(out, options);
    if (!rc)
        listener_name_read(out);
    return rc;
}

/* The address of options->mrd_listen, if it may be served. */
static int mrd_address_find(const struct options *options, union address *address, socklen_t *length)
{
    int rc = listen_address_read("mrd-listen", options->mrd_listen, address, length);
    if (rc || *options->mrd_clients)
        return rc;
    if (!address_is_local(address))
        return err_set(
            ERR_BAD_PARAMETER,
            "Option mrd-listen: %s can be reached from other machines, and the MRD protocol has neither encryption nor "
            "passwords. Name the addresses that may send in the option mrd-clients, or listen "
            "on 127.0.0.1 or [::1].",
            options->mrd_listen);
    if (*options->tokens)
        return err_set(
            ERR_BAD_PARAMETER,
            "Option mrd-listen: clients identify themselves by tokens, which the MRD protocol does not have. "
            "Name the clients by their addresses in the option mrd-clients, for example "
            "127.0.0.1=scanner.");
    return 0;
}

int listen_mrd_check(const struct options *options)
{
    union address address;
    socklen_t length;
    return mrd_address_find(options, &address, &length);
}

int listen_mrd_open(struct listen_socket *out, const struct options *options)
{
    union address address;
    socklen_t length;
    int rc = mrd_address_find(options, &address, &length);
    if (!rc)
        rc = socket_open(out, "mrd-listen", options->mrd_listen, &address, length);
    if (!rc)
        listener_name_read(out);
    return rc;
}
