#include "daemon/http/request.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

const char *http_header(struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

int64_t http_body_bytes(struct request *request)
{
    const char *length = http_header(request, "Content-Length"), *coding = http_header(request, "Transfer-Encoding");
    if (coding && strcasecmp(coding, "identity") != 0)
        return -1;
    return length ? strtoll(length, NULL, 10) : 0;
}

/* The header is for a proxy in front, and for several programs on one machine; without it, a client is identified by
 * its address. It affects whose turn it is among those that may submit, and grants no right. */
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
                           "X-Mrirecond-Client must have 1 to %d letters, digits, dots, dashes, underscores and @.",
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

void request_counted(const struct request *request, char name[JOB_CLIENT])
{
    if (*request->identity.client)
        memcpy(name, request->identity.client, JOB_CLIENT);
    else
        request_peer(request, name);
}

bool http_wait(struct request *request, const char *key, double deadline)
{
    request->waiter.cancel = request->watched && strcmp(key, request->job.id) == 0;
    bool waits = waiters_wait(request->service->core.waiters, &request->waiter, request->connection, key, deadline);
    if (waits)
        request->state = REQUEST_WAITING;
    return waits;
}
