/* outbox.h: sends ended jobs to their destinations (destinations.h), from the rows of the store (deliveries.h).
 *
 * One thread of its own claims what is due and starts a program, mrirecon-send, for each delivery: only that program
 * speaks to other hosts. One delivery of a destination runs at a time, OUTBOX_SENDERS in all, so that a slow
 * destination holds up no other one. A delivery that fails is tried again after the destination's setting retry,
 * doubling up to retry-most, each pause shortened or lengthened by up to a quarter at random; after `attempts` tries,
 * or a refusal for good, it is a dead letter.
 *
 * Created before jobs may end, for it is told of their ends. Any thread may call the functions below.
 */
#ifndef MRIRECON_DAEMON_OUTBOX_H
#define MRIRECON_DAEMON_OUTBOX_H

#include "daemon/outbox/destinations.h"
#include "daemon/queue/convert.h"
#include "daemon/queue/core.h"

enum { OUTBOX_SENDERS = 16 };

struct outbox;

/* `core`, `program` (the path of mrirecon-send), the converter and the destinations must outlive the outbox's thread.
 * Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int outbox_create(struct outbox **out, const struct core *core, struct destinations *destinations,
                  struct converter *converter, const char *program);
/* Ends its thread and the senders that run; what they were sending is sent again after the next start. It may still be
 * woken, but does nothing any more. */
void outbox_stop(struct outbox *outbox);
void outbox_free(struct outbox *outbox); /* stopped, or NULL */

/* Something may be due. Quick: the store's writer may call it. */
void outbox_wake(struct outbox *outbox);

/* Its part of /metrics. Fails with ERR_STORE. */
int outbox_metrics_print(struct outbox *outbox, FILE *out);

#endif
