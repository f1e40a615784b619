/* Who a request is from. */
#include "daemon/http/routes.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* The header serves behind a proxy, and several programs on one machine; without it a client is its address. It says
 * whose turn it is among those that may submit, and gives no right. */
int request_client(struct request *request, char name[JOB_CLIENT])
{
    if (*request->identity.client) {
        memcpy(name, request->identity.client, JOB_CLIENT);
        request->job.quota = request->identity.quota;
        return 0;
    }
    const char *said = http_header(request, "X-Mrirecond-Client");
    if (said) {
        if (!client_fits(said))
            return err_set(ERR_BAD_REQUEST,
                           "X-Mrirecond-Client takes 1 to %d letters, digits, dots, dashes, underscores and @.",
                           JOB_CLIENT - 1);
        memcpy(name, said, strlen(said) + 1);
        return 0;
    }
    request_peer(request, name);
    return 0;
}

void request_turn(struct request *request, char name[JOB_CLIENT])
{
    const char *said = http_header(request, "X-Mrirecond-Client");
    if (*request->identity.client)
        memcpy(name, request->identity.client, JOB_CLIENT);
    else if (said && client_fits(said))
        memcpy(name, said, strlen(said) + 1);
    else
        request_peer(request, name);
}

bool request_is_gone(const struct request *request)
{
    struct pollfd end = {.fd = request->watch->fd, .events = POLLRDHUP};
    return poll(&end, 1, 0) > 0;
}

void request_peer(const struct request *request, char name[JOB_CLIENT])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info ? info->client_addr : NULL;
    const void *number = NULL;
    if (address && address->sa_family == AF_INET)
        number = &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    else if (address && address->sa_family == AF_INET6)
        number = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (!number || !inet_ntop(address->sa_family, number, name, JOB_CLIENT))
        snprintf(name, JOB_CLIENT, "local");
}
