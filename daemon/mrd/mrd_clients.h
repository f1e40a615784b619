/* mrd_clients.h: who may open MRD sessions, by address (option mrd-clients): the protocol has no other identification.
 *
 * The option lists "ADDRESS", "ADDRESS/BITS" or either with "=CLIENT", separated by commas. Pure functions. */
#ifndef MRIRECON_DAEMON_MRD_CLIENTS_H
#define MRIRECON_DAEMON_MRD_CLIENTS_H

#include "daemon/store/job.h"
#include "gridding/base/err.h"

#include <sys/socket.h>

/* That the list can be read. Fails with ERR_BAD_PARAMETER. */
int mrd_clients_check(const char *list);

/* The client at `address`: the one that the first entry for it names, else the address itself. An empty list has
 * everyone. Fails with ERR_FORBIDDEN: no entry has the address. */
int mrd_clients_find(const char *list, const struct sockaddr *address, char client[JOB_CLIENT]);

#endif
