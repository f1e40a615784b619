/* convert.h: images of finished jobs in formats that their jobs did not write, made on request by mrirecon-codec and
 * kept.
 *
 * Any thread may ask; threads of its own run conversions, one of a client at a time, and clients take turns (pool.h).
 * Requests for the same file share one. One that nobody waits for any more is not run, or stopped.
 */
#ifndef MRIRECON_DAEMON_CONVERT_H
#define MRIRECON_DAEMON_CONVERT_H

#include "daemon/base/log.h"
#include "daemon/spool/spool.h"
#include "daemon/queue/waiters.h"
#include "recon/image/image.h"

#include <stdint.h>

struct converter;

/* `codec` and the others must outlive the converter. `seconds`: the most that one conversion may take. */
int converter_create(struct converter **out, const char *codec, int64_t seconds, struct spool *spool,
                     struct store *store, struct waiters *waiters, const struct log *log);
/* Stops what runs. */
void converter_free(struct converter *converter);

/* Ask for image.FORMAT of a job, in the turn of `client`. 0: it is being made; converter_key() is woken when that has
 * ended. Then either the file is there, or asking again tells why not (for a few seconds; after that it is tried
 * again). *ticket (0 at first) stands for the request, the same each time. Fails with ERR_INTERNAL, ERR_SPOOL_FULL,
 * ERR_TIMEOUT, ERR_NOT_FOUND, ERR_NO_MEMORY. */
int converter_ask(struct converter *converter, const char *id, enum image_format format, const char *client,
                  uint64_t *ticket);
/* The request of this ticket does not wait any more. */
void converter_leave(struct converter *converter, uint64_t ticket);
void converter_key(const char *id, enum image_format format, char key[WAITER_KEY]);

#endif
