/* rerun.h: resubmission of many jobs. */
#ifndef MRIRECON_RERUN_H
#define MRIRECON_RERUN_H

#include "clients/client.h"

/* Resubmit every job that the options name (list.h) with the words PARAM=VALUE. The exit status. */
int client_rerun(struct server *server, const struct client_options *options);

#endif
