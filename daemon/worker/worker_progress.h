/* worker_progress.h: a worker's reports of its job's progress, so many a second and no more, whatever the job does.
 *
 * What the job says is kept, and sent at once where the last message is long enough ago. Where it is not, a thread
 * sends what was said last when the time has come: a job that says "plan" and then nothing for a minute is seen there.
 */
#ifndef MRIRECON_DAEMON_WORKER_PROGRESS_H
#define MRIRECON_DAEMON_WORKER_PROGRESS_H

#include "recon/kind_run.h"

struct reporter;

/* Messages go to `socket` (daemon/wire.h), which stays the caller's. Lives as long as the process. Fails with
 * ERR_NO_MEMORY, ERR_INTERNAL. */
int reporter_create(struct reporter **out, int socket);

/* A job begins. `kind` and `id` have to stay until it ends. */
void reporter_begin(struct reporter *reporter, const struct kind *kind, const char *id);

/* It has come so far; nothing is sent that was told before. Non-zero: the daemon is gone. */
int reporter_tell(struct reporter *reporter, const struct step_progress *now);

/* It has ended: nothing is sent of it when this returns. */
void reporter_end(struct reporter *reporter);

#endif
