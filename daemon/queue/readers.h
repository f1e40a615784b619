/* readers.h: who reads answers that do not end by themselves, limited per client and in all. Any thread. */
#ifndef MRIRECON_DAEMON_READERS_H
#define MRIRECON_DAEMON_READERS_H

#include "daemon/store/job.h"

struct readers;

/* `what`, in the plural and static, is named in failures. `client_most`, `most`: limits of the readers of one client,
 * and in all. Fails with ERR_NO_MEMORY. */
int readers_create(struct readers **out, const char *what, int client_most, int most);
void readers_free(struct readers *readers);

/* Add a reader of this client. Fails with ERR_QUOTA, ERR_CONNECTIONS (too many in all), ERR_NO_MEMORY. */
int readers_join(struct readers *readers, const char *client);
/* One that joined ends. */
void readers_leave(struct readers *readers, const char *client);
int readers_count(struct readers *readers);

#endif
