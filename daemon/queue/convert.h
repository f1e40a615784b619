/* convert.h: results of finished jobs in further formats, made from the native file on request by mrirecon-codec and
 * kept.
 *
 * Any thread may ask. Conversions run in threads of a pool, at most one per client, clients in turn (pool.h). Requests
 * for the same file share one conversion. A conversion that no request waits for any longer is not started, or is
 * stopped.
 */
#ifndef MRIRECON_DAEMON_CONVERT_H
#define MRIRECON_DAEMON_CONVERT_H

#include "daemon/base/log.h"
#include "daemon/spool/spool.h"
#include "daemon/queue/waiters.h"
#include "recon/recon.h"

#include <stdint.h>

struct converter;

/* `codec` and all pointers must outlive the converter. `seconds`: time limit of one conversion. */
int converter_create(struct converter **out, const char *codec, int64_t seconds, struct spool *spool,
                     struct store *store, struct waiters *waiters, const struct log *log);
/* Stops running conversions. */
void converter_free(struct converter *converter);

/* Request a file, not a native one, of a job of this kind, in the turn of `client`. 0: it is being made, and
 * converter_key() is woken at its end; then either the file exists, or asking again fails with the reason (for a few
 * seconds; after that a request starts a new attempt). *ticket (0 at first) identifies the request in further calls.
 * Fails with ERR_INTERNAL, ERR_SPOOL_FULL, ERR_TIMEOUT, ERR_NOT_FOUND, ERR_NO_MEMORY. */
int converter_ask(struct converter *converter, const char *id, const struct kind *kind, struct result_file file,
                  const char *client, uint64_t *ticket);
/* The request with this ticket no longer waits. */
void converter_leave(struct converter *converter, uint64_t ticket);
void converter_key(const char *id, struct result_file file, char key[WAITER_KEY]);

#endif
