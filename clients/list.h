/* list.h: the jobs that a command's options select. */
#ifndef MRIRECON_LIST_H
#define MRIRECON_LIST_H

#include "clients/client.h"

/* The documents of all jobs that the options select (--state, --client, --name, --since; at most --limit), newest
 * first: *out is the caller's array. Fails as server_call. */
int jobs_find(struct server *server, const struct client_options *options, json_t **out);

/* Whether the options select jobs. */
bool jobs_named(const struct client_options *options);

#endif
