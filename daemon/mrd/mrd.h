/* mrd.h: MRD version 1 streams over TCP: the protocol of Gadgetron's clients, Siemens FIRE and OpenRecon (option
 * mrd-listen).
 *
 * One thread accepts connections, and each session runs in a thread (mrd_session.h), at most mrd-sessions of them.
 * Further connections get a sentence and are closed.
 */
#ifndef MRIRECON_DAEMON_MRD_H
#define MRIRECON_DAEMON_MRD_H

#include "daemon/http/request.h"

struct mrd_server;

/* Check the options of MRD and the file of configurations. Fails with ERR_BAD_PARAMETER, ERR_BAD_REQUEST, ERR_IO. */
int mrd_check(const struct options *options);

/* Serve on options->mrd_listen; "": *out is NULL. `service` must outlive the server. Fails as mrd_check(), and with
 * ERR_IO (the address is taken), ERR_INTERNAL, ERR_NO_MEMORY. */
int mrd_create(struct mrd_server **out, struct service *service);
/* Ends all sessions: their clients get a sentence; their jobs continue. NULL is fine. */
void mrd_free(struct mrd_server *server);

#endif
