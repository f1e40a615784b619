/* mrd_clients.h: who may open MRD sessions, by address (option mrd-clients): the protocol has no other identification.
 *
 * The option lists "ADDRESS", "ADDRESS/BITS" or either with "=CLIENT", separated by commas. Pure functions. */
#ifndef MRIRECON_DAEMON_MRD_CLIENTS_H
#define MRIRECON_DAEMON_MRD_CLIENTS_H

#include "daemon/store/job.h"
#include "gridding/base/err.h"

#include <sys/socket.h>

/* Check the list. Fails with ERR_BAD_PARAMETER. */
int mrd_clients_check(const char *list);

/* The client at `address`: as the first matching entry says, else the address itself. An empty list admits everyone.
 * Fails with ERR_FORBIDDEN if no entry matches. */
int mrd_clients_find(const char *list, const struct sockaddr *address, char client[JOB_CLIENT]);

#endif
