/* outbox.h: sends ended jobs to their destinations (destinations.h), from the rows of the store (deliveries.h).
 *
 * One thread of its own claims due deliveries and starts a program, mrirecon-send, for each: only that program connects
 * to other hosts. One delivery of a destination runs at a time, OUTBOX_SENDERS in all, so that a slow destination does
 * not delay others. A failed delivery is retried after the destination's setting retry, doubling up to retry-most, with
 * a random jitter of up to a quarter; after `attempts` tries, or a permanent refusal, it is a dead letter.
 *
 * Created before jobs can end, because the store notifies it of their ends. Any thread may call the functions below.
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
/* Ends its thread and the senders that run; their deliveries are sent again after the next start. outbox_wake() may
 * still be called, without effect. */
void outbox_stop(struct outbox *outbox);
void outbox_free(struct outbox *outbox); /* stopped, or NULL */

/* A delivery may be due. Fast: the store's writer may call it. */
void outbox_wake(struct outbox *outbox);

/* The outbox's part of /metrics. Fails with ERR_STORE. */
int outbox_metrics_print(struct outbox *outbox, FILE *out);

#endif
